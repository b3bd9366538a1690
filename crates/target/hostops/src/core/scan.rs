//! Cumulative reductions along an axis. Plain code on whole tensors, run as a host step.
use crate::HostError;
use crate::data::{alloc, around, get, set};
use crate::error::{R, named};
use expr::{CompiledExpr, EvalContext, Monoid, Scalar};
use tensor::Tensor;

/// Running reduction of equally shaped `inputs` along `axis`; one output per result of the monoid.
/// `Index(0)` in its programs is the coordinate along the axis, `symbols` gives the dimensions'
/// values.
pub fn scan(
    inputs: &[&Tensor],
    monoid: &Monoid,
    axis: usize,
    exclusive: bool,
    reverse: bool,
    symbols: &dyn Fn(&str) -> Option<i64>,
) -> Result<Vec<Tensor>, HostError> {
    named(
        "Scan",
        running(inputs, monoid, axis, exclusive, reverse, symbols),
    )
}

fn running(
    inputs: &[&Tensor],
    monoid: &Monoid,
    axis: usize,
    exclusive: bool,
    reverse: bool,
    symbols: &dyn Fn(&str) -> Option<i64>,
) -> R<Vec<Tensor>> {
    let first = *inputs.first().ok_or("nothing to scan")?;
    let s = first.shape();
    if axis >= s.len() || inputs.iter().any(|t| t.shape() != s) {
        return Err(format!("inputs {inputs:?} have no common dimension {axis}").into());
    }
    let c = |e| -> R<CompiledExpr> { Ok(CompiledExpr::new(e)?.bound(symbols)?) };
    let (identity, lift) = (c(&monoid.identity)?, c(&monoid.lift)?);
    let (combine, finish) = (c(&monoid.combine)?, c(&monoid.finish)?);
    let n_state = identity.output_len();
    let mut out: Vec<Tensor> = finish
        .output_types()
        .iter()
        .map(|d| alloc(*d, s))
        .collect::<R<_>>()?;
    let (outer, n, inner) = around(s, axis);
    let mut scratch = Vec::new();
    let zero = Scalar::Int(0);
    let mut element = vec![zero; inputs.len()];
    // The state in the front half, the lifted element behind it: the arguments of `combine`.
    let mut pair = vec![zero; 2 * n_state];
    let mut next = vec![zero; n_state];
    let mut results = vec![zero; finish.output_len()];
    for o in 0..outer {
        for i in 0..inner {
            let ctx = EvalContext {
                inputs: &[],
                index: &[0],
                symbols,
            };
            identity.eval_into(&ctx, &mut scratch, &mut pair[..n_state])?;
            for step in 0..n {
                let j = if reverse { n - 1 - step } else { step };
                let at = (o * n + j) * inner + i;
                for (e, t) in element.iter_mut().zip(inputs) {
                    *e = get(t, at);
                }
                let index = [j as i64];
                let ctx = EvalContext {
                    inputs: &element,
                    index: &index,
                    symbols,
                };
                lift.eval_into(&ctx, &mut scratch, &mut pair[n_state..])?;
                if reverse {
                    // The element comes first in index order.
                    pair.rotate_left(n_state);
                }
                let ctx = EvalContext {
                    inputs: &pair,
                    index: &index,
                    symbols,
                };
                combine.eval_into(&ctx, &mut scratch, &mut next)?;
                if reverse {
                    pair.rotate_left(n_state);
                }
                let shown = if exclusive {
                    &pair[..n_state]
                } else {
                    &next[..]
                };
                let ctx = EvalContext {
                    inputs: shown,
                    index: &index,
                    symbols,
                };
                finish.eval_into(&ctx, &mut scratch, &mut results)?;
                for (t, r) in out.iter_mut().zip(&results) {
                    set(t, at, *r);
                }
                pair[..n_state].copy_from_slice(&next);
            }
        }
    }
    Ok(out)
}
