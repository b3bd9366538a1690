//! GatherElements: for every index the element at that place along an axis.
use crate::args::Args;
use crate::data::{RawOut, axis, index, next, raw, strides};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, indices) = (a.input(0)?, a.input(1)?);
    let (s, ix) = (x.shape(), indices.shape());
    let d = axis(a.int("axis", 0)?, s.len())?;
    if ix.len() != s.len() || (0..s.len()).any(|i| i != d && ix[i] > s[i]) {
        return Err(format!("indices of shape {ix:?} do not fit data of shape {s:?}").into());
    }
    let mut out = RawOut::new(x.dtype(), ix)?;
    let (src, by) = (raw(x), strides(s));
    let mut at = vec![0; ix.len()];
    for o in 0..indices.len() {
        let i = index(indices.get_i64(o), s[d])?;
        let from = (0..s.len())
            .map(|k| by[k] * if k == d { i } else { at[k] })
            .sum();
        out.put(o, src.at(from));
        next(&mut at, ix);
    }
    Ok(vec![out.finish()?])
}
