//! The reductions that ONNX's operators ask for.
use expr::{Binary, Expr, ExprBuilder, Monoid, Ref};
use layout::{DType, Dim};

/// Type in which elements of `d` are accumulated.
pub(crate) fn accumulator(d: DType) -> DType {
    match d {
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

fn constant(value: f64, d: DType) -> Expr {
    let mut e = ExprBuilder::new();
    let c = e.constant(value, d);
    e.finish(&[c])
}

fn int_constant(value: i64, d: DType) -> Expr {
    let mut e = ExprBuilder::new();
    let c = e.int(value, d);
    e.finish(&[c])
}

fn of_one(from: DType, f: impl FnOnce(&mut ExprBuilder, Ref) -> Ref) -> Expr {
    let mut e = ExprBuilder::new();
    let x = e.input(0, from);
    let y = f(&mut e, x);
    e.finish(&[y])
}

fn combine(b: Binary, d: DType) -> Expr {
    let mut e = ExprBuilder::new();
    let (x, y) = (e.input(0, d), e.input(1, d));
    let z = e.binary(b, x, y);
    e.finish(&[z])
}

fn converted(e: &mut ExprBuilder, x: Ref, from: DType, to: DType) -> Ref {
    if from == to { x } else { e.cast(x, to) }
}

/// A reduction over one scalar: `lift` and `finish` work in the accumulator's type.
pub(crate) fn fold(
    name: &str,
    d: DType,
    b: Binary,
    identity: Expr,
    lift: impl FnOnce(&mut ExprBuilder, Ref) -> Ref,
    finish: impl FnOnce(&mut ExprBuilder, Ref) -> Ref,
) -> Monoid {
    let acc = accumulator(d);
    Monoid {
        name: name.into(),
        identity,
        lift: of_one(d, |e, x| {
            let x = converted(e, x, d, acc);
            lift(e, x)
        }),
        combine: combine(b, acc),
        finish: of_one(acc, |e, x| {
            let y = finish(e, x);
            converted(e, y, acc, d)
        }),
    }
}

/// Sum.
pub(crate) fn sum(d: DType) -> Monoid {
    fold(
        "sum",
        d,
        Binary::Add,
        constant(0.0, accumulator(d)),
        |_, x| x,
        |_, x| x,
    )
}

/// Sum divided by `count`.
pub(crate) fn mean(d: DType, count: &Dim) -> Monoid {
    let acc = accumulator(d);
    let divide = |e: &mut ExprBuilder, x| {
        let n = e.dim(count);
        let n = e.cast(n, acc);
        e.div(x, n)
    };
    fold("mean", d, Binary::Add, constant(0.0, acc), |_, x| x, divide)
}

/// Product.
pub(crate) fn product(d: DType) -> Monoid {
    fold(
        "prod",
        d,
        Binary::Mul,
        constant(1.0, accumulator(d)),
        |_, x| x,
        |_, x| x,
    )
}

/// Smallest value of a type.
pub(crate) fn lowest(d: DType) -> Expr {
    match d {
        _ if d.is_float() => constant(f64::NEG_INFINITY, d),
        DType::Bool => int_constant(0, d),
        _ if !d.is_signed_int() => int_constant(0, d),
        _ => int_constant(i64::MIN >> (64 - d.bits()), d),
    }
}

/// Largest value of a type.
pub(crate) fn highest(d: DType) -> Expr {
    match d {
        _ if d.is_float() => constant(f64::INFINITY, d),
        DType::Bool => int_constant(1, d),
        DType::U64 => int_constant(-1, d),
        _ if !d.is_signed_int() => int_constant((1i64 << d.bits()) - 1, d),
        _ => int_constant(i64::MAX >> (64 - d.bits()), d),
    }
}

/// Largest element.
pub(crate) fn max(d: DType) -> Monoid {
    fold(
        "max",
        d,
        Binary::Max,
        lowest(accumulator(d)),
        |_, x| x,
        |_, x| x,
    )
}

/// Smallest element.
pub(crate) fn min(d: DType) -> Monoid {
    fold(
        "min",
        d,
        Binary::Min,
        highest(accumulator(d)),
        |_, x| x,
        |_, x| x,
    )
}

/// `finish` of the sum of `lift`.
pub(crate) fn sum_of(
    name: &str,
    d: DType,
    lift: impl FnOnce(&mut ExprBuilder, Ref) -> Ref,
    finish: impl FnOnce(&mut ExprBuilder, Ref) -> Ref,
) -> Monoid {
    fold(
        name,
        d,
        Binary::Add,
        constant(0.0, accumulator(d)),
        lift,
        finish,
    )
}

/// Position of the largest (`largest`) or smallest element; of equal ones the first, or the last.
pub(crate) fn arg(d: DType, largest: bool, last: bool) -> Monoid {
    match largest {
        true => Monoid::argmax_along(d, 0, last),
        false => Monoid::argmin_along(d, 0, last),
    }
}
