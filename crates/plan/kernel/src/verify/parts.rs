//! Parts of sums that a cluster's CTAs make, one each, or add, a share each.
use super::Blame;
use crate::{AxisId, AxisTile, Kept, Kernel, KernelError, Mapping, Operand, Schedule, Stmt};
use layout::{Dim, Inserted};
use std::collections::BTreeSet;

/// Checks what a schedule says of them.
pub(super) fn check(k: &Kernel, s: &Schedule, b: &Blame) -> Result<(), KernelError> {
    let rule = "parts in a cluster";
    let n = s.cluster();
    let (gives, adds) = (s.gives_parts(), s.adds_parts());
    if !gives && !adds {
        return Ok(());
    }
    b.need(gives != adds && n > 1 && s.raster == 1, rule, || {
        "parts are made or added by clusters of 2 CTAs or more, whose tasks go in no bands: use raster 1".into()
    })?;
    let Mapping::Gpu(g) = &s.mapping else {
        return Ok(());
    };
    b.need(g.walkers == 0 && (gives || g.copiers == 0), rule, || {
        "CTAs that make parts walk no tasks, and none of the warps that add them only copy".into()
    })?;
    let gathers = |o: &&Operand| !o.access.indexed.is_empty();
    let gathering = k.operands.iter().find(gathers).filter(|_| adds);
    b.need(gathering.is_none(), rule, || {
        let name = gathering.map_or("", |o| &o.name);
        format!("'{name}' is indexed beside the parts that are added: use memory")
    })?;
    let all = Kept::all(k, s);
    let all = all.map_err(|why| b.error(rule, format!("{why}: use memory")))?;
    b.need(!all.is_empty(), rule, || "no operand is kept".into())?;
    let looped: BTreeSet<AxisId> = s.loops.iter().map(|l| l.axis).inserted();
    for kept in &all {
        let name = &k.operands[kept.operand as usize].name;
        let extent = &k.axes[kept.part as usize].extent;
        let own = *extent == Dim::from(i64::from(n));
        let last = s.grid.last();
        let alone = match gives {
            true => last.is_some_and(|c| c.axis == kept.part && c.tile == 1),
            false => !s.grid.iter().any(|c| c.axis == kept.part),
        };
        b.need(own && alone, rule, || {
            format!("'{name}' has {extent} parts for the {n} CTAs of a cluster, the last axis of the grid where they are made: use as many")
        })?;
        let inside = kept.axes.iter().any(|a| looped.contains(&a.axis));
        let touches = |x: &&Stmt| match x {
            Stmt::Load { operand, .. } | Stmt::Store { operand, .. } => *operand == kept.operand,
            _ => false,
        };
        let once = k.body.iter().filter(touches).count() == 1;
        b.need(once && (adds || !inside), rule, || {
            format!("'{name}' is kept, and is stored or loaded more than once: use memory")
        })?;
    }
    let whole = |c: &AxisTile| {
        let pieces = k.axes[c.axis as usize].extent.ceil_div(&Dim::Known(c.tile));
        pieces.known().is_some_and(|p| p % i64::from(n) == 0)
    };
    b.need(gives || s.grid.last().is_some_and(whole), rule, || {
        format!("the last axis of the grid has no multiple of {n} pieces, which the CTAs of a cluster share: use other tiles")
    })
}
