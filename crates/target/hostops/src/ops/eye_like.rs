//! EyeLike: ones on a diagonal.
use crate::args::Args;
use crate::data::alloc;
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.ranked(0, 2)?;
    let k = a.int("k", 0)?;
    let mut t = alloc(a.dtype("dtype")?.unwrap_or(x.dtype()), x.shape())?;
    let (rows, columns) = (x.shape()[0], x.shape()[1]);
    for r in 0..rows {
        let c = (r as i64).saturating_add(k);
        if (0..columns as i64).contains(&c) {
            t.set_i64(r * columns + c as usize, 1);
        }
    }
    Ok(vec![t])
}
