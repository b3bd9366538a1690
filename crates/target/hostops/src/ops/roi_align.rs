//! RoiAlign: regions of a feature map sampled to one size.
use crate::args::Args;
use crate::data::{alloc, f64s, from_f64s, index};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

/// Samples per bin and direction at most: a region that large against its output is an error.
pub(crate) const MAX_SAMPLES: f64 = 16384.0;

/// Four corners (address, weight) of bilinear interpolation at (y, x) in an h x w plane.
pub(crate) fn corners(y: f64, x: f64, h: usize, w: usize) -> Option<[(usize, f64); 4]> {
    if y < -1.0 || y > h as f64 || x < -1.0 || x > w as f64 {
        return None;
    }
    let split = |v: f64, n: usize| {
        let v = v.max(0.0);
        let lo = v as usize;
        if lo >= n - 1 {
            (n - 1, n - 1, 0.0)
        } else {
            (lo, lo + 1, v - lo as f64)
        }
    };
    let (y0, y1, ly) = split(y, h);
    let (x0, x1, lx) = split(x, w);
    Some([
        (y0 * w + x0, (1.0 - ly) * (1.0 - lx)),
        (y0 * w + x1, (1.0 - ly) * lx),
        (y1 * w + x0, ly * (1.0 - lx)),
        (y1 * w + x1, ly * lx),
    ])
}

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, rois, batch) = (a.ranked(0, 4)?, a.ranked(1, 2)?, a.input(2)?);
    let [n, c, h, w] = *x.shape() else {
        return Err("X must have four dimensions".into());
    };
    let regions = rois.shape()[0];
    if rois.shape()[1] != 4 || batch.len() != regions {
        return Err(format!("rois {rois:?} and batch indices {batch:?} do not fit").into());
    }
    let size = |name| -> R<usize> {
        let v = a.int(name, 1)?;
        usize::try_from(v)
            .ok()
            .filter(|v| (1..1 << 20).contains(v))
            .ok_or_else(|| format!("{name} {v} is not an extent").into())
    };
    let (oh, ow) = (size("output_height")?, size("output_width")?);
    let ratio = a.int("sampling_ratio", 0)?;
    let scale = a.float("spatial_scale", 1.0)?;
    let usual = if a.opset()? < 16 {
        "output_half_pixel"
    } else {
        "half_pixel"
    };
    let half = match a.text("coordinate_transformation_mode", usual)? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        m => return Err(format!("coordinate mode '{m}' is not one that ONNX lists").into()),
    };
    let largest = match a.text("mode", "avg")? {
        "avg" => false,
        "max" => true,
        m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
    };
    let shape = [regions, c, oh, ow];
    if h == 0 || w == 0 {
        return Err("X has no elements to sample".into());
    }
    let total = alloc(DType::F64, &shape)?.len();
    let mut y = vec![0.0; total];
    let v = f64s(x);
    let offset = if half { 0.5 } else { 0.0 };
    for r in 0..regions {
        let b = index(batch.get_i64(r), n)?;
        let edge = |i: usize| rois.get_f64(r * 4 + i) * scale - offset;
        let (x0, y0) = (edge(0), edge(1));
        let (mut rw, mut rh) = (edge(2) - x0, edge(3) - y0);
        if !half {
            (rw, rh) = (rw.max(1.0), rh.max(1.0));
        }
        let (bin_h, bin_w) = (rh / oh as f64, rw / ow as f64);
        let samples = |bin: f64| {
            if ratio > 0 {
                ratio as f64
            } else {
                bin.ceil().max(0.0)
            }
        };
        let (gh, gw) = (samples(bin_h), samples(bin_w));
        if !(gh <= MAX_SAMPLES && gw <= MAX_SAMPLES) {
            return Err(format!(
                "region {r} takes {gh} x {gw} samples per bin; use a smaller region"
            )
            .into());
        }
        let (gh, gw) = (gh as usize, gw as usize);
        let count = (gh * gw).max(1) as f64;
        for py in 0..oh {
            for px in 0..ow {
                let points: Vec<_> = (0..gh * gw)
                    .filter_map(|s| {
                        let (iy, ix) = ((s / gw) as f64 + 0.5, (s % gw) as f64 + 0.5);
                        let sy = y0 + py as f64 * bin_h + iy * bin_h / gh as f64;
                        let sx = x0 + px as f64 * bin_w + ix * bin_w / gw as f64;
                        corners(sy, sx, h, w)
                    })
                    .collect();
                for ch in 0..c {
                    let plane = &v[(b * c + ch) * h * w..][..h * w];
                    let parts = points.iter().flatten().map(|(at, k)| k * plane[*at]);
                    y[((r * c + ch) * oh + py) * ow + px] = if largest {
                        // The standard takes the largest weighted corner, not the largest sample.
                        parts.reduce(f64::max).unwrap_or(0.0)
                    } else {
                        parts.sum::<f64>() / count
                    };
                }
            }
        }
    }
    Ok(vec![from_f64s(x.dtype(), &shape, &y)?])
}
