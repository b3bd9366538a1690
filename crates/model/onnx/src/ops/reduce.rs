//! All reductions by name: axes as attribute before opset 18 (ReduceSum: 13), as input since.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axes_of, monoids};
use expr::{Binary, Monoid, Unary};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("ReduceL1", lower), op("ReduceL2", lower), op("ReduceLogSum", lower), op("ReduceLogSumExp", lower),
    op("ReduceMax", lower), op("ReduceMean", lower), op("ReduceMin", lower), op("ReduceProd", lower),
    op("ReduceSum", lower), op("ReduceSumSquare", lower),
];

/// Sum of absolute values.
pub(crate) fn l1(d: DType) -> Monoid {
    monoids::sum_of("l1", d, |e, x| e.unary(Unary::Abs, x), |_, x| x)
}

/// Root of the sum of squares.
pub(crate) fn l2(d: DType) -> Monoid {
    monoids::sum_of("l2", d, |e, x| e.mul(x, x), |e, x| e.unary(Unary::Sqrt, x))
}

/// (sum |x|^p)^(1/p).
pub(crate) fn lp(d: DType, p: f64) -> Monoid {
    let acc = monoids::accumulator(d);
    monoids::sum_of(
        "lp",
        d,
        |e, x| {
            let x = e.unary(Unary::Abs, x);
            let p = e.constant(p, acc);
            e.binary(Binary::Pow, x, p)
        },
        |e, x| {
            let p = e.constant(1.0 / p, acc);
            e.binary(Binary::Pow, x, p)
        },
    )
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let (d, rank) = (c.dtype(x), c.rank(x));
    let keep = n.flag("keepdims", true)?;
    let until = if n.op == "ReduceSum" { 12 } else { 17 };
    let nothing = n.flag("noop_with_empty_axes", false)?;
    let late = n.opt(1).filter(|_| n.opset > until);
    let late = late.filter(|&v| c.const_ints(v).is_none() && !c.shape(v).iter().any(Dim::is_zero));
    if let Some(v) = late {
        let count = Dim::product(&c.shape(v));
        let count = if keep { None } else { c.number(n, &count, 0..=rank) };
        let out = match (keep, count) {
            (true, _) => rank,
            (false, Some(0)) => if nothing { rank } else { 0 },
            (false, Some(k)) if k <= rank => rank - k,
            // It has no dimension that could stay.
            (false, None) if rank == 0 => 0,
            _ => return Err(LowerError::Unsupported("the rank of its result depends on data; make its axes constant".into())),
        };
        return c.host(n, &[(d, vec![None; out])]);
    }
    let axes = match n.opt(1).filter(|_| n.opset > until) {
        Some(v) if c.shape(v).iter().any(Dim::is_zero) => vec![],
        _ => c.axes(n, 1, until)?.unwrap_or_default(),
    };
    if axes.is_empty() && nothing {
        let s = c.shape(x);
        // Without axes only the element's own function is left.
        let y = match n.op {
            "ReduceSumSquare" => c.map(n, n.name(0), &[x], |e, a| e.mul(a[0], a[0]))?,
            "ReduceL1" | "ReduceL2" => c.map(n, n.name(0), &[x], |e, a| e.unary(Unary::Abs, a[0]))?,
            "ReduceLogSum" => c.map(n, n.name(0), &[x], |e, a| e.unary(Unary::Log, a[0]))?,
            _ => c.reshape(n, n.name(0), x, s)?,
        };
        c.set(n, 0, y);
        return Ok(());
    }
    let axes = if axes.is_empty() { (0..rank).collect() } else { axes_of(&axes, rank)? };
    let m = match n.op {
        "ReduceL1" => l1(d),
        "ReduceL2" => l2(d),
        "ReduceLogSum" => monoids::sum_of("logsum", d, |_, x| x, |e, x| e.unary(Unary::Log, x)),
        "ReduceLogSumExp" => {
            let acc = if d.is_float() { monoids::accumulator(d) } else { DType::F64 };
            Monoid::log_sum_exp(d, acc)
        }
        "ReduceMax" => monoids::max(d),
        "ReduceMean" => monoids::mean(d, &c.count(x, &axes)),
        "ReduceMin" => monoids::min(d),
        "ReduceProd" => monoids::product(d),
        "ReduceSumSquare" => monoids::sum_of("sumsquare", d, |e, x| e.mul(x, x), |_, x| x),
        _ => monoids::sum(d),
    };
    let y = c.reduce(n, n.name(0), x, m, &axes, keep)?;
    fold_small(c, n, x, y);
    c.set(n, 0, y);
    Ok(())
}

/// Products, sums and extrema of shape vectors go on into shapes.
fn fold_small<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: graph::ValueId, y: graph::ValueId) {
    let one = layout::Dim::product(&c.shape(y)).is_one();
    let (Some(v), None, true) = (c.ints(x), c.ints(y), one) else { return };
    let Some(first) = v.first().cloned() else { return };
    let rest = v.into_iter().skip(1);
    let r = match n.op {
        "ReduceProd" => rest.fold(first, |a, b| a * b),
        "ReduceSum" => rest.fold(first, |a, b| a + b),
        "ReduceMax" => rest.fold(first, |a, b| a.max_with(&b)),
        "ReduceMin" => rest.fold(first, |a, b| a.min_with(&b)),
        _ => return,
    };
    c.b().set_ints(y, vec![r]);
}
