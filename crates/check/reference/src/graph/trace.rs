//! All values of a run, for finding where two runs part.
use super::{Symbols, run};
use crate::RefError;
use graph::Graph;
use std::collections::BTreeMap;
use std::rc::Rc;
use tensor::Tensor;

/// Every value that appeared, in order; values of bodies by their own names, of loops the last
/// iteration's.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    order: Vec<String>,
    values: BTreeMap<String, Tensor>,
    /// The graph's outputs.
    pub outputs: Vec<Tensor>,
}

impl Trace {
    /// The value named `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.values.get(name)
    }

    /// Values in the order in which they first appeared.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.order
            .iter()
            .filter_map(|n| Some((n.as_str(), self.values.get(n)?)))
    }

    /// Adds or replaces a value.
    pub fn insert(&mut self, name: &str, t: Tensor) {
        if self.values.insert(name.into(), t).is_none() {
            self.order.push(name.into());
        }
    }
}

/// Evaluates `graph` as [`crate::run_graph`] does and keeps every value (weights excepted).
pub fn run_graph_named(graph: &Graph, inputs: &[Tensor]) -> Result<Trace, RefError> {
    let mut trace = Trace::default();
    let inputs: Vec<Rc<Tensor>> = inputs.iter().map(|t| Rc::new(t.clone())).collect();
    let outputs = run(graph, &inputs, &Symbols::default(), &mut |v, t| {
        trace.insert(&v.name, t.clone());
    })?;
    trace.outputs = outputs.into_iter().map(Rc::unwrap_or_clone).collect();
    Ok(trace)
}

/// Where two runs part.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The value.
    pub name: String,
    /// Largest |a - b| over largest |b|; infinite where types, shapes or special values differ.
    pub relative: f64,
}

/// The largest difference of `a` against `b` over the largest magnitude of `b`.
fn relative(a: &Tensor, b: &Tensor) -> f64 {
    if a.dtype() != b.dtype() || a.shape() != b.shape() {
        return f64::INFINITY;
    }
    let (mut worst, mut top) = (0f64, 0f64);
    for i in 0..a.len() {
        let (x, y) = (a.get_f64(i), b.get_f64(i));
        if x == y || x.is_nan() && y.is_nan() {
            top = top.max(if y.is_finite() { y.abs() } else { 0.0 });
            continue;
        }
        if !x.is_finite() || !y.is_finite() {
            return f64::INFINITY;
        }
        worst = worst.max((x - y).abs());
        top = top.max(y.abs());
    }
    match (worst, top) {
        (0.0, _) => 0.0,
        (w, 0.0) => w,
        (w, t) => w / t,
    }
}

/// The first value of `trace`, in order of appearance, that `other` gives by the same name and that
/// differs by more than `tolerance` (integers and booleans: at all).
pub fn first_difference(
    trace: &Trace,
    other: &dyn Fn(&str) -> Option<Tensor>,
    tolerance: f64,
) -> Option<Difference> {
    trace.iter().find_map(|(name, b)| {
        let r = relative(&other(name)?, b);
        let limit = if b.dtype().is_float() { tolerance } else { 0.0 };
        // Not "r > limit": a NaN must be found as well.
        (!matches!(
            r.partial_cmp(&limit),
            Some(std::cmp::Ordering::Less | std::cmp::Ordering::Equal)
        ))
        .then(|| Difference {
            name: name.into(),
            relative: r,
        })
    })
}
