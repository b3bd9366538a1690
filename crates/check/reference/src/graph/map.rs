//! Element-wise programs with broadcasting.
use super::scalars::{broadcast, get, next, set};
use super::{Symbols, Types};
use crate::error::R;
use expr::{CompiledExpr, EvalContext, Expr, Scalar};
use tensor::Tensor;

/// Element-wise program over broadcast inputs.
pub(crate) fn run(
    e: &Expr,
    inputs: &[&Tensor],
    types: &Types,
    symbols: &Symbols,
) -> R<Vec<Tensor>> {
    let lookup = |s: &str| symbols.get(s);
    let program = CompiledExpr::new(e)?.bound(&lookup)?;
    let shape = types.first().map_or(&[][..], |t| &t.1);
    if types.len() != program.output_len() || types.iter().any(|t| t.1 != shape) {
        return Err("the program's results and the node's outputs differ".into());
    }
    let mut out: Vec<Tensor> = types
        .iter()
        .map(|(d, s)| Tensor::zeros(*d, s))
        .collect::<Result<_, _>>()?;
    if shape.contains(&0) {
        return Ok(out);
    }
    let by: Vec<Vec<usize>> = inputs
        .iter()
        .map(|t| broadcast(t.shape(), shape))
        .collect::<R<_>>()?;
    let mut at = vec![0usize; shape.len()];
    let mut index = vec![0i64; shape.len()];
    let mut args = vec![Scalar::Int(0); inputs.len()];
    let mut results = vec![Scalar::Int(0); out.len()];
    let mut scratch = Vec::new();
    for o in 0.. {
        for ((a, t), s) in args.iter_mut().zip(inputs).zip(&by) {
            *a = get(t, at.iter().zip(s).map(|(c, s)| c * s).sum());
        }
        for (i, c) in index.iter_mut().zip(&at) {
            *i = *c as i64;
        }
        let ctx = EvalContext {
            inputs: &args,
            index: &index,
            symbols: &lookup,
        };
        program.eval_into(&ctx, &mut scratch, &mut results)?;
        for (t, r) in out.iter_mut().zip(&results) {
            set(t, o, *r);
        }
        if !next(&mut at, shape) {
            break;
        }
    }
    Ok(out)
}
