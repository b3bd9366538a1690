//! DFT and STFT of any length, in f64: halves, thirds and so on while the length has small factors,
//! the rest by the definition.
use crate::args::Args;
use crate::data::{alloc, around, axis, extent, f64s, from_f64s};
use crate::error::R;
use layout::DType;
use std::f64::consts::TAU;
use tensor::Tensor;

/// Real and imaginary part.
type Complex = (f64, f64);

fn mul(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// Most multiplications that one call may take.
const MOST: u128 = 1 << 36;

/// Refuses a transform of `n` elements, done `rows` times, that would take too long.
fn affordable(n: usize, rows: usize) -> R<()> {
    let longest = n > 1 << 28;
    let (mut rest, mut sum) = (n as u128, 0u128);
    let mut p = 2u128;
    while !longest && rest > 1 && p * p <= rest {
        while rest % p == 0 {
            rest /= p;
            sum += p;
        }
        p += 1;
    }
    sum += rest;
    match longest || (n as u128).saturating_mul(sum).saturating_mul(rows as u128) > MOST {
        true => Err(format!("{rows} transforms of {n} elements take too long; use lengths without large prime factors, such as powers of two").into()),
        false => Ok(()),
    }
}

/// The transform of `x`; `sign` is -1 forward. Roots of unity of the whole length are `roots`.
fn transform(x: &[Complex], sign: f64) -> Vec<Complex> {
    let n = x.len();
    let roots: Vec<Complex> = (0..n)
        .map(|k| (TAU * k as f64 / n as f64).sin_cos())
        .map(|(s, c)| (c, sign * s))
        .collect();
    let mut out = vec![(0.0, 0.0); n];
    step(x, 1, &roots, 1, &mut out);
    out
}

/// Transforms elements 0, `by`, 2 `by`, ... of `x` into `out`; their roots are every `skip`-th.
fn step(x: &[Complex], by: usize, roots: &[Complex], skip: usize, out: &mut [Complex]) {
    let n = out.len();
    if n <= 1 {
        out.iter_mut().for_each(|o| *o = x[0]);
        return;
    }
    let factor = (2..)
        .take_while(|p| p * p <= n)
        .find(|p| n.is_multiple_of(*p))
        .unwrap_or(n);
    let each = n / factor;
    let mut parts = vec![(0.0, 0.0); n];
    if each > 1 {
        for (p, part) in parts.chunks_exact_mut(each).enumerate() {
            step(&x[p * by..], by * factor, roots, skip * factor, part);
        }
    } else {
        for (p, part) in parts.iter_mut().enumerate() {
            *part = x[p * by];
        }
    }
    for (k, o) in out.iter_mut().enumerate() {
        let mut sum = (0.0, 0.0);
        for p in 0..factor {
            let w = roots[(p * k % n) * skip];
            let v = mul(parts[p * each + k % each], w);
            sum = (sum.0 + v.0, sum.1 + v.1);
        }
        *o = sum;
    }
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
    affordable(n, outer.saturating_mul(inner))?;
    for o in 0..outer {
        for i in 0..inner {
            let at = |k: usize| ((o * own + k) * inner + i) * parts;
            let mut row = vec![(0.0, 0.0); n];
            for (k, r) in row.iter_mut().enumerate().take(from.min(own)) {
                *r = (v[at(k)], if parts == 2 { v[at(k) + 1] } else { 0.0 });
            }
            if real {
                for k in 1..n.div_ceil(2) {
                    row[n - k] = (row[k].0, -row[k].1);
                }
            }
            let out = transform(&row, if inverse { 1.0 } else { -1.0 });
            let scale = if inverse { 1.0 / n as f64 } else { 1.0 };
            for (k, c) in out.iter().enumerate().take(to) {
                let at = ((o * to + k) * inner + i) * results;
                y[at] = c.0 * scale;
                if !real {
                    y[at + 1] = c.1 * scale;
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
    affordable(frame, batch.saturating_mul(frames))?;
    let v = f64s(x);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    for b in 0..batch {
        for f in 0..frames {
            let row: Vec<Complex> = (0..frame)
                .map(|t| {
                    let at = (b * length + f * step + t) * parts;
                    let w = window
                        .as_ref()
                        .map_or(1.0, |w| w.get(t).copied().unwrap_or(0.0));
                    (v[at] * w, if parts == 2 { v[at + 1] * w } else { 0.0 })
                })
                .collect();
            for (k, c) in transform(&row, -1.0).iter().enumerate().take(bins) {
                let at = ((b * frames + f) * bins + k) * 2;
                (y[at], y[at + 1]) = *c;
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
