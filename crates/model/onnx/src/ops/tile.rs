//! Tile: each dimension repeated by a broadcast in front of it.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Tile", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, r) = (n.input(0)?, n.input(1)?);
    let s = c.shape(x);
    let Some(times) = c.sizes(r)? else {
        let d = c.dtype(x);
        return c.host(n, &[(d, vec![None; s.len()])]);
    };
    if times.len() != s.len() {
        return Err(format!("has {} repeats for a tensor of rank {}", times.len(), s.len()).into());
    }
    let (mut thin, mut wide, mut out) = (Vec::new(), Vec::new(), Vec::new());
    for (d, t) in s.iter().zip(&times) {
        if t.known().is_some_and(|t| t < 0) {
            return Err(format!("repeats a dimension {t} times").into());
        }
        if !t.is_one() {
            thin.push(Dim::ONE);
            wide.push(t.clone());
        }
        thin.push(d.clone());
        wide.push(d.clone());
        out.push(d.clone() * t.clone());
    }
    let y = if thin.len() == s.len() {
        c.reshape(n, n.name(0), x, s)?
    } else {
        let y = c.reshape(n, n.tmp("thin"), x, thin)?;
        let y = c.expand(n, n.tmp("wide"), y, wide)?;
        c.reshape(n, n.name(0), y, out)?
    };
    c.set(n, 0, y);
    Ok(())
}
