//! Attention: a tile of query rows against pieces of the keys, online.
use super::candidate::Candidate;
use super::form::{gather_loops, places, wanted_tasks, whole};
use super::product::{Product, share as share_of};
use super::tiles;
use crate::bind::ctx::Space;
use kernel::{
    AxisId, AxisTile, CpuMapping, Kernel, Mapping, MicroKernel, MicroShape, Schedule, Stmt,
};

/// Weight of elements read per multiply-add when register shapes are ranked.
const READS: f64 = 0.2;

/// Rows of a task: a fair share of `m`, and usual numbers.
fn row_sizes(m: i64, fair: i64) -> Vec<i64> {
    let mut sizes = vec![];
    for r in [fair, 64, 32, 128, 16] {
        let r = r.clamp(1, m).min(256);
        if !sizes.contains(&r) {
            sizes.push(r);
        }
    }
    sizes
}

/// The kernel with its keys in pieces of about `tile`, where that is less than all of them and can be done.
fn in_pieces(space: &Space, keys: &[AxisId], tile: i64) -> (Kernel, Vec<AxisTile>) {
    let mut kernel = space.kernel.clone();
    let all = space.points(keys);
    let [axis] = *keys else {
        return (kernel, vec![]);
    };
    let body = gather_loops(space.kernel, &[axis]).filter(|_| tile < all);
    let Some(body) = body else {
        return (kernel, vec![]);
    };
    kernel.body = body;
    let tile = tiles::even(all, tile, space.ctx.lanes());
    (kernel, vec![AxisTile { axis, tile }])
}

/// Candidates, best guesses first; none when the kernel is not two products with folds between.
pub(crate) fn candidates(space: &Space) -> Vec<Candidate> {
    let kernel = space.kernel;
    let mut products = kernel.body.iter().filter_map(|s| match s {
        Stmt::Contract { acc, a, b, over } => Some(Product::new(kernel, *acc, *a, *b, over)),
        _ => None,
    });
    let (Some(scores), Some(values)) = (products.next(), products.next()) else {
        return vec![];
    };
    let Some(out) = space.main_output() else {
        return vec![];
    };
    let keys: Vec<AxisId> = values.over.clone();
    let parallel = space.parallel();
    // Rows see the same keys; batch axes have keys of their own.
    let rows: Vec<AxisId> = space.inner_first(
        out,
        &scores
            .rows
            .iter()
            .copied()
            .filter(|a| parallel.contains(a))
            .collect::<Vec<_>>(),
    );
    let lanes = space
        .unit_axis(out, &values.columns)
        .or_else(|| values.columns.first().copied());
    let batch: Vec<AxisId> = parallel
        .iter()
        .copied()
        .filter(|a| !rows.contains(a) && !values.columns.contains(a))
        .collect();
    let m = space.points(&rows);
    let wanted = wanted_tasks(space.ctx, kernel, &whole(kernel));
    let outer = space.points(&batch).max(1);
    let width = space.points(&scores.over) + space.points(&values.columns);
    let share = space.ctx.share();
    // The register tile that does both products best: scores along keys, values along lanes.
    let columns = lanes.map_or(1, |l| space.extent(l));
    let shape = |rows: i64, keys: i64| {
        let score = |s: &MicroShape| {
            let (mr, nr) = (f64::from(s.mr).min(rows as f64), f64::from(s.nr));
            share_of(space.ctx, s, rows, keys) + share_of(space.ctx, s, rows, columns)
                - READS * (1.0 / mr + 1.0 / nr.min(keys as f64))
        };
        let all = space.ctx.target.micro.iter();
        all.max_by(|a, b| score(a).total_cmp(&score(b))).copied()
    };
    let mut found = Vec::new();
    let row_sizes = row_sizes(m, (m * outer / wanted.max(1)).clamp(1, m));
    let mut batch_order = space.inner_first(out, &batch);
    batch_order.retain(|a| !rows.contains(a));
    for r in row_sizes {
        let row_cut = tiles::fill(space, &rows, r, 1);
        let real: i64 = row_cut.iter().map(|t| t.tile).product();
        // Keys and values of a piece, and its scores twice, within the share.
        let fit = (share / (4.0 * (width as f64 + 3.0 * real as f64))) as i64;
        let t = space.points(&keys);
        for tile in tiles::halves(fit.clamp(1, t.max(1)), 64.min(t))
            .into_iter()
            .take(space.ctx.most(3))
        {
            let (body, loops) = in_pieces(space, &keys, tile);
            let mut cut = row_cut.clone();
            cut.extend(batch_order.iter().map(|&axis| AxisTile { axis, tile: 1 }));
            let grid = tiles::grid(space, &cut);
            let mut row_axes = rows.clone();
            row_axes.reverse();
            let nr = shape(real, tile);
            let mapping = CpuMapping {
                micro: nr.map(|s| MicroKernel { mr: s.mr, nr: s.nr }),
                rows: row_axes,
                lanes,
            };
            let schedule = Schedule {
                grid,
                loops,
                places: places(space, lanes),
                mapping: Mapping::Cpu(mapping),
                ..whole(&body)
            };
            let what = tiles::describe(space, &schedule.grid, &schedule.loops);
            if found.iter().all(|c: &Candidate| c.what != what) {
                found.push(Candidate {
                    what,
                    kernel: body.into(),
                    schedule: schedule.into(),
                    packed: vec![],
                });
            }
        }
    }
    found
}
