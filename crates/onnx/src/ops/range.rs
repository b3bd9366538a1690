//! Range.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, Num};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Range", lower)];

/// Number of steps of `delta` from `start` that stay before `limit`.
fn count(start: &Num, limit: &Num, delta: &Num) -> Option<Dim> {
    if let (Some(a), Some(b), Some(d)) = (start.float(), limit.float(), delta.float()) {
        let n = ((b - a) / d).ceil().max(0.0);
        return (n.is_finite() && n < (1u64 << 40) as f64).then_some(Dim::Known(n as i64));
    }
    let (a, b, d) = (start.dim()?, limit.dim()?, delta.dim()?.known()?);
    let n = match d {
        0 => return None,
        d if d > 0 => (b - a).ceil_div(&Dim::Known(d)),
        d => (a - b).ceil_div(&Dim::Known(d.checked_neg()?)),
    };
    Some(match n.known() {
        Some(n) => Dim::Known(n.max(0)),
        None => n,
    })
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
        [Some(a), Some(b), Some(k)] => count(a, b, k),
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
