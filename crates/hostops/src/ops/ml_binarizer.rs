//! ai.onnx.ml Binarizer: 1 above the threshold, else 0.
use crate::args::Args;
use crate::data::alloc;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let threshold = a.float("threshold", 0.0)?;
    let mut y = alloc(x.dtype(), x.shape())?;
    for i in 0..x.len() {
        y.set_f64(i, (x.get_f64(i) > threshold) as u8 as f64);
    }
    Ok(vec![y])
}
