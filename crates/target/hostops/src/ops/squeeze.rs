//! Squeeze and Unsqueeze whose axes come from data.
use crate::args::Args;
use crate::data::{axis, ints};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn squeeze(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let s = x.shape();
    let mut gone = vec![false; s.len()];
    for v in ints(a.input(1)?) {
        let d = axis(v, s.len())?;
        if s[d] != 1 {
            return Err(format!("dimension {d} is {}, only 1 can be squeezed", s[d]).into());
        }
        gone[d] = true;
    }
    let shape: Vec<usize> = s
        .iter()
        .zip(gone)
        .filter(|(_, g)| !g)
        .map(|(n, _)| *n)
        .collect();
    Ok(vec![x.clone().reshaped(&shape)?])
}

pub(crate) fn unsqueeze(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let axes = ints(a.input(1)?);
    let rank = x.shape().len() + axes.len();
    let mut new = vec![false; rank];
    for v in axes {
        let d = axis(v, rank)?;
        if std::mem::replace(&mut new[d], true) {
            return Err(format!("dimension {d} is named twice").into());
        }
    }
    let mut rest = x.shape().iter();
    let shape: Vec<usize> = new
        .into_iter()
        .map(|n| {
            if n {
                1
            } else {
                rest.next().copied().unwrap_or(1)
            }
        })
        .collect();
    Ok(vec![x.clone().reshaped(&shape)?])
}
