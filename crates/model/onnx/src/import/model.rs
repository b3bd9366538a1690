//! The whole import: options, inputs, outputs, report.
use super::names;
use super::ports::{Metadata, Port, metadata, ports};
use super::types::{dtype_of, narrow_name};
use super::{Ctx, CustomOps, ImportError, Item, Kind, LowerError, Lowered, UnsupportedNode};
use crate::proto::{AttributeValue, Dimension, Node, Type, ValueInfo};
use crate::{Error, ModelFile, ops};
use graph::{Graph, Op, Origin, ValueId};
use layout::Inserted;
use layout::{DType, Dim, Sym};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use tensor::{Attr, WeightStore};

/// What the caller binds.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Shapes of inputs by name; they replace what the model says.
    pub shapes: BTreeMap<String, Vec<Dim>>,
    /// Numbers for symbolic dimensions by name.
    pub dims: BTreeMap<String, i64>,
    /// Whether every dimension of every input is a symbol, those included for which the model has a
    /// number.
    pub open_dims: bool,
    /// Initialisers that are inputs too and whose values the caller gives with each request.
    pub given: BTreeSet<String>,
    /// Operators that the caller brings.
    pub customs: CustomOps,
    /// By a node's name, what the ranks of its values depend on and the rest of the model is made for:
    /// for an If 1 for the first branch and 0 for the second, for a Loop how many rounds run, for what
    /// is taken out of a sequence or an optional value its rank. Where nothing is said it is made for
    /// the lowest rank or the fewest rounds that the rest of the model fits.
    pub taken: BTreeMap<String, i64>,
    /// Numbers for extents that only the data gives, by their symbols' names; requests in which they are others are
    /// refused.
    pub late: BTreeMap<String, i64>,
}

/// What is known of a model besides its graph.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// IR version.
    pub ir_version: i64,
    /// Operator sets: domain (empty: ONNX's own) and version.
    pub opsets: Vec<(String, i64)>,
    /// Producer's name and version.
    pub producer: (String, String),
    /// Nodes by operator (`domain::Op` outside ONNX's own), bodies and functions included.
    pub operators: BTreeMap<String, usize>,
    /// Elements of all initialisers.
    pub parameters: u64,
    /// Initialisers that are inputs too: constants unless the caller gives them
    /// ([`ImportOptions::given`]).
    pub overridable: Vec<String>,
    /// Inputs as the file states them, initialisers that are inputs too included.
    pub inputs: Vec<Port>,
    /// Outputs as the file states them; sizes that it leaves out and that are numbers are filled in.
    pub outputs: Vec<Port>,
    /// What the file says about itself.
    pub metadata: Metadata,
    /// Every model node that was lowered, functions inlined, in order.
    pub nodes: Vec<Origin>,
    /// The files that it was read from: the model's own first, then those of external data. Empty
    /// for a model read from memory.
    pub files: Vec<std::path::PathBuf>,
}

/// A model as core ops.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The graph.
    pub graph: Graph,
    /// What else is known.
    pub report: Report,
}

/// Imports the model at `path`.
///
/// # Errors
/// [`ImportError::File`] when the file cannot be read, [`ImportError::Unsupported`] with every
/// node that is not covered, others when the model contradicts itself.
pub fn import(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Imported, ImportError> {
    import_file(&ModelFile::open(path)?, options)
}

/// Imports a model that is open.
///
/// # Errors
/// As [`import`].
pub fn import_file(file: &ModelFile, options: &ImportOptions) -> Result<Imported, ImportError> {
    let imported = import_while_whole(file, options);
    match file.lost() {
        None => imported,
        Some(file) => Err(ImportError::from(Error::File {
            file,
            problem: "it was cut short while it was read; put the whole file back".into(),
        })),
    }
}

fn import_while_whole(file: &ModelFile, options: &ImportOptions) -> Result<Imported, ImportError> {
    names::check(file.name(), &file.model)?;
    let mut options = options.clone();
    let mut imported = import_once(file, &options)?;
    // What the model takes to be equal is said once: the import is repeated with the input's own
    // symbol replaced, so that shapes downstream are seen to agree.
    for _ in 0..4 {
        let equal = imported.graph.symbol_equalities();
        if equal.is_empty() {
            break;
        }
        let equal: BTreeMap<Sym, Dim> = equal.into_iter().inserted();
        for &v in &imported.graph.inputs {
            let value = imported.graph.value(v);
            let replace = |d: &Dim| d.substitute(&|s| equal.get(s).cloned());
            let shape: Vec<Dim> = value.shape.iter().map(replace).collect();
            if shape != value.shape {
                options.shapes.insert(value.name.clone(), shape);
            }
        }
        imported = import_once(file, &options)?;
    }
    Ok(imported)
}

fn import_once(file: &ModelFile, options: &ImportOptions) -> Result<Imported, ImportError> {
    let fresh = || {
        let mut c = Ctx::new(file, &options.customs);
        c.taken = options.taken.clone();
        c.late = Arc::new(options.late.clone());
        c
    };
    let mut c = fresh();
    let mut lowered = lower(&mut c, options);
    let (mut guesses, mut work) = (c.ranks, (c.lowered, c.unrolled));
    while lowered.is_err() && guesses.more {
        // The rest of the model may fit other ranks of what a node gives.
        let mut other = fresh();
        other.ranks.guess = guesses.guess + 1;
        (other.lowered, other.unrolled) = work;
        let again = lower(&mut other, options);
        (guesses, work) = (other.ranks, (other.lowered, other.unrolled));
        if again.is_ok() {
            (c, lowered) = (other, again);
        }
    }
    let graph = match lowered {
        Ok(g) => g,
        Err(LowerError::Import(e)) => return Err(e),
        Err(LowerError::Graph(source)) => {
            return Err(ImportError::Graph {
                file: file.name().into(),
                source,
            });
        }
        Err(LowerError::Node(why) | LowerError::Unsupported(why)) => {
            return Err(ImportError::Model {
                file: file.name().into(),
                why,
            });
        }
    };
    graph.verify().map_err(|source| ImportError::Graph {
        file: file.name().into(),
        source,
    })?;
    let report = report(file, c.records, Some(&graph));
    Ok(Imported { graph, report })
}

/// A graph that stands for a model which cannot be imported for all sizes at once, and why: its
/// inputs and outputs as the model states them, with a host operator between that refuses to run.
///
/// # Errors
/// The inputs do not fit `options`, or the model does not state the types of its outputs.
pub fn import_refused(
    file: &ModelFile,
    options: &ImportOptions,
    why: &str,
) -> Result<Imported, ImportError> {
    let mut c = Ctx::new(file, &options.customs);
    let model_error = |why: String| ImportError::Model {
        file: file.name().into(),
        why,
    };
    let graph = refused(&mut c, options, why).map_err(|e| match e {
        LowerError::Import(e) => e,
        LowerError::Node(why) | LowerError::Unsupported(why) => model_error(why),
        LowerError::Graph(e) => model_error(e.to_string()),
    })?;
    Ok(Imported {
        graph,
        report: report(file, Vec::new(), None),
    })
}

fn refused<'m>(c: &mut Ctx<'m>, options: &ImportOptions, why: &str) -> Lowered<Graph> {
    let g = &c.file.model.graph;
    c.push_frame(&g.name, c.scope_of(g, String::new())?);
    inputs(c, options)?;
    let attrs = tensor::attrs(vec![("why", Attr::Str(why.into()))]);
    let op = Op::Host {
        name: "Refuse".into(),
        attrs,
    };
    let origin = Origin {
        name: g.name.clone(),
        op_type: "Model".into(),
    };
    let mut outputs = Vec::new();
    for o in &g.outputs {
        let (dtype, rank) = match &o.ty {
            Some(Type::Tensor(t)) => (dtype_of(t.dtype)?, t.shape.as_ref().map_or(0, Vec::len)),
            Some(Type::Unspecified) | None => {
                return Err(
                    format!("output '{}' has no type; export the model again", o.name).into(),
                );
            }
            Some(_) => (DType::Host, 0),
        };
        outputs.push((o.name.as_str(), dtype, vec![None; rank]));
    }
    let given = c.b().graph().inputs.clone();
    let values = c.b().node_with_shapes(op, &given, &outputs, &origin);
    let frame = c.frames.pop().ok_or("the import lost its graph")?;
    Ok(frame.b.finish(&values))
}

fn input_error(c: &Ctx, name: &str, why: impl Into<String>) -> LowerError {
    LowerError::Import(ImportError::Input {
        file: c.file.name().into(),
        input: name.into(),
        why: why.into(),
    })
}

fn lower<'m>(c: &mut Ctx<'m>, options: &ImportOptions) -> Lowered<Graph> {
    let g = &c.file.model.graph;
    let scope = c.scope_of(g, String::new())?;
    let name = if g.name.is_empty() {
        "model"
    } else {
        g.name.as_str()
    };
    c.push_frame(name, scope);
    inputs(c, options)?;
    c.nodes(&g.nodes)?;
    outputs(c)
}

/// Adds the model's inputs with the shapes and numbers that the caller binds.
fn inputs<'m>(c: &mut Ctx<'m>, options: &ImportOptions) -> Lowered {
    let g = &c.file.model.graph;
    let formals: Vec<&ValueInfo> = match options.given.is_empty() {
        true => Ctx::real_inputs(g),
        false => {
            let own: BTreeSet<&str> = Ctx::real_inputs(g)
                .iter()
                .map(|i| i.name.as_str())
                .inserted();
            let asked =
                |i: &&ValueInfo| own.contains(i.name.as_str()) || options.given.contains(&i.name);
            g.inputs.iter().filter(asked).collect()
        }
    };
    let known: BTreeSet<&str> = formals.iter().map(|f| f.name.as_str()).inserted();
    if let Some(name) = options.given.iter().find(|n| !known.contains(n.as_str())) {
        return Err(unknown(
            c,
            format!(
                "input '{name}': it is no input of the model; give only initialisers that are inputs too"
            ),
        ));
    }
    for bound in options.shapes.keys() {
        if !known.contains(bound.as_str()) {
            let names: Vec<&str> = formals.iter().map(|f| f.name.as_str()).collect();
            let names = names.join(", ");
            return Err(unknown(
                c,
                format!("input '{bound}': the model has no such input; its inputs are {names}"),
            ));
        }
    }
    let bare = bare_symbols(&formals);
    let mut used = BTreeSet::new();
    let all = with_shapes(c, &formals, options, &mut used)?;
    for f in formals {
        input(c, f, &all, &bare, &mut used)?;
    }
    if let Some(d) = options.dims.keys().find(|d| !used.contains(*d)) {
        let all: Vec<String> = used.into_iter().collect();
        let why = match all.is_empty() {
            true => format!(
                "no input has a dimension named '{d}': all sizes are numbers in the model; leave it out, or open them with --open-dims"
            ),
            false => format!(
                "no input has a dimension named '{d}'; the symbolic dimensions are {}",
                all.join(", ")
            ),
        };
        return Err(unknown(c, why));
    }
    Ok(())
}

/// The caller names what the model has not.
fn unknown(c: &Ctx, why: String) -> LowerError {
    LowerError::Import(ImportError::Unknown {
        file: c.file.name().into(),
        why,
    })
}

/// Ends the graph with the model's outputs.
fn outputs<'m>(c: &mut Ctx<'m>) -> Lowered<Graph> {
    let g = &c.file.model.graph;
    let mut outs = Outputs::default();
    let mut names = BTreeSet::new();
    for o in &g.outputs {
        let again = !names.insert(o.name.as_str());
        let item = c.lookup(&o.name)?;
        if let Item::Value(v) = item {
            c.check_stated(o, v)?;
        }
        match item {
            Item::Value(v) if c.value_name(v) == o.name && !outs.contains(&v) => outs.push(v),
            // A name that is listed twice gives its value twice, the second time under another.
            Item::Value(v) if again => {
                let name = c.value_name(v).to_string();
                outs.push(c.rename(v, &format!("{name}.again"), &output_origin(o))?);
            }
            Item::Value(v) => {
                let origin = output_origin(o);
                // Its node computes it under a longer name where something made here has the name.
                let name = c.value_name(v);
                let number = name
                    .strip_prefix(o.name.as_str())
                    .and_then(|r| r.strip_prefix('.'));
                let own = number.is_some_and(|n| n.bytes().all(|d| d.is_ascii_digit()))
                    && c.b().graph().producer(v).is_some();
                let v = if own && !outs.contains(&v) {
                    v
                } else {
                    c.rename(v, &o.name, &origin)?
                };
                c.b().claim(v, &o.name);
                outs.push(v);
            }
            Item::Poisoned => {}
        }
    }
    if !c.unsupported.is_empty() {
        return Err(LowerError::Import(ImportError::Unsupported(complete(c))));
    }
    let store = c.store();
    let frame = c.frames.pop().ok_or("the import lost its graph")?;
    let mut graph = frame.b.finish(&outs.list);
    share(&mut graph, &store);
    Ok(graph)
}

fn output_origin(o: &ValueInfo) -> Origin {
    Origin {
        name: o.name.clone(),
        op_type: "Output".into(),
    }
}

/// Values that the graph gives.
#[derive(Default)]
struct Outputs {
    list: Vec<ValueId>,
    known: BTreeSet<ValueId>,
}

impl Outputs {
    fn contains(&self, v: &ValueId) -> bool {
        self.known.contains(v)
    }

    fn push(&mut self, v: ValueId) {
        self.list.push(v);
        self.known.insert(v);
    }
}

/// The options with the symbols bound for which a given shape has a number: a symbol is the same
/// number wherever it stands.
fn with_shapes(
    c: &Ctx,
    inputs: &[&ValueInfo],
    options: &ImportOptions,
    used: &mut BTreeSet<String>,
) -> Lowered<ImportOptions> {
    let mut all = options.clone();
    // Exporters give one name to sizes that need not be equal; where every shape is given no name
    // is asked, unless the caller gives it a size as well.
    let whole = inputs
        .iter()
        .all(|i| options.shapes.contains_key(&i.name) || !matches!(i.ty, Some(Type::Tensor(_))));
    for i in inputs {
        let (Some(given), Some(Type::Tensor(t))) = (options.shapes.get(&i.name), &i.ty) else {
            continue;
        };
        for (d, s) in given.iter().zip(t.shape.iter().flatten()) {
            let Dimension::Param(p) = s else { continue };
            if nameless(p) {
                continue;
            }
            let s = symbol_name(p);
            used.insert(s.clone());
            let Some(n) = d.known() else { continue };
            let bound = *all.dims.entry(s.clone()).or_insert(n);
            if bound != n && (!whole || options.dims.contains_key(&s)) {
                return Err(input_error(
                    c,
                    &i.name,
                    format!(
                        "its dimension '{s}' is given as {n}, elsewhere as {bound}; give one number"
                    ),
                ));
            }
        }
    }
    Ok(all)
}

/// Symbols that are a whole dimension of some input.
fn bare_symbols(inputs: &[&ValueInfo]) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for i in inputs {
        if let Some(Type::Tensor(t)) = &i.ty {
            for d in t.shape.iter().flatten() {
                if let Dimension::Param(p) = d
                    && !nameless(p)
                {
                    out.insert(symbol_name(p));
                }
            }
        }
    }
    out
}

/// A dimension whose name (`?`, `*`) says that it has none.
fn nameless(p: &str) -> bool {
    !p.contains(|c: char| c.is_alphanumeric())
}

/// A dimension's name as a symbol: letters, digits, `_` and `.` only.
fn symbol_name(p: &str) -> String {
    let mut s: String = p
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '_' || c == '.' {
                c
            } else {
                '_'
            }
        })
        .collect();
    if !s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        s.insert(0, 'd');
    }
    // Names of functions in dimension expressions.
    if ["floordiv", "ceildiv", "min", "max", "mod"].contains(&s.as_str()) {
        s.push('_');
    }
    s
}

fn input<'m>(
    c: &mut Ctx<'m>,
    f: &'m ValueInfo,
    options: &ImportOptions,
    bare: &BTreeSet<String>,
    used: &mut BTreeSet<String>,
) -> Lowered {
    let name = f.name.as_str();
    let t = match &f.ty {
        Some(Type::Tensor(t)) => t,
        Some(Type::Unspecified) | None => {
            return Err(input_error(
                c,
                name,
                "the model states no type; export it again",
            ));
        }
        Some(ty) => {
            let kind = Kind::stated(ty).map_err(|e| match e {
                LowerError::Unsupported(why) | LowerError::Node(why) => input_error(c, name, why),
                e => e,
            })?;
            let v = c.b().input(name, DType::Host, vec![]);
            c.set_kind(v, kind);
            c.bind(name, Item::Value(v));
            return Ok(());
        }
    };
    let dtype = dtype_of(t.dtype).map_err(|why| input_error(c, name, why))?;
    let shape = match (options.shapes.get(name), &t.shape) {
        (Some(given), stated) => given_shape(c, name, given, stated.as_deref(), options)?,
        (None, None) => {
            return Err(input_error(
                c,
                name,
                format!(
                    "the model does not state its rank; give its shape as --shape {name}=1x3x224x224"
                ),
            ));
        }
        (None, Some(stated)) => stated_shape(c, name, stated, options, (bare, used))?,
    };
    if let Some((axis, d)) = shape
        .iter()
        .enumerate()
        .find(|(_, d): &(usize, &Dim)| d.known().is_some_and(|n| !(0..=1 << 40).contains(&n)))
    {
        return Err(input_error(
            c,
            name,
            format!("dimension {axis} is {d}, which is no size"),
        ));
    }
    let v = c.b().input(name, dtype, shape);
    c.set_narrow(v, narrow_name(t.dtype));
    c.bind(name, Item::Value(v));
    Ok(())
}

/// The shape that the caller gives an input, which must fit what the model states.
fn given_shape(
    c: &Ctx<'_>,
    name: &str,
    given: &[Dim],
    stated: Option<&[Dimension]>,
    options: &ImportOptions,
) -> Lowered<Vec<Dim>> {
    if let Some(s) = stated.filter(|s| s.len() != given.len()) {
        return Err(input_error(
            c,
            name,
            format!(
                "the shape given has rank {}, the model says {}",
                given.len(),
                s.len()
            ),
        ));
    }
    let stated = stated.iter().copied().flatten();
    let stated = stated.filter(|_| !options.open_dims);
    for (axis, (d, s)) in given.iter().zip(stated).enumerate() {
        if let (Some(n), Dimension::Value(m)) = (d.known(), s)
            && *m >= 0
            && n != *m
        {
            return Err(input_error(
                c,
                name,
                format!("dimension {axis} is given as {n}, the model says {m}"),
            ));
        }
    }
    let bound = |s: &str| options.dims.get(s).map(|&n| Dim::Known(n));
    Ok(given.iter().map(|d| d.substitute(&bound)).collect())
}

/// The shape that the model states of an input: symbols where it is open, or numbers that the caller binds them
/// to. `bare` are symbols that stand alone somewhere, `used` those that were met.
fn stated_shape(
    c: &Ctx<'_>,
    name: &str,
    stated: &[Dimension],
    options: &ImportOptions,
    (bare, used): (&BTreeSet<String>, &mut BTreeSet<String>),
) -> Lowered<Vec<Dim>> {
    let mut bound = |s: String| {
        let d = options.dims.get(&s);
        let d = d.map_or_else(|| Dim::sym(&s), |&n| Dim::Known(n));
        used.insert(s);
        d
    };
    let mut shape = Vec::new();
    for (axis, d) in stated.iter().enumerate() {
        let own = || format!("{}.d{axis}", symbol_name(name));
        shape.push(match d {
            Dimension::Value(n) if *n >= 0 && !options.open_dims => Dim::Known(*n),
            // Some writers mark an open dimension by -1.
            Dimension::Value(-1..) | Dimension::Unknown => bound(own()),
            Dimension::Value(n) => {
                return Err(input_error(
                    c,
                    name,
                    format!("dimension {axis} is {n}; give its shape with --shape"),
                ));
            }
            Dimension::Param(p) if nameless(p) => bound(own()),
            Dimension::Param(p) => match expression(p, bare) {
                Some(e) => e.substitute(&|s| options.dims.get(s).map(|&n| Dim::Known(n))),
                None => bound(symbol_name(p)),
            },
        });
    }
    Ok(shape)
}

/// A dimension stated as an expression over symbols that other dimensions define.
fn expression(p: &str, bare: &BTreeSet<String>) -> Option<Dim> {
    let d: Dim = p.parse().ok()?;
    let mut syms = BTreeSet::new();
    d.symbols(&mut syms);
    let whole = d.as_sym().is_some() || d.known().is_some();
    (!whole && syms.iter().all(|s| bare.contains(&**s))).then_some(d)
}

/// Gives all bodies the final weights.
fn share(g: &mut Graph, store: &Arc<WeightStore>) {
    g.weights = store.clone();
    for n in &mut g.nodes {
        match &mut n.op {
            Op::If {
                then_branch,
                else_branch,
            } => {
                share(then_branch, store);
                share(else_branch, store);
            }
            Op::Loop { body, .. } => share(body, store),
            _ => {}
        }
    }
}

/// The unsupported nodes found, and those behind them that were not reached.
fn complete(c: &Ctx) -> Vec<UnsupportedNode> {
    let mut all = c.unsupported.clone();
    let seen: BTreeSet<String> = all.iter().map(|u| u.node.clone()).inserted();
    visit(&c.file.model.graph.nodes, &mut |node| {
        let opset = c.opset(&node.domain).unwrap_or(0);
        if c.function(node).is_some() || c.custom(&node.domain, &node.op_type).is_some() {
            return;
        }
        if let Err(remedy) = ops::find(&node.domain, &node.op_type, opset) {
            let name = match node.name.as_str() {
                "" => node.outputs.first().cloned().unwrap_or_default(),
                n => n.to_string(),
            };
            if !seen.contains(&name) {
                all.push(UnsupportedNode {
                    node: name,
                    operator: node.op_type.clone(),
                    domain: node.domain.clone(),
                    opset,
                    remedy,
                });
            }
        }
    });
    all
}

/// Calls `f` for every node, bodies included.
fn visit(nodes: &[Node], f: &mut dyn FnMut(&Node)) {
    for n in nodes {
        f(n);
        for a in &n.attributes {
            match &a.value {
                AttributeValue::Graph(g) => visit(&g.nodes, f),
                AttributeValue::Graphs(gs) => gs.iter().for_each(|g| visit(&g.nodes, f)),
                _ => {}
            }
        }
    }
}

fn report(file: &ModelFile, nodes: Vec<Origin>, made: Option<&Graph>) -> Report {
    let m = &file.model;
    let (inputs, outputs) = ports(m, made);
    let mut operators = BTreeMap::new();
    let mut count = |n: &Node| {
        let name = match n.domain.as_str() {
            "" => n.op_type.clone(),
            d => format!("{d}::{}", n.op_type),
        };
        *operators.entry(name).or_insert(0) += 1;
    };
    visit(&m.graph.nodes, &mut count);
    m.functions.iter().for_each(|f| visit(&f.nodes, &mut count));
    let mut parameters = m
        .graph
        .initializers
        .iter()
        .filter_map(|t| t.elements().ok())
        .sum::<u64>();
    visit(&m.graph.nodes, &mut |n| {
        for a in &n.attributes {
            if let AttributeValue::Graph(g) = &a.value {
                parameters += g
                    .initializers
                    .iter()
                    .filter_map(|t| t.elements().ok())
                    .sum::<u64>();
            }
        }
    });
    Report {
        ir_version: m.ir_version,
        opsets: m
            .opset_imports
            .iter()
            .map(|o| (o.domain.clone(), o.version))
            .collect(),
        producer: (m.producer_name.clone(), m.producer_version.clone()),
        overridable: file
            .model
            .graph
            .inputs
            .iter()
            .filter(|i| m.graph.initializers.iter().any(|t| t.name == i.name))
            .map(|i| i.name.clone())
            .collect(),
        inputs,
        outputs,
        metadata: metadata(m),
        operators,
        parameters,
        nodes,
        files: file.paths(),
    }
}
