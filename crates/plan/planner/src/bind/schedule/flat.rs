//! Map, move, pool and whatever has no plan of its own: tiles along the output's memory.
use super::candidate::Candidate;
use super::form::{places, wanted_tasks, whole};
use super::tiles;
use crate::bind::ctx::Space;
use kernel::{AxisId, CpuMapping, Family, Kernel, Mapping, Schedule};

/// Candidates, best guesses first.
pub(crate) fn candidates(space: &Space) -> Vec<Candidate> {
    let parallel = space.parallel();
    let kernel = space.kernel;
    let out = space.main_output();
    let all: Vec<AxisId> = (0..kernel.axes.len() as AxisId).collect();
    let lanes = out
        .and_then(|o| space.unit_axis(o, &parallel))
        .or_else(|| space.main_input().and_then(|i| space.unit_axis(i, &all)));
    let mut order = out.map_or(parallel.clone(), |o| space.inner_first(o, &parallel));
    // A transposing move reads along another axis than it writes: both become inner.
    let across = space
        .main_input()
        .and_then(|i| space.unit_axis(i, &parallel))
        .filter(|a| Some(*a) != lanes);
    let line = space
        .ctx
        .machine
        .caches()
        .next()
        .map_or(64, |(_, l)| l.line as i64);
    let size = kernel
        .operands
        .iter()
        .map(|o| o.dtype.bits() as i64 / 8)
        .max()
        .unwrap_or(4)
        .max(1);
    let per_line = (line / size).max(1);
    if let Some(a) = across.filter(|_| kernel.family == Family::Move) {
        order.retain(|&x| x != a);
        order.insert(1.min(order.len()), a);
    }
    let points = space.points(&parallel);
    let most = largest(space, kernel);
    let base = whole(kernel);
    let wanted = wanted_tasks(space.ctx, kernel, &base);
    let mut sizes: Vec<i64> = Vec::new();
    if wanted == 1 {
        sizes.push(points);
    } else {
        sizes.extend(
            tiles::halves((points / wanted).clamp(1, most), most.min(1024))
                .into_iter()
                .take(space.ctx.most(5)),
        );
    }
    sizes.iter_mut().for_each(|s| *s = (*s).min(most).max(1));
    sizes.dedup();
    let mut out = Vec::new();
    for target in sizes {
        let cut = match across.filter(|_| kernel.family == Family::Move && order.len() > 1) {
            Some(_) => {
                // A square of a few lines each way, then as many as fit.
                let side = ((target as f64).sqrt() as i64).max(per_line * 2);
                let first = tiles::even(space.extent(order[0]), side, per_line);
                let mut v = vec![kernel::AxisTile {
                    axis: order[0],
                    tile: first,
                }];
                v.extend(tiles::fill(
                    space,
                    &order[1..],
                    (target / first.max(1)).max(per_line),
                    per_line,
                ));
                v
            }
            None => tiles::fill(space, &order, target, per_line),
        };
        out.push(candidate(space, kernel, &cut, lanes));
    }
    out
}

/// Positions whose tiles fit the worker's share of cache.
fn largest(space: &Space, kernel: &Kernel) -> i64 {
    let parallel = space.parallel();
    let points = space.points(&parallel).max(1) as f64;
    let s = whole(kernel);
    let bytes: f64 = (0..kernel.tiles.len() as u16)
        .map(|t| space.tile_bytes(&s, t) as f64)
        .sum();
    let per_point = (bytes / points).max(1.0);
    ((space.ctx.share() / per_point) as i64).max(64)
}

pub(super) fn candidate(
    space: &Space,
    kernel: &Kernel,
    cut: &[kernel::AxisTile],
    lanes: Option<AxisId>,
) -> Candidate {
    let grid = tiles::grid(space, cut);
    let kernel = kernel.clone();
    let schedule = Schedule {
        places: places(space, lanes),
        grid,
        mapping: Mapping::Cpu(CpuMapping {
            micro: None,
            rows: vec![],
            lanes,
        }),
        ..whole(&kernel)
    };
    Candidate {
        what: tiles::describe(space, &schedule.grid, &[]),
        kernel: kernel.into(),
        schedule: schedule.into(),
        packed: vec![],
    }
}
