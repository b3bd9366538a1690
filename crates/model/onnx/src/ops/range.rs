//! Range.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, Num};
use expr::Scalar;
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Range", lower)];

/// Number of steps of `delta` from `start` that stay before `limit`, if it is known.
fn count(start: &Num, limit: &Num, delta: &Num) -> Lowered<Option<Dim>> {
    const MOST: i64 = 1 << 40;
    if let [Num::Value(Scalar::Int(a)), Num::Value(Scalar::Int(b)), Num::Value(Scalar::Int(d))] = [start, limit, delta] {
        let (span, step) = (*b as i128 - *a as i128, *d as i128);
        let n = span.checked_div(step).map(|n| n + i128::from(span % step != 0 && (span > 0) == (step > 0)));
        return match n.filter(|n| *n < MOST.into()) {
            Some(n) => Ok(Some(Dim::Known(n.max(0) as i64))),
            None => Err(format!("a range from {a} to {b} by {d} has no length").into()),
        };
    }
    if let (Some(a), Some(b), Some(d)) = (start.float(), limit.float(), delta.float()) {
        let n = ((b - a) / d).ceil();
        // 0 by 0 is no number either.
        if n.is_nan() || d == 0.0 || n >= MOST as f64 {
            return Err(format!("a range from {a} to {b} by {d} has no length").into());
        }
        return Ok(Some(Dim::Known(n.max(0.0) as i64)));
    }
    let (Some(a), Some(b), Some(d)) = (start.dim(), limit.dim(), delta.dim().and_then(|d| d.known())) else {
        return Ok(None);
    };
    let n = match d {
        d if d > 0 => (b - a).ceil_div(&Dim::Known(d)),
        // What is 0 or has no opposite is refused, or counted, when it is known what it is for.
        d => match d.checked_neg().filter(|d| *d > 0) {
            Some(d) => (a - b).ceil_div(&Dim::Known(d)),
            None => return Ok(None),
        },
    };
    Ok(Some(match n.known() {
        Some(n) => Dim::Known(n.max(0)),
        None => n,
    }))
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (a, b, k) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let d = c.dtype(a);
    if c.dtype(b) != d || c.dtype(k) != d {
        return Err("inputs must have one type".into());
    }
    let known = [a, b, k].map(|v| c.known(v).and_then(|x| x.first().cloned()));
    let shape = match &known {
        [Some(a), Some(b), Some(k)] => count(a, b, k)?,
        _ => None,
    };
    let Some(extent) = shape else {
        return c.host(n, &[(d, vec![None])]);
    };
    c.assume_at_most(n, &Dim::ZERO, &extent);
    let part = |e: &mut expr::ExprBuilder, x: &Option<Num>| match x {
        Some(Num::Value(s)) if d.is_float() => e.constant(s.as_f64(), d),
        Some(Num::Value(s)) => e.int(s.as_i64(), d),
        Some(x) => {
            let v = e.dim(&x.dim().unwrap_or(Dim::ZERO));
            e.cast(v, d)
        }
        None => e.int(0, d),
    };
    let y = c.fill(n, n.name(0), std::slice::from_ref(&extent), d, |e| {
        let i = e.index(0);
        let i = e.cast(i, d);
        let step = part(e, &known[2]);
        let i = e.mul(i, step);
        let first = part(e, &known[0]);
        e.add(i, first)
    })?;
    // A short range of integers may go on into shapes.
    if let (Some(len), Some(first), Some(step)) = (
        extent.known().filter(|n| *n <= 4096 && d.is_int()),
        known[0].as_ref().and_then(Num::dim),
        known[2].as_ref().and_then(Num::dim),
    ) && c.ints(y).is_none()
    {
        let all = (0..len).map(|i| first.clone() + step.clone() * Dim::Known(i)).collect();
        c.b().set_ints(y, all);
    }
    c.set(n, 0, y);
    Ok(())
}
