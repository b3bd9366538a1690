//! Trilu.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::Compare;

pub(crate) const OPS: &[OpDef] = &[op("Trilu", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let (d, rank) = (c.dtype(x), c.rank(x));
    if rank < 2 {
        return Err(format!("needs rank 2 or more, its input has {rank}").into());
    }
    let upper = n.flag("upper", true)?;
    let mut inputs = vec![x];
    let mut k = layout::Dim::ZERO;
    if let Some(v) = n.opt(1) {
        match c.sizes(v)?.filter(|k| k.len() == 1) {
            Some(known) => k = known[0].clone(),
            None => inputs.push(c.reshaped(n, n.tmp("k"), v, vec![])?),
        }
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let (i, j) = (e.index(rank as u32 - 2), e.index(rank as u32 - 1));
        let k = if a.len() > 1 { a[1] } else { e.dim(&k) };
        let edge = e.add(i, k);
        let keep = e.compare(if upper { Compare::Ge } else { Compare::Le }, j, edge);
        let zero = e.constant(0.0, d);
        e.select(keep, a[0], zero)
    })?;
    c.set(n, 0, y);
    Ok(())
}
