//! Constant factors of products by warpgroups as images of shared memory: each piece lies in one run, which one copy
//! brings. They are those of the tiles of the best schedule whose warps copy.
use super::candidate::{Candidate, Image, Packed, Rank};
use super::form::Facts;
use super::gpu;
use super::product::Product;
use super::rank::{Search, ranked};
use super::relaid;
use crate::bind::ctx::{Ctx, Space};
use crate::bind::pack;
use kernel::{AxisId, Kernel, Mapping, OperandId, TileId};

/// How much longer than the best one a schedule may take, by prediction, that is tried with images.
const NEAR: f64 = 1.25;
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
    let copying = |c: &&Candidate| matches!(&c.schedule.mapping, Mapping::Gpu(g) if g.copiers > 0);
    let base = near.map(|b| &list[b.1]).find(copying)?;
    let (image, copies) = of(ctx, kernel, facts, base)?;
    let kernel = relaid::read_from(kernel.clone(), &copies);
    let space = Space::new(ctx, &kernel);
    let mut found = gpu::with_image(&space, image);
    found.iter_mut().for_each(|c| {
        c.bytes_of_one_task();
        c.packed.extend(copies.iter().cloned());
    });
    let prints = ctx.prints().filter(|_| !facts.whole);
    let search = Search::all(prints, found.len());
    let ranks = ranked(ctx, &found, 0, facts.constant, search).ok()?;
    let rank = ranks.into_iter().next().filter(|r| r.0 < first * ALIKE)?;
    Some((found.swap_remove(rank.1), rank))
}

/// A constant factor of `kernel` that may be the image of the pieces of `base`, and the copy that it takes.
fn of(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
    base: &Candidate,
) -> Option<(Image, Vec<(OperandId, Packed)>)> {
    let Mapping::Gpu(map) = &base.schedule.mapping else {
        return None;
    };
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
    // Rows or columns of the schedule, whose axes have numbers of their own.
    let axes = &base.kernel.tiles[tile as usize].axes;
    let side = match axes.iter().any(|a| map.rows.contains(a)) {
        true => &map.rows,
        false => &map.columns,
    };
    let mut sizes = side
        .iter()
        .map(|&a| base.schedule.positions(&base.kernel, a));
    let lines = sizes.try_fold(1i64, |n, s| n.checked_mul(s?))?;
    let vector = i64::from(128 / kernel.tiles[tile as usize].dtype.bits().max(8));
    if !pack::fits(&space, operand) || space.extent(along) % vector != 0 {
        return None;
    }
    let rest = p.over.iter().copied().filter(|a| *a != along);
    let order: Vec<AxisId> = rest.chain([along]).collect();
    let axes = (p.batch.as_slice(), lane, order.as_slice());
    let copy = relaid::moved(&space, operand, axes, (lines, Some((along, vector))))?;
    Some((Image { tile, lines, along }, vec![(operand, copy)]))
}
