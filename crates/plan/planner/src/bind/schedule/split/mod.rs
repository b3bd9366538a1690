//! Long sums of few results: a product, or an attention over many keys, as two kernels. The first sums parts of the
//! longest summed axis, or of the keys, side by side into workspaces, the second adds the parts up in ascending order
//! and does what follows. Both are kernels like any other, so that verifier, reference, cost and emitters know
//! nothing of it, and the order of the sums is the schedule's: the same bits every time.
mod attention;
mod product;

use super::candidate::{Arg, Candidate, Half, Parts};
use super::rank::{self, Search, ranked, sketched};
use super::renumber::ordered;
use super::{gpu, gpu_flat};
use crate::bind::ctx::{Ctx, Space};
use crate::bind::launch::handovers;
use expr::{Expr, Inst};
use kernel::{
    Access, Axis, AxisId, AxisTile, Kernel, Operand, OperandId, Role, Stmt, Term, Tile,
    TileId,
};
use layout::{DType, Dim};
use std::collections::BTreeSet;

/// Positions of the summed axis that a part has at least.
const LEAST: i64 = 64;
/// Numbers of parts whose instructions are counted, the best by arithmetic and bytes alone.
const COUNTED: usize = 2;
/// Candidates of the products, and of the sums of parts, whose instructions are counted.
const OF_EACH: [usize; 2] = [rank::COUNTED, 2];

/// A way that is better than its whole.
pub(super) struct Found {
    pub parts: Parts,
    pub second: Half,
    pub what: String,
    /// Seconds that both steps take.
    pub seconds: f64,
    pub rank: f64,
}

/// The fastest split of `kernel` that is predicted to take less than `whole` (as candidates are
/// ranked), whose grid has `tasks`.
pub(super) fn best(ctx: Ctx, kernel: &Kernel, whole: f64, tasks: u64) -> Option<Found> {
    let target = ctx.target.gpu.as_ref()?;
    if tasks >= ctx.workers as u64 || target.splits.is_empty() || !kernel.ordered().is_empty() {
        return None;
    }
    let space = Space::new(ctx, kernel);
    let (axis, length) = product::longest(kernel).or_else(|| attention::keys(&space))?;
    let name = &kernel.axes[axis as usize].name;
    let all = target.splits.iter().map(|&n| i64::from(n));
    let ways = all
        .filter(|n| length / n >= LEAST)
        .filter_map(|n| two(&space, axis, n));
    let sketch = |w: Two| Some((costed(ctx, &w, name, (None, f64::MAX))?.rank, w));
    let mut ways: Vec<(f64, Two)> = ways.filter_map(sketch).collect();
    ways.sort_by(|a, b| a.0.total_cmp(&b.0));
    ways.truncate(COUNTED);
    let mut best: Option<Found> = None;
    for (sketched, w) in &ways {
        let limit = best.as_ref().map_or(whole, |b| b.rank);
        if *sketched >= limit {
            continue;
        }
        let Some(found) = costed(ctx, w, name, (Some(OF_EACH), limit)) else {
            continue;
        };
        if found.rank < limit {
            best = Some(found);
        }
    }
    best
}

/// The two kernels that `kernel` is in `parts`.
pub(super) fn halves(ctx: Ctx, kernel: &Kernel, parts: &Parts) -> Option<[Kernel; 2]> {
    let kernel = ordered(kernel);
    let (axis, n) = parts.cut;
    Some(two(&Space::new(ctx, &kernel), axis, n)?.kernels)
}

/// Two kernels for one.
struct Two {
    kernels: [Kernel; 2],
    args: [Vec<Arg>; 2],
    /// Elements and type of each tensor between them.
    between: Vec<(Dim, DType)>,
    cut: (AxisId, i64),
}

/// A half with how it is ranked and what it is called.
type Ranked = (f64, Half, String);

/// Candidates of the sum of parts whose tasks have the tiles of the parts that `first` makes: a CTA that knows those
/// to be made can go on with them.
fn same_tiles(space: &Space, first: &Half) -> Vec<Candidate> {
    let s = &first.schedule;
    let axis = |c: &AxisTile| {
        let name = &first.kernel.axes[c.axis as usize].name;
        let at = space.kernel.axes.iter().position(|a| a.name == *name)?;
        Some(AxisTile {
            axis: at as AxisId,
            ..*c
        })
    };
    let Some((part, rest)) = s.grid.split_first().filter(|_| s.raster == 1) else {
        return vec![];
    };
    match rest.iter().map(axis).collect::<Option<Vec<AxisTile>>>() {
        Some(grid) if part.tile == 1 => gpu_flat::with_grid(space, &grid),
        _ => vec![],
    }
}

/// Seconds that the second half takes less in the launch of the first.
fn joined(ctx: Ctx, first: &Half, second: &Half) -> Option<f64> {
    let (one, two) = (
        (&*first.schedule, &first.work),
        (&*second.schedule, &second.work),
    );
    let times = handovers(ctx, one, two)?;
    Some(ctx.machine.joined_s(times))
}

/// The best schedules of both kernels, by the instructions of so many candidates of each, or by sketches; `None`
/// where there are none, or the first alone takes `limit`.
fn costed(
    ctx: Ctx,
    two: &Two,
    axis: &str,
    (counted, limit): (Option<[usize; 2]>, f64),
) -> Option<Found> {
    let top = |(elements, dtype): &(Dim, DType)| Some((ctx.dims.at_top(elements)?, *dtype));
    let between: Vec<(i64, DType)> = two.between.iter().map(top).collect::<Option<_>>()?;
    let bytes = |(elements, dtype): &(i64, DType)| *elements as f64 * f64::from(dtype.bits()) / 8.0;
    let bytes: f64 = between.iter().map(bytes).sum();
    let far = |args: &[Arg]| -> Vec<f64> {
        let one = |o: &Arg| match o {
            Arg::Whole(o) => ctx.far.get(*o as usize).copied().unwrap_or(ctx.footprint),
            Arg::Between(_) => bytes,
        };
        args.iter().map(one).collect()
    };
    let half = |n: usize, list: &dyn Fn(&Space) -> Vec<Candidate>, limit: f64| -> Option<Ranked> {
        let (kernel, far) = (&two.kernels[n], far(&two.args[n]));
        let ctx = Ctx { far: &far, ..ctx };
        let kernel = ordered(kernel);
        let mut list = list(&Space::new(ctx, &kernel));
        list.truncate(ctx.effort.max(1));
        let mut best = match counted {
            Some(most) => {
                let search = Search {
                    prints: ctx.prints(),
                    counted: most[n],
                    limit,
                };
                ranked(ctx, &list, 0, &|_| false, search).ok()?
            }
            None => sketched(ctx, &list, 0, &|_| false),
        };
        if best.is_empty() {
            return None;
        }
        let (rank, at, work, cost) = best.swap_remove(0);
        let Candidate {
            what,
            kernel,
            schedule,
            ..
        } = list.swap_remove(at);
        let half = Half {
            kernel,
            schedule,
            work,
            cost,
        };
        Some((rank, half, what))
    };
    let (r1, first, w1) = half(0, &gpu::candidates, limit)?;
    if r1 >= limit {
        return None;
    }
    let alone = half(1, &gpu::candidates, limit - r1).map(|h| (h, 0.0));
    let beside = half(1, &|space| same_tiles(space, &first), f64::INFINITY);
    let beside = beside.and_then(|(rank, half, what)| {
        let less = joined(ctx, &first, &half)?;
        let what = format!("{what}, in the same launch");
        Some(((rank - less, half, what), less))
    });
    let ways = [alone, beside].into_iter().flatten();
    let ((r2, second, w2), saved) = ways.min_by(|a, b| a.0.0.total_cmp(&b.0.0))?;
    Some(Found {
        what: format!(
            "{} parts along {axis}, {w1}; then their sum, {w2}",
            two.cut.1
        ),
        seconds: first.cost.time_s + second.cost.time_s - saved,
        rank: r1 + r2,
        second,
        parts: Parts {
            first,
            cut: two.cut,
            args: two.args.clone(),
            between,
        },
    })
}

/// What is left of the body of `k` for the second kernel: statements `replaced`, which fold along `axis`, and what
/// follows from them, each with its place in the body; `None` where something of that touches the axis.
fn after<'k>(k: &'k Kernel, axis: AxisId, replaced: &[usize]) -> Option<Vec<(usize, &'k Stmt)>> {
    let mut live: BTreeSet<TileId> = BTreeSet::new();
    let mut rest: Vec<(usize, &Stmt)> = vec![];
    for (i, s) in k.body.iter().enumerate().rev() {
        let wanted = matches!(s, Stmt::Store { .. }) || s.writes().iter().any(|t| live.contains(t));
        if replaced.contains(&i) {
            live.extend(s.writes());
            rest.push((i, s));
            continue;
        }
        if !wanted {
            continue;
        }
        let has = |&t: &TileId| k.tiles[t as usize].axes.contains(&axis);
        let touches = s.reads().iter().chain(&s.writes()).any(has)
            || s.over().contains(&axis)
            || matches!(s, Stmt::Map { expr, .. } if counts(expr, axis))
            || matches!(s, Stmt::Relabel { .. });
        if touches {
            return None;
        }
        live.extend(s.reads());
        rest.push((i, s));
    }
    rest.reverse();
    Some(rest)
}

/// A tensor between the two kernels: a tile of the first one by part, parts outermost, then as the output lies.
struct Workspace {
    tile: TileId,
    name: String,
    dtype: DType,
    terms: Vec<Term>,
    /// Elements of one part.
    elements: Dim,
    parts: i64,
}

impl Workspace {
    fn of(space: &Space, tile: TileId, name: String, parts: i64) -> Option<Workspace> {
        let k = space.kernel;
        let mut terms = vec![];
        let mut elements = Dim::ONE;
        let out = space.main_output()?;
        let Tile { axes, dtype, .. } = &k.tiles[tile as usize];
        for a in space.inner_first(out, axes) {
            let extent = k.axes[a as usize].extent.clone();
            terms.push(Term::flat(a, extent.clone(), elements.clone()));
            elements = elements * extent;
        }
        Some(Workspace {
            tile,
            name,
            dtype: *dtype,
            terms,
            elements,
            parts,
        })
    }

    /// Elements and type.
    fn between(&self) -> (Dim, DType) {
        (self.elements.clone() * Dim::Known(self.parts), self.dtype)
    }

    /// As an operand beside those of `k`, whose parts are along axis `part`.
    fn operand(&self, k: &Kernel, part: AxisId, role: Role) -> Operand {
        let (elements, parts) = (&self.elements, Dim::Known(self.parts));
        let mut terms = self.terms.clone();
        terms.push(Term::flat(part, parts.clone(), elements.clone()));
        terms.sort_by_key(|t| t.axis);
        Operand {
            name: unique(&self.name, k.operands.iter().map(|o| o.name.as_str())),
            dtype: self.dtype,
            role,
            access: Access::strided(Dim::ZERO, terms),
            elements: elements.clone() * parts,
        }
    }

    /// As a tile beside those of `k`, whose parts are along axis `part`.
    fn tile(&self, k: &Kernel, part: AxisId) -> Tile {
        let own = &k.tiles[self.tile as usize];
        let mut axes = own.axes.clone();
        axes.push(part);
        axes.sort_unstable();
        Tile {
            name: unique(&self.name, k.tiles.iter().map(|t| t.name.as_str())),
            dtype: self.dtype,
            axes,
        }
    }

    /// The axis of the parts, beside those of `k`.
    fn axis(&self, k: &Kernel) -> Axis {
        Axis {
            name: unique("part", k.axes.iter().map(|a| a.name.as_str())),
            extent: Dim::Known(self.parts),
        }
    }
}

/// The sum of `space`'s kernel in `parts` along `axis`, and the sum of the parts with what follows; `None` where the
/// kernel has another form.
fn two(space: &Space, axis: AxisId, parts: i64) -> Option<Two> {
    product::two(space, axis, parts).or_else(|| attention::two(space, axis, parts))
}

/// Two kernels made of `k`, with the tensors between them as operands behind those of `k`.
fn two_of(
    k: &Kernel,
    kernels: [Kernel; 2],
    between: Vec<(Dim, DType)>,
    cut: (AxisId, i64),
) -> Two {
    let whole = k.operands.len();
    let arg = |o: OperandId| match (o as usize).checked_sub(whole) {
        None => Arg::Whole(o),
        Some(n) => Arg::Between(n),
    };
    let [(first, a), (second, b)] = kernels.map(used);
    Two {
        kernels: [first, second],
        args: [a, b].map(|list| list.into_iter().map(arg).collect()),
        between,
        cut,
    }
}

/// Whether a program reads the coordinate along `axis`.
fn counts(e: &Expr, axis: AxisId) -> bool {
    let index = |i: &Inst| matches!(i, Inst::Index { axis: a } if *a == u32::from(axis));
    e.insts.iter().any(index)
}

fn unique<'n>(name: &str, taken: impl Iterator<Item = &'n str>) -> String {
    let taken: BTreeSet<&str> = taken.collect();
    let mut out = name.to_string();
    while taken.contains(out.as_str()) {
        out.push('_');
    }
    out
}

/// Coordinate `c` along `axis` becomes `piece * part + c`.
fn cut(
    a: &mut Access,
    (axis, piece): (AxisId, &Dim),
    (part, parts): (AxisId, i64),
) -> Option<()> {
    if let Some(t) = a.terms.iter_mut().find(|t| t.axis == axis) {
        let (leaf, size) = match t.leaves.as_mut_slice() {
            [one] => (one, piece.clone()),
            [outer, inner] => {
                let (n, piece) = (inner.extent.known()?, piece.known()?);
                (n > 0 && piece % n == 0).then_some(())?;
                (outer, Dim::Known(piece / n))
            }
            _ => return None,
        };
        let step = leaf.stride.clone() * size.clone();
        leaf.extent = size;
        a.terms.push(Term::flat(part, Dim::Known(parts), step));
    }
    for b in &mut a.bounds {
        if let Some((_, c)) = b.terms.iter().find(|t| t.0 == axis) {
            let c = c.clone() * piece.clone();
            b.terms.push((part, c));
        }
    }
    Some(())
}

/// The kernel without operands and tiles that no statement uses, and the numbers of those kept.
fn used(k: Kernel) -> (Kernel, Vec<OperandId>) {
    let mut operands: BTreeSet<OperandId> = BTreeSet::new();
    let mut tiles: BTreeSet<TileId> = BTreeSet::new();
    for s in &k.body {
        if let Stmt::Load { operand, .. } | Stmt::Store { operand, .. } = s {
            operands.insert(*operand);
            let by = &k.operands[*operand as usize].access.indexed;
            operands.extend(by.iter().map(|i| i.by));
        }
        tiles.extend(s.reads());
        tiles.extend(s.writes());
    }
    let (operands, tiles) = (Vec::from_iter(operands), Vec::from_iter(tiles));
    let o = |x: OperandId| operands.binary_search(&x).unwrap_or(0) as OperandId;
    let t = |x: TileId| tiles.binary_search(&x).unwrap_or(0) as TileId;
    let all = |v: &mut Vec<TileId>| v.iter_mut().for_each(|x| *x = t(*x));
    let mut out = Kernel {
        operands: operands
            .iter()
            .map(|&x| k.operands[x as usize].clone())
            .collect(),
        tiles: tiles.iter().map(|&x| k.tiles[x as usize].clone()).collect(),
        ..k
    };
    for x in &mut out.operands {
        x.access.indexed.iter_mut().for_each(|i| i.by = o(i.by));
    }
    for s in &mut out.body {
        match s {
            Stmt::Load { dst, operand } => (*dst, *operand) = (t(*dst), o(*operand)),
            Stmt::Store { operand, src } => (*src, *operand) = (t(*src), o(*operand)),
            Stmt::Map { dst, args, .. } => {
                *dst = t(*dst);
                all(args);
            }
            Stmt::Contract { acc, a, b, .. } => (*acc, *a, *b) = (t(*acc), t(*a), t(*b)),
            Stmt::Fold {
                state,
                args,
                rescale,
                ..
            } => {
                all(state);
                all(args);
                rescale.iter_mut().for_each(|r| all(&mut r.tiles));
            }
            Stmt::Relabel { dst, src, .. } => (*dst, *src) = (t(*dst), t(*src)),
        }
    }
    (out, operands)
}
