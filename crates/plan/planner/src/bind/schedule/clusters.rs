//! Candidates whose CTAs form clusters and copy for each other what neighbouring tasks have in common: the best of those
//! whose warps copy, with the cluster sizes of the target.
use super::candidate::{Candidate, Rank};
use super::images::NEAR;
use super::rank::{Search, is_known, ranked};
use crate::bind::ctx::Ctx;
use kernel::{Mapping, OperandId, Prints, TileProgram};
use std::sync::Arc;

/// Tries those of `best` that may be best with clusters, and puts what is faster with them in front.
pub(super) fn tried(
    ctx: Ctx,
    constant: &dyn Fn(OperandId) -> bool,
    prints: Option<Prints>,
    (list, best): (&mut Vec<Candidate>, &mut Vec<Rank>),
) {
    let (Some(gpu), Some(first)) = (&ctx.target.gpu, best.first().map(|b| b.0)) else {
        return;
    };
    let near = best.iter().take_while(|b| b.0 <= first * NEAR);
    let near = near.filter(|b| is_known(ctx, b)).map(|b| &list[b.1]);
    let sizes = |c| gpu.clusters.iter().flat_map(move |&n| with_clusters(c, n));
    let found: Vec<Candidate> = near.flat_map(sizes).collect();
    let (from, count) = (list.len(), found.len());
    if count == 0 {
        return;
    }
    list.extend(found);
    // A step behind may be part of a launch without clusters alone.
    let limit = first - ctx.machine.joined_s(1).max(0.0);
    let search = Search {
        limit,
        ..Search::all(prints, count)
    };
    let mut faster = ranked(ctx, list, from, constant, search).unwrap_or_default();
    faster.retain(|r| is_known(ctx, r) && r.0 < limit);
    best.splice(0..0, faster);
}

/// A candidate with clusters of `n` CTAs: neighbours along the axis that its bands have, or along the last one.
fn with_clusters(c: &Candidate, n: u32) -> Vec<Candidate> {
    let mut rasters = vec![c.schedule.raster, 1];
    rasters.dedup();
    let of = |raster: i64| {
        let mut schedule = c.schedule.clone();
        let own = Arc::make_mut(&mut schedule);
        own.raster = raster;
        let Mapping::Gpu(g) = &mut own.mapping else {
            return None;
        };
        if g.copiers == 0 || g.walkers > 0 && g.walkers < n {
            return None;
        }
        g.cluster = n;
        g.walkers -= g.walkers % n;
        TileProgram::new(c.kernel.clone(), schedule.clone()).ok()?;
        let bands = format!(", raster {}", c.schedule.raster);
        let what = c.what.strip_suffix(&bands).unwrap_or(&c.what);
        Some(Candidate {
            what: format!("{what}, raster {raster}, clusters of {n}"),
            schedule,
            ..c.clone()
        })
    };
    rasters.into_iter().filter_map(of).collect()
}
