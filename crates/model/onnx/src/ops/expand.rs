//! Expand.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView};

pub(crate) const OPS: &[OpDef] = &[op("Expand", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (mut x, t) = (n.input(0)?, n.input(1)?);
    let mut from = c.shape(x);
    let Some(mut target) = c.sizes(t)? else {
        let Some(r) = c.shape(t).first().and_then(|d| d.known()).filter(|r| (0..=32).contains(r)) else {
            return Err(LowerError::Unsupported("the rank of its result depends on data; make it constant".into()));
        };
        let d = c.dtype(x);
        return c.host(n, &[(d, vec![None; from.len().max(r as usize)])]);
    };
    if c.compares(n) {
        for back in 1..=from.len().min(target.len()) {
            let (axis, at) = (from.len() - back, target.len() - back);
            let (d, to) = (from[axis].clone(), target[at].clone());
            if !d.is_one() && d != to {
                target[at] = c.common(n, d.clone(), &to);
                x = c.repeated(n, n.tmp(&format!("d{axis}")), x, axis, &d, target[at].clone())?;
                from[axis] = target[at].clone();
            }
        }
    }
    let shape = c.broadcast(n, &from, &target)?;
    let y = c.expand(n, n.name(0), x, shape)?;
    c.set(n, 0, y);
    Ok(())
}
