//! ArgMax, ArgMin.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of, monoids};

pub(crate) const OPS: &[OpDef] = &[op("ArgMax", lower), op("ArgMin", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let axis = axis_of(n.int("axis", 0)?, c.rank(x))?;
    let (keep, last) = (n.flag("keepdims", true)?, n.flag("select_last_index", false)?);
    let m = monoids::arg(c.dtype(x), n.op == "ArgMax", last);
    let y = c.reduce(n, n.name(0), x, m, &[axis], keep)?;
    c.set(n, 0, y);
    Ok(())
}
