//! Softmax, LogSoftmax: over one axis since opset 13, over all from `axis` on before.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of, monoids};
use expr::{Compare, Unary};
use graph::ValueId;
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Softmax", lower), op("LogSoftmax", lower)];

/// Softmax over one axis, whose rows without anything but -inf are 0: nothing is attended there.
pub(crate) fn attended<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId, axis: usize) -> Lowered<ValueId> {
    let d = c.dtype(x);
    let (p, max) = with_maximum(c, n, format!("{name}.defined"), x, &[axis], false)?;
    c.map(n, name, &[p, max], |e, a| {
        let (zero, none) = (e.constant(0.0, d), e.constant(f64::NEG_INFINITY, d));
        let unseen = e.compare(Compare::Eq, a[1], none);
        e.select(unseen, zero, a[0])
    })
}

/// Softmax over `axes`, or its logarithm.
pub(crate) fn softmax<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId, axes: &[usize], log: bool) -> Lowered<ValueId> {
    Ok(with_maximum(c, n, name, x, axes, log)?.0)
}

/// The same, and the maximum over `axes`.
fn with_maximum<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId, axes: &[usize], log: bool) -> Lowered<(ValueId, ValueId)> {
    let d = c.dtype(x);
    let acc = monoids::accumulator(d);
    let max = c.reduce(n, format!("{name}.max"), x, monoids::max(d), axes, true)?;
    let from_max = |e: &mut expr::ExprBuilder, a: &[expr::Ref]| {
        let (x, m) = if acc == d { (a[0], a[1]) } else { (e.cast(a[0], acc), e.cast(a[1], acc)) };
        e.sub(x, m)
    };
    let exp = c.map(n, format!("{name}.exp"), &[x, max], |e, a| {
        let s = from_max(e, a);
        e.unary(Unary::Exp, s)
    })?;
    let sum = c.reduce(n, format!("{name}.sum"), exp, monoids::sum(acc), axes, true)?;
    let y = if log {
        c.map(n, name, &[x, max, sum], |e, a| {
            let s = from_max(e, a);
            let l = e.unary(Unary::Log, a[2]);
            let y = e.sub(s, l);
            if acc == d { y } else { e.cast(y, d) }
        })?
    } else {
        c.map(n, name, &[exp, sum], |e, a| {
            let y = e.div(a[0], a[1]);
            if acc == d { y } else { e.cast(y, d) }
        })?
    };
    Ok((y, max))
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let log = n.op == "LogSoftmax";
    let rank = s.len();
    let y = if n.opset >= 13 {
        let axis = axis_of(n.int("axis", -1)?, rank)?;
        softmax(c, n, n.name(0), x, &[axis], log)?
    } else {
        let axis = n.int("axis", 1)?;
        let axis = if axis == rank as i64 { rank } else { axis_of(axis, rank)? };
        let wide = s[axis..].iter().filter(|d| !d.is_one()).count();
        if axis + 1 == rank || (axis < rank && wide <= 1 && !s[rank - 1].is_one()) {
            softmax(c, n, n.name(0), x, &[rank - 1], log)?
        } else {
            let flat = c.reshape(n, n.tmp("flat"), x, vec![Dim::product(&s[..axis]), Dim::product(&s[axis..])])?;
            let y = softmax(c, n, n.tmp("rows"), flat, &[1], log)?;
            c.reshape(n, n.name(0), y, s)?
        }
    };
    c.set(n, 0, y);
    Ok(())
}
