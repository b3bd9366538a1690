//! Resize and Upsample whose scales or sizes come from data.
use crate::args::Args;
use crate::core;
use crate::data::{axis, extent, f64s, ints};
use crate::error::R;
use graph::{ResampleMode, ResampleSpec};
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let old = a.opset()? < 11;
    let axes: Vec<usize> = match a.attr_ints("axes")? {
        Some(v) => v.into_iter().map(|d| axis(d, s.len())).collect::<R<_>>()?,
        None => (0..s.len()).collect(),
    };
    let given = |i: usize| a.opt(i).filter(|t| !t.is_empty());
    let (mut scales, mut shape) = (vec![1.0; s.len()], s.to_vec());
    match (given(if old { 1 } else { 2 }), given(3)) {
        (Some(t), _) if t.len() == axes.len() => {
            for (d, k) in axes.iter().zip(f64s(t)) {
                if !(k.is_finite() && k > 0.0) {
                    return Err(format!("scale {k} is not positive").into());
                }
                scales[*d] = k;
                shape[*d] = (s[*d] as f32 * k as f32).floor() as usize;
            }
        }
        (None, Some(t)) if t.len() == axes.len() => {
            let sizes: Vec<usize> = ints(t).into_iter().map(extent).collect::<R<_>>()?;
            let ratios = || {
                axes.iter()
                    .zip(&sizes)
                    .map(|(d, o)| *o as f64 / s[*d] as f64)
            };
            let one = match a.text("keep_aspect_ratio_policy", "stretch")? {
                "stretch" => None,
                "not_larger" => Some(ratios().fold(f64::INFINITY, f64::min)),
                "not_smaller" => Some(ratios().fold(0.0, f64::max)),
                p => return Err(format!("policy '{p}' is not one that ONNX lists").into()),
            };
            for (d, o) in axes.iter().zip(&sizes) {
                shape[*d] = one.map_or(*o, |k| (s[*d] as f64 * k + 0.5).floor() as usize);
                scales[*d] = one.unwrap_or(0.0);
            }
        }
        _ => return Err("scales or sizes must be given, one per dimension".into()),
    }
    let coordinates = a.text(
        "coordinate_transformation_mode",
        if old { "asymmetric" } else { "half_pixel" },
    )?;
    let mode = match a.text("mode", "nearest")? {
        "nearest" => ResampleMode::Nearest {
            rounding: a
                .text(
                    "nearest_mode",
                    match a.opset()? {
                        ..10 => "floor",
                        10 => graph::ROUNDED_BY_SCALE,
                        _ => "round_prefer_floor",
                    },
                )?
                .into(),
        },
        "linear" => ResampleMode::Linear,
        "cubic" => ResampleMode::Cubic {
            a: a.float("cubic_coeff_a", -0.75)?,
        },
        m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
    };
    let spec = ResampleSpec {
        mode,
        coordinates: coordinates.into(),
        scales,
        antialias: a.int("antialias", 0)? != 0,
        exclude_outside: a.int("exclude_outside", 0)? != 0,
    };
    if spec.coordinates == "tf_crop_and_resize" {
        let roi = a.opt(1).map(f64s).unwrap_or_default();
        if roi.len() != 2 * axes.len() {
            return Err(format!("roi has {} numbers for {} axes", roi.len(), axes.len()).into());
        }
        let mut ends = vec![(0.0, 1.0); s.len()];
        for (i, d) in axes.iter().enumerate() {
            ends[*d] = (roi[i] as f32, roi[axes.len() + i] as f32);
        }
        let outside = a.float("extrapolation_value", 0.0)?;
        let crop = core::Crop { ends, outside };
        return Ok(vec![core::resample_cropped(&spec, x, &shape, &crop)?]);
    }
    core::resample(&spec, x, &shape)
        .map(|t| vec![t])
        .map_err(|e| e.to_string().into())
}
