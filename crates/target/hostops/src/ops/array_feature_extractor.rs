//! ai.onnx.ml ArrayFeatureExtractor: columns picked along the last dimension.
use crate::args::Args;
use crate::core;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, y) = (a.input(0)?, a.input(1)?);
    // A vector is a matrix of one row.
    let x = if x.shape().len() == 1 {
        x.clone().reshaped(&[1, x.len()])?
    } else {
        x.clone()
    };
    let last = x
        .shape()
        .len()
        .checked_sub(1)
        .ok_or("X must have a dimension")?;
    let y = y.clone().reshaped(&[y.len()])?;
    core::gather(&x, &y, last, 0)
        .map(|t| vec![t])
        .map_err(|e| e.to_string().into())
}
