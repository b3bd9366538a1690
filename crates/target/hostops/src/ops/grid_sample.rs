//! GridSample over any number of spatial dimensions.
use crate::args::Args;
use crate::data::{alloc, count, f64s, from_f64s, next};
use crate::error::{R, Why};
use layout::DType;
use tensor::Tensor;

/// What stands outside the input.
#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

/// `x` mirrored into lo..=hi.
fn mirror(x: f64, lo: f64, hi: f64) -> f64 {
    let span = hi - lo;
    if span <= 0.0 || !x.is_finite() {
        return lo;
    }
    let d = (x - lo).rem_euclid(2.0 * span);
    lo + if d > span { 2.0 * span - d } else { d }
}

/// Cubic convolution weights for the taps -1, 0, 1, 2.
fn weights(t: f64) -> [f64; 4] {
    let a = -0.75;
    let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

/// The degree of interpolation, and what lies outside.
fn modes(a: &Args) -> R<(u8, Outside)> {
    let mode = match a.text("mode", "linear")? {
        "linear" | "bilinear" => 1,
        "nearest" => 0,
        "cubic" | "bicubic" => 3,
        m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
    };
    let outside = match a.text("padding_mode", "zeros")? {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        m => return Err(format!("padding mode '{m}' is not one that ONNX lists").into()),
    };
    Ok((mode, outside))
}

/// The sum of `values`, of these extents, at all combinations of the taps, `counts` per dimension.
fn weighted(
    values: &[f64],
    extents: &[usize],
    list: &[Vec<(usize, f64)>],
    counts: &[usize],
) -> f64 {
    let mut c = vec![0; counts.len()];
    let mut sum = 0.0;
    loop {
        let (mut rank, mut weight) = (0, 1.0);
        for (d, taps) in list.iter().enumerate() {
            let (i, w) = taps[c[d]];
            rank = rank * extents[d] + i;
            weight *= w;
        }
        sum += weight * values[rank];
        if !next(&mut c, counts) {
            break;
        }
    }
    sum
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, grid) = (a.input(0)?, a.input(1)?);
    let (s, g) = (x.shape(), grid.shape());
    let wrong = || Why(format!("grid {grid:?} does not fit {x:?}"));
    let r = s
        .len()
        .checked_sub(2)
        .filter(|r| (1..=4).contains(r))
        .ok_or_else(wrong)?;
    if g.len() != s.len() || g[r + 1] != r || g[0] != s[0] || s[2..].contains(&0) {
        return Err(wrong());
    }
    let (mode, outside) = modes(a)?;
    let corners = a.int("align_corners", 0)? != 0;
    let v = f64s(x);
    let mut shape = s[..2].to_vec();
    shape.extend(&g[1..=r]);
    let mut y = vec![0.0; alloc(DType::F64, &shape)?.len()];
    let place = |g: f64, n: usize| {
        let n = n as f64;
        if corners {
            (g + 1.0) / 2.0 * (n - 1.0)
        } else {
            ((g + 1.0) * n - 1.0) / 2.0
        }
    };
    let limits = |n: usize| {
        if corners {
            (0.0, n as f64 - 1.0)
        } else {
            (-0.5, n as f64 - 0.5)
        }
    };
    let settle = |p: f64, n: usize| match outside {
        Outside::Zeros => p,
        Outside::Border => p.clamp(0.0, n as f64 - 1.0),
        Outside::Reflection => {
            let (lo, hi) = limits(n);
            mirror(p, lo, hi)
        }
    };
    let fold = |i: f64, n: usize| -> Option<usize> {
        let last = n as f64 - 1.0;
        match outside {
            Outside::Zeros => (0.0..=last).contains(&i).then_some(i as usize),
            Outside::Border => Some(i.clamp(0.0, last) as usize),
            Outside::Reflection => {
                let (lo, hi) = limits(n);
                Some(mirror(i, lo, hi).clamp(0.0, last) as usize)
            }
        }
    };
    let taps = |p: f64| -> Vec<(f64, f64)> {
        let f = p.floor();
        match mode {
            0 => vec![(p.round_ties_even(), 1.0)],
            1 => vec![(f, 1.0 - (p - f)), (f + 1.0, p - f)],
            _ => weights(p - f)
                .into_iter()
                .enumerate()
                .map(|(k, wt)| (f - 1.0 + k as f64, wt))
                .collect(),
        }
    };
    let (plane, places) = (count(&s[2..])?, count(&g[1..=r])?);
    for b in 0..s[0] {
        for o in 0..places {
            let at = (b * places + o) * r;
            // Inside taps per dimension; the grid names the last dimension first.
            let list: Vec<Vec<(usize, f64)>> = (0..r)
                .map(|d| {
                    let n = s[2 + d];
                    let p = place(grid.get_f64(at + r - 1 - d), n);
                    let p = if mode == 3 { p } else { settle(p, n) };
                    let all = taps(p).into_iter();
                    all.filter_map(|(i, w)| Some((fold(i, n)?, w))).collect()
                })
                .collect();
            let counts: Vec<usize> = list.iter().map(Vec::len).collect();
            if counts.contains(&0) {
                continue;
            }
            for ch in 0..s[1] {
                let values = &v[(b * s[1] + ch) * plane..][..plane];
                let sum = weighted(values, &s[2..], &list, &counts);
                y[(b * s[1] + ch) * places + o] = sum;
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
