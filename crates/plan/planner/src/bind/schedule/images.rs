//! Constant factors of products by warpgroups as images of shared memory: each piece lies in one run, which one copy
//! brings. They are those of the tiles of the best schedule whose warps copy, or whose threads make what is multiplied of
//! f32: of a constant that is made as the images are.
use super::candidate::{Candidate, Image, Packed, Rank};
use super::clusters;
use super::form::Facts;
use super::gpu;
use super::one_row;
use super::product::Product;
use super::rank::{Search, is_known, ranked};
use super::relaid;
use crate::bind::ctx::{Ctx, Space};
use crate::bind::pack;
use expr::Expr;
use kernel::{AxisId, Factors, Fragment, Kernel, Mapping, OperandId, TileId};
use layout::DType;

/// How much longer than the best one a schedule may take, by prediction, that is tried with images.
pub(super) const NEAR: f64 = 1.25;
/// How much longer than the best schedule one with images may be predicted to take: what predictions were compared with
/// was measured of kernels that copy in bulk.
const ALIKE: f64 = 1.01;

/// The best schedule of `list` whose warps copy with images of a constant factor, where it is predicted to take less than
/// `cut`, which the best way in parts takes, or, where there is none, to be as fast as the best.
pub(super) fn faster(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    (list, best): (&[Candidate], &[Rank]),
    cut: Option<f64>,
) -> Option<(Candidate, Rank)> {
    let first = best.first()?.0;
    let near = best.iter().take_while(|b| b.0 <= first * NEAR);
    let near: Vec<&Candidate> = near
        .filter(|b| is_known(ctx, b))
        .map(|b| &list[b.1])
        .collect();
    let (base, multiplied) = base(ctx, &near)?;
    let with_row = one_row::as_in(kernel, &base.kernel);
    let kernel = with_row.as_ref().unwrap_or(kernel);
    let factor = Factor::of(ctx, kernel, facts, multiplied)?;
    let lines = factor.lines(base)?;
    // What threads make of factors bounds the tiles of the others.
    let widths = match multiplied {
        Factors::Whole => vec![lines],
        _ => vec![lines, 2 * lines, lines / 2],
    };
    // A sketch may say more than counting does: what is as fast, or faster by another width, is counted.
    let limit = cut.unwrap_or(f64::INFINITY);
    let tried = |lines: i64| with_lines(ctx, kernel, facts, (&factor, lines, multiplied), limit);
    let found = widths.into_iter().filter_map(tried);
    let (found, rank) = found.min_by(|x, y| x.1.0.total_cmp(&y.1.0))?;
    (rank.0 < cut.unwrap_or(first * ALIKE)).then_some((found, rank))
}

/// The candidate whose tiles images have, and what warpgroups multiply of its factors: the first whose warps copy, or do
/// not because threads make that of the elements, as only images of bf16 let them.
fn base<'a>(ctx: Ctx, near: &[&'a Candidate]) -> Option<(&'a Candidate, Factors)> {
    let fragment = |c: &Candidate| match &c.schedule.mapping {
        Mapping::Gpu(g) => g.fragment.map(|f| (f, g.copiers)),
        Mapping::Cpu(_) => None,
    };
    let group = |c: &Candidate| {
        fragment(c).is_some_and(|(f, copiers)| {
            f.warps() > 1 && (copiers > 0 || f.factors != Factors::Whole)
        })
    };
    let of = |c: &'a Candidate| {
        let (like, _) = fragment(c)?;
        let alike = |f: &Fragment| f.warps() > 1 && (f.types(), f.acc) == (like.types(), like.acc);
        Some((c, gpu::fastest(ctx, &alike)?))
    };
    let first = near.iter().find(|c| group(c)).and_then(|c| of(c));
    // Warpgroups without images may be far behind single warps, where threads make what is multiplied.
    first.or_else(|| {
        let mut all = near.iter().filter_map(|c| of(c));
        all.find(|(c, f)| match f {
            Factors::Whole => false,
            Factors::Tf32x3 => gpu::has_parts(c),
            Factors::Tf32 | Factors::Bf16 | Factors::Bf16x3 => true,
        })
    })
}

/// The best candidate with images of so many lines; those that seem to take longer than `limit` are not counted.
fn with_lines(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    (factor, lines, multiplied): (&Factor, i64, Factors),
    limit: f64,
) -> Option<(Candidate, Rank)> {
    let gpu = ctx.target.gpu.as_ref()?;
    let fits = |t: &(u32, u32)| [t.0, t.1].map(i64::from).contains(&lines);
    if !gpu.tiles.iter().any(fits) {
        return None;
    }
    let (kernel, copies) = read(ctx, kernel, (factor, lines, multiplied))?;
    let image = Image {
        tile: factor.tile,
        lines,
        along: factor.along,
    };
    let space = Space::new(ctx, &kernel);
    let mut found = gpu::with_image(&space, image, multiplied);
    found.iter_mut().for_each(|c| {
        c.bytes_of_one_task();
        c.packed.extend(copies.iter().cloned());
    });
    let prints = ctx.prints().filter(|_| !facts.whole);
    let search = Search {
        limit,
        ..Search::all(prints, found.len())
    };
    let mut ranks = ranked(ctx, &found, 0, facts.constant, search).ok()?;
    clusters::tried(ctx, facts.constant, prints, (&mut found, &mut ranks));
    let rank = ranks.into_iter().next().filter(|r| is_known(ctx, r))?;
    Some((found.swap_remove(rank.1), rank))
}

/// `kernel` with a constant factor as images of so many lines of what is multiplied of it, which it reads.
fn read(
    ctx: Ctx,
    kernel: &Kernel,
    (factor, lines, multiplied): (&Factor, i64, Factors),
) -> Option<(Kernel, Vec<(OperandId, Packed)>)> {
    let space = Space::new(ctx, kernel);
    relaid::in_parts(kernel, (factor.tile, factor.operand), multiplied, &|made| {
        factor.copy(&space, lines, made)
    })
}

/// A constant factor of a product that may be an image.
struct Factor {
    tile: TileId,
    operand: OperandId,
    /// The axis along which its lines lie, and that of its rows or columns.
    along: AxisId,
    lane: AxisId,
    product: Product,
    multiplied: Factors,
}

impl Factor {
    fn of(ctx: Ctx, kernel: &Kernel, facts: &Facts, multiplied: Factors) -> Option<Factor> {
        let space = Space::new(ctx, kernel);
        let p = Product::of(kernel)?;
        let constant = |t: TileId| space.source(t).is_some_and(|o| (facts.constant)(o));
        let sides = [(p.a, &p.rows, p.b), (p.b, &p.columns, p.a)];
        let (tile, own, other) = sides
            .into_iter()
            .find(|s| constant(s.0) && !constant(s.2))?;
        let &[lane] = own.as_slice() else {
            return None;
        };
        let operand = space.source(tile)?;
        let along = space.unit_axis(space.source(other)?, &p.over)?;
        let found = Factor {
            tile,
            operand,
            along,
            lane,
            product: p,
            multiplied,
        };
        let whole = space.extent(along) % found.vector(kernel) == 0;
        (pack::fits(&space, operand) && whole).then_some(found)
    }

    /// Elements of 16 bytes of the image.
    fn vector(&self, kernel: &Kernel) -> i64 {
        let dtype = match self.multiplied {
            Factors::Whole => kernel.tiles[self.tile as usize].dtype,
            f => f.part_type(),
        };
        i64::from(128 / dtype.bits().max(8))
    }

    /// Rows or columns of a schedule's pieces.
    fn lines(&self, base: &Candidate) -> Option<i64> {
        let Mapping::Gpu(map) = &base.schedule.mapping else {
            return None;
        };
        // The schedule's axes have numbers of their own.
        let axes = &base.kernel.tiles[self.tile as usize].axes;
        let side = match axes.iter().any(|a| map.rows.contains(a)) {
            true => &map.rows,
            false => &map.columns,
        };
        let mut sizes = side
            .iter()
            .map(|&a| base.schedule.positions(&base.kernel, a));
        sizes.try_fold(1i64, |n, s| n.checked_mul(s?))
    }

    /// Its images of so many lines, with what `made` makes of each element, and its type.
    fn copy(&self, space: &Space, lines: i64, made: Option<(Expr, DType)>) -> Option<Packed> {
        let vector = self.vector(space.kernel);
        let rest = self.product.over.iter().copied();
        let rest = rest.filter(|a| *a != self.along);
        let order: Vec<AxisId> = rest.chain([self.along]).collect();
        let axes = (self.product.batch.as_slice(), self.lane, order.as_slice());
        let panels = (lines, Some((self.along, vector)));
        relaid::moved(space, self.operand, axes, panels, made)
    }
}
