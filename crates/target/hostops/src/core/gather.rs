//! Gather along an axis, with batch dimensions. Plain code on whole tensors, run as a host step.
use crate::HostError;
use crate::data::{RawOut, around, index, raw};
use crate::error::{R, named};
use tensor::Tensor;

/// Slices of `data` along `axis` picked by integer `indices` (negative: from the end), as the core
/// op `Gather`, each position of the first `batch` dimensions by indices of its own; an index outside is
/// an error.
pub fn gather(
    data: &Tensor,
    indices: &Tensor,
    axis: usize,
    batch: usize,
) -> Result<Tensor, HostError> {
    named("Gather", pick(data, indices, axis, batch))
}

fn pick(data: &Tensor, indices: &Tensor, axis: usize, batch: usize) -> R<Tensor> {
    let s = data.shape();
    if axis >= s.len() {
        return Err(format!("axis {axis} is outside {} dimensions", s.len()).into());
    }
    let t = indices.shape();
    if batch > axis || batch > t.len() || s[..batch] != t[..batch] {
        return Err(format!(
            "data {s:?} and indices {t:?} do not begin with {batch} equal dimensions"
        )
        .into());
    }
    let shape: Vec<usize> = [&s[..axis], &t[batch..], &s[axis + 1..]].concat();
    let mut out = RawOut::new(data.dtype(), &shape)?;
    let src = raw(data);
    let (_, extent, inner) = around(s, axis);
    let n = inner * src.width;
    let at: Vec<usize> = (0..indices.len())
        .map(|i| index(indices.get_i64(i), extent))
        .collect::<R<_>>()?;
    let groups: usize = s[..batch].iter().product();
    let outer: usize = s[batch..axis].iter().product();
    if n > 0 && groups > 0 {
        let count = at.len() / groups;
        for o in 0..groups * outer {
            let first = o / outer * count;
            for (i, a) in at[first..first + count].iter().enumerate() {
                let from = (o * extent + a) * n;
                let to = (o * count + i) * n;
                out.bytes[to..to + n].copy_from_slice(&src.bytes[from..from + n]);
            }
        }
    }
    out.finish()
}
