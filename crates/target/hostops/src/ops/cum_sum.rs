//! CumSum and CumProd whose axis comes from data.
use crate::args::Args;
use crate::data::{alloc, around, axis, get, set};
use crate::error::R;
use expr::{Binary, Scalar};
use layout::DType;
use tensor::Tensor;

pub(crate) fn run(a: &Args) -> R<Vec<Tensor>> {
    running(a, Binary::Add, 0)
}

pub(crate) fn product(a: &Args) -> R<Vec<Tensor>> {
    running(a, Binary::Mul, 1)
}

fn running(a: &Args, join: Binary, start: i64) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let d = axis(a.scalar(1)?, x.shape().len())?;
    let (exclusive, reverse) = (a.int("exclusive", 0)? != 0, a.int("reverse", 0)? != 0);
    let (outer, n, inner) = around(x.shape(), d);
    let mut y = alloc(x.dtype(), x.shape())?;
    for o in 0..outer {
        for i in 0..inner {
            let mut sum = Scalar::Int(start).cast(DType::I64, x.dtype());
            for step in 0..n {
                let j = if reverse { n - 1 - step } else { step };
                let at = (o * n + j) * inner + i;
                let more = sum.binary(join, get(x, at), x.dtype());
                set(&mut y, at, if exclusive { sum } else { more });
                sum = more;
            }
        }
    }
    Ok(vec![y])
}
