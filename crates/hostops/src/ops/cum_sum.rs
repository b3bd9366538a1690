//! CumSum.
use crate::args::Args;
use crate::data::{alloc, around, axis, get, set};
use crate::error::R;
use expr::{Binary, Scalar};
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let d = axis(a.scalar(1)?, x.shape().len())?;
    let (exclusive, reverse) = (a.int("exclusive", 0)? != 0, a.int("reverse", 0)? != 0);
    let (outer, n, inner) = around(x.shape(), d);
    let mut y = alloc(x.dtype(), x.shape())?;
    for o in 0..outer {
        for i in 0..inner {
            let mut sum = Scalar::Int(0).of(x.dtype());
            for step in 0..n {
                let j = if reverse { n - 1 - step } else { step };
                let at = (o * n + j) * inner + i;
                let more = sum.binary(Binary::Add, get(x, at), x.dtype());
                set(&mut y, at, if exclusive { sum } else { more });
                sum = more;
            }
        }
    }
    Ok(vec![y])
}
