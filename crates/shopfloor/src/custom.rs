//! Models of one kernel that a user wrote as text.
use crate::{Error, Model, ModelOptions};
use kernel::{Kernel, Role};
use layout::{Dim, Layout, Sym};
use plan::{
    Fate, Item, ItemWork, NodeFate, Program, ProgramSymbol, ProgramValue, Segment, StatePair,
    SymbolOrigin, ValueOrigin,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The shape of each operand: what was said of it, else one axis of as many elements as it has.
fn shape_of(
    kernel: &Kernel,
    operand: &kernel::Operand,
    shapes: &[(&str, Vec<Dim>)],
) -> Result<Vec<Dim>, Error> {
    let Some((_, shape)) = shapes.iter().find(|(n, _)| *n == operand.name) else {
        return Ok(vec![operand.elements.clone()]);
    };
    let room = Dim::product(shape);
    if room != operand.elements && !operand.elements.provably_le(&room) {
        return Err(Error::Usage(format!(
            "kernel '{}': operand '{}' has {} elements, which shape {shape:?} does not hold; give it a shape of so many",
            kernel.name, operand.name, operand.elements
        )));
    }
    Ok(shape.clone())
}

/// The program of one kernel: operands that it reads are inputs, those that it writes are outputs.
fn program(
    kernel: Kernel,
    shapes: &[(&str, Vec<Dim>)],
    states: &[(String, String)],
) -> Result<Program, Error> {
    let usage = |why: String| Error::Usage(format!("kernel '{}': {why}", kernel.name));
    if let Some((name, _)) = shapes
        .iter()
        .find(|(n, _)| !kernel.operands.iter().any(|o| o.name == *n))
    {
        let all: Vec<&str> = kernel.operands.iter().map(|o| o.name.as_str()).collect();
        return Err(usage(format!(
            "there is no operand '{name}' to have a shape; there are {}",
            all.join(", ")
        )));
    }
    let mut p = Program {
        name: kernel.name.clone(),
        symbols: vec![],
        values: vec![],
        inputs: vec![],
        outputs: vec![],
        init: vec![],
        segments: vec![],
        states: vec![],
        passed: vec![],
        constraints: vec![],
        savings: vec![],
        fates: vec![],
        whys: vec![],
        weights: Arc::default(),
    };
    for (ix, o) in kernel.operands.iter().enumerate() {
        let shape = shape_of(&kernel, o, shapes)?;
        let ix = ix as u32;
        let origin = match o.role {
            Role::Read => {
                let input = p.inputs.len() as u32;
                for (axis, d) in shape.iter().enumerate() {
                    if let Some(name) = d.as_sym()
                        && !p.symbols.iter().any(|s| *s.name == *name)
                    {
                        p.symbols.push(ProgramSymbol {
                            name: Sym::from(name),
                            origin: SymbolOrigin::Input {
                                input,
                                axis: axis as u32,
                            },
                        });
                    }
                }
                p.inputs.push(ix);
                ValueOrigin::Input(input)
            }
            Role::Write => {
                p.outputs.push((o.name.clone(), ix));
                ValueOrigin::Made
            }
        };
        p.values.push(ProgramValue {
            name: o.name.clone(),
            dtype: o.dtype,
            layout: Layout::row_major(&shape, 1),
            storage: Dim::product(&shape),
            shape,
            origin,
        });
    }
    let mut used = BTreeSet::new();
    kernel.for_each_dim(&mut |d| d.symbols(&mut used));
    let known = |s: &Sym| p.symbols.iter().any(|k| k.name == *s);
    if let Some(s) = used.iter().find(|s| !known(s)) {
        return Err(usage(format!(
            "no input's shape gives the dimension '{s}'; give an input a shape with '{s}' as one extent"
        )));
    }
    if p.inputs.is_empty() || p.outputs.is_empty() {
        return Err(usage("it has to read an operand and to write one".into()));
    }
    for (input, output) in states {
        let i = p
            .inputs
            .iter()
            .position(|&v| p.values[v as usize].name == *input);
        let o = p.outputs.iter().position(|o| o.0 == *output);
        let (Some(i), Some(o)) = (i, o) else {
            return Err(usage(format!(
                "state is an operand that is read and one that is written; '{input}' and '{output}' are not"
            )));
        };
        p.states.push(StatePair {
            input: i as u32,
            output: o as u32,
        });
    }
    p.fates.push(NodeFate {
        node: kernel.name.clone(),
        op_type: "kernel".into(),
        fate: Fate::Items(vec![kernel.name.clone()]),
    });
    p.segments.push(Segment::Straight(vec![Item {
        name: kernel.name.clone(),
        nodes: vec![kernel.name.clone()],
        work: ItemWork::Kernel {
            args: (0..kernel.operands.len() as u32).collect(),
            kernel: Arc::new(kernel),
        },
    }]));
    Ok(p)
}

impl Model {
    /// A model of one kernel, written in its text form (`docs/custom-kernels.md`): operands that it reads
    /// are the inputs, those that it writes the outputs, `shapes` are their extents by name (one extent
    /// with all elements where nothing is said), and `options.states` pairs them for streams. It is
    /// planned for any device like every other model: schedules are found, and the verifier proves that
    /// no access lies outside its tensor and no two tasks write the same element.
    ///
    /// # Errors
    /// A text that cannot be read, with line and column; a kernel that breaks a rule; shapes that do not
    /// fit it.
    pub fn from_kernel(
        text: &str,
        shapes: &[(&str, Vec<Dim>)],
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        let kernel = Kernel::parse(text)?;
        kernel.verify()?;
        let name = kernel.name.clone();
        let program = program(kernel, shapes, &options.states)?;
        Ok(Model::of_program(&name, program, options))
    }
}
