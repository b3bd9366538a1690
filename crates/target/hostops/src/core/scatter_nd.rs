//! ScatterND and how an update combines with what is there. Plain code on whole tensors, run as a host step.
use crate::HostError;
use crate::data::{get, index, set, strides};
use crate::error::{R, named};
use expr::{Binary, Scalar};
use graph::ScatterReduce;
use layout::DType;
use tensor::Tensor;

/// A copy of `data` with the slices that `indices` names replaced by or combined with `updates`,
/// in the order of the updates (the ONNX ScatterND rule).
pub fn scatter_nd(
    data: &Tensor,
    indices: &Tensor,
    updates: &Tensor,
    reduce: ScatterReduce,
) -> Result<Tensor, HostError> {
    named("ScatterND", scatter(data, indices, updates, reduce))
}

/// What a reduction leaves where `old` was.
pub(crate) fn merge(reduce: ScatterReduce, old: Scalar, new: Scalar, d: DType) -> Scalar {
    match reduce {
        ScatterReduce::Replace => new,
        ScatterReduce::Add => old.binary(Binary::Add, new, d),
        ScatterReduce::Mul => old.binary(Binary::Mul, new, d),
        ScatterReduce::Max => old.binary(Binary::Max, new, d),
        ScatterReduce::Min => old.binary(Binary::Min, new, d),
    }
}

fn scatter(data: &Tensor, indices: &Tensor, updates: &Tensor, reduce: ScatterReduce) -> R<Tensor> {
    let (s, ix) = (data.shape(), indices.shape());
    let depth = *ix.last().ok_or("indices must have a dimension")?;
    if depth > s.len() {
        return Err(format!("indices of depth {depth} do not fit shape {s:?}").into());
    }
    let want: Vec<usize> = [&ix[..ix.len() - 1], &s[depth..]].concat();
    if updates.shape() != want || updates.dtype() != data.dtype() {
        return Err(format!("updates must be {}{want:?}, not {updates:?}", data.dtype()).into());
    }
    let mut out = data.clone();
    let by = strides(s);
    let inner: usize = s[depth..].iter().product();
    let slices: usize = ix[..ix.len() - 1].iter().product();
    let (width, whole) = (data.dtype().bits() as usize / 8, data.dtype().bits() >= 8);
    for n in 0..slices {
        let mut base = 0;
        for d in 0..depth {
            base += index(indices.get_i64(n * depth + d), s[d])? * by[d];
        }
        if reduce == ScatterReduce::Replace && whole {
            let (to, from) = (base * width, n * inner * width);
            out.bytes_mut()[to..to + inner * width]
                .copy_from_slice(&updates.bytes()[from..from + inner * width]);
            continue;
        }
        for i in 0..inner {
            let v = merge(
                reduce,
                get(&out, base + i),
                get(updates, n * inner + i),
                data.dtype(),
            );
            set(&mut out, base + i, v);
        }
    }
    Ok(out)
}
