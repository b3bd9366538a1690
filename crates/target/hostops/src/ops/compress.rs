//! Compress: the slices whose condition is true.
use crate::args::Args;
use crate::core;
use crate::data::{axis, from_i64s};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, condition) = (a.input(0)?, a.input(1)?);
    let (x, d) = match a.opt_int("axis")? {
        Some(d) => (x.clone(), axis(d, x.shape().len())?),
        None => (x.clone().reshaped(&[x.len()])?, 0),
    };
    let n = x.shape()[d].min(condition.len());
    let at: Vec<i64> = (0..n as i64)
        .filter(|i| condition.get_i64(*i as usize) != 0)
        .collect();
    let at = from_i64s(&[at.len()], &at)?;
    core::gather(&x, &at, d, 0)
        .map(|t| vec![t])
        .map_err(|e| e.to_string().into())
}
