//! DFT and STFT of any length, in f64.
use crate::args::Args;
use crate::data::{alloc, around, axis, extent, f64s, from_f64s};
use crate::error::R;
use layout::DType;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftPlanner};
use std::cell::Cell;
use std::sync::Arc;
use tensor::Tensor;

/// Most multiplications that one call may take.
const MOST: u128 = 1 << 36;
/// Longest transform: one of a prime length takes some 70 bytes an element beside its result.
const LONGEST: usize = 1 << 24;

/// The transform of `n` elements; refused where `rows` of them would take too long.
fn planned(n: usize, rows: usize, direction: FftDirection) -> R<Arc<dyn Fft<f64>>> {
    let each = n as u128 * u128::from(n.max(2).ilog2());
    if n > LONGEST || each.saturating_mul(rows as u128) > MOST {
        return Err(
            format!("{rows} transforms of {n} elements take too long; transform less").into(),
        );
    }
    // Making a transform takes longer than running it, and one thread's calls are mostly alike.
    let last = LAST
        .take()
        .filter(|f| f.len() == n && f.fft_direction() == direction);
    let fft = last.unwrap_or_else(|| FftPlanner::new().plan_fft(n, direction));
    LAST.set(Some(fft.clone()));
    Ok(fft)
}

thread_local! {
    static LAST: Cell<Option<Arc<dyn Fft<f64>>>> = const { Cell::new(None) };
}

pub(crate) fn dft(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let rank = s.len();
    let parts = match s.last() {
        Some(p @ 1..=2) if rank >= 2 => *p,
        _ => return Err(format!("the last dimension of {s:?} is neither 1 nor 2").into()),
    };
    let (inverse, onesided) = (a.int("inverse", 0)? != 0, a.int("onesided", 0)? != 0);
    let d = if a.opset()? < 20 {
        a.int("axis", 1)?
    } else if a.opt(2).is_some() {
        a.scalar(2)?
    } else {
        -2
    };
    let d = axis(d, rank)?;
    if d + 1 == rank {
        return Err("the dimension of real and imaginary parts cannot be transformed".into());
    }
    let n = match a.opt(1) {
        Some(_) => extent(a.scalar(1)?)?,
        None if inverse && onesided => 2 * s[d].saturating_sub(1),
        None => s[d],
    };
    let bins = n / 2 + 1;
    let (from, to) = match (inverse, onesided) {
        (true, true) => (bins, n),
        (false, true) => (n, bins),
        _ => (n, n),
    };
    if n == 0 {
        return Err("its length is 0".into());
    }
    let real = inverse && onesided;
    let mut shape = s.to_vec();
    shape[d] = to;
    shape[rank - 1] = if real { 1 } else { 2 };
    let v = f64s(x);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    let (outer, own, inner) = around(&s[..rank - 1], d);
    let results = shape[rank - 1];
    let direction = if inverse {
        FftDirection::Inverse
    } else {
        FftDirection::Forward
    };
    let fft = planned(n, outer.saturating_mul(inner), direction)?;
    let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
    let mut row = vec![Complex::default(); n];
    let mut scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
    for o in 0..outer {
        for i in 0..inner {
            let at = |k: usize| ((o * own + k) * inner + i) * parts;
            row.fill(Complex::default());
            for (k, r) in row.iter_mut().enumerate().take(from.min(own)) {
                *r = Complex::new(v[at(k)], if parts == 2 { v[at(k) + 1] } else { 0.0 });
            }
            if real {
                for k in 1..n.div_ceil(2) {
                    row[n - k] = row[k].conj();
                }
            }
            fft.process_with_scratch(&mut row, &mut scratch);
            for (k, c) in row.iter().enumerate().take(to) {
                let at = ((o * to + k) * inner + i) * results;
                y[at] = c.re * scale;
                if !real {
                    y[at + 1] = c.im * scale;
                }
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}

pub(crate) fn stft(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let (batch, length, parts) = match *x.shape() {
        [b, l] => (b, l, 1),
        [b, l, p @ 1..=2] => (b, l, p),
        ref s => return Err(format!("the signal has shape {s:?}, not [n, length, 1 or 2]").into()),
    };
    let step = extent(a.scalar(1)?)?.max(1);
    let window = a.opt(2).map(f64s);
    let frame = match (a.opt(3), &window) {
        (Some(_), _) => extent(a.scalar(3)?)?,
        (None, Some(w)) => w.len(),
        (None, None) => length,
    };
    if frame == 0 || frame > length {
        return Err(format!("a frame of {frame} does not fit a signal of {length}").into());
    }
    let bins = if a.int("onesided", 1)? != 0 {
        frame / 2 + 1
    } else {
        frame
    };
    let frames = (length - frame) / step + 1;
    let shape = [batch, frames, bins, 2];
    let fft = planned(frame, batch.saturating_mul(frames), FftDirection::Forward)?;
    let mut row = vec![Complex::default(); frame];
    let mut scratch = vec![Complex::default(); fft.get_inplace_scratch_len()];
    let v = f64s(x);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    for b in 0..batch {
        for f in 0..frames {
            for (t, r) in row.iter_mut().enumerate() {
                let at = (b * length + f * step + t) * parts;
                let w = window
                    .as_ref()
                    .map_or(1.0, |w| w.get(t).copied().unwrap_or(0.0));
                *r = Complex::new(v[at] * w, if parts == 2 { v[at + 1] * w } else { 0.0 });
            }
            fft.process_with_scratch(&mut row, &mut scratch);
            for (k, c) in row.iter().enumerate().take(bins) {
                let at = ((b * frames + f) * bins + k) * 2;
                (y[at], y[at + 1]) = (c.re, c.im);
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
