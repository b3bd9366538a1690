//! LpNormalization.
use super::{OpDef, op, reduce};
use crate::import::{Ctx, Lowered, NodeView, axis_of, monoids};

pub(crate) const OPS: &[OpDef] = &[op("LpNormalization", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let own = c.dtype(x);
    // A norm of half precision need not fit it.
    let d = monoids::accumulator(own);
    let x = c.cast(n, n.tmp("wide"), x, d)?;
    let axis = axis_of(n.int("axis", -1)?, c.rank(x))?;
    let m = match n.int("p", 2)? {
        1 => reduce::l1(d),
        2 => reduce::l2(d),
        p => return Err(format!("attribute 'p' is {p}, it must be 1 or 2").into()),
    };
    let norm = c.reduce(n, n.tmp("norm"), x, m, &[axis], true)?;
    // A row of zeros stays zero.
    let y = c.map(n, n.name(0), &[x, norm], |e, a| {
        let zero = e.constant(0.0, d);
        let none = e.compare(expr::Compare::Eq, a[1], zero);
        let q = e.div(a[0], a[1]);
        let y = e.select(none, zero, q);
        if d == own { y } else { e.cast(y, own) }
    })?;
    c.set(n, 0, y);
    Ok(())
}
