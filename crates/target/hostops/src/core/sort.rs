//! Top-k along an axis, ties in their order. Plain code on whole tensors, run as a host step.
use crate::HostError;
use crate::data::{RawOut, alloc, around, get, raw};
use crate::error::{R, named};
use expr::Scalar;
use layout::DType;
use std::cmp::Ordering;
use tensor::Tensor;

/// Values and I64 indices of the `k` first elements along `axis` in sorted order; ties keep the
/// lower index first and a NaN counts as larger than every number.
pub fn sort(
    input: &Tensor,
    axis: usize,
    k: usize,
    descending: bool,
) -> Result<(Tensor, Tensor), HostError> {
    named("TopK", top(input, axis, k, descending))
}

/// Total order of scalars of type `d`; NaNs are equal and above all numbers.
pub(crate) fn order(a: Scalar, b: Scalar, d: DType) -> Ordering {
    match (a, b) {
        (Scalar::Int(x), Scalar::Int(y)) if d == DType::U64 => (x as u64).cmp(&(y as u64)),
        (Scalar::Int(x), Scalar::Int(y)) => x.cmp(&y),
        _ => {
            let (x, y) = (a.as_f64(), b.as_f64());
            x.partial_cmp(&y)
                .unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
        }
    }
}

fn top(input: &Tensor, axis: usize, k: usize, descending: bool) -> R<(Tensor, Tensor)> {
    let s = input.shape();
    if axis >= s.len() {
        return Err(format!("axis {axis} is outside {} dimensions", s.len()).into());
    }
    if k > s[axis] {
        return Err(format!("k is {k}, but dimension {axis} has only {}", s[axis]).into());
    }
    let mut shape = s.to_vec();
    shape[axis] = k;
    let mut values = RawOut::new(input.dtype(), &shape)?;
    let mut indices = alloc(DType::I64, &shape)?;
    let (outer, n, inner) = around(s, axis);
    let (src, d) = (raw(input), input.dtype());
    if k == 0 || inner == 0 {
        return Ok((values.finish()?, indices));
    }
    let mut keys: Vec<(Scalar, usize)> = Vec::with_capacity(n);
    for o in 0..outer {
        for i in 0..inner {
            keys.clear();
            keys.extend((0..n).map(|j| (get(input, (o * n + j) * inner + i), j)));
            let by = |a: &(Scalar, usize), b: &(Scalar, usize)| {
                let c = order(a.0, b.0, d);
                (if descending { c.reverse() } else { c }).then(a.1.cmp(&b.1))
            };
            if k < n {
                keys.select_nth_unstable_by(k - 1, by);
                keys.truncate(k);
            }
            keys.sort_unstable_by(by);
            for (j, (_, from)) in keys.iter().enumerate() {
                let to = (o * k + j) * inner + i;
                values.put(to, src.at((o * n + from) * inner + i));
                indices.set_i64(to, *from as i64);
            }
        }
    }
    Ok((values.finish()?, indices))
}
