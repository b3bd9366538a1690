//! Concatenation of tensors along an axis, and splitting. `batching` and `streams` use it.
use crate::RunError;
use crate::recycled::output;
use device::Recycler;
use std::sync::Arc;
use tensor::Tensor;

/// Elements of one row of `t` along `axis`: what its extents from there on hold.
fn row(t: &Tensor, axis: usize) -> usize {
    t.shape()[axis..].iter().product()
}

/// `parts` one behind the other along `axis`; they are equal in everything else.
pub(crate) fn join(
    buffers: &Arc<Recycler>,
    parts: &[&Tensor],
    axis: usize,
    name: &str,
) -> Result<Tensor, RunError> {
    let unlike = || RunError::Stream {
        why: format!("'{name}' cannot be joined with others along axis {axis}"),
    };
    let first = parts.first().ok_or_else(unlike)?;
    let mut shape = first.shape().to_vec();
    *shape.get_mut(axis).ok_or_else(unlike)? = 0;
    for p in parts {
        let alike = |d: usize| d == axis || p.shape()[d] == shape[d];
        let fits = p.dtype() == first.dtype() && p.shape().len() == shape.len();
        if !fits || !(0..shape.len()).all(alike) {
            return Err(unlike());
        }
        shape[axis] += p.shape()[axis];
    }
    let bytes = Tensor::byte_len(first.dtype(), &shape)?;
    let mut t = output(buffers, first.dtype(), &shape, bytes, name)?;
    let outer: usize = shape[..axis].iter().product();
    let mut at = 0;
    for i in 0..outer {
        for p in parts {
            let n = row(p, axis);
            t.copy_elements(at, p, i * n, n);
            at += n;
        }
    }
    Ok(t)
}

/// `t` with `pad` rows of zeros in front along `axis`.
pub(crate) fn padded(
    buffers: &Arc<Recycler>,
    t: &Tensor,
    axis: usize,
    pad: usize,
    name: &str,
) -> Result<Tensor, RunError> {
    let mut shape = t.shape().to_vec();
    match shape.get_mut(axis) {
        Some(n) => *n = pad,
        None => {
            return Err(RunError::Stream {
                why: format!("'{name}' has no axis {axis} along which it could be filled up"),
            });
        }
    }
    let zeros = Tensor::zeros(t.dtype(), &shape)?;
    join(buffers, &[&zeros, t], axis, name)
}

/// `t` in parts of these extents along `axis`.
pub(crate) fn split(
    buffers: &Arc<Recycler>,
    t: &Tensor,
    axis: usize,
    extents: &[usize],
    name: &str,
) -> Result<Vec<Tensor>, RunError> {
    let total: usize = extents.iter().sum();
    if t.shape().get(axis) != Some(&total) {
        return Err(RunError::Stream {
            why: format!(
                "output '{name}' of joined requests has shape {:?} where axis {axis} should hold {total} items",
                t.shape()
            ),
        });
    }
    let outer: usize = t.shape()[..axis].iter().product();
    let item = row(t, axis) / total.max(1);
    let mut parts = Vec::new();
    let mut from = 0;
    for &n in extents {
        let mut shape = t.shape().to_vec();
        shape[axis] = n;
        let bytes = Tensor::byte_len(t.dtype(), &shape)?;
        let mut part = output(buffers, t.dtype(), &shape, bytes, name)?;
        for i in 0..outer {
            part.copy_elements(i * n * item, t, (i * total + from) * item, n * item);
        }
        from += n;
        parts.push(part);
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::{join, split};
    use device::Recycler;
    use tensor::Tensor;

    #[test]
    fn what_is_joined_along_an_axis_comes_apart_again() {
        let buffers = Recycler::new(0);
        let numbers = |from: i64, n: usize| (from..from + n as i64).collect::<Vec<i64>>();
        let a = Tensor::from_i64(&[2, 1, 3], &numbers(0, 6)).unwrap();
        let b = Tensor::from_i64(&[2, 2, 3], &numbers(100, 12)).unwrap();
        let t = join(&buffers, &[&a, &b], 1, "x").unwrap();
        assert_eq!(t.shape(), [2, 3, 3]);
        let want: Vec<i64> = [
            numbers(0, 3),
            numbers(100, 6),
            numbers(3, 3),
            numbers(106, 6),
        ]
        .concat();
        assert_eq!(t.to_i64().unwrap(), want);
        let parts = split(&buffers, &t, 1, &[1, 2], "x").unwrap();
        assert_eq!(parts[0].to_i64().unwrap(), a.to_i64().unwrap());
        assert_eq!(parts[1].to_i64().unwrap(), b.to_i64().unwrap());
        // Other extents, other ranks, extents that do not add up.
        let c = Tensor::from_i64(&[2, 1, 2], &numbers(0, 4)).unwrap();
        let d = Tensor::from_i64(&[2, 3], &numbers(0, 6)).unwrap();
        assert!(join(&buffers, &[&a, &c], 1, "x").is_err());
        assert!(join(&buffers, &[&a, &d], 1, "x").is_err());
        assert!(join(&buffers, &[&a, &b], 3, "x").is_err());
        assert!(split(&buffers, &t, 1, &[1, 1], "x").is_err());
        // Elements of 4 bits, two of which share a byte.
        let nibbles =
            |bytes: &[u8]| Tensor::from_bytes(layout::DType::U4, &[1, 3], bytes.to_vec()).unwrap();
        let (a, b) = (nibbles(&[0x21, 0x03]), nibbles(&[0x54, 0x06]));
        let t = join(&buffers, &[&a, &b], 0, "x").unwrap();
        assert_eq!(
            (t.shape(), t.bytes()),
            (&[2, 3][..], &[0x21, 0x43, 0x65][..])
        );
        let parts = split(&buffers, &t, 0, &[1, 1], "x").unwrap();
        assert_eq!((parts[0].bytes(), parts[1].bytes()), (a.bytes(), b.bytes()));
        let a = Tensor::from_i64(&[2, 1, 3], &numbers(0, 6)).unwrap();
        let empty = Tensor::from_i64(&[2, 0, 3], &[]).unwrap();
        assert_eq!(
            join(&buffers, &[&empty, &a], 1, "x").unwrap().shape(),
            [2, 1, 3]
        );
        assert_eq!(
            split(&buffers, &a, 1, &[0, 1], "x").unwrap()[0].shape(),
            [2, 0, 3]
        );
    }
}
