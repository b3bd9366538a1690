//! BitCast: the same bytes under another type of the same width.
use crate::args::Args;
use crate::error::{R, Why};
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let to = a
        .dtype("to")?
        .ok_or_else(|| Why("attribute 'to' is missing".into()))?;
    if to.bits() != x.dtype().bits() {
        return Err(format!("{} has another width than {to}", x.dtype()).into());
    }
    Ok(vec![Tensor::from_bytes(to, x.shape(), x.bytes().to_vec())?])
}
