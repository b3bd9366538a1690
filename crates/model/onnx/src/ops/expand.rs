//! Expand.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Expand", lower)];

/// What extents `from` become when they are broadcast against `target`, which is known in parts.
fn widened(from: &[Dim], target: &[Option<Dim>]) -> Vec<Option<Dim>> {
    let rank = from.len().max(target.len());
    let widest = |i: usize| {
        let own = (i + from.len()).checked_sub(rank).map_or(Dim::ONE, |i| from[i].clone());
        let to = (i + target.len()).checked_sub(rank).map_or(Some(Dim::ONE), |i| target[i].clone());
        match to {
            Some(to) if own.is_one() => Some(to),
            Some(to) if to.is_one() || to == own => Some(own),
            Some(to) if to.known().is_some() => Some(to),
            // Nothing but itself and 1 can stand beside it.
            _ => own.known().filter(|k| *k != 1).map(Dim::Known),
        }
    };
    (0..rank).map(widest).collect()
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (mut x, t) = (n.input(0)?, n.input(1)?);
    let mut from = c.shape(x);
    let Some(mut target) = c.sizes(t)? else {
        let rank = c.rank_by(n, t)?;
        let target = c.some_sizes(t, rank);
        let d = c.dtype(x);
        return c.host(n, &[(d, widened(&from, &target))]);
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
    // An extent that is never the one that it is broadcast to is 1.
    let mut thin = from.clone();
    for back in 1..=from.len().min(target.len()) {
        let (d, to) = (&from[from.len() - back], &target[target.len() - back]);
        if d.known().is_none() && !to.is_one() && (d.provably_lt(to) || to.provably_lt(d)) {
            c.assume(n, d, &Dim::ONE);
            thin[from.len() - back] = Dim::ONE;
        }
    }
    let x = c.reshaped(n, n.tmp("thin"), x, thin.clone())?;
    let shape = c.broadcast(n, &thin, &target)?;
    let y = c.expand(n, n.name(0), x, shape)?;
    c.set(n, 0, y);
    Ok(())
}
