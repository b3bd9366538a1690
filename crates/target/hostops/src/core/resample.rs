//! Resampling as ONNX Resize defines it: nearest, linear and cubic, one axis after the other.
use crate::HostError;
use crate::data::{RawOut, around, f64s, from_f64s, next, raw, strides};
use crate::error::{R, Why, named};
use graph::{ResampleMode, ResampleSpec};
use tensor::Tensor;

/// `input` resampled to `shape`; a scale of 0 is output over input extent. Coordinates are computed in f32 as other runtimes do, so that
/// ties of nearest fall the same way.
pub fn resample(spec: &ResampleSpec, input: &Tensor, shape: &[usize]) -> Result<Tensor, HostError> {
    named("Resize", run(spec, input, shape, None))
}

/// The part of each dimension that a cropping resize reads, in shares of it, and what stands outside.
pub(crate) struct Crop {
    /// First and last position.
    pub ends: Vec<(f32, f32)>,
    /// Value of output elements that lie outside the input.
    pub outside: f64,
}

/// As [`resample`], cropping where the coordinate mode is `tf_crop_and_resize`.
pub(crate) fn resample_cropped(
    spec: &ResampleSpec,
    input: &Tensor,
    shape: &[usize],
    crop: &Crop,
) -> R<Tensor> {
    if crop.ends.len() != shape.len() {
        return Err(format!("a region is needed for each of {} dimensions", shape.len()).into());
    }
    run(spec, input, shape, Some(crop))
}

/// Position in the input of output coordinate `o`.
fn position(mode: &str, o: usize, scale: f32, n_in: usize, n_out: usize) -> R<f32> {
    let x = o as f32;
    let (i, out) = (n_in as f32, n_out as f32);
    Ok(match mode {
        "half_pixel" => (x + 0.5) / scale - 0.5,
        "half_pixel_symmetric" => {
            let adjust = out / (scale * i);
            i / 2.0 * (1.0 - adjust) + (x + 0.5) / scale - 0.5
        }
        "pytorch_half_pixel" if n_out > 1 => (x + 0.5) / scale - 0.5,
        "pytorch_half_pixel" => 0.0,
        "align_corners" if n_out > 1 => x * (i - 1.0) / (out - 1.0),
        "align_corners" => 0.0,
        "asymmetric" => x / scale,
        "tf_half_pixel_for_nn" => (x + 0.5) / scale,
        m => return Err(unknown_mode(m)),
    })
}

/// Index of the nearest neighbour where sizes are given: positions are fractions of whole numbers.
fn nearest_by_sizes(mode: &str, rounding: &str, o: usize, n_in: usize, n_out: usize) -> R<usize> {
    let (x, i, out) = (o as i128, n_in as i128, n_out as i128);
    let (n, d) = match mode {
        "half_pixel" | "half_pixel_symmetric" => ((2 * x + 1) * i - out, 2 * out),
        "pytorch_half_pixel" | "align_corners" if out == 1 => (0, 1),
        "pytorch_half_pixel" => ((2 * x + 1) * i - out, 2 * out),
        "align_corners" => (x * (i - 1), out - 1),
        "asymmetric" => (x * i, out),
        "tf_half_pixel_for_nn" => ((2 * x + 1) * i, 2 * out),
        m => return Err(unknown_mode(m)),
    };
    let at = match rounding {
        "round_prefer_floor" | "simple" => (2 * n + d - 1).div_euclid(2 * d),
        "round_prefer_ceil" => (2 * n + d).div_euclid(2 * d),
        "floor" => n.div_euclid(d),
        "ceil" => (n + d - 1).div_euclid(d),
        r => return Err(unknown_rounding(r)),
    };
    Ok(at.clamp(0, i - 1) as usize)
}

fn unknown_mode(m: &str) -> Why {
    format!("coordinate mode '{m}' is not covered; use half_pixel, align_corners or asymmetric")
        .into()
}

fn unknown_rounding(r: &str) -> Why {
    format!("rounding '{r}' is not one that ONNX lists").into()
}

fn nearest(x: f32, rounding: &str) -> R<f32> {
    Ok(match rounding {
        "round_prefer_floor" | "simple" => (x - 0.5).ceil(),
        "round_prefer_ceil" => (x + 0.5).floor(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        r => return Err(unknown_rounding(r)),
    })
}

fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}

/// Input coordinates and weights of one output coordinate.
type Taps = Vec<(usize, f64)>;

fn taps(spec: &ResampleSpec, x: f32, scale: f32, n: usize) -> Taps {
    let x = x as f64;
    // A filter for shrinking is widened so that every input counts.
    let squeeze = if spec.antialias {
        (scale as f64).clamp(1.0 / (n as f64 + 1.0), 1.0)
    } else {
        1.0
    };
    let (reach, a) = match &spec.mode {
        ResampleMode::Cubic { a } => (2.0, *a),
        _ => (1.0, 0.0),
    };
    let exclude = spec.exclude_outside;
    let start = (-reach / squeeze).floor() as i64 + 1;
    let end = 2 - start;
    let base = x.floor();
    let (ratio, base) = (x - base, base as i64);
    let mut out: Taps = Vec::new();
    let mut sum = 0.0;
    for k in start..end {
        let distance = squeeze * (k as f64 - ratio);
        let w = match &spec.mode {
            ResampleMode::Cubic { .. } => cubic(distance, a),
            _ => (1.0 - distance.abs()).max(0.0),
        };
        let at = base + k;
        if w == 0.0 || exclude && !(0..n as i64).contains(&at) {
            continue;
        }
        sum += w;
        out.push((at.clamp(0, n as i64 - 1) as usize, w));
    }
    if (exclude || spec.antialias) && sum != 0.0 {
        out.iter_mut().for_each(|t| t.1 /= sum);
    }
    out
}

/// `v` of `n` rows of `inner` elements, `outer` times, as sums of rows by `list`.
fn along(v: &[f64], (outer, n, inner): (usize, usize, usize), list: &[Taps]) -> R<Vec<f64>> {
    let mut w = Vec::new();
    w.try_reserve_exact(outer * list.len() * inner)
        .map_err(|_| Why("there is not enough memory for the resampled tensor".into()))?;
    for o in 0..outer {
        for t in list {
            let from = w.len();
            w.resize(from + inner, 0.0);
            for (c, k) in t {
                let row = &v[(o * n + c) * inner..][..inner];
                for (y, x) in w[from..].iter_mut().zip(row) {
                    *y += k * x;
                }
            }
        }
    }
    Ok(w)
}

fn run(spec: &ResampleSpec, input: &Tensor, shape: &[usize], crop: Option<&Crop>) -> R<Tensor> {
    let s = input.shape();
    if shape.len() != s.len() || spec.scales.len() != s.len() {
        return Err(format!(
            "shape {shape:?} and {} scales do not fit {s:?}",
            spec.scales.len()
        )
        .into());
    }
    if s.contains(&0) && !shape.contains(&0) {
        return Err(format!("an empty tensor {s:?} cannot be resampled to {shape:?}").into());
    }
    // A scale of 0 stands for output extent over input extent.
    let scales: Vec<f32> = spec
        .scales
        .iter()
        .zip(shape.iter().zip(s))
        .map(|(v, (o, i))| match *v {
            0.0 => *o as f32 / (*i).max(1) as f32,
            v => v as f32,
        })
        .collect();
    if shape.contains(&0) {
        return RawOut::new(input.dtype(), shape)?.finish();
    }
    if let Some(v) = scales.iter().find(|v| !(1e-6..1e6).contains(*v)) {
        return Err(format!("scale {v} is outside 1e-6 to 1e6").into());
    }
    let still = |d: usize| {
        let whole = crop.is_none_or(|c| c.ends[d] == (0.0, 1.0));
        s[d] == shape[d] && scales[d] == 1.0 && whole
    };
    let at = |d: usize, o: usize| match crop {
        None => position(&spec.coordinates, o, scales[d], s[d], shape[d]),
        Some(c) => {
            let ((start, end), last) = (c.ends[d], (s[d] - 1) as f32);
            let x: f32 = match shape[d] {
                1 => 0.5 * (start + end) * last,
                n => start * last + o as f32 * (end - start) * last / (n - 1) as f32,
            };
            if !x.is_finite() {
                return Err(
                    format!("the region {start} to {end} is no part of a dimension").into(),
                );
            }
            Ok(x.clamp(-1e9, 1e9))
        }
    };
    // Before anything is listed per coordinate the output must be of a size that can be had.
    let mut out = RawOut::new(input.dtype(), shape)?;
    if let ResampleMode::Nearest { rounding } = &spec.mode {
        let by = strides(s);
        let maps: Vec<Vec<usize>> = (0..s.len())
            .map(|d| {
                (0..shape[d])
                    .map(|o| {
                        let i = if still(d) {
                            o
                        } else if crop.is_none() && spec.scales[d] == 0.0 {
                            nearest_by_sizes(&spec.coordinates, rounding, o, s[d], shape[d])?
                        } else {
                            nearest(at(d, o)?, spec.rounding(d, rounding))?.max(0.0) as usize
                        };
                        Ok(by[d] * i.min(s[d] - 1))
                    })
                    .collect::<R<_>>()
            })
            .collect::<R<_>>()?;
        let src = raw(input);
        let mut c = vec![0; s.len()];
        for o in 0.. {
            out.put(o, src.at(c.iter().zip(&maps).map(|(c, m)| m[*c]).sum()));
            if !next(&mut c, shape) {
                break;
            }
        }
        let y = out.finish()?;
        return blank(y, crop, &at, s);
    }
    drop(out);
    let mut now = s.to_vec();
    let mut v = f64s(input);
    for d in (0..s.len()).filter(|d| !still(*d)) {
        let list: Vec<Taps> = (0..shape[d])
            .map(|o| Ok(taps(spec, at(d, o)?, scales[d], s[d])))
            .collect::<R<_>>()?;
        let (outer, n, inner) = around(&now, d);
        let w = along(&v, (outer, n, inner), &list)?;
        v = w;
        now[d] = shape[d];
    }
    if !input.dtype().is_float() {
        // Integer images round to nearest rather than toward zero.
        v.iter_mut().for_each(|x| *x = x.round_ties_even());
    }
    let y = from_f64s(input.dtype(), shape, &v)?;
    blank(y, crop, &at, s)
}

/// Elements whose position lies outside the input get the crop's value.
fn blank(
    mut y: Tensor,
    crop: Option<&Crop>,
    at: &dyn Fn(usize, usize) -> R<f32>,
    s: &[usize],
) -> R<Tensor> {
    let Some(crop) = crop else {
        return Ok(y);
    };
    let shape = y.shape().to_vec();
    let outside: Vec<Vec<bool>> = (0..s.len())
        .map(|d| {
            let far = |x: f32| x < 0.0 || x > (s[d] - 1) as f32;
            (0..shape[d]).map(|o| at(d, o).map(far)).collect()
        })
        .collect::<R<_>>()?;
    let mut c = vec![0; shape.len()];
    for o in 0..y.len() {
        if c.iter().zip(&outside).any(|(c, m)| m[*c]) {
            y.set_f64(o, crop.outside);
        }
        next(&mut c, &shape);
    }
    Ok(y)
}
