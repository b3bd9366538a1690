//! Long sums of few results: a product as two kernels. The first sums parts of the longest summed axis
//! side by side into a workspace, the second adds the parts up in ascending order and does what follows
//! the product. Both are kernels like any other, so that verifier, reference, cost and emitters know
//! nothing of it, and the order of the sums is the schedule's: the same bits every time.
use super::candidate::{Candidate, Half, Parts};
use super::product::Product;
use super::rank::{self, Search, ranked, sketched};
use super::renumber::ordered;
use super::{gpu, gpu_flat};
use crate::bind::ctx::{Ctx, Space};
use crate::bind::launch::handovers;
use expr::{Expr, Inst, Monoid};
use kernel::{
    Access, Axis, AxisId, AxisTile, Family, Kernel, Operand, OperandId, Role, Stmt, Term, Tile,
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
    let p = Product::of(kernel)?;
    let known = |a: &AxisId| kernel.axes[*a as usize].extent.known();
    let axis = p.over.iter().copied().max_by_key(|a| (known(a), *a))?;
    let length = known(&axis)?;
    let space = Space::new(ctx, kernel);
    let name = &kernel.axes[axis as usize].name;
    let fits = |n: &i64| length % n == 0 && length / n >= LEAST;
    let all = target.splits.iter().map(|&n| i64::from(n)).filter(fits);
    let ways = all.filter_map(|n| two(&space, &p, axis, n));
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
    let p = Product::of(&kernel)?;
    let (axis, n) = parts.cut;
    Some(two(&Space::new(ctx, &kernel), &p, axis, n)?.kernels)
}

/// Two kernels for one.
struct Two {
    kernels: [Kernel; 2],
    args: [Vec<Option<OperandId>>; 2],
    elements: Dim,
    dtype: DType,
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
    let elements = ctx.dims.at_top(&two.elements)?;
    let bytes = elements as f64 * f64::from(two.dtype.bits()) / 8.0;
    let far = |args: &[Option<OperandId>]| -> Vec<f64> {
        let one = |o: &Option<OperandId>| match o {
            Some(o) => ctx.far.get(*o as usize).copied().unwrap_or(ctx.footprint),
            None => bytes,
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
            elements,
            dtype: two.dtype,
        },
    })
}

/// The statements of a kernel around its product.
struct Around<'k> {
    /// Where the product is in the body.
    at: usize,
    fill: &'k Stmt,
    /// What makes the factors, and its tiles.
    feeds: Vec<&'k Stmt>,
    need: BTreeSet<TileId>,
    /// The product and what is left for afterwards, each with its place in the body.
    rest: Vec<(usize, &'k Stmt)>,
}

impl<'k> Around<'k> {
    /// `None` where the kernel has another form than a product along `axis` with what feeds and follows it.
    fn of(k: &'k Kernel, p: &Product, axis: AxisId) -> Option<Around<'k>> {
        let product = |s: &Stmt| matches!(s, Stmt::Contract { .. });
        let at = k.body.iter().position(product)?;
        let mut before = k.body[..at].iter().filter(|s| s.writes().contains(&p.acc));
        let zeros = |s: &&Stmt| s.as_fill().is_some_and(|f| is_zero(f.1));
        let fill = before.next().filter(zeros)?;
        let dtype = k.tiles[p.acc as usize].dtype;
        if before.next().is_some() || !matches!(dtype, DType::F32 | DType::I32) {
            return None;
        }
        let mut need: BTreeSet<TileId> = BTreeSet::from([p.a, p.b]);
        let mut feeds: Vec<&Stmt> = vec![];
        for s in k.body[..at].iter().rev() {
            if !s.writes().iter().any(|t| need.contains(t)) {
                continue;
            }
            match s {
                Stmt::Load { .. } => {}
                Stmt::Map { expr, .. } if !counts(expr, axis) => need.extend(s.reads()),
                _ => return None,
            }
            feeds.push(s);
        }
        feeds.reverse();
        if need.contains(&p.acc) {
            return None;
        }
        Some(Around {
            at,
            fill,
            feeds,
            need,
            rest: after(k, p, axis, at)?,
        })
    }
}

/// The product, which is statement `at`, and what follows from it, each with its place in the body; `None` where
/// something of that touches the summed axis.
fn after<'k>(
    k: &'k Kernel,
    p: &Product,
    axis: AxisId,
    at: usize,
) -> Option<Vec<(usize, &'k Stmt)>> {
    let mut live: BTreeSet<TileId> = BTreeSet::new();
    let mut rest: Vec<(usize, &Stmt)> = vec![];
    for (i, s) in k.body.iter().enumerate().rev() {
        if i == at {
            live.contains(&p.acc).then_some(())?;
            rest.push((i, s));
            continue;
        }
        let wanted = matches!(s, Stmt::Store { .. }) || s.writes().iter().any(|t| live.contains(t));
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

/// The tensor between the two kernels: parts outermost, then as the output lies.
struct Workspace {
    terms: Vec<Term>,
    /// Elements of one part.
    elements: Dim,
    parts: i64,
}

impl Workspace {
    fn new(space: &Space, p: &Product, parts: i64) -> Option<Workspace> {
        let k = space.kernel;
        let mut terms = vec![];
        let mut elements = Dim::ONE;
        let out = space.main_output()?;
        for a in space.inner_first(out, &k.tiles[p.acc as usize].axes) {
            let extent = k.axes[a as usize].extent.clone();
            terms.push(Term::flat(a, extent.clone(), elements.clone()));
            elements = elements * extent;
        }
        Some(Workspace {
            terms,
            elements,
            parts,
        })
    }

    /// As an operand beside those of `k`, whose parts are along axis `part`.
    fn operand(&self, k: &Kernel, dtype: DType, part: AxisId, role: Role) -> Operand {
        let (elements, parts) = (&self.elements, Dim::Known(self.parts));
        let mut terms = self.terms.clone();
        terms.push(Term::flat(part, parts.clone(), elements.clone()));
        terms.sort_by_key(|t| t.axis);
        Operand {
            name: unique("parts", k.operands.iter().map(|o| o.name.as_str())),
            dtype,
            role,
            access: Access::strided(Dim::ZERO, terms),
            elements: elements.clone() * parts,
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

/// The product of `p` in `parts` along `axis`, whose extent is a multiple of them, and the sum of the
/// parts with what follows; `None` where the kernel has another form.
fn two(space: &Space, p: &Product, axis: AxisId, parts: i64) -> Option<Two> {
    let k = space.kernel;
    let around = Around::of(k, p, axis)?;
    let workspace = Workspace::new(space, p, parts)?;
    let first = partial_sums(k, p, axis, &around, &workspace)?;
    let second = sum_of_parts(k, p, axis, &around, &workspace);
    let ((first, a1), (second, a2)) = (used(first), used(second));
    let made = k.operands.len() as OperandId;
    let given = |list: Vec<OperandId>| list.into_iter().map(|o| (o != made).then_some(o)).collect();
    Some(Two {
        kernels: [first, second],
        args: [given(a1), given(a2)],
        elements: workspace.elements * Dim::Known(parts),
        dtype: k.tiles[p.acc as usize].dtype,
        cut: (axis, parts),
    })
}

/// The first kernel: one axis more, that of the parts, which every tile with the summed axis has.
fn partial_sums(
    k: &Kernel,
    p: &Product,
    axis: AxisId,
    around: &Around<'_>,
    workspace: &Workspace,
) -> Option<Kernel> {
    let parts = workspace.parts;
    let piece = k.axes[axis as usize].extent.known()? / parts;
    let mut first = k.clone();
    first.name = format!("{} in parts", k.name);
    first.axes[axis as usize].extent = Dim::Known(piece);
    first.axes.push(workspace.axis(k));
    let part = k.axes.len() as AxisId;
    for (t, tile) in first.tiles.iter_mut().enumerate() {
        let t = t as TileId;
        if t == p.acc || (around.need.contains(&t) && tile.axes.contains(&axis)) {
            tile.axes.push(part);
        }
    }
    for o in &mut first.operands {
        if o.role == Role::Read {
            cut(&mut o.access, axis, piece, part, parts)?;
        }
    }
    let dtype = k.tiles[p.acc as usize].dtype;
    let made = workspace.operand(k, dtype, part, Role::Write);
    first.operands.push(made);
    first.body = around.feeds.iter().map(|&s| s.clone()).collect();
    first
        .body
        .extend([around.fill.clone(), k.body[around.at].clone()]);
    first.body.push(Stmt::Store {
        operand: k.operands.len() as OperandId,
        src: p.acc,
    });
    Some(first)
}

/// The second kernel: the summed axis is that of the parts, and the product a fold over them.
fn sum_of_parts(
    k: &Kernel,
    p: &Product,
    axis: AxisId,
    around: &Around<'_>,
    workspace: &Workspace,
) -> Kernel {
    let acc = &k.tiles[p.acc as usize];
    let mut second = k.clone();
    second.family = Family::Row;
    second.axes[axis as usize] = workspace.axis(k);
    let made = workspace.operand(k, acc.dtype, axis, Role::Read);
    second.operands.push(made);
    let mut axes = acc.axes.clone();
    axes.push(axis);
    axes.sort_unstable();
    second.tiles.push(Tile {
        name: unique("parts", k.tiles.iter().map(|t| t.name.as_str())),
        dtype: acc.dtype,
        axes,
    });
    let loaded = k.tiles.len() as TileId;
    second.body = vec![];
    for &(i, s) in &around.rest {
        if i != around.at {
            second.body.push(s.clone());
            continue;
        }
        second.body.push(Stmt::Load {
            dst: loaded,
            operand: k.operands.len() as OperandId,
        });
        second.body.push(Stmt::Fold {
            monoid: Monoid::sum(acc.dtype, acc.dtype),
            state: vec![p.acc],
            args: vec![loaded],
            over: vec![axis],
            rescale: None,
        });
    }
    second
}

/// Whether a program gives 0.
fn is_zero(e: &Expr) -> bool {
    let out = e.outputs.first().and_then(|&o| e.insts.get(o as usize));
    match out {
        Some(Inst::Float { bits, .. }) => f64::from_bits(*bits) == 0.0,
        Some(Inst::Int { value, .. }) => *value == 0,
        _ => false,
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
fn cut(a: &mut Access, axis: AxisId, piece: i64, part: AxisId, parts: i64) -> Option<()> {
    if let Some(t) = a.terms.iter_mut().find(|t| t.axis == axis) {
        let (leaf, size) = match t.leaves.as_mut_slice() {
            [one] => (one, piece),
            [outer, inner] => {
                let n = inner.extent.known().filter(|n| *n > 0 && piece % n == 0)?;
                (outer, piece / n)
            }
            _ => return None,
        };
        leaf.extent = Dim::Known(size);
        let step = leaf.stride.clone() * Dim::Known(size);
        a.terms.push(Term::flat(part, Dim::Known(parts), step));
    }
    for b in &mut a.bounds {
        if let Some((_, c)) = b.terms.iter().find(|t| t.0 == axis) {
            let c = c.clone() * Dim::Known(piece);
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
