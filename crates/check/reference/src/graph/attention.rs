//! Attention, in exact order, by the specification.
use super::Symbols;
use super::scalars::{broadcast, f64s, from_f64s, get};
use crate::error::R;
use expr::{CompiledExpr, EvalContext, Scalar};
use graph::{AttentionSpec, Undefined};
use layout::DType;
use tensor::Tensor;

/// softmax(score(q·kᵀ, extras..))·v with products, exponentials and sums in f64.
pub(crate) fn run(s: &AttentionSpec, inputs: &[&Tensor], d: DType, symbols: &Symbols) -> R<Tensor> {
    let [q, k, v, extras @ ..] = inputs else {
        return Err("q, k and v are needed".into());
    };
    let rank = q.shape().len();
    let ranks = [k.shape().len(), v.shape().len()];
    if rank < 2 || ranks != [rank; 2] {
        return Err(format!("{q:?}, {k:?} and {v:?} must have one rank of 2 or more").into());
    }
    let (batch, [rows, depth]) = (
        &q.shape()[..rank - 2],
        [q.shape()[rank - 2], q.shape()[rank - 1]],
    );
    let (t, e) = (k.shape()[rank - 2], v.shape()[rank - 1]);
    let fits = k.shape()[..rank - 2] == *batch
        && v.shape()[..rank - 2] == *batch
        && k.shape()[rank - 1] == depth
        && v.shape()[rank - 2] == t;
    if !fits {
        return Err(format!("{q:?}, {k:?} and {v:?} do not fit each other").into());
    }
    let lookup = |n: &str| symbols.get(n);
    let unrounded = s.unrounded();
    let score = CompiledExpr::new(unrounded.as_ref().unwrap_or(&s.score))?.bound(&lookup)?;
    let scores: Vec<usize> = [batch, &[rows, t]].concat();
    let by: Vec<Vec<usize>> = extras
        .iter()
        .map(|x| broadcast(x.shape(), &scores))
        .collect::<R<_>>()?;
    let (qv, kv, vv) = (f64s(q), f64s(k), f64s(v));
    let n: usize = batch.iter().product();
    let mut y = vec![0.0; n * rows * e];
    let mut index = vec![0i64; rank];
    let mut args = vec![Scalar::Int(0); 1 + extras.len()];
    let mut scratch = Vec::new();
    for b in 0..n {
        let mut rest = b;
        for (i, m) in batch.iter().enumerate().rev() {
            index[i] = (rest % m) as i64;
            rest /= m;
        }
        for r in 0..rows {
            index[rank - 2] = r as i64;
            let row = &qv[(b * rows + r) * depth..][..depth];
            let mut p = Vec::with_capacity(t);
            for j in 0..t {
                index[rank - 1] = j as i64;
                let key = &kv[(b * t + j) * depth..][..depth];
                args[0] = Scalar::Float(row.iter().zip(key).map(|(x, y)| x * y).sum());
                for ((a, x), s) in args[1..].iter_mut().zip(extras).zip(&by) {
                    *a = get(x, index.iter().zip(s).map(|(c, s)| *c as usize * s).sum());
                }
                let ctx = EvalContext {
                    inputs: &args,
                    index: &index,
                    symbols: &lookup,
                };
                p.push(score.eval_one(&ctx, &mut scratch)?.as_f64());
            }
            let top = p.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let unseen = p.iter().all(|x| *x == f64::NEG_INFINITY);
            let mut sum = 0.0;
            for x in &mut p {
                *x = (*x - top).exp();
                sum += *x;
            }
            let undefined = match s.undefined {
                Undefined::Nan => false,
                Undefined::ZeroUnseen => unseen,
                Undefined::Zero => sum.is_nan(),
            };
            if undefined {
                continue;
            }
            let out = &mut y[(b * rows + r) * e..][..e];
            for (j, x) in p.iter().enumerate() {
                for (o, z) in out.iter_mut().zip(&vv[(b * t + j) * e..][..e]) {
                    *o += x / sum * z;
                }
            }
        }
    }
    from_f64s(d, &[batch, &[rows, e]].concat(), &y)
}
