//! Constants in coordinate form: written out, since what computes with them reads dense weights.
use super::types::dtype_of;
use super::{Ctx, Lowered};
use crate::proto::{DataType, SparseTensor};
use graph::ValueId;
use tensor::{Bytes, Tensor};

/// Bytes that a model's sparse constants may take when written out. A file of a few bytes can claim
/// any dims, so there has to be a limit.
const MAX_DENSE: usize = 1 << 30;

/// The positions of `count` values in a tensor of `shape`, row-major.
pub fn positions(
    indices: &[i64],
    dims: &[i64],
    count: usize,
    shape: &[usize],
) -> Result<Vec<usize>, String> {
    let size = shape.iter().fold(1usize, |n, &d| n.saturating_mul(d));
    let inside = |i: i64, limit: usize| {
        usize::try_from(i)
            .ok()
            .filter(|&i| i < limit)
            .ok_or_else(|| format!("holds the index {i}, which is not below {limit}"))
    };
    let n = count as i64;
    match dims {
        [k] if *k == n => indices.iter().map(|&i| inside(i, size)).collect(),
        [k, r] if *k == n && *r == shape.len() as i64 && !shape.is_empty() => indices
            .chunks_exact(shape.len())
            .map(|row| {
                row.iter().zip(shape).try_fold(0usize, |at, (&i, &d)| {
                    Ok(at.saturating_mul(d).saturating_add(inside(i, d)?))
                })
            })
            .collect(),
        _ => Err(format!(
            "has indices of dims {dims:?} for {count} values of a tensor of rank {}",
            shape.len()
        )),
    }
}

impl<'m> Ctx<'m> {
    /// The value of a sparse constant in frame `frame`, in its dense form.
    pub fn sparse(&mut self, frame: usize, s: &'m SparseTensor, name: &str) -> Lowered<ValueId> {
        let wrong = |why: String| format!("sparse tensor '{name}' {why}; export the model again");
        let id = match self.known_weight(&s.values) {
            Some(id) => id,
            None => {
                let d =
                    dtype_of(s.values.dtype).map_err(|why| format!("tensor '{name}': {why}"))?;
                let whole = d.bits() % 8 == 0 && !d.is_held();
                if !whole || DataType::from_code(s.indices.dtype) != Some(DataType::Int64) {
                    return Err(
                        wrong("needs values of whole bytes and indices of 64 bits".into()).into(),
                    );
                }
                let shape: Option<Vec<usize>> =
                    s.dims.iter().map(|&d| usize::try_from(d).ok()).collect();
                let shape = shape.ok_or_else(|| wrong("has a negative dimension".into()))?;
                let bytes = Tensor::byte_len(d, &shape).map_err(|e| wrong(e.to_string()))?;
                let left = MAX_DENSE.saturating_sub(self.written_out);
                if bytes > left {
                    return Err(wrong(format!(
                        "takes {bytes} B written out, where the sparse constants of a model may take {MAX_DENSE} B together"
                    ))
                    .into());
                }
                let values = self.file.tensor_bytes(&s.values)?;
                let indices = self.file.tensor_bytes(&s.indices)?;
                let indices: Vec<i64> = indices
                    .chunks_exact(8)
                    .filter_map(|b| b.try_into().ok().map(i64::from_le_bytes))
                    .collect();
                let width = d.bits() as usize / 8;
                let at = positions(&indices, &s.indices.dims, values.len() / width, &shape)
                    .map_err(wrong)?;
                let mut dense = vec![0u8; bytes];
                for (value, at) in values.chunks_exact(width).zip(at) {
                    dense[at * width..][..width].copy_from_slice(value);
                }
                self.written_out += bytes;
                self.keep_weight(&s.values, name, d, &shape, Bytes::from(dense))?
            }
        };
        Ok(self.frames[frame].b.weight(id)?)
    }
}
