//! Branches and loops: bodies are graphs that see outer values only through their inputs.
use super::symbols::{Evaluate, Symbols, Watch};
use crate::error::R;
use graph::Graph;
use std::rc::Rc;
use tensor::Tensor;

/// Iterations at most: a loop that never says stop is an error.
const MAX_TRIPS: i64 = 1 << 24;

fn truth(t: &Tensor) -> R<bool> {
    match t.len() {
        1 => Ok(t.get_i64(0) != 0),
        n => Err(format!("a condition has one element, not {n}").into()),
    }
}

/// One branch on the inputs after the condition.
pub(crate) fn branch(
    then: &Graph,
    other: &Graph,
    args: &[Rc<Tensor>],
    symbols: &Symbols,
    watch: Watch,
    evaluate: Evaluate,
) -> R<Vec<Rc<Tensor>>> {
    let (condition, rest) = args.split_first().ok_or("the condition is missing")?;
    let body = if truth(condition)? { then } else { other };
    Ok(evaluate(body, rest, symbols, watch)?)
}

/// A loop's parts.
pub(crate) struct Repeat<'a> {
    /// Body.
    pub body: &'a Graph,
    /// Carried values.
    pub carried: usize,
    /// Whether a trip count is given.
    pub trip: bool,
    /// Whether a condition is given.
    pub cond: bool,
}

/// The ONNX loop.
pub(crate) fn repeat(
    l: &Repeat,
    args: &[Rc<Tensor>],
    symbols: &Symbols,
    watch: Watch,
    evaluate: Evaluate,
) -> R<Vec<Rc<Tensor>>> {
    let n = l.carried;
    if args.len() < 2 + n || l.body.outputs.len() < 1 + n {
        return Err(format!("{} inputs do not fit {n} carried values", args.len()).into());
    }
    let limit = if l.trip { args[0].get_i64(0) } else { i64::MAX };
    let mut go = !l.cond || truth(&args[1])?;
    let mut carried: Vec<Rc<Tensor>> = args[2..2 + n].to_vec();
    let captures = &args[2 + n..];
    let mut stacked: Vec<Vec<Rc<Tensor>>> = vec![Vec::new(); l.body.outputs.len() - 1 - n];
    let mut i = 0;
    while go && i < limit {
        if i >= MAX_TRIPS {
            return Err(format!("the loop did not end after {MAX_TRIPS} iterations").into());
        }
        let mut inputs = vec![
            Rc::new(Tensor::from_i64(&[], &[i])?),
            Rc::new(Tensor::from_bytes(layout::DType::Bool, &[], vec![1])?),
        ];
        inputs.extend(carried.iter().cloned());
        inputs.extend(captures.iter().cloned());
        let mut outputs = evaluate(l.body, &inputs, symbols, watch)?.into_iter();
        let condition = outputs.next().ok_or("the body gives no condition")?;
        carried = outputs.by_ref().take(n).collect();
        for (s, t) in stacked.iter_mut().zip(outputs) {
            s.push(t);
        }
        go = !l.cond || truth(&condition)?;
        i += 1;
    }
    let mut results = carried;
    for (k, parts) in stacked.iter().enumerate() {
        results.push(Rc::new(stack(parts, l.body, k + 1 + n, symbols)?));
    }
    Ok(results)
}

/// Equally shaped parts along a new leading dimension.
fn stack(parts: &[Rc<Tensor>], body: &Graph, output: usize, symbols: &Symbols) -> R<Tensor> {
    if parts.is_empty() {
        // No iteration: extents that nothing outside the body tells are 0.
        let v = body.value(body.outputs[output]);
        let inner = v.shape.iter().map(|d| symbols.extent(d).unwrap_or(0));
        let shape: Vec<usize> = std::iter::once(0).chain(inner).collect();
        return Ok(Tensor::zeros(v.dtype, &shape)?);
    }
    let parts: Vec<Tensor> = parts
        .iter()
        .map(|t| Ok((**t).clone().reshaped(&[&[1], t.shape()].concat())?))
        .collect::<R<_>>()?;
    Ok(hostops::concat(&parts.iter().collect::<Vec<_>>(), 0)?)
}
