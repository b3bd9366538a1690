//! Rows: reductions with what surrounds them. Reduced axes stay whole in a tile, so that several
//! passes over a row find it near; when that is more than a cache holds and one pass is enough, the
//! reduced axis is walked in pieces.
use super::candidate::Candidate;
use super::form::{gather_loops, places, wanted_tasks, whole};
use super::{flat, tiles};
use crate::bind::ctx::Space;
use kernel::{AxisId, AxisTile, CpuMapping, Mapping, Schedule, Stmt};

/// Elements below which a row is short.
const SHORT: i64 = 48;

/// Candidates, best guesses first.
pub(crate) fn candidates(space: &Space) -> Vec<Candidate> {
    let kernel = space.kernel;
    let parallel = space.parallel();
    let all: Vec<AxisId> = (0..kernel.axes.len() as AxisId).collect();
    let lead = match (space.main_input(), space.main_output()) {
        (Some(i), _) => i,
        (None, Some(o)) => o,
        _ => return vec![],
    };
    let lanes = space.unit_axis(lead, &all);
    let kept_lanes = lanes.filter(|l| parallel.contains(l));
    // Bytes of all tiles per position of the parallel axes.
    let s = whole(kernel);
    let points = space.points(&parallel).max(1);
    let bytes: f64 = (0..kernel.tiles.len() as u16)
        .map(|t| space.tile_bytes(&s, t) as f64)
        .sum();
    let per_point = (bytes / points as f64).max(1.0);
    let most = space.ctx.share() / per_point;
    let mut out = Vec::new();
    if most < 1.0
        && let Some(c) = walked(space, lanes, most)
    {
        out.push(c);
        return out;
    }
    let most = (most as i64).clamp(1, points);
    let wanted = wanted_tasks(space.ctx, kernel, &s);
    let order = space.inner_first(lead, &parallel);
    // Rows of a few elements that continue one another are taken together: they share vectors.
    let short = lanes
        .filter(|l| !parallel.contains(l))
        .map_or(i64::MAX, |l| space.extent(l));
    let least = match order.first() {
        Some(&a) if short < SHORT && space.stride(lead, a) == short => {
            (SHORT / short).clamp(1, space.extent(a))
        }
        _ => 1,
    };
    let most = most.max(least);
    let mut sizes: Vec<i64> = Vec::new();
    if wanted == 1 {
        sizes.push(points.min(most));
    } else {
        sizes.extend(
            tiles::halves((points / wanted).clamp(least, most), least)
                .into_iter()
                .take(space.ctx.most(6)),
        );
    }
    sizes.dedup();
    for target in sizes {
        let multiple = if kept_lanes.is_some() {
            space.ctx.lanes()
        } else {
            1
        };
        // Lanes in whole vectors even when the share would be less.
        let target = if kept_lanes.is_some() {
            target.max(multiple)
        } else {
            target
        };
        let cut = tiles::fill(space, &order, target, multiple);
        out.push(flat::candidate(space, kernel, &cut, lanes));
    }
    out
}

/// The outermost reduced axis walked in pieces of `share` of it, for reductions of one pass.
fn walked(space: &Space, lanes: Option<AxisId>, share: f64) -> Option<Candidate> {
    let mut kernel = space.kernel.clone();
    let over: Vec<AxisId> = kernel
        .body
        .iter()
        .find(|s| !s.over().is_empty())?
        .over()
        .to_vec();
    if kernel
        .body
        .iter()
        .any(|s| !s.over().is_empty() && s.over() != over.as_slice())
    {
        return None;
    }
    let parallel = space.parallel();
    let &axis = over.first()?;
    kernel.body = gather_loops(&kernel, &[axis])?;
    // Two passes over one row would need the first to end before the second begins.
    let stored_inside = space
        .stores()
        .iter()
        .any(|(_, t)| kernel.tiles[*t as usize].axes.contains(&axis));
    let folds = || kernel.body.iter().filter(|s| !s.over().is_empty());
    let inside = |s: &Stmt| {
        let with_axis = |t: &u16| kernel.tiles[*t as usize].axes.contains(&axis);
        s.reads().iter().chain(&s.writes()).any(with_axis)
    };
    let second_pass = folds().any(|f| {
        let reads = |s: &&Stmt| s.reads().iter().any(|t| f.writes().contains(t));
        let others = kernel.body.iter().filter(|s| !std::ptr::eq(*s, f));
        others.filter(reads).any(inside)
    });
    if stored_inside || second_pass || folds().count() == 0 {
        return None;
    }
    let tile = (space.extent(axis) as f64 * share) as i64;
    let multiple = if lanes == Some(axis) {
        space.ctx.lanes()
    } else {
        1
    };
    let tile = tiles::even(space.extent(axis), tile, multiple);
    let lead = space.main_input()?;
    let cut: Vec<AxisTile> = space
        .inner_first(lead, &parallel)
        .into_iter()
        .map(|axis| AxisTile { axis, tile: 1 })
        .collect();
    let grid = tiles::grid(space, &cut);
    let loops = vec![AxisTile { axis, tile }];
    let schedule = Schedule {
        places: places(space, lanes),
        mapping: Mapping::Cpu(CpuMapping {
            micro: None,
            rows: vec![],
            lanes,
        }),
        grid,
        loops,
        ..whole(&kernel)
    };
    Some(Candidate {
        what: tiles::describe(space, &schedule.grid, &schedule.loops),
        kernel: kernel.into(),
        schedule: schedule.into(),
        packed: vec![],
    })
}
