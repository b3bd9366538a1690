//! CumSum, CumProd.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of, monoids};
use graph::Op;

pub(crate) const OPS: &[OpDef] = &[op("CumSum", lower), op("CumProd", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, a) = (n.input(0)?, n.input(1)?);
    let d = c.dtype(x);
    let axis = c.const_ints(a).and_then(|a| a.first().copied());
    let Some(axis) = axis else {
        let s = c.shape(x).into_iter().map(Some).collect();
        return c.host(n, &[(d, s)]);
    };
    let axis = axis_of(axis, c.rank(x))?;
    let monoid = if n.op == "CumSum" { monoids::sum(d) } else { monoids::product(d) };
    let (exclusive, reverse) = (n.flag("exclusive", false)?, n.flag("reverse", false)?);
    let y = c.add1(n, Op::Scan { monoid, axis, exclusive, reverse }, &[x], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
