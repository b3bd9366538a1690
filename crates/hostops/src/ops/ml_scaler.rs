//! ai.onnx.ml Scaler: (x - offset) * scale per column.
use crate::args::Args;
use crate::data::{f32s, from_f64s};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let columns = x.shape().last().copied().unwrap_or(1);
    let list = |name: &str, default: f64| -> R<Vec<f32>> {
        let v = a.floats(name)?;
        match v.len() {
            0 => Ok(vec![default as f32; columns]),
            1 => Ok(vec![v[0] as f32; columns]),
            n if n == columns => Ok(v.iter().map(|x| *x as f32).collect()),
            n => Err(format!("attribute '{name}' has {n} values for {columns} columns").into()),
        }
    };
    let (offset, scale) = (list("offset", 0.0)?, list("scale", 1.0)?);
    let y: Vec<f64> = f32s(x)
        .iter()
        .enumerate()
        .map(|(i, v)| ((v - offset[i % columns]) * scale[i % columns]) as f64)
        .collect();
    Ok(vec![from_f64s(DType::F32, x.shape(), &y)?])
}
