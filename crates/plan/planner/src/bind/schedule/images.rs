//! Constant factors of products by warpgroups as images of shared memory: each piece lies in one run, which one copy
//! brings. They are those of the tiles of the best schedule whose warps copy, or whose threads make what is multiplied of
//! f32: of a constant that is made as the images are.
use super::candidate::{Candidate, Image, Packed, Rank};
use super::form::Facts;
use super::gpu;
use super::product::Product;
use super::rank::{Search, is_known, ranked};
use super::relaid;
use crate::bind::ctx::{Ctx, Space};
use crate::bind::pack;
use expr::Expr;
use kernel::{AxisId, Factors, Kernel, Mapping, OperandId, TileId};

/// How much longer than the best one a schedule may take, by prediction, that is tried with images.
pub(super) const NEAR: f64 = 1.25;
/// How much longer than the best schedule one with images may be predicted to take: what predictions were compared with
/// was measured of kernels that copy in bulk.
const ALIKE: f64 = 1.01;

/// Tries the best schedule of `list` whose warps copy with images of a constant factor, and puts the result in front of
/// `best` where it is predicted to be as fast.
pub(super) fn tried(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    (list, best): (&mut Vec<Candidate>, &mut Vec<Rank>),
) {
    let Some((found, rank)) = faster(ctx, kernel, facts, (list, best)) else {
        return;
    };
    list.push(found);
    best.insert(0, (rank.0, list.len() - 1, rank.2, rank.3));
}

fn faster(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    (list, best): (&[Candidate], &[Rank]),
) -> Option<(Candidate, Rank)> {
    let first = best.first()?.0;
    let near = best.iter().take_while(|b| b.0 <= first * NEAR);
    let near = near.filter(|b| is_known(ctx, b));
    let base = near.map(|b| &list[b.1]).find(|c| multiplied(c).is_some())?;
    let multiplied = multiplied(base)?;
    let factor = Factor::of(ctx, kernel, facts)?;
    let lines = factor.lines(base)?;
    // What threads make of factors bounds the tiles of the others.
    let widths = match multiplied {
        Factors::Whole => vec![lines],
        Factors::Tf32 | Factors::Tf32x3 => vec![lines, 2 * lines, lines / 2],
    };
    let tried = |lines: i64| with_lines(ctx, kernel, facts, (&factor, lines, multiplied));
    let found = widths.into_iter().filter_map(tried);
    let (found, rank) = found.min_by(|x, y| x.1.0.total_cmp(&y.1.0))?;
    (rank.0 < first * ALIKE).then_some((found, rank))
}

/// What warpgroups multiply of the factors of a candidate that may have images: one whose warps copy, or do not because
/// threads make that of the elements.
fn multiplied(c: &Candidate) -> Option<Factors> {
    let Mapping::Gpu(g) = &c.schedule.mapping else {
        return None;
    };
    let f = g.fragment.filter(|f| f.warps() > 1)?;
    (g.copiers > 0 || f.factors != Factors::Whole).then_some(f.factors)
}

/// The best candidate with images of so many lines.
fn with_lines(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    (factor, lines, multiplied): (&Factor, i64, Factors),
) -> Option<(Candidate, Rank)> {
    let gpu = ctx.target.gpu.as_ref()?;
    let fits = |t: &(u32, u32)| [t.0, t.1].map(i64::from).contains(&lines);
    if !gpu.tiles.iter().any(fits) {
        return None;
    }
    let (kernel, copies, parts) = read(ctx, kernel, (factor, lines, multiplied))?;
    let image = Image {
        tile: factor.tile,
        parts,
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
    let search = Search::all(prints, found.len());
    let ranks = ranked(ctx, &found, 0, facts.constant, search).ok()?;
    let rank = ranks.into_iter().next()?;
    Some((found.swap_remove(rank.1), rank))
}

/// A kernel that reads copies, with these, and the tiles of the parts of a factor that it has.
type Reading = (Kernel, Vec<(OperandId, Packed)>, Option<[TileId; 2]>);

/// `kernel` with a constant factor as images of so many lines of what is multiplied of it.
fn read(
    ctx: Ctx,
    kernel: &Kernel,
    (factor, lines, multiplied): (&Factor, i64, Factors),
) -> Option<Reading> {
    let space = Space::new(ctx, kernel);
    let copy = |made| factor.copy(&space, lines, made);
    let (kernel, copies, parts) = match multiplied {
        Factors::Whole => (kernel.clone(), vec![(factor.operand, copy(None)?)], None),
        Factors::Tf32 => {
            let near = copy(Some(kernel::near_tf32()))?;
            (kernel.clone(), vec![(factor.operand, near)], None)
        }
        Factors::Tf32x3 => {
            let [upper, lower] = kernel::parts_of_f32();
            let (upper, lower) = (copy(Some(upper))?, copy(Some(lower))?);
            let added = OperandId::try_from(kernel.operands.len()).ok()?;
            let (kernel, parts) = kernel.with_parts(factor.tile)?;
            (
                kernel,
                vec![(factor.operand, upper), (added, lower)],
                Some(parts),
            )
        }
    };
    Some((relaid::read_from(kernel, &copies), copies, parts))
}

/// A constant factor of a product that may be an image.
struct Factor {
    tile: TileId,
    operand: OperandId,
    /// The axis along which its lines lie, and that of its rows or columns.
    along: AxisId,
    lane: AxisId,
    product: Product,
}

impl Factor {
    fn of(ctx: Ctx, kernel: &Kernel, facts: &Facts) -> Option<Factor> {
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
        };
        let whole = space.extent(along) % found.vector(kernel) == 0;
        (pack::fits(&space, operand) && whole).then_some(found)
    }

    /// Elements of 16 bytes.
    fn vector(&self, kernel: &Kernel) -> i64 {
        i64::from(128 / kernel.tiles[self.tile as usize].dtype.bits().max(8))
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

    /// Its images of so many lines, with what `made` makes of each element.
    fn copy(&self, space: &Space, lines: i64, made: Option<Expr>) -> Option<Packed> {
        let vector = self.vector(space.kernel);
        let rest = self.product.over.iter().copied();
        let rest = rest.filter(|a| *a != self.along);
        let order: Vec<AxisId> = rest.chain([self.along]).collect();
        let axes = (self.product.batch.as_slice(), self.lane, order.as_slice());
        let panels = (lines, Some((self.along, vector)));
        relaid::moved(space, self.operand, axes, panels, made)
    }
}
