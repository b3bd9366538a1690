//! CenterCropPad whose extents come from data.
use crate::args::Args;
use crate::data::{RawOut, axis, extent, ints, next, raw, strides};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let target = ints(a.input(1)?);
    let axes: Vec<usize> = match a.attr_ints("axes")? {
        Some(v) => v.into_iter().map(|d| axis(d, s.len())).collect::<R<_>>()?,
        None => (0..s.len()).collect(),
    };
    if axes.len() != target.len() {
        return Err(format!("{} extents are given for {} axes", target.len(), axes.len()).into());
    }
    let mut shape = s.to_vec();
    for (d, t) in axes.into_iter().zip(target) {
        shape[d] = extent(t)?;
    }
    // Of an odd difference the larger half is behind.
    let from: Vec<usize> = s
        .iter()
        .zip(&shape)
        .map(|(n, o)| n.saturating_sub(*o) / 2)
        .collect();
    let to: Vec<usize> = s
        .iter()
        .zip(&shape)
        .map(|(n, o)| o.saturating_sub(*n) / 2)
        .collect();
    let part: Vec<usize> = s.iter().zip(&shape).map(|(n, o)| *n.min(o)).collect();
    let (src, mut out) = (raw(x), RawOut::new(x.dtype(), &shape)?);
    let (by_in, by_out) = (strides(s), strides(&shape));
    let mut at = vec![0; s.len()];
    if !part.contains(&0) {
        loop {
            let place = |by: &[usize], first: &[usize]| -> usize {
                at.iter()
                    .zip(first)
                    .zip(by)
                    .map(|((c, f), k)| (c + f) * k)
                    .sum()
            };
            out.put(place(&by_out, &to), src.at(place(&by_in, &from)));
            if !next(&mut at, &part) {
                break;
            }
        }
    }
    Ok(vec![out.finish()?])
}
