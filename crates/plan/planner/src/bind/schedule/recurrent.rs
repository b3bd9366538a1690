//! Recurrences: one position after the other. Each product is a few rows (the batch) against packed
//! panels of its weights, which stay in a worker's cache from position to position; sequences of a
//! batch may be shared out.
use super::candidate::Candidate;
use super::form::{places, whole};
use super::product::{Product, share as share_of};
use super::tiles;
use crate::bind::ctx::Space;
use crate::bind::pack;
use kernel::{
    AxisId, CpuMapping, Mapping, MicroKernel, MicroShape, OperandId, Place, Schedule, Swizzle,
};
use layout::Arrange;
use layout::{DType, Dim};

/// Weight of elements read per multiply-add when register shapes are ranked.
const READS: f64 = 0.2;
/// Positions from which on weights that a request brings are worth packing.
const WORTH_PACKING: i64 = 4;
/// Rows per task from which on products are bound by arithmetic.
const WORTH_SHARING_ROWS: i64 = 4;
/// Register shapes that are tried.
const SHAPES: usize = 2;

/// Candidates, best guesses first.
pub(crate) fn candidates(space: &Space, constant: &dyn Fn(OperandId) -> bool) -> Vec<Candidate> {
    let kernel = space.kernel;
    let products = Product::all(kernel);
    // The axis along vector lanes is the product's own: units of its gates.
    let lane = |p: &Product| p.columns.iter().copied().max_by_key(|&a| space.extent(a));
    let widest = products.iter().max_by_key(|p| space.points(&p.columns));
    let Some((main, lanes)) = widest.and_then(|p| Some((p, lane(p)?))) else {
        return vec![];
    };
    let parallel: Vec<AxisId> = space
        .parallel()
        .into_iter()
        .filter(|a| main.rows.contains(a))
        .collect();
    let batch = space.points(&parallel);
    let workers = space.ctx.workers as i64;
    // With few rows the weights' way to the registers is what a product takes, and every task goes
    // it: fewer rows each would not be faster.
    let mut sizes = vec![batch];
    for pieces in [workers, 2 * workers] {
        let size = (batch + pieces - 1) / pieces.max(1);
        if workers > 1 && size >= WORTH_SHARING_ROWS {
            sizes.push(size);
        }
    }
    sizes.dedup();
    let ordered = space.points(&kernel.ordered());
    let f32s = products.iter().all(|p| {
        [p.acc, p.a, p.b]
            .iter()
            .all(|&t| kernel.tiles[t as usize].dtype == DType::F32)
    });
    let mut out = vec![];
    for size in sizes {
        let cut = tiles::fill(space, &parallel, size, 1);
        let rows: i64 = cut.iter().map(|t| t.tile).product();
        for shape in shapes(space, main, lanes, rows, f32s) {
            let mut k = kernel.clone();
            let mut packed = Vec::new();
            let mut place = places(space, Some(lanes));
            for p in &products {
                let (Some(o), Some(lane)) = (space.source(p.b), lane(p)) else {
                    continue;
                };
                let worth = constant(o) || ordered >= WORTH_PACKING;
                let fits = worth && space.ctx.pack && pack::fits(space, o);
                let new = shape.filter(|_| fits).and_then(|s| {
                    pack::pack(space, o, (&[], lane, &p.over), i64::from(s.nr), None)
                });
                // Rows of weights that lie across the lanes are multiplied as they are.
                place[p.b as usize] = Place::InPlace;
                if let Some(new) = new {
                    k.operands[o as usize].access = new.access.clone();
                    k.operands[o as usize].elements = Dim::Known(new.elements);
                    packed.push((o, new));
                }
                let bounded = !k.operands[o as usize].access.bounds.is_empty();
                if bounded {
                    place[p.b as usize] = Place::Shared {
                        swizzle: Swizzle::default(),
                        stages: 1,
                    };
                }
            }
            let schedule = Schedule {
                grid: tiles::grid(space, &cut),
                places: place,
                mapping: Mapping::Cpu(CpuMapping {
                    micro: shape.map(|s| MicroKernel { mr: s.mr, nr: s.nr }),
                    rows: main.rows.clone(),
                    lanes: Some(lanes),
                }),
                ..whole(&k)
            };
            let mut what = tiles::describe(space, &schedule.grid, &schedule.loops);
            if let Some(s) = shape {
                what += &format!("; micro-kernel {}x{}", s.mr, s.nr);
            }
            if !packed.is_empty() {
                what += ", packed";
            }
            out.push(Candidate {
                what,
                kernel: k.into(),
                schedule: schedule.into(),
                packed,
            });
        }
    }
    out
}

/// Register shapes for `rows` rows of the product, best first.
fn shapes(
    space: &Space,
    p: &Product,
    lanes: AxisId,
    rows: i64,
    f32s: bool,
) -> Vec<Option<MicroShape>> {
    if !f32s || space.ctx.target.micro.is_empty() {
        return vec![None];
    }
    let n = space.extent(lanes);
    let depth = space.points(&p.over).max(1);
    let score = |s: &MicroShape| {
        let (mr, nr) = (f64::from(s.mr).min(rows as f64), f64::from(s.nr));
        share_of(space.ctx, s, rows, n) - READS * (1.0 / mr + 1.0 / nr.min((n * depth) as f64))
    };
    let mut ranked: Vec<&MicroShape> = space.ctx.target.micro.iter().collect();
    ranked.arrange_by(|a, b| {
        score(b)
            .total_cmp(&score(a))
            .then((b.nr, b.mr).cmp(&(a.nr, a.mr)))
    });
    ranked.into_iter().take(SHAPES).map(|s| Some(*s)).collect()
}
