//! Tile: each dimension repeated by a broadcast in front of it.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Tile", lower)];

/// The repeats along each dimension; before opset 6 one dimension is repeated, and both numbers may have the data's
/// type.
fn repeats<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, rank: usize) -> Lowered<Option<Vec<Dim>>> {
    let r = n.input(1)?;
    if n.opset >= 6 {
        return c.sizes(r);
    }
    let axis = n.input(2)?;
    let (Some(times), Some(axis)) = (c.scalar(r), c.scalar(axis)) else {
        return Err(LowerError::Unsupported("repeats as data says; make both inputs constants or export to opset 6".into()));
    };
    let mut all = vec![Dim::ONE; rank];
    all[axis_of(axis as i64, rank)?] = Dim::Known(times as i64);
    Ok(Some(all))
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(if n.opset < 6 { 3 } else { 2 })?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let Some(times) = repeats(c, n, s.len())? else {
        let d = c.dtype(x);
        let times = c.some_sizes(n.input(1)?, s.len()).into_iter();
        let out = s.iter().zip(times).map(|(d, t)| Some(d.clone() * t.filter(Dim::provably_nonneg)?)).collect();
        return c.host(n, &[(d, out)]);
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
