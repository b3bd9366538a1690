//! MelWeightMatrix: triangles, equally spaced in mel, over the bins of a spectrum.
use crate::args::Args;
use crate::data::{alloc, extent, from_f64s};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let bands = extent(a.scalar(0)?)?;
    let length = extent(a.scalar(1)?)?;
    let rate = a.scalar(2)? as f64;
    let (low, high) = (a.float_or(3, 0.0), a.float_or(4, 0.0));
    let d = a.dtype("output_datatype")?.unwrap_or(DType::F32);
    let bins = length / 2 + 1;
    let shape = [bins, bands];
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    if rate <= 0.0 {
        return Err(format!("the sample rate is {rate}").into());
    }
    let mel = |hz: f64| 2595.0 * (1.0 + hz / 700.0).log10();
    let hertz = |mel: f64| 700.0 * (10f64.powf(mel / 2595.0) - 1.0);
    let (from, to) = (mel(low), mel(high));
    let step = (to - from) / (bands + 2) as f64;
    // The bin in which each corner of the triangles lies.
    let corner = |i: usize| {
        let hz = hertz(from + step * i as f64);
        ((length as f64 + 1.0) * hz / rate).floor() as i64
    };
    for b in 0..bands {
        let (l, c, r) = (corner(b), corner(b + 1), corner(b + 2));
        let mut put = |i: i64, v: f64| {
            if (0..bins as i64).contains(&i) {
                y[i as usize * bands + b] = v;
            }
        };
        if c == l {
            put(c, 1.0);
        } else {
            (l.max(0)..=c.min(bins as i64)).for_each(|i| put(i, (i - l) as f64 / (c - l) as f64));
        }
        if r > c {
            (c.max(0)..r.min(bins as i64)).for_each(|i| put(i, (r - i) as f64 / (r - c) as f64));
        }
    }
    Ok(vec![from_f64s(d, &shape, &y)?])
}
