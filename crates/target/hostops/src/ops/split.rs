//! Split whose sizes come from data.
use crate::args::Args;
use crate::core;
use crate::data::{axis, extent, ints};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let d = axis(a.int("axis", 0)?, s.len())?;
    let sizes: Vec<usize> = ints(a.input(1)?)
        .into_iter()
        .map(extent)
        .collect::<R<_>>()?;
    if sizes.iter().try_fold(0usize, |a, n| a.checked_add(*n)) != Some(s[d]) {
        return Err(format!("sizes {sizes:?} do not add up to {}", s[d]).into());
    }
    let mut starts = vec![0i64; s.len()];
    let steps = vec![1i64; s.len()];
    let mut parts = Vec::with_capacity(sizes.len());
    for n in sizes {
        let mut extents = s.to_vec();
        extents[d] = n;
        let part = core::slice(x, &starts, &steps, &extents);
        parts.push(part.map_err(|e| e.to_string())?);
        starts[d] += n as i64;
    }
    Ok(parts)
}
