//! ai.onnx.ml Normalizer: rows divided by their norm.
use crate::args::Args;
use crate::data::{f64s, from_f64s};
use crate::error::R;
use layout::DType;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let columns = x.shape().last().copied().unwrap_or(1).max(1);
    let mut v = f64s(x);
    let norm = a.text("norm", "MAX")?;
    for row in v.chunks_exact_mut(columns) {
        let n = match norm {
            "MAX" => row.iter().map(|x| x.abs()).fold(0.0, f64::max),
            "L1" => row.iter().map(|x| x.abs()).sum(),
            "L2" => row.iter().map(|x| x * x).sum::<f64>().sqrt(),
            n => return Err(format!("norm '{n}' is none of MAX, L1, L2").into()),
        };
        if n != 0.0 {
            row.iter_mut().for_each(|x| *x /= n);
        }
    }
    Ok(vec![from_f64s(DType::F32, x.shape(), &v)?])
}
