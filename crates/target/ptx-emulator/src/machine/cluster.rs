//! The barrier of a cluster.

use crate::clocks::{Vc, join};
use std::sync::Arc;

/// Most CTAs of a cluster.
pub(crate) const MOST: u32 = 16;

#[derive(Debug, Default)]
pub(crate) struct ClusterBarrier {
    /// Threads that have not ended, and those of them that arrived in this phase.
    pub alive: u32,
    pub arrived: u32,
    /// Phases that are complete.
    pub phase: u32,
    /// What those know who arrived in this phase, and in those before it.
    pub arriving: Arc<Vc>,
    pub done: Arc<Vc>,
}

impl ClusterBarrier {
    /// Whether a phase is complete now.
    pub fn settle(&mut self) -> bool {
        if self.alive == 0 || self.arrived < self.alive {
            return false;
        }
        self.phase += 1;
        self.arrived = 0;
        let arrived = std::mem::take(&mut self.arriving);
        join(&mut self.done, &arrived);
        true
    }
}

/// Where the CTAs of a launch stand: in clusters of so many along x, y and z.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clusters {
    pub grid: [u32; 3],
    pub dims: [u32; 3],
}

impl Clusters {
    /// CTAs of a cluster.
    pub fn size(&self) -> u32 {
        self.dims.iter().product()
    }

    /// The number of the CTA that is the `n`th when cluster follows cluster.
    pub fn cta(&self, n: u32) -> u32 {
        let size = self.size();
        if size == 1 {
            return n;
        }
        let (cluster, rank) = (n / size, n % size);
        let (c, r) = (split(cluster, self.count()), split(rank, self.dims));
        let at = |k: usize| c[k] * self.dims[k] + r[k];
        at(0) + self.grid[0] * (at(1) + self.grid[1] * at(2))
    }

    /// Clusters along x, y and z.
    pub fn count(&self) -> [u32; 3] {
        [0, 1, 2].map(|k| self.grid[k] / self.dims[k].max(1))
    }

    /// The cluster of a CTA and its place in it, along x, y and z.
    pub fn place(&self, cta: [u32; 3]) -> ([u32; 3], [u32; 3]) {
        (
            [0, 1, 2].map(|k| cta[k] / self.dims[k]),
            [0, 1, 2].map(|k| cta[k] % self.dims[k]),
        )
    }

    /// The cluster's number and the CTA's rank in it.
    pub fn rank(&self, cta: [u32; 3]) -> (u32, u32) {
        let (c, r) = self.place(cta);
        (linear(c, self.count()), linear(r, self.dims))
    }
}

fn split(n: u32, dims: [u32; 3]) -> [u32; 3] {
    let x = dims[0].max(1);
    let y = dims[1].max(1);
    [n % x, n / x % y, n / x / y]
}

fn linear(at: [u32; 3], dims: [u32; 3]) -> u32 {
    at[0] + dims[0] * (at[1] + dims[1] * at[2])
}
