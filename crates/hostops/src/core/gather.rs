use crate::HostError;
use crate::data::{RawOut, around, index, raw};
use crate::error::{R, named};
use tensor::Tensor;

/// Slices of `data` along `axis` picked by integer `indices` (negative: from the end), as the core
/// op `Gather`; an index outside is an error.
pub fn gather(data: &Tensor, indices: &Tensor, axis: usize) -> Result<Tensor, HostError> {
    named("Gather", pick(data, indices, axis))
}

fn pick(data: &Tensor, indices: &Tensor, axis: usize) -> R<Tensor> {
    let s = data.shape();
    if axis >= s.len() {
        return Err(format!("axis {axis} is outside {} dimensions", s.len()).into());
    }
    let shape: Vec<usize> = [&s[..axis], indices.shape(), &s[axis + 1..]].concat();
    let mut out = RawOut::new(data.dtype(), &shape)?;
    let src = raw(data);
    let (outer, extent, inner) = around(s, axis);
    let n = inner * src.width;
    let count = indices.len();
    let at: Vec<usize> = (0..count)
        .map(|i| index(indices.get_i64(i), extent))
        .collect::<R<_>>()?;
    if n > 0 {
        for o in 0..outer {
            for (i, a) in at.iter().enumerate() {
                let from = (o * extent + a) * n;
                let to = (o * count + i) * n;
                out.bytes[to..to + n].copy_from_slice(&src.bytes[from..from + n]);
            }
        }
    }
    out.finish()
}
