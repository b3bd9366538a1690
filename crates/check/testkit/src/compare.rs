//! The one metric by which outputs are judged.

use layout::DType;
use tensor::Tensor;

/// `max|got - want| / max|want|`; what is not a float must be equal (0 when it is, 1 when not).
///
/// Infinite when shapes or element types differ, or where one side is infinite or NaN and the other
/// is not the same.
pub fn difference(got: &Tensor, want: &Tensor) -> f64 {
    if got.shape() != want.shape() || got.dtype() != want.dtype() {
        return f64::INFINITY;
    }
    if !want.dtype().is_float() {
        let equal = (0..want.len()).all(|i| got.get_i64(i) == want.get_i64(i));
        return if equal { 0.0 } else { 1.0 };
    }
    let (mut apart, mut size) = (0f64, 0f64);
    for i in 0..want.len() {
        let (a, b) = (got.get_f64(i), want.get_f64(i));
        let same = a == b || (a.is_nan() && b.is_nan());
        if !(same || a.is_finite() && b.is_finite()) {
            return f64::INFINITY;
        }
        if b.is_finite() {
            apart = apart.max((a - b).abs());
            size = size.max(b.abs());
        }
    }
    if apart == 0.0 {
        0.0
    } else {
        apart / size.max(1e-30)
    }
}

/// Elements 0, `stride`, 2 x `stride`, ... of `t` in row-major order, as one dimension; a stride
/// of 0 counts as 1. Meant for types of whole bytes; 4-bit elements come back as `i8` and `u8`.
pub fn sampled(t: &Tensor, stride: usize) -> Tensor {
    let (stride, n) = (stride.max(1), t.len());
    let dtype = match t.dtype() {
        DType::I4 => DType::I8,
        DType::U4 => DType::U8,
        d => d,
    };
    let bytes: Vec<u8> = if dtype == t.dtype() {
        let width = dtype.bits() as usize / 8;
        (0..n)
            .step_by(stride)
            .flat_map(|i| &t.bytes()[i * width..(i + 1) * width])
            .copied()
            .collect()
    } else {
        (0..n).step_by(stride).map(|i| t.get_i64(i) as u8).collect()
    };
    Tensor::from_bytes(dtype, &[n.div_ceil(stride)], bytes)
        .expect("as many bytes as elements were taken")
}
