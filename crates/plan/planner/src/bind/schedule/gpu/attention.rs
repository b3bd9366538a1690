//! Attention: scores, folds over them, and what they weigh, in one kernel.
use super::super::candidate::Candidate;
use super::super::product::Product;
use super::shape::{Gpu, Numbered, Shape, WARP};
use kernel::{AxisId, AxisTile, Fragment, TileId};
use layout::DType;

impl Gpu<'_> {
    /// Scores, folds over them, and a second contraction over the folded axis.
    pub(super) fn attention(&self, scores: &Product, values: &Product) -> Vec<Candidate> {
        let space = self.space;
        let known = |axes: &[AxisId]| {
            let mut n = 1i64;
            for &a in axes {
                n = n.checked_mul(space.kernel.axes[a as usize].extent.known()?)?;
            }
            u32::try_from(n).ok()
        };
        let (Some(depth), Some(width)) = (known(&scores.over), known(&values.columns)) else {
            return vec![];
        };
        let group = self.fragment.filter(|f| f.warps() > 1);
        if group.is_some_and(|f| !self.read_by_warpgroups(f, scores, values)) {
            return vec![];
        }
        let [key] = values.over.as_slice() else {
            return vec![];
        };
        let step = self.fragment.map_or(1, |f| f.k.max(16));
        let odd = depth % step != 0 || width % step != 0 || !width.is_power_of_two();
        if odd && self.fragment.is_some() {
            return vec![];
        }
        let staged = [scores.a, scores.b, values.b];
        let Some(numbered) = Numbered::of(self, &[*key], &staged) else {
            return vec![];
        };
        let parts = self.fragment.is_some_and(|f| f.products() > 1);
        let mut found = vec![];
        let fits = |t: &&(u32, u32)| group.is_none_or(|f| t.1 == f.n && t.0 >= f.m);
        for &(m, n) in self.gpu.tiles.iter().filter(fits) {
            // Products in parts have sums of their own beside those of the whole.
            let (n, own) = match parts {
                true => (n / 2, (n / 2).max(width)),
                false => (n, 0),
            };
            // One warp holds whole rows of scores: all warps lie along the rows. Without fragments the weights
            // are handed from thread to thread in shared memory.
            let rows = self.split(&scores.rows, m);
            if rows.is_empty() {
                continue;
            }
            // What keys have and queries have not, as the axis of parts of them.
            let parts = scores.columns.iter().filter(|a| **a != *key);
            let alone = parts.chain(&scores.batch);
            let batch = alone.map(|&axis| AxisTile { axis, tile: 1 });
            let grid: Vec<AxisTile> = batch.chain(rows).collect();
            for &threads in &self.gpu.threads {
                let warps = threads / 32;
                let each = group.map_or(1, |f| f.warps());
                if self.fragment.is_some() && (m % (warps * 16) != 0 || warps % each != 0) {
                    continue;
                }
                for copiers in self.copiers() {
                    if found.len() >= self.most {
                        return found;
                    }
                    let all = threads + copiers * WARP;
                    found.extend(self.pipelined((all, &grid), |stages| {
                        let shape = Shape {
                            grid: grid.clone(),
                            loops: vec![AxisTile {
                                axis: *key,
                                tile: n.into(),
                            }],
                            rows: &scores.rows,
                            columns: &values.columns,
                            staged: vec![(scores.a, 1), (scores.b, stages), (values.b, stages)],
                            // A thread's sums are the next fragment of elements of 16 bits alone.
                            shared: self
                                .fragment
                                .is_none_or(|f| f.input == DType::F32)
                                .then_some(values.a),
                            warps: [warps, 1],
                            copiers,
                            deep: 1,
                            raster: 1,
                        };
                        // Scores, weights, and what they weigh; a warpgroup's weights are words of two.
                        let weights = if group.is_some() { n / 2 } else { n };
                        self.fitting(&numbered, shape, m * (n + weights + width + own) / threads)
                    }));
                }
            }
        }
        found
    }

    /// Whether a warpgroup's instructions read the factors of both products as they lie: those of scores along the depth,
    /// values across it, while threads hold the weights.
    fn read_by_warpgroups(&self, f: Fragment, scores: &Product, values: &Product) -> bool {
        let along = |t: TileId, axes: &[AxisId]| {
            let source = self.space.source(t);
            source.is_some_and(|o| self.space.unit_axis(o, axes).is_some())
        };
        f.turns_right()
            && [scores.a, scores.b].iter().all(|&t| along(t, &scores.over))
            && along(values.b, &values.columns)
    }
}
