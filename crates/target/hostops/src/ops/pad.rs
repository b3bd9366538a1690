//! Pad whose amounts come from data.
use crate::args::Args;
use crate::core;
use crate::data::{axis, ints};
use crate::error::{R, Why};
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
    let padded = |x: &Tensor, before: &[i64], after: &[i64], mode| {
        core::pad(x, a.opt(2), before, after, mode).map_err(|e| Why(e.to_string()))
    };
    if mode == PadMode::Constant {
        return Ok(vec![padded(x, &before, &after, mode)?]);
    }
    // What is cut off is not there for the other side to repeat.
    let cut = |r: &i64| (*r).min(0);
    let rim = |r: &i64| (*r).max(0);
    let of = |rims: &[i64], f: fn(&i64) -> i64| rims.iter().map(f).collect::<Vec<i64>>();
    let x = padded(x, &of(&before, cut), &of(&after, cut), PadMode::Constant)?;
    let (before, after) = (of(&before, rim), of(&after, rim));
    for (d, &n) in x.shape().iter().enumerate() {
        let rim = before[d].max(after[d]);
        // A rim that repeats the input needs some, and a reflected one what it mirrors.
        let least = match mode {
            PadMode::Reflect => rim.saturating_add(1),
            _ => 1,
        };
        if rim > 0 && (n as i64) < least {
            return Err(format!("an extent of {n} is padded by {rim}, for which it needs {least} or more; use mode constant or pad less").into());
        }
    }
    Ok(vec![padded(&x, &before, &after, mode)?])
}
