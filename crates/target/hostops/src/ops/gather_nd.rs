//! GatherND: slices named by index tuples, after leading batch dimensions.
use crate::args::Args;
use crate::data::{RawOut, index, raw, strides};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let (x, indices) = (a.input(0)?, a.input(1)?);
    let (s, ix) = (x.shape(), indices.shape());
    let b = crate::data::extent(a.int("batch_dims", 0)?)?;
    let depth = *ix.last().ok_or("indices must have a dimension")?;
    let fits =
        b < ix.len() && b.checked_add(depth).is_some_and(|n| n <= s.len()) && s[..b] == ix[..b];
    if !fits {
        return Err(
            format!("indices {indices:?} with {b} batch dimensions do not fit data {x:?}").into(),
        );
    }
    let shape: Vec<usize> = [&ix[..ix.len() - 1], &s[b + depth..]].concat();
    let mut out = RawOut::new(x.dtype(), &shape)?;
    let (src, by) = (raw(x), strides(s));
    let batches: usize = s[..b].iter().product();
    let per: usize = ix[b..ix.len() - 1].iter().product();
    let whole: usize = s[b..].iter().product();
    let n = s[b + depth..].iter().product::<usize>() * src.width;
    for t in 0..batches * per {
        let mut from = t / per * whole;
        for d in 0..depth {
            from += index(indices.get_i64(t * depth + d), s[b + d])? * by[b + d];
        }
        let from = from * src.width;
        out.bytes[t * n..(t + 1) * n].copy_from_slice(&src.bytes[from..from + n]);
    }
    Ok(vec![out.finish()?])
}
