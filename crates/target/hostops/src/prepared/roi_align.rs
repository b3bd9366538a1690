//! RoiAlign with channels innermost: every sample adds whole vectors of channels.
use super::{Elem, Fast, Form, In, Out, input, whole};
use crate::args::Args;
use crate::data::index;
use crate::ops::{MAX_SAMPLES, roi_corners};
use layout::DType;
use tensor::Attrs;

pub(super) struct RoiAlign {
    ratio: i64,
    scale: f64,
    half: bool,
}

/// Averages only: the largest weighted corner is for plain code.
pub(super) fn prepare(attrs: &Attrs) -> Option<RoiAlign> {
    whole(attrs)?;
    let a = Args { attrs, inputs: &[] };
    let usual = if a.opset().ok()? < 16 {
        "output_half_pixel"
    } else {
        "half_pixel"
    };
    let half = match a.text("coordinate_transformation_mode", usual).ok()? {
        "half_pixel" => true,
        "output_half_pixel" => false,
        _ => return None,
    };
    if a.text("mode", "avg").ok()? != "avg" {
        return None;
    }
    Some(RoiAlign {
        ratio: a.int("sampling_ratio", 0).ok()?,
        scale: a.float("spatial_scale", 1.0).ok()?,
        half,
    })
}

impl Form for RoiAlign {
    fn run(&self, inputs: &[Option<In<'_>>], outputs: &mut [Out<'_>]) -> Fast {
        let (Some(x), Some(rois), Some(batch)) =
            (input(inputs, 0), input(inputs, 1), input(inputs, 2))
        else {
            return Ok(false);
        };
        let ([y], &[n, c, h, w]) = (outputs, x.shape) else {
            return Ok(false);
        };
        let f32s = [x.dtype, rois.dtype, y.dtype]
            .iter()
            .all(|d| *d == DType::F32);
        let (&[regions, 4], &[r, k, oh, ow]) = (rois.shape, y.shape) else {
            return Ok(false);
        };
        let fits = f32s && r == regions && k == c && batch.dtype == DType::I64;
        if !fits || *batch.shape != [regions] || h * w * c * oh * ow == 0 {
            return Ok(false);
        }
        let (x, rois) = (f32::chunks(x.bytes), f32::chunks(rois.bytes));
        let y = f32::chunks_mut(y.bytes);
        // One transposed picture at a time: regions of one picture come in a row.
        let (mut last, plane) = (usize::MAX, h * w);
        let mut pixels: Vec<f32> = vec![0.0; plane * c];
        let mut sums: Vec<f32> = vec![0.0; oh * ow * c];
        let offset = if self.half { 0.5 } else { 0.0 };
        let numbers = i64::chunks(batch.bytes);
        for (r, roi) in rois.as_chunks::<4>().0.iter().enumerate() {
            let b = index(i64::get(numbers[r]), n)?;
            if b != last {
                for ch in 0..c {
                    let from = &x[(b * c + ch) * plane..][..plane];
                    for (p, v) in from.iter().enumerate() {
                        pixels[p * c + ch] = f32::get(*v);
                    }
                }
                last = b;
            }
            let edge = |i: usize| f32::get(roi[i]) as f64 * self.scale - offset;
            let (x0, y0) = (edge(0), edge(1));
            let (mut rw, mut rh) = (edge(2) - x0, edge(3) - y0);
            if !self.half {
                (rw, rh) = (rw.max(1.0), rh.max(1.0));
            }
            let (bin_h, bin_w) = (rh / oh as f64, rw / ow as f64);
            let samples = |bin: f64| match self.ratio {
                s if s > 0 => s as f64,
                _ => bin.ceil().max(0.0),
            };
            let (gh, gw) = (samples(bin_h), samples(bin_w));
            if !(gh <= MAX_SAMPLES && gw <= MAX_SAMPLES) {
                return Ok(false);
            }
            let (gh, gw) = (gh as usize, gw as usize);
            let share = 1.0 / (gh * gw).max(1) as f64;
            sums.fill(0.0);
            for (bin, sum) in sums.chunks_exact_mut(c).enumerate() {
                let (py, px) = (bin / ow, bin % ow);
                for s in 0..gh * gw {
                    let (iy, ix) = ((s / gw) as f64 + 0.5, (s % gw) as f64 + 0.5);
                    let sy = y0 + py as f64 * bin_h + iy * bin_h / gh as f64;
                    let sx = x0 + px as f64 * bin_w + ix * bin_w / gw as f64;
                    let Some(four) = roi_corners(sy, sx, h, w) else {
                        continue;
                    };
                    let [p, q, r, t] = four.map(|(at, _)| &pixels[at * c..(at + 1) * c]);
                    let [k0, k1, k2, k3] = four.map(|(_, k)| (k * share) as f32);
                    for ((((o, a), b), d), e) in sum.iter_mut().zip(p).zip(q).zip(r).zip(t) {
                        *o += k0 * a + k1 * b + k2 * d + k3 * e;
                    }
                }
            }
            let to = &mut y[r * c * oh * ow..(r + 1) * c * oh * ow];
            for (ch, row) in to.chunks_exact_mut(oh * ow).enumerate() {
                for (bin, o) in row.iter_mut().enumerate() {
                    *o = sums[bin * c + ch].put();
                }
            }
        }
        Ok(true)
    }
}
