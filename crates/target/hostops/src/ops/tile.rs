//! Tile whose repeats come from data.
use crate::args::Args;
use crate::data::{RawOut, extent, ints, next, raw, strides};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let repeats: Vec<usize> = ints(a.input(1)?)
        .into_iter()
        .map(extent)
        .collect::<R<_>>()?;
    if repeats.len() != s.len() {
        return Err(format!("{} repeats do not fit shape {s:?}", repeats.len()).into());
    }
    let shape: Vec<usize> = s
        .iter()
        .zip(&repeats)
        .map(|(n, r)| n.checked_mul(*r).ok_or("the tiled shape overflows"))
        .collect::<Result<_, _>>()?;
    let mut out = RawOut::new(x.dtype(), &shape)?;
    if !out.bytes.is_empty() {
        let (src, by) = (raw(x), strides(s));
        let mut at = vec![0; s.len()];
        for o in 0.. {
            let from = (0..s.len()).map(|d| at[d] % s[d] * by[d]).sum();
            out.put(o, src.at(from));
            if !next(&mut at, &shape) {
                break;
            }
        }
    }
    Ok(vec![out.finish()?])
}
