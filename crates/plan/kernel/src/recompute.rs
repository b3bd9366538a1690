//! Which tiles are recomputed at each use instead of being stored. Planner, verifier and emitters must agree on
//! it.
use crate::{Kernel, Stmt, TileId};

/// Whether `t` can be computed wherever it is read ([`crate::Place::Recompute`]): one map, one load, or
/// one relabelling that carries nothing, makes it, of tiles that have their final values by then.
pub fn recomputable(kernel: &Kernel, t: TileId) -> bool {
    let writers = |t: TileId| {
        let all = kernel.body.iter().enumerate();
        all.filter(move |(_, s)| s.writes().contains(&t))
            .map(|(i, _)| i)
    };
    let mut own = writers(t);
    let (Some(at), None) = (own.next(), own.next()) else {
        return false;
    };
    let made = &kernel.body[at];
    let kind = matches!(
        made,
        Stmt::Map { .. } | Stmt::Load { .. } | Stmt::Relabel { along: None, .. }
    );
    kind && made.reads().iter().all(|&r| writers(r).all(|w| w < at))
}
