//! Reshape whose shape comes from data.
use crate::args::Args;
use crate::data::count;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let want = a.ints(1, "shape")?.ok_or("the shape is missing")?;
    let allow_zero = a.int("allowzero", 0)? != 0;
    let mut shape = Vec::with_capacity(want.len());
    let mut free = None;
    for (i, &d) in want.iter().enumerate() {
        shape.push(match d {
            -1 if free.replace(i).is_some() => return Err("only one extent may be -1".into()),
            -1 => 1,
            0 if !allow_zero => *x
                .shape()
                .get(i)
                .ok_or_else(|| format!("extent {i} is 0, but the input has no dimension {i}"))?,
            d => usize::try_from(d).map_err(|_| format!("{d} is not an extent"))?,
        });
    }
    let n = count(&shape)?;
    if let Some(i) = free {
        if n == 0 || x.len() % n != 0 {
            return Err(format!("{} elements do not fit shape {want:?}", x.len()).into());
        }
        shape[i] = x.len() / n;
    }
    if count(&shape)? != x.len() {
        return Err(format!("{} elements do not fit shape {want:?}", x.len()).into());
    }
    Ok(vec![x.clone().reshaped(&shape)?])
}
