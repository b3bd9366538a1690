//! GridSample over two spatial dimensions.
use crate::args::Args;
use crate::data::{alloc, f64s, from_f64s};
use crate::error::R;
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

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, grid) = (a.ranked(0, 4)?, a.ranked(1, 4)?);
    let [n, c, h, w] = *x.shape() else {
        return Err("X must have four dimensions".into());
    };
    let [gn, oh, ow, 2] = *grid.shape() else {
        return Err(format!("the grid has shape {:?}, not [n, h, w, 2]", grid.shape()).into());
    };
    if gn != n || h == 0 || w == 0 {
        return Err(format!("grid {grid:?} does not fit {x:?}").into());
    }
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
    let corners = a.int("align_corners", 0)? != 0;
    let v = f64s(x);
    let shape = [n, c, oh, ow];
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
    for b in 0..n {
        for o in 0..oh * ow {
            let at = (b * oh * ow + o) * 2;
            let gx = place(grid.get_f64(at), w);
            let gy = place(grid.get_f64(at + 1), h);
            let (px, py) = if mode == 3 {
                (gx, gy)
            } else {
                (settle(gx, w), settle(gy, h))
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
            let (tx, ty) = (taps(px), taps(py));
            for ch in 0..c {
                let plane = &v[(b * c + ch) * h * w..][..h * w];
                let mut sum = 0.0;
                for (iy, wy) in &ty {
                    for (ix, wx) in &tx {
                        if let (Some(r), Some(q)) = (fold(*iy, h), fold(*ix, w)) {
                            sum += wy * wx * plane[r * w + q];
                        }
                    }
                }
                y[(b * c + ch) * oh * ow + o] = sum;
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
