//! Element access and reading through broadcasting.
use crate::error::R;
use expr::Scalar;
use layout::DType;
use tensor::Tensor;

/// Element `i` as a scalar of the tensor's type.
#[inline]
pub(crate) fn get(t: &Tensor, i: usize) -> Scalar {
    if t.dtype().is_float() {
        Scalar::Float(t.get_f64(i))
    } else {
        Scalar::Int(t.get_i64(i))
    }
}

/// Sets element `i` from a scalar of the tensor's type.
#[inline]
pub(crate) fn set(t: &mut Tensor, i: usize, v: Scalar) {
    match v {
        Scalar::Float(x) => t.set_f64(i, x),
        Scalar::Int(x) => t.set_i64(i, x),
    }
}

/// All elements as f64.
pub(crate) fn f64s(t: &Tensor) -> Vec<f64> {
    if t.dtype() == DType::F32 {
        let le = |c: &[u8]| f32::from_le_bytes([c[0], c[1], c[2], c[3]]) as f64;
        return t.bytes().chunks_exact(4).map(le).collect();
    }
    (0..t.len()).map(|i| t.get_f64(i)).collect()
}

/// All elements as i64.
pub(crate) fn i64s(t: &Tensor) -> Vec<i64> {
    (0..t.len()).map(|i| t.get_i64(i)).collect()
}

/// A tensor of a float type from f64 values, each rounded once.
pub(crate) fn from_f64s(d: DType, shape: &[usize], v: &[f64]) -> R<Tensor> {
    let mut t = Tensor::zeros(d, shape)?;
    if t.len() != v.len() {
        return Err(format!("{} values do not fill shape {shape:?}", v.len()).into());
    }
    for (i, x) in v.iter().enumerate() {
        set(&mut t, i, Scalar::Float(*x).of(d));
    }
    Ok(t)
}

/// A tensor of an integer type from i64 values, low bits kept.
pub(crate) fn from_i64s(d: DType, shape: &[usize], v: &[i64]) -> R<Tensor> {
    let mut t = Tensor::zeros(d, shape)?;
    if t.len() != v.len() {
        return Err(format!("{} values do not fill shape {shape:?}", v.len()).into());
    }
    for (i, x) in v.iter().enumerate() {
        t.set_i64(i, *x);
    }
    Ok(t)
}

/// Row-major strides.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut s = vec![1usize; shape.len()];
    for d in (1..shape.len()).rev() {
        s[d - 1] = s[d] * shape[d];
    }
    s
}

/// Steps to the next coordinate in row-major order; false after the last.
pub(crate) fn next(at: &mut [usize], shape: &[usize]) -> bool {
    for d in (0..shape.len()).rev() {
        at[d] += 1;
        if at[d] < shape[d] {
            return true;
        }
        at[d] = 0;
    }
    false
}

/// Strides that read a tensor of shape `from` as if it had shape `to` (right-aligned).
pub(crate) fn broadcast(from: &[usize], to: &[usize]) -> R<Vec<usize>> {
    let own = strides(from);
    let skip = to
        .len()
        .checked_sub(from.len())
        .ok_or_else(|| format!("shape {from:?} does not broadcast to {to:?}"))?;
    (0..to.len())
        .map(|d| match d.checked_sub(skip) {
            None => Ok(0),
            Some(i) if from[i] == 1 => Ok(0),
            Some(i) if from[i] == to[d] => Ok(own[i]),
            _ => Err(format!("shape {from:?} does not broadcast to {to:?}").into()),
        })
        .collect()
}
