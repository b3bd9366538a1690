//! Reductions whose axes come from data.
use crate::args::Args;
use crate::data::{alloc, axis, get, next, set, strides};
use crate::error::R;
use expr::{Binary, Scalar};
use layout::DType;
use tensor::Tensor;

/// How elements are taken in and joined.
#[derive(Clone, Copy)]
enum How {
    Sum,
    L1,
    L2,
    LogSum,
    LogSumExp,
    Max,
    Mean,
    Min,
    Prod,
    SumSquare,
}

/// The highest value of `d`.
fn highest(d: DType) -> Scalar {
    match d {
        DType::Bool => Scalar::Int(1),
        _ if d.is_float() => Scalar::Float(f64::INFINITY),
        DType::U64 => Scalar::Int(-1),
        _ if !d.is_signed_int() => Scalar::Int((1i64 << d.bits()) - 1),
        _ => Scalar::Int(i64::MAX >> (64 - d.bits())),
    }
}

/// The lowest value of `d`.
fn lowest(d: DType) -> Scalar {
    match d {
        _ if d.is_float() => Scalar::Float(f64::NEG_INFINITY),
        _ if !d.is_signed_int() => Scalar::Int(0),
        _ => Scalar::Int(i64::MIN >> (64 - d.bits())),
    }
}

/// Exact sums of floats in f64, of integers in their own type.
fn reduce(a: &Args, how: How) -> R<Vec<Tensor>> {
    let x = a.input(0)?;
    let (s, d) = (x.shape().to_vec(), x.dtype());
    let keep = a.int("keepdims", 1)? != 0;
    let mut reduced = vec![false; s.len()];
    let axes = a.ints(1, "axes")?.unwrap_or_default();
    for v in &axes {
        reduced[axis(*v, s.len())?] = true;
    }
    if axes.is_empty() && a.int("noop_with_empty_axes", 0)? == 0 {
        reduced.fill(true);
    }
    let thin: Vec<usize> = s
        .iter()
        .zip(&reduced)
        .map(|(n, r)| if *r { 1 } else { *n })
        .collect();
    let by: Vec<usize> = strides(&thin)
        .into_iter()
        .zip(&reduced)
        .map(|(k, r)| if *r { 0 } else { k })
        .collect();
    let wide = if d.is_float() { DType::F64 } else { d };
    let count: usize = s
        .iter()
        .zip(&reduced)
        .filter(|(_, r)| **r)
        .map(|(n, _)| n)
        .product();
    let number = |v: f64| Scalar::Float(v).cast(DType::F64, wide);
    let (start, join) = match how {
        How::Max => (lowest(d), Binary::Max),
        How::Min => (highest(d), Binary::Min),
        How::Prod => (number(1.0), Binary::Mul),
        How::LogSumExp => (lowest(d), Binary::Max),
        _ => (number(0.0), Binary::Add),
    };
    let total = alloc(wide, &thin)?;
    let mut sums = vec![start; total.len()];
    let mut at = vec![0; s.len()];
    let each = |f: &mut dyn FnMut(usize, Scalar)| {
        if x.is_empty() {
            return;
        }
        at.fill(0);
        for i in 0.. {
            f(at.iter().zip(&by).map(|(c, k)| c * k).sum(), get(x, i));
            if !next(&mut at, &s) {
                break;
            }
        }
    };
    let mut each = each;
    each(&mut |o, v| {
        let v = match how {
            How::L1 => v.unary(expr::Unary::Abs, wide),
            How::L2 | How::SumSquare => v.binary(Binary::Mul, v, wide),
            _ => v,
        };
        sums[o] = sums[o].binary(join, v, wide);
    });
    if let How::LogSumExp = how {
        // The maximum is subtracted where there is one.
        let top: Vec<f64> = sums
            .iter()
            .map(|m| m.as_f64())
            .map(|m| if m.is_finite() { m } else { 0.0 })
            .collect();
        let mut exps = vec![0.0; sums.len()];
        each(&mut |o, v| exps[o] += (v.as_f64() - top[o]).exp());
        for ((s, e), t) in sums.iter_mut().zip(exps).zip(top) {
            *s = number(e.ln() + t);
        }
    }
    let shape: Vec<usize> = match keep {
        true => thin,
        false => s
            .iter()
            .zip(&reduced)
            .filter(|(_, r)| !**r)
            .map(|(n, _)| *n)
            .collect(),
    };
    let mut y = alloc(d, &shape)?;
    for (i, s) in sums.into_iter().enumerate() {
        let v = match how {
            How::Mean if d.is_float() => Scalar::Float(s.as_f64() / count as f64),
            How::Mean => s.binary(Binary::Div, Scalar::Int(count as i64), d),
            How::L2 => number(s.as_f64().sqrt()),
            How::LogSum => number(s.as_f64().ln()),
            _ => s,
        };
        set(&mut y, i, v);
    }
    Ok(vec![y])
}

macro_rules! reductions {
    ($($name:ident $how:ident)*) => {
        $(pub(crate) fn $name(a: &Args) -> R<Vec<Tensor>> {
            reduce(a, How::$how)
        })*
    };
}

reductions! {
    l1 L1
    l2 L2
    log_sum LogSum
    log_sum_exp LogSumExp
    max Max
    mean Mean
    min Min
    prod Prod
    sum Sum
    sum_square SumSquare
}
