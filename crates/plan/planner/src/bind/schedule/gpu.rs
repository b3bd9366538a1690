//! Schedules for GPUs that stage contractions in shared memory: candidates from the target's legal values, pruned by shared
//! memory and registers.
//!
//! Factors of contractions are staged in shared memory, everything else is in registers or read
//! where it is used. Axes are numbered so that a staged tile's last axis is the one along which its
//! operand is contiguous: tiles are stored in the order of their axes.
mod attention;
mod shape;
mod spread;
mod stage;

use super::candidate::{Candidate, Image, Widened};
use super::gpu_swizzle::multiplied_lines;
use super::product::Product;
use super::{gpu_flat, one_row, tiles};
use crate::bind::ctx::{Ctx, Space};
use kernel::{
    AxisId, AxisTile, Combined, Factors, Fragment, GpuMapping, GpuTarget, Mapping, Operand,
    PARTS_DEPTH, Place, Schedule, Swizzle, TileId,
};
use machine::{calc, units};
use shape::{Gpu, Numbered, Renumbered, Shape, WARP};

/// Registers of a thread that tile programs may count on, whatever a machine has.
pub(super) const MOST_REGISTERS: u32 = 255;
/// Elements per thread beyond which too little is left of 255 registers for fragments, addresses
/// of copies and the epilogue: of a product's accumulators, and of attention's scores, weights and
/// results together. Products in parts have sums of their own beside those of the whole.
const MOST_SUMS: u32 = 64;
const MOST_HELD: u32 = 128;
const MOST_IN_PARTS: u32 = 96;
/// The same of attention by warpgroups, whose factors have no registers.
const MOST_OF_GROUPS: u32 = 160;
/// Rows of tiles that are few: of those alone whose factors take little memory.
const LEAST_ROWS: u32 = 16;
/// Rows or columns below which most of a staged tile would be computed in vain.
const THIN: i64 = 16;

/// The first `most` candidates of each way to compute the kernel, in turns, best guesses first: whoever looks at no
/// more than that needs no others.
///
/// A contraction that a tensor-core instruction of the target computes is staged for it; one without
/// such an instruction is staged for plain multiply-adds. Where a staged tile has too few rows or
/// columns, and for every other kernel, [`gpu_flat`] has schedules.
pub(crate) fn candidates(space: &Space, most: usize) -> Vec<Candidate> {
    let (Some(gpu), kernel) = (&space.ctx.target.gpu, space.kernel) else {
        return vec![];
    };
    // Threads number elements in 32 bits.
    let small = |o: &Operand| space.ctx.top(&o.elements) <= i64::from(i32::MAX);
    if !kernel.operands.iter().all(small) {
        return vec![];
    }
    if !kernel.ordered().is_empty() {
        return gpu_flat::candidates(space);
    }
    let products = Product::all(kernel);
    if let [scores, values] = &products[..]
        && let Some(kernel) = one_row::of_attention(kernel, scores, values)
    {
        return candidates(&space.of(&kernel), most);
    }
    let dtype = |t: TileId| kernel.tiles[t as usize].dtype;
    let matches = |f: &&Fragment| {
        let [left, right] = f.types();
        products.iter().all(|p| {
            let types = [dtype(p.a), dtype(p.b)];
            (types == [left, right] || types == [right, left]) && dtype(p.acc) == f.acc
        })
    };
    let fragments = gpu.fragments.iter().filter(matches);
    let fragments = fragments.filter(|f| offered(space.ctx, gpu, f));
    let staged = |fragment: Option<Fragment>, most: usize| {
        let g = Gpu {
            space,
            gpu,
            image: None,
            widened: None,
            fragment,
            most,
        };
        match products.as_slice() {
            [one] => g.product(one),
            [scores, values] => g.attention(scores, values),
            _ => vec![],
        }
    };
    // Instructions that differ in their columns alone are one way.
    let mut ways: Vec<(Fragment, Vec<Candidate>)> = vec![];
    for &f in fragments {
        match ways.iter_mut().find(|w| Fragment { n: f.n, ..w.0 } == f) {
            Some(w) if w.1.len() >= most => {}
            Some(w) => w.1.extend(staged(Some(f), most - w.1.len())),
            None => ways.push((f, staged(Some(f), most))),
        }
    }
    let mut ways: Vec<Vec<Candidate>> = ways.into_iter().map(|w| w.1).collect();
    ways.retain(|w| !w.is_empty());
    // Matrix instructions for the elements as they are leave nothing to multiply-adds.
    let whole = |w: &Vec<Candidate>| w.iter().any(|c| factors(c) == Some(Factors::Whole));
    if !ways.iter().any(whole) {
        ways.push(staged(None, most));
    }
    let multiplies = ways.iter().any(|w| w.iter().any(|c| factors(c).is_none()));
    let mut found = in_turns(ways);
    if let [one] = &products[..]
        && let Some(kernel) = one_row::of_product(kernel, one)
    {
        // Others have no rows to share out, and read a factor once as it is.
        let mut more = candidates(&space.of(&kernel), most);
        more.retain(|c| warps(c) > 1);
        found.extend(more);
    }
    let thin = products
        .iter()
        .any(|p| space.points(&p.rows).min(space.points(&p.columns)) < THIN);
    // What is handed over in shared memory may have no room: then threads go it alone.
    let alone = products.len() > 1 && (multiplies || found.is_empty());
    if alone {
        found.extend(gpu_flat::candidates(space));
    }
    if found.is_empty() || thin && !alone {
        found.splice(0..0, gpu_flat::candidates(space));
    }
    found
}

/// Whether matrix instructions multiply as exactly as was asked for, and none that does so and reads the same factors takes
/// less time; warpgroups read those in words of others from images alone.
fn offered(ctx: Ctx, gpu: &GpuTarget, f: &Fragment) -> bool {
    let allowed = |f: &Fragment| ctx.precision.allows(f.factors);
    let faster = |o: &&Fragment| {
        let alike = (o.warps(), o.types(), o.acc) == (f.warps(), f.types(), f.acc);
        let read = o.warps() == 1 || o.multiplied() == f.multiplied();
        alike && read && time(o) < time(f)
    };
    allowed(f) && !gpu.fragments.iter().filter(faster).any(allowed)
}

/// What products of a size take, as the bits that are multiplied.
fn time(f: &Fragment) -> u32 {
    f.products() * f.multiplied()[0].bits()
}

/// What instructions `of` some kind multiply in the shortest time of all that are as exact as was asked for.
pub(super) fn fastest(ctx: Ctx, of: &dyn Fn(&Fragment) -> bool) -> Option<Factors> {
    let gpu = ctx.target.gpu.as_ref()?;
    let found = gpu.fragments.iter().filter(|f| of(f));
    let found = found.filter(|f| ctx.precision.allows(f.factors));
    found.min_by_key(|f| time(f)).map(|f| f.factors)
}

/// The first `most` candidates of a product by single warps whose right factor is made of parts that lie as they are
/// multiplied by `factors`.
pub(super) fn of_parts(space: &Space, factors: Factors, most: usize) -> Vec<Candidate> {
    let (Some(gpu), Some(p)) = (&space.ctx.target.gpu, Product::of(space.kernel)) else {
        return vec![];
    };
    let acc = space.kernel.tiles[p.acc as usize].dtype;
    let own = |f: &&Fragment| f.warps() == 1 && (f.factors, f.acc) == (factors, acc);
    let ways = gpu.fragments.iter().filter(own).map(|&f| {
        let g = Gpu {
            space,
            gpu,
            image: None,
            widened: None,
            fragment: Some(f),
            most,
        };
        g.product(&p)
    });
    in_turns(ways.collect())
}

/// Whether a candidate's product reads parts of a factor in its place.
pub(super) fn has_parts(c: &Candidate) -> bool {
    (0..c.kernel.tiles.len() as TileId).any(|t| c.kernel.parts_of(t).is_some())
}

/// Candidates of [`candidates`] whose matrix instructions read factors that lie along the depth.
pub(super) fn along_depth(space: &Space, most: usize) -> Vec<Candidate> {
    let mut found = candidates(space, most);
    found.retain(lies_along_depth);
    found
}

/// Candidates of a product by warpgroups with `image`, which multiply such factors.
pub(super) fn with_image(space: &Space, image: Image, multiplied: Factors) -> Vec<Candidate> {
    let (Some(gpu), Some(p)) = (&space.ctx.target.gpu, Product::of(space.kernel)) else {
        return vec![];
    };
    let acc = space.kernel.tiles[p.acc as usize].dtype;
    let groups = gpu.fragments.iter();
    let groups = groups.filter(|f| f.warps() > 1 && f.factors == multiplied && f.acc == acc);
    let of = |&f: &Fragment| {
        let g = Gpu {
            space,
            gpu,
            image: Some(image),
            widened: None,
            fragment: Some(f),
            most: usize::MAX,
        };
        g.product(&p)
    };
    groups.flat_map(of).collect()
}

/// The first `most` candidates of each way to compute a product whose right factor fragments are made of in registers.
pub(super) fn widening(space: &Space, widened: Widened, most: usize) -> Vec<Candidate> {
    let (Some(gpu), Some(p)) = (&space.ctx.target.gpu, Product::of(space.kernel)) else {
        return vec![];
    };
    let dtype = |t: TileId| space.kernel.tiles[t as usize].dtype;
    let of = |f: &Fragment| {
        let types = [p.a, p.b].map(dtype);
        let fits = f.warps() == 1 && types == f.types() && dtype(p.acc) == f.acc;
        fits && offered(space.ctx, gpu, f)
    };
    let ways = gpu.fragments.iter().filter(|f| of(f)).map(|&f| {
        let g = Gpu {
            space,
            gpu,
            image: None,
            widened: Some(widened),
            fragment: Some(f),
            most,
        };
        g.product(&p)
    });
    in_turns(ways.collect())
}

/// Whether a candidate's fragments are made of numbers of 4 bits in shared memory.
pub(super) fn widens(c: &Candidate) -> bool {
    let numbers = |t: TileId| c.kernel.numbers_of(t);
    let mut all = (0..c.kernel.tiles.len() as TileId).filter_map(numbers);
    all.any(|n| c.schedule.place(n).stages().is_some())
}

/// Whether a candidate's matrix instructions read factors that lie along the depth.
pub(super) fn lies_along_depth(c: &Candidate) -> bool {
    match &c.schedule.mapping {
        Mapping::Gpu(g) => g.fragment.is_some_and(|f| f.along_depth()),
        Mapping::Cpu(_) => false,
    }
}

/// Warps of a candidate's matrix instruction; 0 without one.
pub(super) fn warps(c: &Candidate) -> u32 {
    match &c.schedule.mapping {
        Mapping::Gpu(g) => g.fragment.map_or(0, |f| f.warps()),
        Mapping::Cpu(_) => 0,
    }
}

/// What a candidate's matrix instructions multiply; `None` for multiply-adds.
pub(super) fn factors(c: &Candidate) -> Option<Factors> {
    match &c.schedule.mapping {
        Mapping::Gpu(g) => g.fragment.map(|f| f.factors),
        Mapping::Cpu(_) => None,
    }
}

/// All of `ways`, one of each in turn.
fn in_turns(ways: Vec<Vec<Candidate>>) -> Vec<Candidate> {
    let mut rest: Vec<_> = ways.into_iter().map(Vec::into_iter).collect();
    let mut found = vec![];
    loop {
        let before = found.len();
        found.extend(rest.iter_mut().filter_map(Iterator::next));
        if found.len() == before {
            return found;
        }
    }
}

/// A shape that there is room for.
struct Fitting<'a> {
    renumbered: Renumbered<'a>,
    shape: Shape<'a>,
    places: Vec<Place>,
    /// Bytes of shared memory of a CTA.
    bytes: i64,
    /// Bytes that lie together in every source.
    run: u32,
}

impl Gpu<'_> {
    /// One contraction with whatever follows it.
    fn product(&self, p: &Product) -> Vec<Candidate> {
        let space = self.space;
        let Some(out) = space.main_output() else {
            return vec![];
        };
        // Neighbouring columns are stored together.
        let mut p = match space.unit_axis(out, &p.rows) {
            Some(_) => p.swapped(),
            None => p.clone(),
        };
        let group = self.fragment.filter(|f| f.warps() > 1);
        // A warpgroup's instructions have at least so many rows, and columns in any number.
        if group.is_some_and(|f| space.points(&p.rows) < f.m.into()) {
            p = p.swapped();
        }
        if let Some(f) = self.fragment {
            let types = [p.a, p.b].map(|t| space.kernel.tiles[t as usize].dtype);
            // Threads make what is multiplied of the left factor alone.
            let left = self.image.is_some_and(|i| i.tile == p.a);
            let parts = space.kernel.parts_of(p.a).is_some();
            if types != f.types() || parts || left && f.factors != Factors::Whole {
                return vec![];
            }
        }
        if self.widened.is_some_and(|w| p.b != w.tile) {
            return vec![];
        }
        if self.widened.is_some() || self.fragment.is_some_and(|f| f.along_depth()) {
            let Some(along) = self.widened.map(|w| w.along).or_else(|| self.along(&p)) else {
                return vec![];
            };
            p.over.retain(|a| *a != along);
            p.over.push(along);
        }
        let Some(&innermost) = p.over.last() else {
            return vec![];
        };
        let staged: Vec<TileId> = self.staged(&p, 1).iter().map(|s| s.0).collect();
        let Some(numbered) = Numbered::of(self, &p.over, &staged) else {
            return vec![];
        };
        let mut found = vec![];
        let fits = |t: &&(u32, u32)| match group {
            Some(f) => t.1 == f.n && t.0 >= f.m,
            None => t.0 > LEAST_ROWS || self.widened.is_some(),
        };
        for &(m, n) in self.gpu.tiles.iter().filter(fits) {
            // An image is that of its own tiles.
            let other = |i: Image| i64::from(if i.tile == p.a { m } else { n }) != i.lines;
            if self.image.is_some_and(other) {
                continue;
            }
            let (rows, columns) = (self.split(&p.rows, m), self.split(&p.columns, n));
            if rows.is_empty() || columns.is_empty() {
                continue;
            }
            let batch = p.batch.iter().map(|&axis| AxisTile { axis, tile: 1 });
            let grid: Vec<AxisTile> = batch.chain(rows).chain(columns).collect();
            for &depth in &self.gpu.depths {
                let step = self.fragment.map_or(1, |f| f.k);
                let Some(loops) = self.loops(&p.over, depth).filter(|_| depth % step == 0) else {
                    continue;
                };
                if group.is_some_and(|f| Some(depth) != self.longest(f, innermost)) {
                    continue;
                }
                for (threads, deep) in self.threads(&grid, depth) {
                    let Some(warps) = self.warps(threads / deep, m, n) else {
                        continue;
                    };
                    // Bands no wider than there are rows.
                    let raster = self.raster(&grid);
                    for copiers in self.copiers() {
                        if found.len() >= self.most {
                            return found;
                        }
                        let all = threads + copiers * WARP;
                        found.extend(self.pipelined((all, &grid), |stages| {
                            let shape = Shape {
                                grid: grid.clone(),
                                loops: loops.clone(),
                                rows: &p.rows,
                                columns: &p.columns,
                                staged: self.staged(&p, stages),
                                shared: None,
                                warps,
                                copiers,
                                deep,
                                raster,
                            };
                            self.fitting(&numbered, shape, m * n * deep / threads)
                        }));
                    }
                }
            }
        }
        found
    }

    /// Loops over what is summed in pieces of `depth`; of numbers of 4 bits these are whole blocks, each of which has the
    /// positions of the innermost axis: what scales them is copied ahead in the loop that copies them.
    fn loops(&self, over: &[AxisId], depth: u32) -> Option<Vec<AxisTile>> {
        let (&innermost, outer) = over.split_last()?;
        let (depth, inner) = (i64::from(depth), self.space.extent(innermost));
        let one = |&axis: &AxisId| AxisTile { axis, tile: 1 };
        if self.widened.is_none() {
            let last = AxisTile {
                axis: innermost,
                tile: depth,
            };
            let fits = depth <= inner.max(16);
            return fits.then(|| outer.iter().map(one).chain([last]).collect());
        }
        let (&next, rest) = outer.split_last()?;
        let blocks = depth / inner.max(1);
        let fits = depth % inner.max(1) == 0 && (1..=self.space.extent(next)).contains(&blocks);
        let last = AxisTile {
            axis: next,
            tile: blocks,
        };
        fits.then(|| rest.iter().map(one).chain([last]).collect())
    }

    /// The tiles of a product that are staged, by so many stages: its factors, or what one is made of.
    fn staged(&self, p: &Product, stages: u32) -> Vec<(TileId, u32)> {
        let of = |t: TileId| match self.space.kernel.parts_of(t) {
            Some((_, parts)) => parts.to_vec(),
            None => match self.space.kernel.widened_from(t) {
                Some(from) if self.widened.is_some() => from.to_vec(),
                _ => vec![t],
            },
        };
        let all = [p.a, p.b].into_iter().flat_map(of);
        all.map(|t| (t, stages)).collect()
    }

    /// Numbers of warps that only copy: some where what warpgroups multiply is what was copied, at least of the right
    /// factor.
    fn copiers(&self) -> Vec<u32> {
        let whole = |f: &Fragment| f.factors == Factors::Whole || self.image.is_some();
        let group = self.fragment.filter(|f| f.warps() > 1);
        // Words of bf16 are made of f32 where warps copy, of a right factor that lies as it is multiplied.
        if group.is_some_and(|f| f.multiplied() != f.types()) && self.image.is_none() {
            return vec![];
        }
        if !group.as_ref().is_some_and(whole) || self.gpu.copiers.is_empty() {
            return vec![0];
        }
        let all = self.gpu.copiers.iter().copied();
        all.filter(|&c| c > 0 || self.image.is_none()).collect()
    }

    /// Positions of a summed axis in the longest line that a warpgroup's instructions read: pieces are few then, and
    /// made of whole lines of caches.
    fn longest(&self, f: Fragment, axis: AxisId) -> Option<u32> {
        let most = self.space.extent(axis).max(i64::from(f.k));
        let depths = self.gpu.depths.iter().copied();
        let summed = if f.products() > 1 {
            PARTS_DEPTH
        } else {
            u32::MAX
        };
        let fits = |d: &u32| {
            let read = d.is_multiple_of(f.k) && multiplied_lines(f, *d).is_some();
            i64::from(*d) <= most && *d <= summed && read
        };
        depths.filter(fits).max()
    }

    /// The summed axis along which both factors lie.
    fn along(&self, p: &Product) -> Option<AxisId> {
        let unit = |t: TileId| {
            let o = self.space.source(t)?;
            self.space.unit_axis(o, &p.over)
        };
        if let Some(image) = self.image {
            let other = if image.tile == p.a { p.b } else { p.a };
            return unit(other).filter(|&a| a == image.along);
        }
        unit(p.a).filter(|&a| unit(p.b) == Some(a))
    }

    /// Tasks of a grid.
    fn tasks(&self, grid: &[AxisTile]) -> u64 {
        grid.iter().fold(1u64, |n, c| {
            let pieces = (self.space.extent(c.axis) + c.tile - 1) / c.tile.max(1);
            n.saturating_mul(pieces.max(1) as u64)
        })
    }

    /// Threads of a CTA, and how many warps of them lie along the depth of pieces of `depth`: some where there are
    /// fewer tasks than multiprocessors, so that schedulers have warps to change between.
    fn threads(&self, grid: &[AxisTile], depth: u32) -> Vec<(u32, u32)> {
        let flat = self.gpu.threads.iter().map(|&t| (t, 1));
        let workers = self.space.ctx.machine.worker_count() as u64;
        let few = |f: &Fragment| self.tasks(grid) < workers && f.warps() == 1;
        let Some(f) = self.fragment.filter(few) else {
            return flat.collect();
        };
        // Products in parts have sums of their own every so deep.
        let least = if f.products() > 1 { PARTS_DEPTH } else { f.k };
        let deep = self.gpu.threads.iter().rev().filter_map(|&threads| {
            let most = (depth / least).min(threads / 32);
            (most > 1).then(|| (threads, 1 << most.ilog2()))
        });
        // What arithmetic and bytes alone say of both is the same: those that are first are looked at.
        deep.chain(flat).collect()
    }

    /// The candidate with the deepest pipeline for whose stages there is room, of those from two stages on the
    /// deepest with which a multiprocessor holds as many CTAs as it has registers and tasks for, or the most: warps
    /// of another CTA do more against waiting than a stage.
    fn pipelined<'s>(
        &self,
        (threads, grid): (u32, &[AxisTile]),
        fitting: impl Fn(u32) -> Option<Fitting<'s>>,
    ) -> Option<Candidate> {
        let machine = &self.space.ctx.machine;
        let each = self
            .tasks(grid)
            .div_ceil(machine.worker_count().max(1) as u64);
        let held = |bytes: i64| self.held(threads, bytes).clamp(1, each.max(1));
        let mut best: Option<(u64, Fitting)> = None;
        for &stages in &self.gpu.stages {
            // One stage has nothing under way while it is used.
            if stages < 2 && best.is_some() {
                break;
            }
            let Some(fitting) = fitting(stages) else {
                continue;
            };
            let ctas = held(fitting.bytes);
            if best.as_ref().is_none_or(|b| ctas > b.0) {
                best = Some((ctas, fitting));
            }
        }
        self.candidate(best?.1)
    }

    /// CTAs of so many threads and bytes of shared memory that a multiprocessor holds.
    fn held(&self, threads: u32, bytes: i64) -> u64 {
        let block = calc::Block {
            threads: threads.into(),
            registers: self.registers(threads).into(),
            shared: bytes as u64,
        };
        calc::occupancy(&self.space.ctx.machine.limits, block).map_or(1, |o| o.ctas.max(1))
    }

    /// CTAs that walk tasks, of so many threads and bytes of shared memory: as many as there is room for, where there
    /// are more tasks, all with as many pieces, and the target has such.
    fn walkers(&self, r: &Renumbered, s: &Shape, threads: u32, bytes: i64) -> u32 {
        let workers = self.space.ctx.machine.worker_count() as u64;
        let room = workers.saturating_mul(self.held(threads, bytes));
        let walk = self.gpu.walking && s.copiers > 0 && self.tasks(&s.grid) > room;
        let walk = walk && r.kernel.has_alike_tasks(&r.loops);
        u32::try_from(room).ok().filter(|_| walk).unwrap_or(0)
    }

    /// The widest bands of which there is at least one whole.
    fn raster(&self, grid: &[AxisTile]) -> i64 {
        let pieces = |c: &AxisTile| (self.space.extent(c.axis) + c.tile - 1) / c.tile;
        let most = grid.iter().rev().nth(1).map_or(1, pieces);
        let fitting = self
            .gpu
            .rasters
            .iter()
            .map(|&r| i64::from(r))
            .filter(|&r| r <= most);
        fitting.max().unwrap_or(1)
    }

    /// `target` positions over `axes` in powers of two, such that least is computed in vain.
    fn split(&self, axes: &[AxisId], target: u32) -> Vec<AxisTile> {
        let mut best: Option<(i64, Vec<i64>)> = None;
        let mut tiles = vec![1i64; axes.len()];
        self.splits(axes, 0, target.into(), &mut tiles, &mut best);
        let tiles = best.map_or_else(Vec::new, |b| b.1);
        axes.iter()
            .zip(tiles)
            .map(|(&axis, tile)| AxisTile { axis, tile })
            .collect()
    }

    fn splits(
        &self,
        axes: &[AxisId],
        at: usize,
        left: i64,
        tiles: &mut Vec<i64>,
        best: &mut Option<(i64, Vec<i64>)>,
    ) {
        if at == axes.len() {
            if left == 1 {
                let done = axes.iter().zip(&*tiles).fold(1i64, |p, (&a, &t)| {
                    let pieces = self.space.extent(a).saturating_add(t - 1) / t;
                    p.saturating_mul(pieces.saturating_mul(t))
                });
                if best.as_ref().is_none_or(|b| done < b.0) {
                    *best = Some((done, tiles.clone()));
                }
            }
            return;
        }
        // The first of equals wins: outer axes get little, so that lines stay long.
        let mut t = 1;
        while t <= left {
            tiles[at] = t;
            self.splits(axes, at + 1, left / t, tiles, best);
            t *= 2;
        }
    }

    /// The squarest way to lay warps over `m` by `n` accumulators.
    fn warps(&self, threads: u32, m: u32, n: u32) -> Option<[u32; 2]> {
        let count = threads / 32;
        if let Some(f) = self.fragment.filter(|f| f.warps() > 1) {
            let whole =
                count.is_multiple_of(f.warps()) && m.is_multiple_of(count * kernel::WARP_ROWS);
            return whole.then_some([count, 1]);
        }
        let mut best: Option<(u32, [u32; 2])> = None;
        for wm in (0..=count.ilog2()).map(|i| 1 << i) {
            let wn = count / wm;
            if wm * wn != count || !m.is_multiple_of(wm * 16) || !n.is_multiple_of(wn * 16) {
                continue;
            }
            let rim = m / wm + n / wn;
            if best.is_none_or(|b| rim < b.0) {
                best = Some((rim, [wm, wn]));
            }
        }
        best.map(|b| b.1)
    }

    /// `s` with its places in shared memory, where there is room for it and for `held` registers of sums.
    fn fitting<'s>(&self, n: &'s Numbered, s: Shape<'s>, held: u32) -> Option<Fitting<'s>> {
        let space = self.space;
        let computing = s.warps[0] * s.warps[1] * s.deep * WARP;
        let parts = self.fragment.is_some_and(|f| f.products() > 1);
        let group = self.fragment.filter(|f| f.warps() > 1);
        let attends = s.staged.len() > 2 && self.image.is_none() && self.widened.is_none();
        let most = match (attends, parts) {
            (true, false) if group.is_some() => MOST_OF_GROUPS,
            (_, true) if group.is_some() => MOST_HELD / 2,
            (_, false) if group.is_some() => MOST_HELD,
            (true, true) => MOST_IN_PARTS,
            (true, false) => MOST_HELD,
            (false, true) => MOST_SUMS / 2,
            (false, false) => MOST_SUMS,
        };
        if held > most {
            return None;
        }
        let r = Renumbered::new(n, &s);
        let mut places = r.unstaged.to_vec();
        for (t, place) in places.iter_mut().enumerate() {
            if r.kernel.parts_of(t as TileId).is_some() {
                *place = Place::Recompute;
            }
        }
        if let Some(w) = self.widened {
            places[w.tile as usize] = Place::Recompute;
        }
        let (bytes, run) = self.stage(&r, &s, &mut places)?;
        let limits = &space.ctx.machine.limits;
        let room = limits.shared_per_cta.as_ref();
        let most_shared = room.map_or(48 << 10, |l| l.value as i64);
        if bytes > most_shared {
            return None;
        }
        // The sums of the warps that are not the first along the depth.
        let mut bytes = bytes + i64::from((s.deep - 1) * computing / s.deep * held * 4);
        if bytes > most_shared {
            return None;
        }
        if let Some(t) = s.shared {
            let each = r.kernel.tiles[t as usize].axes.iter();
            let size = each
                .map(|&a| r.tile_of(a))
                .try_fold(4, |n: i64, t| n.checked_mul(t?))?;
            bytes = bytes.checked_add(size)?;
            if bytes > most_shared {
                return None;
            }
            places[t as usize] = Place::Shared {
                swizzle: Swizzle::default(),
                stages: 1,
            };
        }
        Some(Fitting {
            renumbered: r,
            shape: s,
            places,
            bytes,
            run,
        })
    }

    /// The candidate of what fits.
    fn candidate(&self, fitting: Fitting) -> Option<Candidate> {
        let Fitting {
            renumbered: r,
            shape: s,
            places,
            bytes,
            run,
        } = fitting;
        let computing = s.warps[0] * s.warps[1] * s.deep * WARP;
        let threads = computing + s.copiers * WARP;
        let spread = match (self.fragment, s.shared) {
            // Fragments say it.
            (Some(_), _) => vec![],
            (None, Some(_)) => spread::attention(&r, threads, s.staged.first()?.0)?,
            (None, None) => spread::multiply_add(&r, threads, r.loops.last()?.axis)?,
        };
        let mapping = GpuMapping {
            threads,
            warps: s.warps,
            copiers: s.copiers,
            walkers: self.walkers(&r, &s, threads, bytes),
            cluster: 1,
            combined: Combined::ByLast,
            rows: r.rows.clone(),
            columns: r.columns.clone(),
            fragment: self.fragment,
            load_bytes: *self.gpu.load_bytes.iter().filter(|&&b| b <= run).max()?,
            store_bytes: match self.fragment {
                Some(f) if f.warps() > 1 => self.gpu.store_bytes,
                _ => 0,
            },
            unroll: match self.fragment {
                Some(_) => 1,
                None => unroll(self.gpu),
            },
            registers: self.registers(threads),
            spread,
            code: None,
            constants: vec![],
            triggers: false,
        };
        let what = self.described(&s, &mapping, bytes);
        let schedule = Schedule {
            grid: r.grid,
            loops: r.loops,
            places,
            chunk: 1,
            raster: s.raster,
            mapping: Mapping::Gpu(mapping),
        };
        Some(Candidate {
            what,
            kernel: r.kernel.clone(),
            schedule: schedule.into(),
            packed: vec![],
        })
    }

    /// Whether a factor is made of parts.
    fn parted(&self) -> bool {
        let kernel = self.space.kernel;
        (0..kernel.tiles.len() as TileId).any(|t| kernel.parts_of(t).is_some())
    }

    /// What a candidate is called that shares so many bytes.
    fn described(&self, s: &Shape, g: &GpuMapping, bytes: i64) -> String {
        let deep = match s.deep {
            1 => String::new(),
            n => format!(", {n} of them along the depth"),
        };
        let copying = match s.copiers {
            0 => String::new(),
            n => format!(" and {n} that copy"),
        };
        let walking = match g.walkers {
            0 => String::new(),
            n => format!(", {n} CTAs that walk"),
        };
        let image = match (self.image, self.widened) {
            (Some(_), _) => ", a constant as images of its pieces",
            (None, Some(_)) => ", 4 bits widened in registers",
            (None, None) if self.parted() => ", a constant as it is multiplied",
            (None, None) => "",
        };
        format!(
            "{}, {} warps{deep}{copying}{walking}{image}, {} shared, raster {}",
            tiles::describe(self.space, &s.grid, &s.loops),
            g.computing() / WARP,
            units::bytes(bytes as f64),
            s.raster
        )
    }

    /// Registers of each of so many threads.
    fn registers(&self, threads: u32) -> u32 {
        let limits = &self.space.ctx.machine.limits;
        let file = limits.registers_per_sm.as_ref();
        let file = file.map_or(65536, |l| l.value as u32);
        let each = limits.registers_per_thread.as_ref();
        let each = each.map_or(MOST_REGISTERS, |l| {
            l.value.min(MOST_REGISTERS.into()) as u32
        });
        each.min(file / threads / 8 * 8)
    }
}

/// Times that innermost loops are written out: as many loads are then under way at once.
pub(super) fn unroll(gpu: &kernel::GpuTarget) -> u32 {
    let some = gpu.unrolls.iter().copied().filter(|&n| n <= UNROLL);
    some.max().unwrap_or(1)
}

/// More than this fills registers, and the instruction cache, and hides no more latency.
const UNROLL: u32 = 4;
