//! The interpreter of graphs.
mod attention;
pub(crate) mod contract;
mod control;
mod conv;
mod map;
mod matmul;
mod node;
mod reduce;
pub(crate) mod scalars;
mod symbols;
mod trace;

pub(crate) use reduce::Fold;
pub(crate) use symbols::{Symbols, Types, Watch};
pub use trace::{Difference, Trace, first_difference, run_graph_named};

use crate::error::{R, RefError, Why};
use graph::{Graph, Node, SymbolSource, Value, ValueId, ValueSource};
use layout::Sym;
use std::collections::BTreeMap;
use std::rc::Rc;
use tensor::Tensor;

/// Evaluates `graph` on `inputs` (in its order); gives its outputs (in its order).
pub fn run_graph(graph: &Graph, inputs: &[Tensor]) -> Result<Vec<Tensor>, RefError> {
    let inputs: Vec<Rc<Tensor>> = inputs.iter().map(|t| Rc::new(t.clone())).collect();
    let outputs = run(graph, &inputs, &Symbols::default(), &mut |_, _| {})?;
    Ok(outputs.into_iter().map(Rc::unwrap_or_clone).collect())
}

/// Checks `t` against `v` and gives the symbols of its shape their values.
fn bind(v: &Value, t: &Tensor, sources: &[(Sym, usize)], symbols: &mut Symbols) -> R<()> {
    if t.dtype() != v.dtype || t.shape().len() != v.shape.len() {
        return Err(format!(
            "value '{}' is declared {}{:?}, but is {t:?}",
            v.name, v.dtype, v.shape
        )
        .into());
    }
    for (s, axis) in sources {
        let n = *t.shape().get(*axis).ok_or_else(|| {
            format!(
                "symbol '{s}' is read from a dimension that '{}' lacks",
                v.name
            )
        })?;
        symbols.0.insert(s.clone(), n as i64);
    }
    for (d, n) in v.shape.iter().zip(t.shape()) {
        // A dimension whose symbols come later cannot be checked yet.
        if d.eval(&|s| symbols.get(s))
            .is_some_and(|want| want != *n as i64)
        {
            return Err(format!(
                "value '{}' has shape {:?}, which does not fit {:?}",
                v.name,
                t.shape(),
                v.shape
            )
            .into());
        }
    }
    Ok(())
}

/// For every value the symbols that are read from its shape.
fn sources(graph: &Graph) -> BTreeMap<ValueId, Vec<(Sym, usize)>> {
    let mut map: BTreeMap<ValueId, Vec<(Sym, usize)>> = BTreeMap::new();
    for s in &graph.symbols {
        let (value, axis) = match s.source {
            SymbolSource::Input { input, axis } => match graph.inputs.get(input as usize) {
                Some(v) => (*v, axis),
                None => continue,
            },
            SymbolSource::Late { value, axis } => (value, axis),
        };
        map.entry(value)
            .or_default()
            .push((s.name.clone(), axis as usize));
    }
    map
}

fn name_of(graph: &Graph, node: &Node) -> String {
    match (node.origins.first(), node.outputs.first()) {
        (Some(o), _) => o.name.clone(),
        (None, Some(v)) => graph.value(*v).name.clone(),
        _ => String::new(),
    }
}

/// Evaluates a graph or body under the symbols around it.
pub(crate) fn run(
    graph: &Graph,
    inputs: &[Rc<Tensor>],
    outer: &Symbols,
    watch: Watch,
) -> Result<Vec<Rc<Tensor>>, RefError> {
    let wrong = |why: String| RefError::Inputs {
        graph: graph.name.clone(),
        why,
    };
    if inputs.len() != graph.inputs.len() {
        return Err(wrong(format!(
            "{} inputs are given, {} are needed",
            inputs.len(),
            graph.inputs.len()
        )));
    }
    let mut symbols = outer.clone();
    let sources = sources(graph);
    let of = |v: &ValueId| sources.get(v).map_or(&[][..], |s| s);
    let mut values: Vec<Option<Rc<Tensor>>> = vec![None; graph.values.len()];
    for (v, t) in graph.inputs.iter().zip(inputs) {
        bind(graph.value(*v), t, of(v), &mut symbols).map_err(|w| wrong(w.0))?;
        watch(graph.value(*v), t);
        values[v.0 as usize] = Some(t.clone());
    }
    // Values are dropped after their last reader.
    let mut last: Vec<usize> = vec![0; graph.values.len()];
    for (n, node) in graph.nodes.iter().enumerate() {
        node.inputs.iter().for_each(|i| last[i.0 as usize] = n);
    }
    graph
        .outputs
        .iter()
        .for_each(|o| last[o.0 as usize] = usize::MAX);
    for (n, node) in graph.nodes.iter().enumerate() {
        let step =
            |values: &mut Vec<Option<Rc<Tensor>>>, symbols: &mut Symbols, watch: Watch| -> R<()> {
                let args = node
                    .inputs
                    .iter()
                    .map(|i| fetch(graph, values, *i))
                    .collect::<R<Vec<_>>>()?;
                let results = node::run(graph, node, &args, symbols, watch, run)?;
                if results.len() < node.outputs.len() {
                    return Err(format!(
                        "{} outputs came, {} are declared",
                        results.len(),
                        node.outputs.len()
                    )
                    .into());
                }
                for (o, t) in node.outputs.iter().zip(results) {
                    bind(graph.value(*o), &t, of(o), symbols)?;
                    watch(graph.value(*o), &t);
                    values[o.0 as usize] = Some(t);
                }
                Ok(())
            };
        step(&mut values, &mut symbols, watch).map_err(|w| RefError::Node {
            node: name_of(graph, node),
            op: node.op.name().into(),
            why: w.0,
        })?;
        for i in &node.inputs {
            if last[i.0 as usize] <= n {
                values[i.0 as usize] = None;
            }
        }
    }
    graph
        .outputs
        .iter()
        .map(|o| fetch(graph, &mut values, *o).map_err(|w| wrong(w.0)))
        .collect()
}

fn fetch(graph: &Graph, values: &mut [Option<Rc<Tensor>>], id: ValueId) -> R<Rc<Tensor>> {
    let slot = values
        .get_mut(id.0 as usize)
        .ok_or_else(|| Why(format!("value {} does not exist", id.0)))?;
    if let Some(t) = slot {
        return Ok(t.clone());
    }
    let v = graph.value(id);
    let t = match v.source {
        ValueSource::Weight(w) => graph.weights.tensor(w),
        _ => None,
    };
    let t = Rc::new(t.ok_or_else(|| format!("value '{}' is read before it is defined", v.name))?);
    *slot = Some(t.clone());
    Ok(t)
}
