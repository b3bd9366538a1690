//! Pad whose amounts come from data.
use crate::args::Args;
use crate::core;
use crate::data::{axis, ints};
use crate::error::R;
use graph::PadMode;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let rank = x.shape().len();
    let pads = a.ints(1, "pads")?.ok_or("pads are missing")?;
    let axes = match a.opt(3) {
        Some(t) => ints(t),
        None => (0..rank as i64).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} pads do not fit {} axes", pads.len(), axes.len()).into());
    }
    let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
    for (i, d) in axes.iter().enumerate() {
        let d = axis(*d, rank)?;
        before[d] = pads[i];
        after[d] = pads[axes.len() + i];
    }
    let mode = match a.text("mode", "constant")? {
        "constant" => PadMode::Constant,
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => PadMode::Wrap,
        m => return Err(format!("mode '{m}' is not one that ONNX lists").into()),
    };
    core::pad(x, a.opt(2), &before, &after, mode)
        .map(|t| vec![t])
        .map_err(|e| e.to_string().into())
}
