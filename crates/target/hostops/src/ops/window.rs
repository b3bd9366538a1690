//! HannWindow, HammingWindow and BlackmanWindow.
use crate::args::Args;
use crate::data::{alloc, extent, from_f64s};
use crate::error::R;
use layout::DType;
use std::f64::consts::PI;
use tensor::Tensor;

/// `c0 - c1 cos(x) + c2 cos(2x)` over one period.
fn cosines(a: &Args, c: [f64; 3]) -> R<Vec<Tensor>> {
    let n = extent(a.scalar(0)?)?;
    let d = a.dtype("output_datatype")?.unwrap_or(DType::F32);
    alloc(DType::F64, &[n])?;
    let period = if a.int("periodic", 1)? != 0 {
        n
    } else {
        n.saturating_sub(1).max(1)
    };
    let v: Vec<f64> = (0..n)
        .map(|i| {
            let x = 2.0 * PI * i as f64 / period as f64;
            let y = c[0] - c[1] * x.cos() + c[2] * (2.0 * x).cos();
            // Integers are made of what a float of 32 bits holds, which the last bits of the sum do not change.
            if d.is_int() { f64::from(y as f32) } else { y }
        })
        .collect();
    Ok(vec![from_f64s(d, &[n], &v)?])
}

pub(crate) fn hann(a: &Args) -> R<Vec<Tensor>> {
    cosines(a, [0.5, 0.5, 0.0])
}

pub(crate) fn hamming(a: &Args) -> R<Vec<Tensor>> {
    cosines(a, [25.0 / 46.0, 21.0 / 46.0, 0.0])
}

pub(crate) fn blackman(a: &Args) -> R<Vec<Tensor>> {
    cosines(a, [0.42, 0.5, 0.08])
}
