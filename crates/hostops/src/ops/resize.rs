//! Resize whose scales or sizes come from data; every dimension must have one.
use crate::args::Args;
use crate::core;
use crate::data::{extent, f64s, ints};
use crate::error::{R, Why};
use graph::{ResampleMode, ResampleSpec};
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let (scales, shape): (Vec<f64>, Vec<usize>) = match (a.opt(2), a.opt(3)) {
        (Some(t), _) if !t.is_empty() => {
            let v = f64s(t);
            let shape = s
                .iter()
                .zip(&v)
                .map(|(n, k)| (*n as f64 * k).floor() as usize);
            let shape = shape.collect();
            (v, shape)
        }
        (_, Some(t)) => {
            let shape: Vec<usize> = ints(t).into_iter().map(extent).collect::<R<_>>()?;
            let ratio = |(o, n): (&usize, &usize)| (*o as f32 / *n as f32) as f64;
            (shape.iter().zip(s).map(ratio).collect(), shape)
        }
        _ => return Err("neither scales nor sizes are given".into()),
    };
    let unlike = ["keep_aspect_ratio_policy", "axes"]
        .into_iter()
        .find(|n| a.attrs.contains_key(*n) && a.text(n, "").ok() != Some("stretch"));
    if let Some(n) = unlike {
        return Err(Why(format!(
            "attribute '{n}' is not covered when sizes come from data; give every dimension its size"
        )));
    }
    let mode = match a.text("mode", "nearest")? {
        "nearest" => ResampleMode::Nearest {
            rounding: a.text("nearest_mode", "round_prefer_floor")?.into(),
        },
        "linear" => ResampleMode::Linear,
        "cubic" => ResampleMode::Cubic {
            a: a.float("cubic_coeff_a", -0.75)?,
            exclude_outside: a.int("exclude_outside", 0)? != 0,
        },
        m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
    };
    let spec = ResampleSpec {
        mode,
        coordinates: a
            .text("coordinate_transformation_mode", "half_pixel")?
            .into(),
        scales,
        antialias: a.int("antialias", 0)? != 0,
    };
    core::resample(&spec, x, &shape)
        .map(|t| vec![t])
        .map_err(|e| e.to_string().into())
}
