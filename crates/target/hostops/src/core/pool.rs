//! Pooling over windows, with indices for MaxPool. Plain code on whole tensors, run as a host step.
use crate::HostError;
use crate::data::{alloc, f64s, from_f64s, from_i64s, get, next, set, strides};
use crate::error::{R, named};
use expr::{Binary, Scalar};
use graph::PoolKind;
use layout::DType;
use tensor::Tensor;

/// Where a pool's windows lie: one entry per trailing spatial dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolWindow {
    /// Window extents.
    pub kernel: Vec<i64>,
    /// Steps between windows.
    pub strides: Vec<i64>,
    /// Steps inside a window.
    pub dilations: Vec<i64>,
    /// Padding before.
    pub before: Vec<i64>,
    /// Padding after; what lies beyond it never counts.
    pub after: Vec<i64>,
    /// Extents of the output's spatial dimensions.
    pub out: Vec<usize>,
}

impl PoolWindow {
    fn check(&self, shape: &[usize]) -> R<()> {
        let n = self.kernel.len();
        let lists = [
            self.strides.len(),
            self.dilations.len(),
            self.before.len(),
            self.after.len(),
            self.out.len(),
        ];
        if lists != [n; 5] || shape.len() != n + 2 {
            return Err(format!("a window of {n} dimensions does not fit shape {shape:?}").into());
        }
        let small = |v: &[i64], lo: i64| v.iter().all(|x| (lo..1 << 31).contains(x));
        if small(&self.kernel, 1)
            && small(&self.strides, 1)
            && small(&self.dilations, 1)
            && small(&self.before, -(1 << 31))
            && small(&self.after, -(1 << 31))
            && self.out.iter().all(|&o| o < 1 << 31)
        {
            Ok(())
        } else {
            Err("kernel, strides and dilations must be 1 or more and below 2^31".into())
        }
    }

    /// Per dimension and output coordinate: input coordinates under the window, and how many taps
    /// fall on input or padding.
    fn taps(&self, d: usize, extent: usize) -> Vec<(Vec<usize>, usize)> {
        let n = extent as i64;
        (0..self.out[d] as i64)
            .map(|o| {
                let start = o * self.strides[d] - self.before[d];
                let (step, count) = (self.dilations[d], self.kernel[d]);
                // Only the taps inside the padded input are walked, however large the kernel is.
                let first =
                    |limit: i64| ((limit - start + step - 1).div_euclid(step)).clamp(0, count);
                let (lo, hi) = (first(0), first(n));
                let padded = first(n + self.after[d]) - first(-self.before[d]);
                let inside = (lo..hi.max(lo))
                    .map(|k| (start + k * step) as usize)
                    .collect();
                (inside, padded.max(0) as usize)
            })
            .collect()
    }
}

/// Window reduction over the trailing spatial dimensions of [n, c, spatial..].
pub fn pool(input: &Tensor, kind: &PoolKind, window: &PoolWindow) -> Result<Tensor, HostError> {
    named("Pool", reduce(input, kind, window))
}

/// Max pool with the row-major ranks (I64) in the whole input of the elements that won; with
/// `column_major` ranks count spatial dimensions in reverse order.
pub fn pool_with_indices(
    input: &Tensor,
    window: &PoolWindow,
    column_major: bool,
) -> Result<(Tensor, Tensor), HostError> {
    named("MaxPool", maxima(input, window, column_major))
}

/// Calls `f(output rank, plane start, taps per dimension)` for every output element.
fn walk(
    input: &Tensor,
    w: &PoolWindow,
    mut f: impl FnMut(usize, usize, &[&(Vec<usize>, usize)]),
) -> R<Vec<usize>> {
    let s = input.shape();
    w.check(s)?;
    let out: Vec<usize> = [&s[..2], &w.out[..]].concat();
    // Refuses sizes that cannot be had before anything is computed.
    alloc(DType::U64, &out)?;
    let taps: Vec<_> = (0..w.out.len()).map(|d| w.taps(d, s[d + 2])).collect();
    let plane: usize = s[2..].iter().product();
    let mut rank = 0;
    if w.out.contains(&0) {
        return Ok(out);
    }
    for p in 0..s[0] * s[1] {
        let mut at = vec![0; w.out.len()];
        loop {
            let here: Vec<_> = at.iter().zip(&taps).map(|(o, t)| &t[*o]).collect();
            f(rank, p * plane, &here);
            rank += 1;
            if !next(&mut at, &w.out) {
                break;
            }
        }
    }
    Ok(out)
}

fn reduce(input: &Tensor, kind: &PoolKind, w: &PoolWindow) -> R<Tensor> {
    let d = input.dtype();
    if !d.is_float() {
        if *kind != PoolKind::Max {
            return Err(
                format!("an average of {d} elements is not defined; cast to a float").into(),
            );
        }
        return maxima(input, w, false).map(|(t, _)| t);
    }
    let x = f64s(input);
    let by = strides(input.shape().get(2..).unwrap_or(&[]));
    let mut y = Vec::new();
    let shape = walk(input, w, |_, base, taps| {
        let mut n = 0usize;
        let mut acc = match kind {
            PoolKind::Max => f64::NEG_INFINITY,
            _ => 0.0,
        };
        under(taps, &by, &mut |a| {
            let v = x[base + a];
            n += 1;
            match kind {
                PoolKind::Max => {
                    if v > acc || v.is_nan() {
                        acc = v;
                    }
                }
                PoolKind::Average { .. } => acc += v,
                PoolKind::Lp { p } => acc += v.abs().powf(*p as f64),
            }
        });
        y.push(match kind {
            PoolKind::Max => acc,
            PoolKind::Average { include_pad } => {
                let n = if *include_pad {
                    taps.iter().map(|t| t.1).product()
                } else {
                    n
                };
                acc / n as f64
            }
            PoolKind::Lp { p } => acc.powf(1.0 / *p as f64),
        });
    })?;
    from_f64s(d, &shape, &y)
}

/// Calls `f` with the address in the plane of every input element under a window.
fn under(taps: &[&(Vec<usize>, usize)], by: &[usize], f: &mut dyn FnMut(usize)) {
    match taps {
        [] => f(0),
        [(last, _)] => last.iter().for_each(|c| f(c * by[0])),
        [(first, _), rest @ ..] => {
            for c in first {
                under(rest, &by[1..], &mut |a| f(c * by[0] + a));
            }
        }
    }
}

fn maxima(input: &Tensor, w: &PoolWindow, column_major: bool) -> R<(Tensor, Tensor)> {
    let d = input.dtype();
    let spatial = input.shape().get(2..).unwrap_or(&[]);
    let by = strides(spatial);
    let mut won: Vec<Option<usize>> = Vec::new();
    let shape = walk(input, w, |_, base, taps| {
        let mut best: Option<(Scalar, usize)> = None;
        under(taps, &by, &mut |a| {
            let v = get(input, base + a);
            let wins = best.is_none_or(|(b, _)| {
                let m = b.binary(Binary::Max, v, d);
                m != b && !b.as_f64().is_nan()
            });
            if wins {
                best = Some((v, base + a));
            }
        });
        won.push(best.map(|b| b.1));
    })?;
    let mut y = alloc(d, &shape)?;
    let plane: usize = spatial.iter().product();
    let mut ranks = Vec::with_capacity(won.len());
    for (o, at) in won.iter().enumerate() {
        let lowest = match d {
            _ if d.is_float() => Scalar::Float(f64::NEG_INFINITY),
            _ if d.is_signed_int() => Scalar::Int(-1i64 << (d.bits() - 1)),
            _ => Scalar::Int(0),
        };
        set(&mut y, o, at.map_or(lowest, |a| get(input, a)));
        ranks.push(match at {
            None => -1,
            Some(a) if !column_major => *a as i64,
            Some(a) => {
                let (mut rest, mut rank, mut step) = (a % plane, 0, 1);
                for (d, b) in by.iter().enumerate() {
                    rank += rest / b * step;
                    rest %= b;
                    step *= spatial[d];
                }
                (a / plane * plane + rank) as i64
            }
        });
    }
    let indices = from_i64s(&shape, &ranks)?;
    Ok((y, indices))
}
