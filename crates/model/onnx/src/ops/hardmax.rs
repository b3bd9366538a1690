//! Hardmax.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of, monoids};
use expr::Compare;
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Hardmax", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (s, d) = (c.shape(x), c.dtype(x));
    let one = n.opset >= 13;
    let axis = n.int("axis", if one { -1 } else { 1 })?;
    let mut axis = if !one && axis == s.len() as i64 { s.len() } else { axis_of(axis, s.len())? };
    let flat = match one {
        true => x,
        false => {
            let two = vec![Dim::product(&s[..axis]), Dim::product(&s[axis..])];
            axis = 1;
            c.reshaped(n, n.tmp("flat"), x, two)?
        }
    };
    let at = c.reduce(n, n.tmp("at"), flat, monoids::arg(d, true, false), &[axis], true)?;
    let name = if one { n.name(0) } else { n.tmp("rows") };
    let mut y = c.map(n, name, &[flat, at], |e, a| {
        let i = e.index(axis as u32);
        let here = e.compare(Compare::Eq, i, a[1]);
        let (one, zero) = (e.constant(1.0, d), e.constant(0.0, d));
        e.select(here, one, zero)
    })?;
    if !one {
        y = c.reshape(n, n.name(0), y, s)?;
    }
    c.set(n, 0, y);
    Ok(())
}
