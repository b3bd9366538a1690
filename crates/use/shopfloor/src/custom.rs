//! Kernels that a user wrote as text: models of one, and nodes of models.
use crate::{Error, Model, ModelOptions};
use kernel::{Declared, Number, Role, Shape, Template};
use layout::{Dim, DimBox, Layout, Sym};
use onnx::{CustomLowered, CustomNode, CustomOp, CustomOps};
use plan::{
    Fate, Item, ItemWork, NodeFate, Program, ProgramSymbol, ProgramValue, Segment, StatePair,
    SymbolOrigin, ValueOrigin,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tensor::Attr;

/// A kernel as an operator of a model whose dims have these ranges.
#[derive(Debug)]
struct Operator {
    text: Template,
    dims: DimBox,
}

/// Whether tasks can share the kernel out: that its plan has one task today is no proof that it may.
fn shareable(kernel: &kernel::Kernel, dims: &DimBox) -> Result<(), String> {
    match plan::race(kernel, dims) {
        None => Ok(()),
        Some(r) => Err(format!(
            "positions along '{}' may write the same element of operand '{}'; give each an element of its own (a stride that steps over all that the other axes reach), or state a range of sizes in which they have one (ModelOptions::dims, --dim)",
            r.axes.join("', '"),
            r.operand
        )),
    }
}

/// Checks how the text says that the kernel is to run, wherever that is.
fn how(declared: &Declared) -> Result<(), String> {
    let (kernel, given) = (&declared.kernel, &declared.given);
    given.verify(kernel).map_err(|e| e.to_string())?;
    match &given.code {
        Some(code) => emit::ptx::check(kernel, code).map_err(|e| e.to_string()),
        None => Ok(()),
    }
}

impl CustomOp for Operator {
    fn lower(&self, node: &CustomNode) -> Result<CustomLowered, String> {
        let mut numbers = BTreeMap::new();
        for (name, a) in &node.attrs {
            let number = match a {
                Attr::Int(n) => Number::Int(*n),
                Attr::Float(x) => Number::Float(*x as f32),
                _ => {
                    return Err(format!(
                        "attribute '{name}' is neither an integer nor a float, which is all that kernels take; give it as an input"
                    ));
                }
            };
            numbers.insert(name.clone(), number);
        }
        let refused = |e: kernel::KernelError| format!("its kernel ({}): {e}", node.operator);
        let declared = self.text.with(&numbers).map_err(refused)?;
        declared.kernel.verify().map_err(refused)?;
        how(&declared).map_err(|why| format!("its kernel ({}): {why}", node.operator))?;
        let called = declared.call(&node.all_inputs()?)?;
        shareable(&called.kernel, &self.dims)
            .map_err(|why| format!("its kernel ({}): {why}", node.operator))?;
        let mut symbols = BTreeSet::new();
        called.kernel.for_each_dim(&mut |d| d.symbols(&mut symbols));
        let spec = graph::KernelSpec {
            operator: node.operator.clone(),
            text: called.given.to_text(&called.kernel),
            symbols: symbols.iter().map(ToString::to_string).collect(),
            equal: called.equal.clone(),
        };
        Ok(CustomLowered {
            op: graph::Op::Kernel(spec),
            outputs: (called.outputs.into_iter())
                .map(|(name, dtype, dims)| (name, dtype, dims.into_iter().map(Some).collect()))
                .collect(),
            equal: called.equal,
        })
    }
}

/// Kernels and operators of the caller's by domain and name, for import.
pub(crate) fn operators(options: &ModelOptions) -> Result<CustomOps, Error> {
    let mut all = CustomOps::new();
    for ((domain, name), text) in &options.kernels {
        let template = Template::parse(text).map_err(|e| {
            let domain = if domain.is_empty() { "ai.onnx" } else { domain };
            Error::Kernel(format!("the kernel for {domain}:{name}: {e}").into())
        })?;
        let operator = Operator {
            text: template,
            dims: options.dims.clone(),
        };
        all.insert((domain.clone(), name.clone()), Arc::new(operator));
    }
    for (key, operator) in &options.operators {
        if all
            .insert(key.clone(), Arc::new(operator.clone()))
            .is_some()
        {
            return Err(crate::operator::twice(&key.0, &key.1));
        }
    }
    Ok(all)
}

/// The shape of operand `at`: what was said of it, else what the text says, else one axis of as many
/// elements as it has.
fn shape_of(
    declared: &Declared,
    at: usize,
    shapes: &[(&str, Vec<Dim>)],
) -> Result<Vec<Dim>, Error> {
    let operand = &declared.kernel.operands[at];
    let shape = match shapes.iter().find(|(n, _)| *n == operand.name) {
        Some((_, shape)) => shape.clone(),
        None => match declared.shape(at) {
            Some(Shape::Dims(shape)) => shape,
            Some(Shape::Any(n)) => vec![n],
            None => vec![operand.elements.clone()],
        },
    };
    if !Declared::holds(operand, &shape) {
        return Err(Error::Usage(format!(
            "kernel '{}': operand '{}' has {} elements, which shape {shape:?} does not hold; give it a shape of so many",
            declared.kernel.name, operand.name, operand.elements
        )));
    }
    Ok(shape)
}

/// Symbols that the shape of input `input` is the first to name.
fn name_symbols(p: &mut Program, input: u32, shape: &[Dim]) {
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
}

/// Pairs of an input and an output, by their names, that are state.
fn pair_states(p: &mut Program, states: &[(String, String)]) -> Result<(), String> {
    for (input, output) in states {
        let i = p
            .inputs
            .iter()
            .position(|&v| p.values[v as usize].name == *input);
        let o = p.outputs.iter().position(|o| o.0 == *output);
        let (Some(i), Some(o)) = (i, o) else {
            return Err(format!(
                "state is an operand that is read and one that is written; '{input}' and '{output}' are not"
            ));
        };
        p.states.push(StatePair {
            input: i as u32,
            output: o as u32,
        });
    }
    Ok(())
}

/// The program of one kernel: operands that it reads are inputs, those that it writes are outputs.
fn program(
    declared: &Declared,
    shapes: &[(&str, Vec<Dim>)],
    states: &[(String, String)],
) -> Result<Program, Error> {
    let kernel = &declared.kernel;
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
        batches: vec![],
        savings: vec![],
        precision: planner::Precision::default(),
        fates: vec![],
        whys: vec![],
        weights: Arc::default(),
    };
    for (ix, o) in kernel.operands.iter().enumerate() {
        let shape = shape_of(declared, ix, shapes)?;
        let ix = ix as u32;
        let origin = match o.role {
            Role::Read => {
                let input = p.inputs.len() as u32;
                name_symbols(&mut p, input, &shape);
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
    pair_states(&mut p, states).map_err(usage)?;
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
            kernel: Arc::new(kernel.clone()),
        },
        given: (!declared.given.is_empty()).then(|| Arc::new(declared.given.clone())),
    }]));
    Ok(p)
}

impl Model {
    /// A model of one kernel, written in its text form (`docs/custom-kernels.md`): operands that it reads
    /// are the inputs, those that it writes the outputs, `shapes` are their extents by name (where nothing
    /// is said, those in the text, of its strides, or one extent with all elements), and `options.states`
    /// pairs them for streams. It is planned for any device like every other model: schedules are found, and
    /// the verifier proves that no access lies outside its tensor and no two tasks write the same element.
    ///
    /// # Errors
    /// A text that cannot be read, with line and column; a kernel that breaks a rule; shapes that do not
    /// fit it; positions that may write one element for some sizes in the ranges of `options.dims` (any
    /// sizes where there is none), whether or not its plan would have several tasks.
    pub fn from_kernel(
        text: &str,
        shapes: &[(&str, Vec<Dim>)],
        options: &ModelOptions,
    ) -> Result<Model, Error> {
        crate::model::check_ranges(&options.dims)?;
        let declared = Template::parse(text)?.with(&BTreeMap::new())?;
        declared.kernel.verify()?;
        how(&declared).map_err(Error::Usage)?;
        let name = declared.kernel.name.clone();
        let program = program(&declared, shapes, &options.states)?;
        shareable(&declared.kernel, &options.dims)
            .map_err(|why| Error::Usage(format!("kernel '{name}': {why}")))?;
        Ok(Model::of_program(&name, program, options))
    }
}
