//! The standard reductions, one constructor each: sum, product, extremes, arg-extremes, log-sum-exp, Welford
//! and top-k. Import and the planner take them from here; a new reduction is one function.
use crate::{Binary, Compare, Expr, ExprBuilder, Monoid, Ref, Unary};
use layout::{DType, Dim};

/// One program from a closure that gives its outputs.
fn program(f: impl FnOnce(&mut ExprBuilder) -> Vec<Ref>) -> Expr {
    let mut b = ExprBuilder::new();
    let outs = f(&mut b);
    b.finish(&outs)
}

/// The smallest value of `d` (minus infinity for floats).
fn lowest(b: &mut ExprBuilder, d: DType) -> Ref {
    if d.is_float() {
        return b.constant(f64::NEG_INFINITY, d);
    }
    let n = if d.is_signed_int() {
        -(1i64 << (d.bits() - 2)) * 2
    } else {
        0
    };
    b.int(n, d)
}

/// The largest value of `d` (infinity for floats).
fn highest(b: &mut ExprBuilder, d: DType) -> Ref {
    if d.is_float() {
        return b.constant(f64::INFINITY, d);
    }
    let n = match d {
        DType::Bool => 1,
        // All 64 bits set, as values above i64::MAX are held.
        DType::U64 => -1,
        d if d.is_signed_int() => i64::MAX >> (64 - d.bits()),
        d => (1i64 << d.bits()) - 1,
    };
    b.int(n, d)
}

/// What a NaN is to a pick.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nans {
    /// Better than every number.
    Win,
    /// With index 0 better, else worse than every number.
    FirstStays,
}

/// Two elements with their indices, the one that comes first in sorted order first.
fn ordered(
    b: &mut ExprBuilder,
    d: DType,
    largest: bool,
    (v1, i1): (Ref, Ref),
    (v2, i2): (Ref, Ref),
) -> ((Ref, Ref), (Ref, Ref)) {
    let better = if largest { Compare::Gt } else { Compare::Lt };
    let mut wins = b.compare(better, v2, v1);
    let mut equal = b.compare(Compare::Eq, v2, v1);
    if d.is_float() {
        let (nan1, nan2) = (b.unary(Unary::IsNan, v1), b.unary(Unary::IsNan, v2));
        // Comparisons with a NaN are false.
        let (first, second) = if largest { (nan2, nan1) } else { (nan1, nan2) };
        let number = b.unary(Unary::Not, second);
        let by_nan = b.binary(Binary::And, first, number);
        wins = b.binary(Binary::Or, wins, by_nan);
        let both = b.binary(Binary::And, nan1, nan2);
        equal = b.binary(Binary::Or, equal, both);
    }
    let lower = b.compare(Compare::Lt, i2, i1);
    let tie = b.binary(Binary::And, equal, lower);
    wins = b.binary(Binary::Or, wins, tie);
    // A place that nothing fills comes last.
    let zero = b.int(0, DType::I64);
    let (none1, some2) = (
        b.compare(Compare::Lt, i1, zero),
        b.compare(Compare::Ge, i2, zero),
    );
    wins = b.binary(Binary::Or, wins, none1);
    wins = b.binary(Binary::And, wins, some2);
    let pick = |b: &mut ExprBuilder, x, y| b.select(wins, x, y);
    let first = (pick(b, v2, v1), pick(b, i2, i1));
    let second = (pick(b, v1, v2), pick(b, i1, i2));
    (first, second)
}

/// A reduction with one state scalar of type `acc`.
fn single(
    name: &str,
    (dtype, acc): (DType, DType),
    identity: impl FnOnce(&mut ExprBuilder) -> Ref,
    lift: impl FnOnce(&mut ExprBuilder, Ref) -> Ref,
    combine: Binary,
    finish: impl FnOnce(&mut ExprBuilder, Ref) -> Ref,
) -> Monoid {
    Monoid {
        name: name.into(),
        identity: program(|b| vec![identity(b)]),
        lift: program(|b| {
            let x = b.input(0, dtype);
            let x = convert(b, x, dtype, acc);
            vec![lift(b, x)]
        }),
        combine: program(|b| {
            let (x, y) = (b.input(0, acc), b.input(1, acc));
            vec![b.binary(combine, x, y)]
        }),
        finish: program(|b| {
            let s = b.input(0, acc);
            let r = finish(b, s);
            vec![convert(b, r, acc, dtype)]
        }),
    }
}

fn convert(b: &mut ExprBuilder, x: Ref, from: DType, to: DType) -> Ref {
    if from == to { x } else { b.cast(x, to) }
}

fn same(_: &mut ExprBuilder, x: Ref) -> Ref {
    x
}

/// Standard reductions. `dtype` is the type of elements and results, `acc` of the state.
impl Monoid {
    /// Sum.
    pub fn sum(dtype: DType, acc: DType) -> Monoid {
        single(
            "sum",
            (dtype, acc),
            |b| b.constant(0.0, acc),
            same,
            Binary::Add,
            same,
        )
    }

    /// Product.
    pub fn product(dtype: DType, acc: DType) -> Monoid {
        single(
            "product",
            (dtype, acc),
            |b| b.constant(1.0, acc),
            same,
            Binary::Mul,
            same,
        )
    }

    /// Largest element; a NaN wins. Nothing gives minus infinity or the type's smallest integer.
    pub fn max(dtype: DType, acc: DType) -> Monoid {
        single(
            "max",
            (dtype, acc),
            |b| lowest(b, acc),
            same,
            Binary::Max,
            same,
        )
    }

    /// Smallest element; a NaN wins. Nothing gives infinity or the type's largest integer.
    pub fn min(dtype: DType, acc: DType) -> Monoid {
        single(
            "min",
            (dtype, acc),
            |b| highest(b, acc),
            same,
            Binary::Min,
            same,
        )
    }

    /// Sum divided by `count`, the number of elements.
    pub fn mean(dtype: DType, acc: DType, count: &Dim) -> Monoid {
        single(
            "mean",
            (dtype, acc),
            |b| b.constant(0.0, acc),
            same,
            Binary::Add,
            |b, s| {
                let n = b.dim(count);
                let n = convert(b, n, DType::I64, acc);
                b.div(s, n)
            },
        )
    }

    /// Sum of squares.
    pub fn sum_square(dtype: DType, acc: DType) -> Monoid {
        single(
            "sumsquare",
            (dtype, acc),
            |b| b.constant(0.0, acc),
            |b, x| b.mul(x, x),
            Binary::Add,
            same,
        )
    }

    /// Sum of magnitudes.
    pub fn l1(dtype: DType, acc: DType) -> Monoid {
        single(
            "l1",
            (dtype, acc),
            |b| b.constant(0.0, acc),
            |b, x| b.unary(Unary::Abs, x),
            Binary::Add,
            same,
        )
    }

    /// Square root of the sum of squares.
    pub fn l2(dtype: DType, acc: DType) -> Monoid {
        single(
            "l2",
            (dtype, acc),
            |b| b.constant(0.0, acc),
            |b, x| b.mul(x, x),
            Binary::Add,
            |b, s| b.unary(Unary::Sqrt, s),
        )
    }

    /// Logarithm of the sum.
    pub fn log_sum(dtype: DType, acc: DType) -> Monoid {
        single(
            "logsum",
            (dtype, acc),
            |b| b.constant(0.0, acc),
            same,
            Binary::Add,
            |b, s| b.unary(Unary::Log, s),
        )
    }

    /// Logarithm of the sum of exponentials, without overflow: state (m, s) stands for
    /// `s * exp(m)`. Nothing gives minus infinity. `acc` is a float.
    pub fn log_sum_exp(dtype: DType, acc: DType) -> Monoid {
        Monoid {
            name: "logsumexp".into(),
            identity: program(|b| vec![lowest(b, acc), b.constant(0.0, acc)]),
            lift: program(|b| {
                let x = b.input(0, dtype);
                vec![convert(b, x, dtype, acc), b.constant(1.0, acc)]
            }),
            combine: program(|b| {
                let [m1, s1, m2, s2] = [0, 1, 2, 3].map(|i| b.input(i, acc));
                let m = b.binary(Binary::Max, m1, m2);
                let one = b.constant(1.0, acc);
                let mut scaled = |mi, si| {
                    // The larger side stays as it is; inf - inf never comes up.
                    let top = b.compare(Compare::Eq, mi, m);
                    let d = b.sub(mi, m);
                    let e = b.unary(Unary::Exp, d);
                    let f = b.select(top, one, e);
                    b.mul(si, f)
                };
                let (a, c) = (scaled(m1, s1), scaled(m2, s2));
                vec![m, b.add(a, c)]
            }),
            finish: program(|b| {
                let (m, s) = (b.input(0, acc), b.input(1, acc));
                let l = b.unary(Unary::Log, s);
                let r = b.add(m, l);
                vec![convert(b, r, acc, dtype)]
            }),
        }
    }

    /// Mean and variance in one pass: state (count, mean, sum of squared deviations), results
    /// mean and `deviations / (count - correction)` (correction 0: of a population). With an
    /// infinite element neither result has a meaning. `acc` is a float.
    pub fn welford(dtype: DType, acc: DType, correction: i64) -> Monoid {
        Monoid {
            name: "welford".into(),
            identity: program(|b| vec![b.constant(0.0, acc); 3]),
            lift: program(|b| {
                let x = b.input(0, dtype);
                let x = convert(b, x, dtype, acc);
                vec![b.constant(1.0, acc), x, b.constant(0.0, acc)]
            }),
            combine: program(|b| {
                let [n1, a1, q1, n2, a2, q2] = [0, 1, 2, 3, 4, 5].map(|i| b.input(i, acc));
                let zero = b.constant(0.0, acc);
                let n = b.add(n1, n2);
                let delta = b.sub(a2, a1);
                let share = b.div(n2, n);
                let step = b.mul(delta, share);
                let mean = b.add(a1, step);
                let left = b.mul(step, n1);
                let extra = b.mul(delta, left);
                let q = b.add(q1, q2);
                let q = b.add(q, extra);
                let (no_left, no_right) = (
                    b.compare(Compare::Eq, n1, zero),
                    b.compare(Compare::Eq, n2, zero),
                );
                let mut pick = |both, l, r| {
                    let x = b.select(no_right, l, both);
                    b.select(no_left, r, x)
                };
                let (mean, q) = (pick(mean, a1, a2), pick(q, q1, q2));
                vec![n, mean, q]
            }),
            finish: program(|b| {
                let [n, mean, q] = [0, 1, 2].map(|i| b.input(i, acc));
                let free = match correction {
                    0 => n,
                    c => {
                        let c = b.constant(c as f64, acc);
                        b.sub(n, c)
                    }
                };
                let var = b.div(q, free);
                vec![convert(b, mean, acc, dtype), convert(b, var, acc, dtype)]
            }),
        }
    }

    /// Index (I64) of the largest element along `axis`: the first of equals, or the last when
    /// `select_last`. A NaN counts as largest. State (value, index), index -1 for nothing; ties
    /// are decided by index, so `combine` may be used in any order.
    pub fn argmax(dtype: DType, axis: u32, select_last: bool) -> Monoid {
        Monoid::arg("argmax", dtype, axis, select_last, Compare::Gt, Nans::Win)
    }

    /// Index (I64) of the smallest element along `axis`; else as [`Monoid::argmax`]. A NaN counts
    /// as smallest.
    pub fn argmin(dtype: DType, axis: u32, select_last: bool) -> Monoid {
        Monoid::arg("argmin", dtype, axis, select_last, Compare::Lt, Nans::Win)
    }

    /// As [`Monoid::argmax`], but for NaNs what who goes along the axis finds by taking what is larger than
    /// what it has: a NaN of index 0 stays, any other is never taken. onnxruntime finds the same, but in tensors
    /// of one dimension, where the place of a NaN in its vectors counts.
    pub fn argmax_along(dtype: DType, axis: u32, select_last: bool) -> Monoid {
        Monoid::arg(
            "argmax",
            dtype,
            axis,
            select_last,
            Compare::Gt,
            Nans::FirstStays,
        )
    }

    /// The smallest, else as [`Monoid::argmax_along`].
    pub fn argmin_along(dtype: DType, axis: u32, select_last: bool) -> Monoid {
        Monoid::arg(
            "argmin",
            dtype,
            axis,
            select_last,
            Compare::Lt,
            Nans::FirstStays,
        )
    }

    /// The `k` first elements in order along `axis` (the largest, or the smallest, first) and their I64
    /// indices: states and results are the elements, then the indices. Ties keep the lower index
    /// first, a NaN counts as larger than every number; places that nothing fills have the index -1.
    pub fn first(k: usize, d: DType, axis: u32, largest: bool) -> Monoid {
        let blank = |b: &mut ExprBuilder| {
            let v = match largest {
                true => lowest(b, d),
                false => highest(b, d),
            };
            (v, b.int(-1, DType::I64))
        };
        let both = |list: &[(Ref, Ref)]| -> Vec<Ref> {
            let (values, indices) = (list.iter().map(|x| x.0), list.iter().map(|x| x.1));
            values.chain(indices).collect()
        };
        Monoid {
            name: format!("first {k}"),
            identity: program(|b| {
                let one = blank(b);
                both(&vec![one; k])
            }),
            lift: program(|b| {
                let mut list = vec![(b.input(0, d), b.index(axis))];
                let none = blank(b);
                list.resize(k, none);
                both(&list)
            }),
            combine: program(|b| {
                let side = |b: &mut ExprBuilder, from: usize| -> Vec<(Ref, Ref)> {
                    let slot = |b: &mut ExprBuilder, n: usize, d| b.input((from + n) as u32, d);
                    (0..k)
                        .map(|n| (slot(b, n, d), slot(b, k + n, DType::I64)))
                        .collect()
                };
                let (x, y) = (side(b, 0), side(b, 2 * k));
                // Of two sorted lists, one from its front and one from its back: the better of each
                // pair are the best of both. A few passes over neighbours sort them.
                let mut list: Vec<(Ref, Ref)> = (0..k)
                    .map(|n| ordered(b, d, largest, x[n], y[k - 1 - n]).0)
                    .collect();
                for pass in 0..k {
                    for n in (pass % 2..k.saturating_sub(1)).step_by(2) {
                        (list[n], list[n + 1]) = ordered(b, d, largest, list[n], list[n + 1]);
                    }
                }
                both(&list)
            }),
            finish: program(|b| {
                let types = (0..k).map(|_| d).chain((0..k).map(|_| DType::I64));
                types
                    .enumerate()
                    .map(|(n, d)| b.input(n as u32, d))
                    .collect()
            }),
        }
    }

    fn arg(
        name: &str,
        d: DType,
        axis: u32,
        select_last: bool,
        better: Compare,
        nans: Nans,
    ) -> Monoid {
        Monoid {
            name: name.into(),
            identity: program(|b| {
                let v = if better == Compare::Gt {
                    lowest(b, d)
                } else {
                    highest(b, d)
                };
                vec![v, b.int(-1, DType::I64)]
            }),
            lift: program(|b| vec![b.input(0, d), b.index(axis)]),
            combine: program(|b| {
                let (v1, i1) = (b.input(0, d), b.input(1, DType::I64));
                let (v2, i2) = (b.input(2, d), b.input(3, DType::I64));
                let wins = b.compare(better, v2, v1);
                let equal = b.compare(Compare::Eq, v2, v1);
                let nan = |b: &mut ExprBuilder, v| b.unary(Unary::IsNan, v);
                let nans_of = d.is_float().then(|| (nan(b, v1), nan(b, v2)));
                let (wins, equal) = match nans_of {
                    Some((nan1, nan2)) => {
                        let (won, lost) = match nans {
                            Nans::Win => (nan2, nan1),
                            Nans::FirstStays => (nan1, nan2),
                        };
                        let other = b.unary(Unary::Not, lost);
                        let by_nan = b.binary(Binary::And, won, other);
                        let both = b.binary(Binary::And, nan1, nan2);
                        (
                            b.binary(Binary::Or, wins, by_nan),
                            b.binary(Binary::Or, equal, both),
                        )
                    }
                    None => (wins, equal),
                };
                let order = if select_last {
                    Compare::Gt
                } else {
                    Compare::Lt
                };
                let ordered = b.compare(order, i2, i1);
                let tie = b.binary(Binary::And, equal, ordered);
                let mut wins = b.binary(Binary::Or, wins, tie);
                let zero = b.int(0, DType::I64);
                if let (Some((nan1, nan2)), Nans::FirstStays) = (nans_of, nans) {
                    let (at1, at2) = (
                        b.compare(Compare::Eq, i1, zero),
                        b.compare(Compare::Eq, i2, zero),
                    );
                    let (first1, first2) = (
                        b.binary(Binary::And, nan1, at1),
                        b.binary(Binary::And, nan2, at2),
                    );
                    let open = b.unary(Unary::Not, first1);
                    let taken = b.binary(Binary::And, wins, open);
                    wins = b.binary(Binary::Or, taken, first2);
                }
                // A side without elements never wins.
                let (none1, some2) = (
                    b.compare(Compare::Lt, i1, zero),
                    b.compare(Compare::Ge, i2, zero),
                );
                let wins = b.binary(Binary::Or, wins, none1);
                let right = b.binary(Binary::And, wins, some2);
                vec![b.select(right, v2, v1), b.select(right, i2, i1)]
            }),
            finish: program(|b| vec![b.input(1, DType::I64)]),
        }
    }

    /// True when an element is not 0 (a NaN is not). Result `Bool`.
    pub fn any(dtype: DType) -> Monoid {
        Monoid::truth("any", dtype, 0, Binary::Or)
    }

    /// True when no element is 0. Result `Bool`.
    pub fn all(dtype: DType) -> Monoid {
        Monoid::truth("all", dtype, 1, Binary::And)
    }

    fn truth(name: &str, dtype: DType, of_nothing: i64, combine: Binary) -> Monoid {
        let t = DType::Bool;
        let m = single(
            name,
            (dtype, t),
            |b| b.int(of_nothing, t),
            same,
            combine,
            same,
        );
        Monoid {
            finish: Expr::identity(t),
            ..m
        }
    }
}
