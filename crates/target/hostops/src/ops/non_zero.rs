//! NonZero: coordinates of the elements that are not 0, [rank, count] in row-major order.
use crate::args::Args;
use crate::data::{from_i64s, strides};
use crate::error::R;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let at: Vec<usize> = (0..x.len()).filter(|i| x.get_f64(*i) != 0.0).collect();
    let s = x.shape();
    let mut v = Vec::with_capacity(at.len() * s.len());
    for (n, by) in s.iter().zip(strides(s)) {
        v.extend(at.iter().map(|i| (i / by % n) as i64));
    }
    Ok(vec![from_i64s(&[s.len(), at.len()], &v)?])
}
