//! TopK whose k comes from data.
use crate::args::Args;
use crate::core;
use crate::data::{axis, extent};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let k = extent(match a.opt(1) {
        Some(_) => a.scalar(1)?,
        None => a.opt_int("k")?.ok_or("k is missing")?,
    })?;
    let d = axis(a.int("axis", -1)?, x.shape().len())?;
    core::sort(x, d, k, a.int("largest", 1)? != 0)
        .map(|(v, i)| vec![v, i])
        .map_err(|e| e.to_string().into())
}
