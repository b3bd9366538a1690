//! Concatenation along an axis. Plain code on whole tensors, run as a host step.
use crate::HostError;
use crate::data::{RawOut, around, raw};
use crate::error::{R, named};
use tensor::Tensor;

/// Inputs joined along dimension `axis`; they agree in type and in all other extents.
pub fn concat(inputs: &[&Tensor], axis: usize) -> Result<Tensor, HostError> {
    named("Concat", join(inputs, axis))
}

fn join(inputs: &[&Tensor], axis: usize) -> R<Tensor> {
    let first = *inputs.first().ok_or("nothing to join")?;
    let mut shape = first.shape().to_vec();
    if axis >= shape.len() {
        return Err(format!("axis {axis} is outside {} dimensions", shape.len()).into());
    }
    shape[axis] = 0;
    for t in inputs {
        let fits = t.dtype() == first.dtype()
            && t.shape().len() == shape.len()
            && (0..shape.len()).all(|d| d == axis || t.shape()[d] == shape[d]);
        if !fits {
            return Err(
                format!("{t:?} cannot be joined to {first:?} along dimension {axis}").into(),
            );
        }
        shape[axis] = shape[axis]
            .checked_add(t.shape()[axis])
            .ok_or("the joined extent overflows")?;
    }
    let mut out = RawOut::new(first.dtype(), &shape)?;
    let (outer, whole, inner) = around(&shape, axis);
    let mut start = 0;
    for t in inputs {
        let src = raw(t);
        let n = t.shape()[axis] * inner * src.width;
        let row = whole * inner * src.width;
        if n > 0 {
            for o in 0..outer {
                let to = o * row + start;
                out.bytes[to..to + n].copy_from_slice(&src.bytes[o * n..(o + 1) * n]);
            }
        }
        start += n;
    }
    out.finish()
}
