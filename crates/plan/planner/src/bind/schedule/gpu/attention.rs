//! Attention: scores, folds over them, and what they weigh, in one kernel.
use super::super::candidate::Candidate;
use super::super::product::Product;
use super::shape::{Gpu, Numbered, Shape};
use kernel::{AxisId, AxisTile};
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
        // The weights are the next product's factor where threads hold them.
        if self.fragment.is_some_and(|f| f.warps() > 1) {
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
        for &(m, n) in &self.gpu.tiles {
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
                if self.fragment.is_some() && m % (warps * 16) != 0 {
                    continue;
                }
                found.extend(self.pipelined((threads, &grid), |stages| {
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
                        copiers: 0,
                        deep: 1,
                        raster: 1,
                    };
                    self.fitting(&numbered, shape, m * (2 * n + width + own) / threads)
                }));
            }
        }
        found
    }
}
