//! Views made real: reshape, permute, slice, expand.
use crate::HostError;
use crate::data::{broadcast_strides, count, strided, strides};
use crate::error::named;
use tensor::Tensor;

/// The same row-major ranks under `shape`, which holds as many elements.
pub fn reshape(input: &Tensor, shape: &[usize]) -> Result<Tensor, HostError> {
    named("Reshape", {
        match count(shape) {
            Ok(n) if n == input.len() => input.clone().reshaped(shape).map_err(Into::into),
            _ => Err(format!(
                "{} elements of shape {:?} cannot be viewed as {shape:?}",
                input.len(),
                input.shape()
            )
            .into()),
        }
    })
}

/// Output dimension `i` is input dimension `perm[i]`.
pub fn permute(input: &Tensor, perm: &[usize]) -> Result<Tensor, HostError> {
    let rank = input.shape().len();
    let mut seen = vec![false; rank];
    let fits = perm.len() == rank
        && perm
            .iter()
            .all(|&p| p < rank && !std::mem::replace(&mut seen[p], true));
    named(
        "Transpose",
        if fits {
            let s = strides(input.shape());
            let by: Vec<i64> = perm.iter().map(|&p| s[p] as i64).collect();
            let shape: Vec<usize> = perm.iter().map(|&p| input.shape()[p]).collect();
            strided(input, 0, &by, &shape)
        } else {
            Err(format!("{perm:?} does not permute {rank} dimensions").into())
        },
    )
}

/// `starts[d] + steps[d] * i` along each dimension, `extents[d]` of them; all must lie inside.
pub fn slice(
    input: &Tensor,
    starts: &[i64],
    steps: &[i64],
    extents: &[usize],
) -> Result<Tensor, HostError> {
    let rank = input.shape().len();
    let fits = [starts.len(), steps.len(), extents.len()] == [rank; 3]
        && (0..rank).all(|d| {
            let n = input.shape()[d] as i128;
            let last = starts[d] as i128 + (extents[d] as i128 - 1) * steps[d] as i128;
            extents[d] == 0 || (0..n).contains(&(starts[d] as i128)) && (0..n).contains(&last)
        });
    named(
        "Slice",
        if fits {
            let s = strides(input.shape());
            let by: Vec<i64> = (0..rank).map(|d| s[d] as i64 * steps[d]).collect();
            let offset = if extents.contains(&0) {
                0
            } else {
                (0..rank).map(|d| s[d] as i64 * starts[d]).sum()
            };
            strided(input, offset, &by, extents)
        } else {
            Err(format!(
                "starts {starts:?} with steps {steps:?} and extents {extents:?} leave shape {:?}",
                input.shape()
            )
            .into())
        },
    )
}

/// Right-aligned broadcast to `shape`.
pub fn expand(input: &Tensor, shape: &[usize]) -> Result<Tensor, HostError> {
    named(
        "Expand",
        broadcast_strides(input.shape(), shape).and_then(|by| strided(input, 0, &by, shape)),
    )
}
