//! Contractions and convolutions: a register tile of rows by lanes, looped over a task's tile.
//!
//! One factor is streamed along vector lanes (its panels are packed when it is a constant), the
//! other is broadcast row by row. Rows are the axes of the broadcast factor alone, lanes an axis of
//! the streamed one.
use super::candidate::Candidate;
use super::form::{gather_loops, places, wanted_tasks, whole};
use super::product::{PAIRED, Product, READS_WEIGH, WORTH_PACKING, lie, share};
use super::tiles;
use crate::bind::ctx::{Ctx, Space};
use crate::bind::pack;
use crate::bind::prior::alike;
use kernel::{
    AxisId, AxisTile, CpuMapping, Mapping, MicroKernel, MicroShape, OperandId, Place, Schedule,
    Stmt, Swizzle, TileId,
};
use layout::Arrange;
use layout::{DType, Dim};
use std::collections::BTreeSet;

/// The lane axis of an orientation and how good it is.
fn lane(space: &Space, p: &Product, packs: bool) -> Option<(i64, AxisId)> {
    let out = space.main_output()?;
    let b = space.source(p.b);
    let lanes = space.ctx.lanes();
    p.columns
        .iter()
        .map(|&x| {
            let unit = space.stride(out, x) == 1;
            let near = b.is_some_and(|b| space.stride(b, x) == 1);
            // Windows that reach outside would be copied before each product, element by element.
            let bounded = b.is_some_and(|b| {
                let a = &space.kernel.operands[b as usize].access;
                !a.bounds.is_empty() || !a.indexed.is_empty()
            });
            let score = 4 * i64::from(unit)
                + 2 * i64::from(packs)
                + i64::from(near && !packs)
                + 2 * i64::from(space.extent(x) >= lanes)
                - 6 * i64::from(bounded && !packs);
            (score, x)
        })
        .max_by_key(|&(s, x)| (s, space.extent(x), std::cmp::Reverse(x)))
}

/// A summed axis of which several neighbours are multiplied and added by one instruction.
#[derive(Clone, Copy)]
struct Grouped {
    axis: AxisId,
    /// How many: they fill 32 bits of each factor.
    width: i64,
    /// The broadcast factor must be copied for that.
    copied: bool,
}

/// Neighbours of products that one instruction sums in 32 bits: two of 16 bits, four of unsigned times
/// signed 8 bits.
fn group(ctx: Ctx, types: [DType; 3]) -> Option<i64> {
    match types {
        [DType::F32, DType::BF16, DType::BF16] if ctx.target.bf16_dots => Some(2),
        [DType::I32, DType::I16, DType::I16] => Some(2),
        [DType::I32, DType::U8, DType::I8] => Some(4),
        _ => None,
    }
}

/// How `p` sums groups: the broadcast factor is to be contiguous along the axis and otherwise a whole
/// number of groups apart.
fn grouped(space: &Space, p: &Product) -> Option<Grouped> {
    let tile = |t: TileId| &space.kernel.tiles[t as usize];
    let types = [p.acc, p.a, p.b].map(|t| tile(t).dtype);
    let width = group(space.ctx, types)?;
    let o = space.source(p.a)?;
    let a = &space.kernel.operands[o as usize].access;
    let by = Dim::Known(width);
    let even = |d: &Dim| d.exact_div(&by).is_some();
    let long = |x: AxisId| even(&space.kernel.axes[x as usize].extent);
    let along = p.over.iter().copied().find(|&x| {
        let one = a.term(x).and_then(|t| t.stride());
        one.is_some_and(Dim::is_one) && long(x)
    });
    let found = |axis, copied| Grouped {
        axis,
        width,
        copied,
    };
    if let Some(x) = along {
        let bounded = a.bounds.iter().any(|b| b.terms.iter().any(|t| t.0 == x));
        let mut others = a.terms.iter().filter(|t| t.axis != x);
        let all = others.all(|t| t.stride().is_some_and(even));
        if !bounded && even(&a.offset) && all && a.indexed.is_empty() {
            return Some(found(x, false));
        }
    }
    // A copy lies as its tile's axes are ordered; windows would be copied many times over.
    let x = *tile(p.a).axes.last()?;
    let plain = a.bounds.is_empty() && a.indexed.is_empty();
    (plain && p.over.as_slice() == [x] && long(x)).then_some(found(x, true))
}

/// Candidates, best guesses first; none when the kernel has no axis for lanes.
pub(crate) fn candidates(space: &Space, constant: &dyn Fn(OperandId) -> bool) -> Vec<Candidate> {
    let Some(p) = Product::of(space.kernel) else {
        return vec![];
    };
    let dtype = |t: TileId| space.kernel.tiles[t as usize].dtype;
    // Factors of 16 bits are widened on the way into the registers.
    let float = |t: TileId| matches!(dtype(t), DType::F32 | DType::F16 | DType::BF16);
    let groups = |p: &Product| grouped(space, p).is_some();
    let f32s = dtype(p.acc) == DType::F32 && float(p.a) && float(p.b);
    let either = groups(&p) || groups(&p.swapped());
    let f32s = f32s || either;
    // A factor without lanes of its own (one column) is read as it is.
    let packs = |p: &Product| {
        let wide = &space.kernel.tiles[p.b as usize].axes;
        let wide = wide.iter().any(|a| !p.over.contains(a));
        f32s && wide
            && (dtype(p.acc) == DType::F32 || groups(p))
            && space
                .source(p.b)
                .is_some_and(|o| constant(o) && pack::fits(space, o))
    };
    let (q, swapped) = (p.clone(), p.swapped());
    let oriented = [
        (lane(space, &q, packs(&q)), q),
        (lane(space, &swapped, packs(&swapped)), swapped),
    ];
    let mut best: Option<(i64, AxisId, Product)> = None;
    for (l, p) in oriented {
        // Signs tell which factor of 8 bits is which.
        let fits = !either || groups(&p);
        if let Some((score, axis)) = l
            && fits
            && best.as_ref().is_none_or(|b| score > b.0)
        {
            best = Some((score, axis, p));
        }
    }
    let Some((_, lane, p)) = best else {
        return vec![];
    };
    let out = space.main_output();
    // A depthwise convolution: every factor has the axis along which the output is contiguous, and
    // one of them has no axis of its own.
    if out.and_then(|o| space.unit_axis(o, &p.batch)).is_some()
        && (p.rows.is_empty() || p.columns.is_empty())
    {
        return vec![];
    }
    let mut found = build(space, &p, lane, packs(&p), f32s);
    // A factor that every request brings may be packed by a step of its own.
    let wide = &space.kernel.tiles[p.b as usize].axes;
    let copied = f32s
        && wide.contains(&lane)
        && !packs(&p)
        && grouped(space, &p).is_none()
        && space.points(&p.rows) >= WORTH_PACKING
        && p.batch.is_empty()
        && space.source(p.b).is_some_and(|o| pack::fits(space, o));
    if copied {
        let mut more = build(space, &p, lane, true, f32s);
        // Both kinds are among those that are tried.
        let half = (space.ctx.effort / 2).max(1);
        more.truncate(half);
        more.extend(found);
        found = more;
    }
    found
}

/// Parts of a schedule that do not change from candidate to candidate.
struct Frame<'a, 'b> {
    space: &'a Space<'b>,
    p: &'a Product,
    lane: AxisId,
    packs: bool,
    /// Summed axes as they are walked, innermost last.
    order: Vec<AxisId>,
    /// Row axes, innermost first.
    rows: Vec<AxisId>,
    /// Axes in single positions: batch axes and other columns, innermost first.
    outer: Vec<AxisId>,
}

/// Bytes and positions that tasks of a product are cut by.
struct Sizes {
    /// Rows, lanes and summed positions.
    m: i64,
    n: i64,
    depth: i64,
    /// Bytes of an element of the broadcast and of the streamed factor.
    a_size: f64,
    b_size: f64,
    /// Bytes of the broadcast factor: windows share most of theirs.
    a_bytes: f64,
    /// Bytes of a worker's cache.
    cache: f64,
    /// Tasks that are wanted, and those that the outer axes make.
    wanted: i64,
    outer_tasks: i64,
}

/// Bytes of an element of a product's result.
const RESULT_BYTES: f64 = 4.0;

impl Sizes {
    fn of(frame: &Frame<'_, '_>) -> Sizes {
        let (space, p) = (frame.space, frame.p);
        let k = space.kernel;
        let is_grouped = grouped(space, p).is_some();
        let bytes = |t: TileId| match is_grouped {
            true => f64::from(k.tiles[t as usize].dtype.bits()) / 8.0,
            false => 4.0,
        };
        let a_size = bytes(p.a);
        let a_bytes = space.source(p.a).map_or(f64::MAX, |o| {
            space.ctx.top(&k.operands[o as usize].elements) as f64 * a_size
        });
        Sizes {
            m: space.points(&p.rows),
            n: space.extent(frame.lane),
            depth: space.points(&p.over),
            a_size,
            b_size: bytes(p.b),
            a_bytes,
            cache: space.ctx.share(),
            wanted: wanted_tasks(space.ctx, k, &whole(k)),
            outer_tasks: space.points(&frame.outer),
        }
    }

    /// Numbers of rows that tasks of `nt` columns may have: what fits beside the panels, or less so that all
    /// workers get some, and halves of that. `near`: summed positions of the broadcast factor that stay near.
    fn rows(&self, nt: i64, near: i64, mr: i64, most_halves: usize) -> Vec<i64> {
        let col_tasks = (self.n + nt - 1) / nt;
        let stays = self.a_bytes < self.cache / 2.0;
        let room = self.cache - if stays { self.a_bytes } else { 0.0 };
        let row = nt as f64 * RESULT_BYTES * 2.0
            + match stays {
                true => 0.0,
                false => self.depth.min(near) as f64 * self.a_size,
            };
        let fit = (room / row) as i64;
        let fair = (self.m * col_tasks * self.outer_tasks) / self.wanted.max(1);
        let most = fit.clamp(1, self.m.max(1)).max(mr.min(self.m));
        let first = match self.wanted > 1 {
            true => fair.clamp(1, most).max(mr.min(self.m)),
            false => most,
        };
        let halves = tiles::halves(most, mr.min(self.m).max(1));
        let halves = halves.into_iter().take(most_halves);
        [first].into_iter().chain(halves).collect()
    }
}

fn build(space: &Space, p: &Product, lane: AxisId, packs: bool, f32s: bool) -> Vec<Candidate> {
    let ctx = space.ctx;
    let frame = Frame::new(space, p, lane, packs);
    let sizes = Sizes::of(&frame);
    let shapes = match f32s && !ctx.target.micro.is_empty() {
        true => frame.shapes(&sizes),
        false => vec![None],
    };
    // A step that is not worth sharing is one task, unless a worker's cache is too small for it.
    let result = (sizes.m * sizes.n) as f64 * RESULT_BYTES;
    if sizes.wanted == 1 && result <= sizes.cache && sizes.outer_tasks == 1 {
        let one = |s: &Option<MicroShape>| frame.candidate(*s, vec![], None);
        let all: Vec<Candidate> = shapes.iter().filter_map(one).collect();
        if !all.is_empty() {
            return all;
        }
    }
    let mut found: Vec<Candidate> = Vec::new();
    let mut seen = BTreeSet::new();
    for shape in shapes {
        plan::pause();
        let (mr, nr) = shape.map_or((1, ctx.lanes()), |s| (i64::from(s.mr), i64::from(s.nr)));
        // Columns: panels that stay near while the rows go by.
        let (n, depth, b_size) = (sizes.n, sizes.depth, sizes.b_size);
        let widest = ((sizes.cache / (depth as f64 * b_size)) as i64 / nr * nr).max(nr);
        let cut_depth = (nr * depth) as f64 * b_size > sizes.cache;
        let widest_depth = (sizes.cache / (nr as f64 * b_size)) as i64;
        let columns = tiles::halves(widest.min((n + nr - 1) / nr * nr), nr);
        for nt in columns.into_iter().take(ctx.most(4)) {
            let nt = tiles::even(n, nt, nr);
            for mt in sizes.rows(nt, widest_depth, mr, ctx.most(4)) {
                let mut cut = tiles::fill(space, &frame.rows, mt, 1);
                cut.push(AxisTile {
                    axis: lane,
                    tile: nt,
                });
                cut.extend(frame.outer.iter().map(|&axis| AxisTile { axis, tile: 1 }));
                let grid = tiles::grid(space, &cut);
                let cuts: Vec<(AxisId, i64)> = grid.iter().map(|t| (t.axis, t.tile)).collect();
                if !seen.insert((cuts, mr, nr)) {
                    continue;
                }
                found.extend(frame.candidate(shape, grid, cut_depth.then_some(widest_depth)));
            }
        }
    }
    found
}

impl<'a, 'b> Frame<'a, 'b> {
    fn new(space: &'a Space<'b>, p: &'a Product, lane: AxisId, packs: bool) -> Frame<'a, 'b> {
        let out = space.main_output();
        let sorted = |axes: &[AxisId]| out.map_or(axes.to_vec(), |o| space.inner_first(o, axes));
        let mut order = p.over.clone();
        if let Some(a) = space.source(p.a) {
            order = space.inner_first(a, &p.over);
            order.reverse();
        }
        let others: Vec<AxisId> = p.columns.iter().copied().filter(|&x| x != lane).collect();
        let mut outer = sorted(&others);
        outer.extend(sorted(&p.batch));
        Frame {
            space,
            p,
            lane,
            packs,
            order,
            rows: sorted(&p.rows),
            outer,
        }
    }

    /// Register tiles to try, the best guess first.
    fn shapes(&self, sizes: &Sizes) -> Vec<Option<MicroShape>> {
        let (space, p) = (self.space, self.p);
        let ctx = space.ctx;
        let (m, n, depth) = (sizes.m, sizes.n, sizes.depth);
        // Products of groups come in the narrower shapes only.
        let widest = match grouped(space, p) {
            Some(_) => PAIRED * ctx.lanes(),
            None => i64::MAX,
        };
        // Shapes that compute about equally fast differ in what they read per multiply-add.
        let score = |s: &MicroShape| {
            let (mr, nr) = (f64::from(s.mr), f64::from(s.nr));
            let rows = i64::from(s.mr).min(m);
            let lie = lie(space, p, self.lane, self.packs, rows, depth);
            share(ctx, s, m, n) * lie - READS_WEIGH * (1.0 / mr.min(m as f64) + 1.0 / nr)
        };
        let narrow = ctx.target.micro.iter();
        let narrow = narrow.filter(|s| i64::from(s.nr) <= widest);
        let mut scored: Vec<(f64, &MicroShape)> = narrow.map(|s| (score(s), s)).collect();
        scored.arrange_by(|(x, a), (y, b)| y.total_cmp(x).then((b.nr, b.mr).cmp(&(a.nr, a.mr))));
        let ranked: Vec<&MicroShape> = scored.into_iter().map(|s| s.1).collect();
        let mut shapes: Vec<Option<MicroShape>> =
            ranked.iter().take(ctx.most(3)).map(|s| Some(**s)).collect();
        // The best of those that read the weight as it is packed already is tried too.
        if let (true, Some(o)) = (self.packs, space.source(p.b)) {
            let there = space.packings.get(o as usize).copied().unwrap_or_default();
            let reads = |s: &MicroShape| {
                let packed = self.packed(o, s);
                packed.is_some_and(|p| there.iter().any(|k| alike(k, &p.kernel)))
            };
            if !there.is_empty() && !shapes.iter().flatten().any(reads) {
                shapes.extend(ranked.iter().find(|s| reads(s)).map(|s| Some(**s)));
            }
        }
        shapes
    }

    /// Operand `o`, the streamed factor, packed for `shape`.
    fn packed(&self, o: OperandId, shape: &MicroShape) -> Option<super::candidate::Packed> {
        let (space, p, lane) = (self.space, self.p, self.lane);
        let others: Vec<AxisId> = space.kernel.tiles[p.b as usize]
            .axes
            .iter()
            .copied()
            .filter(|x| *x != lane && !self.order.contains(x))
            .collect();
        let by = grouped(space, p).map(|g| (g.axis, g.width));
        let nr = i64::from(shape.nr);
        pack::pack(space, o, (&others, lane, &self.order), nr, by)
    }

    fn candidate(
        &self,
        shape: Option<MicroShape>,
        grid: Vec<AxisTile>,
        depth: Option<i64>,
    ) -> Option<Candidate> {
        let (space, p, lane) = (self.space, self.p, self.lane);
        let mut kernel = space.kernel.clone();
        let mut packed = Vec::new();
        for s in &mut kernel.body {
            if let Stmt::Contract { over, .. } = s {
                over.clone_from(&self.order);
            }
        }
        let b = space.source(p.b);
        if let (true, Some(o), Some(s)) = (self.packs, b, shape) {
            let new = self.packed(o, &s)?;
            kernel.operands[o as usize].access = new.access.clone();
            kernel.operands[o as usize].elements = layout::Dim::Known(new.elements);
            packed.push((o, new));
        }
        let mut place = places(space, Some(lane));
        if let Some(o) = b {
            let near = !packed.is_empty()
                || (place[p.b as usize] == Place::InPlace && space.stride(o, lane) == 1);
            let bounded = !kernel.operands[o as usize].access.bounds.is_empty();
            let affine = place[p.b as usize] == Place::InPlace;
            // What lies across the lanes is packed by the executor, panel by panel.
            place[p.b as usize] = if (near || affine) && !bounded {
                Place::InPlace
            } else {
                Place::Shared {
                    swizzle: Swizzle::default(),
                    stages: 1,
                }
            };
        }
        if let (false, Some(Grouped { copied: true, .. })) = (packed.is_empty(), grouped(space, p))
        {
            place[p.a as usize] = Place::Shared {
                swizzle: Swizzle::default(),
                stages: 1,
            };
        }
        let mut loops = vec![];
        if let Some(depth) = depth {
            // The longest summed axis in pieces, so that a panel stays near.
            let &axis = self.order.iter().max_by_key(|&&x| space.extent(x))?;
            let rest = space.points(&self.order) / space.extent(axis).max(1);
            let whole = grouped(space, p).map_or(1, |g| g.width);
            let tile = tiles::even(space.extent(axis), (depth / rest.max(1)).max(whole), whole);
            if tile < space.extent(axis)
                && let Some(body) = gather_loops(&kernel, &[axis])
            {
                kernel.body = body;
                loops.push(AxisTile { axis, tile });
            }
        }
        let mut rows = self.rows.clone();
        rows.reverse();
        let micro = shape.map(|s| MicroKernel { mr: s.mr, nr: s.nr });
        let schedule = Schedule {
            grid,
            loops,
            places: place,
            mapping: Mapping::Cpu(CpuMapping {
                micro,
                rows,
                lanes: Some(lane),
            }),
            ..whole(&kernel)
        };
        let mut what = tiles::describe(space, &schedule.grid, &schedule.loops);
        if let Some(m) = micro {
            what += &format!("; micro-kernel {}x{}", m.mr, m.nr);
        }
        if !packed.is_empty() {
            what += ", packed";
        }
        let dtype = |t: TileId| space.kernel.tiles[t as usize].dtype;
        what += match (grouped(space, p).is_some(), dtype(p.a), dtype(p.b)) {
            (true, DType::BF16, _) => ", dot products of bf16",
            (true, DType::U8, _) => ", dot products of 8-bit integers",
            (false, DType::BF16, DType::BF16) if !space.ctx.target.bf16_dots => {
                ", widened: this target has no dot product of bf16"
            }
            _ => "",
        };
        Some(Candidate {
            what,
            kernel: kernel.into(),
            schedule: schedule.into(),
            packed,
        })
    }
}
