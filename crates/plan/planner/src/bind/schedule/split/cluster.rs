//! Sums whose parts the CTAs of a cluster make: the parts as they are made for memory, but with those of one sum side by
//! side, and the sum with tiles of which each CTA of a cluster has one.
use super::{Half, InParts, Way, saved_as_one_launch};
use crate::bind::ctx::{Ctx, Space};
use crate::bind::known::compared_s;
use crate::bind::predict::predict_below;
use crate::bind::schedule::candidate::{Arg, Candidate};
use crate::bind::schedule::gpu_flat;
use crate::bind::schedule::renumber::ordered;
use kernel::{
    AxisId, AxisTile, Combined, Kernel, Mapping, Place, Role, Schedule, Stmt, TileId, TileProgram,
};
use std::sync::Arc;

/// The schedule of the parts with those of one sum as the tasks of a cluster.
fn side_by_side(first: &Half, parts: u32) -> Option<Schedule> {
    let mut s = Schedule::clone(&first.schedule);
    let extent = |c: &AxisTile| first.kernel.axes[c.axis as usize].extent.known();
    let of_parts = |c: &&AxisTile| c.tile == 1 && extent(c) == Some(parts.into());
    let (&part, rest) = s.grid.split_first().filter(|(c, _)| of_parts(c))?;
    s.grid = [rest, &[part]].concat();
    s.raster = 1;
    let Mapping::Gpu(g) = &mut s.mapping else {
        return None;
    };
    (g.walkers, g.cluster, g.combined) = (0, parts, Combined::InCluster);
    Some(s)
}

/// The tiles of the sum: those of the parts, of which the last is shared out, or beside them an axis that is whole in each.
fn shares(first: &Half, second: &Kernel) -> Option<Vec<AxisTile>> {
    let s = &first.schedule;
    let n = i64::from(s.cluster());
    let own = |c: &AxisTile| &first.kernel.axes[c.axis as usize];
    let several = |c: &&AxisTile| own(c).extent.known().is_none_or(|e| e > c.tile);
    let (_, tiles) = s.grid.split_last()?;
    let named = |c: &AxisTile| {
        let at = second.axes.iter().position(|a| a.name == own(c).name)?;
        Some(AxisTile {
            axis: at as AxisId,
            ..*c
        })
    };
    let tiles = tiles.iter().filter(several).map(named);
    let mut tiles: Vec<AxisTile> = tiles.collect::<Option<_>>()?;
    match tiles.last_mut().filter(|c| c.tile % n == 0) {
        Some(last) => last.tile /= n,
        None => tiles.push(whole(second, &tiles, n)?),
    }
    Some(tiles)
}

/// The longest axis without a tile that results have and `n` CTAs can share out, with the tile of each.
fn whole(k: &Kernel, tiles: &[AxisTile], n: i64) -> Option<AxisTile> {
    let results = || k.operands.iter().filter(|o| o.role == Role::Write);
    let free = |a: &AxisId| {
        let summed = k.body.iter().any(|s| s.over().contains(a));
        let cut = tiles.iter().any(|c| c.axis == *a);
        !summed && !cut && results().all(|o| o.access.term(*a).is_some())
    };
    let axes = (0..k.axes.len() as AxisId).filter(free);
    let sized = axes.filter_map(|a| Some((k.axes[a as usize].extent.known()?, a)));
    let (extent, axis) = sized.filter(|(e, _)| *e > 0 && e % n == 0).max()?;
    Some(AxisTile {
        axis,
        tile: extent / n,
    })
}

impl InParts<'_> {
    /// Both kernels for clusters, where there are such of as many CTAs and they are predicted to take less than `limit`.
    pub(super) fn in_cluster(&self, first: &Half, limit: f64) -> Option<Way> {
        let n = u32::try_from(self.two.cut.1).ok()?;
        let gpu = self.ctx.target.gpu.as_ref();
        gpu.filter(|g| g.cluster_parts.contains(&n))?;
        let schedule = Arc::new(side_by_side(first, n)?);
        let (r1, first) = self.predicted(0, &first.kernel, schedule, limit)?;
        let kernel = ordered(&self.two.kernels[1]);
        let ctx = Ctx {
            far: &self.halves[1].far,
            ..self.ctx
        };
        let Mapping::Gpu(g) = &first.schedule.mapping else {
            return None;
        };
        let grid = shares(&first, &kernel)?;
        let list = gpu_flat::with_threads(&Space::new(ctx, &kernel), &grid, g.computing());
        let ways = list.into_iter().filter_map(|c| {
            let schedule = self.adding(&c, n);
            let second = TileProgram::new(c.kernel.clone(), schedule.clone()).ok()?;
            let one = TileProgram::new(first.kernel.clone(), first.schedule.clone()).ok()?;
            kernel::in_cluster(&one, &second).ok()?;
            let (r2, second) = self.predicted(1, &c.kernel, schedule, f64::INFINITY)?;
            let saved = saved_as_one_launch(ctx, &first, &second)?;
            Some((r2 - saved, second, c.what, saved))
        });
        let (r2, second, what, saved) = ways.min_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(Way {
            rank: r1 + r2,
            what: format!("{what}, in clusters of {n}"),
            halves: [first, second],
            saved,
        })
    }

    /// The schedule of a candidate of the sum whose parts lie in the cluster.
    fn adding(&self, c: &Candidate, n: u32) -> Arc<Schedule> {
        let mut s = Schedule::clone(&c.schedule);
        for x in &c.kernel.body {
            if let Stmt::Load { dst, operand } = x
                && let Some(Arg::Between(_)) = self.two.args[1].get(*operand as usize)
            {
                s.places[*dst as TileId as usize] = Place::Cluster;
            }
        }
        if let Mapping::Gpu(g) = &mut s.mapping {
            g.cluster = n;
        }
        s.into()
    }

    /// Half number `half` with this schedule, and how it is ranked.
    fn predicted(
        &self,
        half: usize,
        kernel: &Arc<Kernel>,
        schedule: Arc<Schedule>,
        limit: f64,
    ) -> Option<(f64, Half)> {
        let ctx = Ctx {
            far: &self.halves[half].far,
            ..self.ctx
        };
        let found = predict_below(ctx, kernel, &schedule, limit)?;
        let rank = compared_s(&found.cost);
        (!found.least && rank < limit).then(|| {
            let half = Half {
                kernel: kernel.clone(),
                schedule,
                work: found.work,
                cost: found.cost,
            };
            (rank, half)
        })
    }
}
