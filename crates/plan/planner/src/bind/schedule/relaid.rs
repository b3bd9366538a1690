//! Constant factors of products for GPUs, rewritten once at load: neighbours along rows or columns, or along
//! what is summed, lie together, so that threads read them together.
use super::candidate::{Packed, Widened};
use super::form::Facts;
use super::gpu;
use super::product::Product;
use super::rank::{Search, ranked};
use super::renumber::ordered;
use crate::bind::ctx::{Ctx, Space};
use crate::bind::pack;
use expr::Expr;
use kernel::{AxisId, Factors, Kernel, OperandId, Stmt, Tile, TileId};
use layout::DType;

/// `kernel` with its constant factors as they are to lie, and the copies that it takes.
pub(super) fn relaid(
    ctx: Ctx,
    kernel: Kernel,
    facts: &Facts,
) -> (Kernel, Vec<(OperandId, Packed)>) {
    let found = match ctx.pack && ctx.sweep.is_none() {
        true => copies(ctx, &kernel, facts),
        false => vec![],
    };
    (read_from(kernel, &found), found)
}

/// `kernel` in the order of its axes that schedules are looked for in, reading `copies`.
/// `kernel` with its constant factors along what is summed, as some matrix instructions read them, and the copies
/// that it takes; `None` where that takes none, or the target has no such instructions for it.
pub(super) fn along_depth(
    ctx: Ctx,
    kernel: &Kernel,
    facts: &Facts,
) -> Option<(Kernel, Vec<(OperandId, Packed)>)> {
    let gpu = ctx.target.gpu.as_ref()?;
    let space = Space::new(ctx, kernel);
    let p = Product::of(kernel).filter(|_| kernel.ordered().is_empty())?;
    let dtype = |t: TileId| kernel.tiles[t as usize].dtype;
    let wanted = |f: &kernel::Fragment| {
        let [left, right] = f.types();
        let types = [dtype(p.a), dtype(p.b)];
        let own = types == [left, right] || types == [right, left];
        f.along_depth() && own && dtype(p.acc) == f.acc && ctx.precision.allows(f.factors)
    };
    if !ctx.pack || ctx.sweep.is_some() || !gpu.fragments.iter().any(wanted) {
        return None;
    }
    // What is no constant stays as it lies, and says along which axis.
    let sources = [(p.a, &p.rows), (p.b, &p.columns)];
    let unit = |t: TileId| space.unit_axis(space.source(t)?, &p.over);
    let constant = |t: TileId| space.source(t).is_some_and(|o| (facts.constant)(o));
    let given = sources.iter().find(|s| !constant(s.0));
    let along = unit(given?.0)?;
    let mut found = vec![];
    for (t, own) in sources {
        let operand = space.source(t)?;
        if unit(t) == Some(along) {
            continue;
        }
        if !constant(t) || !pack::fits(&space, operand) {
            return None;
        }
        let rest = p.over.iter().copied().filter(|a| *a != along);
        let others = [p.batch.clone(), own.clone()].concat();
        let order: Vec<AxisId> = rest.collect();
        let whole = (space.extent(along), None);
        found.push((
            operand,
            moved(&space, operand, (&others, along, &order), whole, None)?,
        ));
    }
    (!found.is_empty()).then(|| (read_from(kernel.clone(), &found), found))
}

/// A kernel whose factor fragments are made of in registers, the copies that it reads, and the factor.
type Widening = ((Kernel, Vec<(OperandId, Packed)>), Widened);

/// `kernel` with what fragments of a factor are made of in registers as these read it, numbers of 4 bits along what is
/// summed and what scales them along the columns, the copies that it takes, and the factor; `None` where the target has
/// no such instructions for it.
pub(super) fn widening(ctx: Ctx, kernel: &Kernel, facts: &Facts) -> Option<Widening> {
    let gpu = ctx.target.gpu.as_ref()?;
    let space = Space::new(ctx, kernel);
    let p = Product::of(kernel).filter(|_| kernel.ordered().is_empty())?;
    if !ctx.pack || ctx.sweep.is_some() || gpu.fragments.is_empty() {
        return None;
    }
    let sides = [(p.a, &p.rows, p.b), (p.b, &p.columns, p.a)];
    let (tile, own, other) = sides
        .into_iter()
        .find(|s| kernel.widened_from(s.0).is_some())?;
    let (&[lane], true) = (own.as_slice(), p.batch.is_empty()) else {
        return None;
    };
    let along = space.unit_axis(space.source(other)?, &p.over)?;
    let numbers = kernel.numbers_of(tile)?;
    let mut found = vec![];
    for &t in kernel.widened_from(tile)? {
        let operand = space.source(t)?;
        let is_numbers = t == numbers;
        let inner = if is_numbers { along } else { lane };
        let lies = space.unit_axis(operand, &[inner]).is_some();
        if lies || !kernel.tiles[t as usize].axes.contains(&inner) {
            continue;
        }
        if !(facts.constant)(operand) || !pack::fits(&space, operand) {
            return None;
        }
        let rest = p
            .over
            .iter()
            .copied()
            .filter(|a| *a != along || !is_numbers);
        let order: Vec<AxisId> = rest.collect();
        let others: &[AxisId] = if is_numbers { &[lane] } else { &[] };
        let whole = (space.extent(inner), None);
        let copy = moved(&space, operand, (others, inner, &order), whole, None)?;
        found.push((operand, copy));
    }
    let kernel = read_from(kernel.clone(), &found);
    Some(((kernel, found), Widened { tile, along }))
}

/// `kernel` with a constant factor as what `factors` multiplies of it, in a copy for each part, and the copies; `copy`
/// makes one of what an expression of a type makes of each element.
pub(super) fn in_parts(
    kernel: &Kernel,
    (tile, operand): (TileId, OperandId),
    factors: Factors,
    copy: &dyn Fn(Option<(Expr, DType)>) -> Option<Packed>,
) -> Option<(Kernel, Vec<(OperandId, Packed)>)> {
    let (read, _) = kernel.with_parts(tile, factors)?;
    let parts = factors.parts().into_iter();
    let mut made: Vec<_> = parts.map(|e| Some((e, factors.part_type()))).collect();
    if made.is_empty() {
        made.push(None);
    }
    let mut copies = vec![];
    for (n, made) in made.into_iter().enumerate() {
        // Those of other parts are behind all others.
        let of = match n {
            0 => operand,
            n => OperandId::try_from(kernel.operands.len() + n - 1).ok()?,
        };
        copies.push((of, copy(made)?));
    }
    Some((read_from(read, &copies), copies))
}

/// A kernel that reads copies, with these, and what its product multiplies of f32.
type Rounded = ((Kernel, Vec<(OperandId, Packed)>), Factors);

/// `kernel` with its constant factor in bf16, as single warps multiply it, along its rows or columns; `None` where it has no
/// such factor of f32 beside one that is no constant, or the target multiplies none so.
pub(super) fn rounded(ctx: Ctx, kernel: &Kernel, facts: &Facts) -> Option<Rounded> {
    let p = Product::of(kernel).filter(|_| kernel.ordered().is_empty())?;
    if !ctx.pack || ctx.sweep.is_some() {
        return None;
    }
    let space = Space::new(ctx, kernel);
    let dtype = |t: TileId| kernel.tiles[t as usize].dtype;
    let types = ([p.a, p.b].map(dtype), dtype(p.acc));
    let factors = gpu::fastest(ctx, &|f| {
        let own = f.warps() == 1 && (f.types(), f.acc) == types;
        own && f.multiplied() != f.types()
    })?;
    let constant = |t: TileId| space.source(t).is_some_and(|o| (facts.constant)(o));
    let sides = [(p.a, &p.rows, p.b), (p.b, &p.columns, p.a)];
    let (tile, own, _) = sides
        .into_iter()
        .find(|s| constant(s.0) && !constant(s.2))?;
    let operand = space.source(tile).filter(|&o| pack::fits(&space, o))?;
    let (&lane, rest) = own.split_last()?;
    let others = [&p.batch[..], rest].concat();
    let whole = (space.extent(lane), None);
    let copy = |made| moved(&space, operand, (&others, lane, &p.over), whole, made);
    Some((in_parts(kernel, (tile, operand), factors, &copy)?, factors))
}

pub(super) fn reading(kernel: &Kernel, copies: &[(OperandId, Packed)]) -> Kernel {
    read_from(ordered(kernel), copies)
}

pub(super) fn read_from(mut kernel: Kernel, copies: &[(OperandId, Packed)]) -> Kernel {
    for (o, copy) in copies {
        let operand = &mut kernel.operands[*o as usize];
        operand.access.clone_from(&copy.access);
        operand.elements = layout::Dim::Known(copy.elements);
        operand.dtype = copy.dtype();
    }
    kernel
}

fn copies(ctx: Ctx, kernel: &Kernel, facts: &Facts) -> Vec<(OperandId, Packed)> {
    let space = Space::new(ctx, kernel);
    let products = match kernel.ordered().is_empty() {
        true => Product::of(kernel).into_iter().collect(),
        // One task has all of it: threads lie along rows and columns, and each sums by itself.
        false => Product::all(kernel),
    };
    let mut found: Vec<(OperandId, Packed)> = vec![];
    for p in &products {
        for (t, own) in [(p.a, &p.rows), (p.b, &p.columns)] {
            let own = if own.is_empty() { &p.batch } else { own };
            if let Some(from) = kernel.widened_from(t) {
                let all = from
                    .iter()
                    .filter_map(|&t| summed(&space, p, (t, own), facts));
                found.extend(all);
            }
            let new = copy(&space, p, (t, own), facts);
            found.extend(new.filter(|n| found.iter().all(|f| f.0 != n.0)));
        }
    }
    found
}

/// The copy of what a factor with the axes `own` is made of, if it is a constant whose neighbours are not those of what
/// is summed.
fn summed(
    space: &Space,
    p: &Product,
    (t, own): (TileId, &[AxisId]),
    facts: &Facts,
) -> Option<(OperandId, Packed)> {
    let operand = space.source(t)?;
    let axes = &space.kernel.tiles[t as usize].axes;
    let mut over: Vec<AxisId> = p
        .over
        .iter()
        .copied()
        .filter(|a| axes.contains(a))
        .collect();
    let lies = space.unit_axis(operand, &over).is_some();
    if lies || !(facts.constant)(operand) || !pack::fits(space, operand) {
        return None;
    }
    let inner = over.pop()?;
    let others = [p.batch.clone(), own.to_vec()].concat();
    let whole = (space.extent(inner), None);
    let copy = moved(space, operand, (&others, inner, &over), whole, None)?;
    Some((operand, copy))
}

/// The copy of a factor with the axes `own` of its own, if it is a constant whose neighbours are neither those
/// of its rows or columns nor, where threads share out sums, those of what is summed.
fn copy(
    space: &Space,
    p: &Product,
    (t, own): (TileId, &[AxisId]),
    facts: &Facts,
) -> Option<(OperandId, Packed)> {
    let operand = space.source(t)?;
    if !(facts.constant)(operand) || !pack::fits(space, operand) {
        return None;
    }
    let &lane = own.last()?;
    let access = &space.kernel.operands[operand as usize].access;
    let beside = |a: AxisId| {
        let stride = access.term(a).and_then(|t| t.stride());
        stride.is_some_and(layout::Dim::is_one)
    };
    let summed = space.kernel.ordered().is_empty() && p.over.last().is_some_and(|&a| beside(a));
    if access.term(lane).is_none() || beside(lane) || summed {
        return None;
    }
    let beside_lane =
        |list: &[AxisId]| -> Vec<AxisId> { list.iter().copied().filter(|&a| a != lane).collect() };
    let mut others = beside_lane(&p.batch);
    if own != p.batch {
        others.extend(beside_lane(own));
    }
    let whole = (space.extent(lane), None);
    Some((
        operand,
        moved(space, operand, (&others, lane, &p.over), whole, None)?,
    ))
}

/// A copy of a factor along the lane, in panels, with what is summed outside it, and others outside that; see
/// [`pack::pack`]. Of an element it has what `made` makes of it.
pub(super) fn moved(
    space: &Space,
    operand: OperandId,
    axes: (&[AxisId], AxisId, &[AxisId]),
    (panel, group): (i64, Option<(AxisId, i64)>),
    made: Option<(Expr, DType)>,
) -> Option<Packed> {
    let mut copy = pack::pack(space, operand, axes, panel, group)?;
    if let Some((made, dtype)) = made {
        copy.kernel = making(&copy.kernel, made, dtype).into();
    }
    let ctx = Ctx {
        far: &[],
        ..space.ctx
    };
    let moves = ordered(&copy.kernel);
    let list = gpu::candidates(&Space::new(ctx, &moves), usize::MAX);
    let best = ranked(ctx, &list, 0, &|_| false, Search::all(ctx.prints(), 1)).ok()?;
    let chosen = &list[best.first()?.1];
    (copy.kernel, copy.schedule) = (chosen.kernel.clone(), chosen.schedule.clone());
    Some(copy)
}

/// A move that stores what `made` makes of each element, which has a type of its own.
fn making(moves: &Kernel, made: Expr, dtype: DType) -> Kernel {
    let mut kernel = moves.clone();
    let made_of = kernel.tiles[0].clone();
    kernel.tiles.push(Tile {
        name: "made".into(),
        dtype,
        ..made_of
    });
    kernel.operands[1].dtype = dtype;
    kernel.body = vec![
        Stmt::Load { dst: 0, operand: 0 },
        Stmt::Map {
            dst: 1,
            expr: made,
            args: vec![0],
        },
        Stmt::Store { operand: 1, src: 1 },
    ];
    kernel
}
