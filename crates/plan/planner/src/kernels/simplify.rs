//! Small clean-ups of finished kernels: maps inlined into their only reader, unit axes and tiles
//! that nothing uses dropped, neighbouring axes joined.
use expr::{Class, Expr, ExprBuilder, Inst, Ref};
use kernel::{AxisId, Kernel, Stmt, TileId};
use layout::{Arrange, DType, Dim, Leaf};

pub(crate) fn simplify(mut k: Kernel) -> Kernel {
    while inline_one(&mut k) || lift_one(&mut k) {}
    while join_one(&mut k) {}
    drop_tiles(&mut k);
    k
}

/// The statements that read each tile, and how many write to it.
struct Uses {
    readers: Vec<Vec<usize>>,
    writers: Vec<usize>,
}

impl Uses {
    fn of(k: &Kernel) -> Uses {
        let mut out = Uses {
            readers: vec![vec![]; k.tiles.len()],
            writers: vec![0; k.tiles.len()],
        };
        for (n, s) in k.body.iter().enumerate() {
            for t in s.reads() {
                let list = &mut out.readers[t as usize];
                // Once, however often it reads it.
                if list.last() != Some(&n) {
                    list.push(n);
                }
            }
            s.writes()
                .iter()
                .for_each(|&t| out.writers[t as usize] += 1);
        }
        out
    }
}

/// Inlines one map into the single map that reads it, over the same axes.
fn inline_one(k: &mut Kernel) -> bool {
    let uses = Uses::of(k);
    for at in 0..k.body.len() {
        let Stmt::Map { dst, args, .. } = &k.body[at] else {
            continue;
        };
        let (dst, fill) = (*dst, args.is_empty());
        let &[reader] = uses.readers[dst as usize].as_slice() else {
            continue;
        };
        if uses.writers[dst as usize] != 1 || reader <= at {
            continue;
        }
        let Stmt::Map { dst: to, .. } = &k.body[reader] else {
            continue;
        };
        // The map would move down to its reader: nothing it reads may change on the way.
        let moved_over = &k.body[at + 1..reader];
        if moved_over
            .iter()
            .any(|s| s.writes().iter().any(|w| args.contains(w)))
        {
            continue;
        }
        let same = k.tiles[*to as usize].axes == k.tiles[dst as usize].axes;
        // A constant fill may be inlined anywhere: it costs nothing to repeat.
        let constant = fill
            && matches!(&k.body[at], Stmt::Map { expr, .. } if expr.insts.iter().all(|i| !matches!(i, Inst::Index { .. })));
        if !same && !constant {
            continue;
        }
        let Stmt::Map {
            expr: inner,
            args: inner_args,
            ..
        } = k.body[at].clone()
        else {
            continue;
        };
        let Stmt::Map {
            dst: to,
            expr: outer,
            args: outer_args,
        } = k.body[reader].clone()
        else {
            continue;
        };
        let (expr, slots) = merged(k, dst, &inner, &inner_args, &outer, &outer_args);
        k.body[reader] = Stmt::Map {
            dst: to,
            expr,
            args: slots,
        };
        k.body.remove(at);
        return true;
    }
    false
}

/// Operations of a program that is repeated for each reader rather than kept as a tile, without the widening of what is
/// read in 16 bits.
const CHEAP: u64 = 1;

/// Arguments of 16 bits that a program widens.
fn widened(e: &Expr) -> u64 {
    let half = |r: Ref| {
        let read = e.insts.get(r as usize);
        matches!(
            read,
            Some(Inst::Input {
                dtype: DType::F16 | DType::BF16,
                ..
            })
        )
    };
    let own = |i: &&Inst| matches!(i, Inst::Cast(x, DType::F32) if half(*x));
    e.insts.iter().filter(own).count() as u64
}

/// Inlines one cheap map into the fold that reads it, and into all other maps over its axes that do:
/// reading an operand again costs less than a tile written and read.
fn lift_one(k: &mut Kernel) -> bool {
    let mut uses = Uses::of(k);
    for at in 0..k.body.len() {
        let Stmt::Map { dst, args, expr } = &k.body[at] else {
            continue;
        };
        let readers = std::mem::take(&mut uses.readers[*dst as usize]);
        let writers = uses.writers[*dst as usize];
        let folded = |r: &usize| matches!(k.body[*r], Stmt::Fold { .. });
        if writers != 1 || !readers.iter().any(folded) {
            continue;
        }
        let (dst, args, inner) = (*dst, args.clone(), expr.clone());
        let simple = inner.insts.iter().all(|i| !matches!(i, Inst::Index { .. }));
        let counted: u64 = inner.counts().iter().map(|(_, n)| n).sum();
        let cost = counted.saturating_sub(widened(&inner));
        let heavy = inner
            .counts()
            .iter()
            .any(|(c, n)| *n > 0 && !matches!(c, Class::Simple | Class::Free));
        if args.is_empty() || !simple || (readers.len() > 1 && (cost > CHEAP || heavy)) {
            continue;
        }
        let axes = &k.tiles[dst as usize].axes;
        let last = readers.iter().copied().max().unwrap_or(at);
        let changed = k.body[at + 1..=last]
            .iter()
            .any(|s| s.writes().iter().any(|w| args.contains(w)));
        let fits = readers.iter().all(|&r| match &k.body[r] {
            Stmt::Map { dst, .. } => k.tiles[*dst as usize].axes == *axes,
            Stmt::Fold { args, rescale, .. } => {
                // The first argument stays the one with all axes.
                let wide = args
                    .iter()
                    .all(|&t| k.tiles[t as usize].axes.len() <= axes.len());
                rescale.is_none() && wide && args.contains(&dst)
            }
            _ => false,
        });
        let wide = args
            .iter()
            .filter(|&&t| k.tiles[t as usize].axes == *axes)
            .count();
        if changed || !fits || wide == 0 || (readers.len() > 1 && wide > 1) {
            continue;
        }
        for r in readers {
            match k.body[r].clone() {
                Stmt::Map {
                    dst: to,
                    expr,
                    args: outer,
                } => {
                    let (expr, args) = merged(k, dst, &inner, &args, &expr, &outer);
                    k.body[r] = Stmt::Map {
                        dst: to,
                        expr,
                        args,
                    };
                }
                Stmt::Fold {
                    mut monoid,
                    state,
                    args: outer,
                    over,
                    rescale,
                } => {
                    let (lift, args) = merged(k, dst, &inner, &args, &monoid.lift, &outer);
                    monoid.lift = lift;
                    k.body[r] = Stmt::Fold {
                        monoid,
                        state,
                        args,
                        over,
                        rescale,
                    };
                }
                _ => {}
            }
        }
        k.body.remove(at);
        return true;
    }
    false
}

/// The program `outer` of `outer_args` with its argument `dst` computed by `inner` of `inner_args`.
fn merged(
    k: &Kernel,
    dst: TileId,
    inner: &Expr,
    inner_args: &[TileId],
    outer: &Expr,
    outer_args: &[TileId],
) -> (Expr, Vec<TileId>) {
    let mut slots: Vec<TileId> = Vec::new();
    let mut b = ExprBuilder::new();
    let slot = |b: &mut ExprBuilder, slots: &mut Vec<TileId>, t: TileId| {
        let s = slots.iter().position(|&x| x == t).unwrap_or_else(|| {
            slots.push(t);
            slots.len() - 1
        });
        b.input(s as u32, k.tiles[t as usize].dtype)
    };
    let inner_refs: Vec<Ref> = inner_args
        .iter()
        .map(|&t| slot(&mut b, &mut slots, t))
        .collect();
    let value = b.inline(inner, &inner_refs, None)[0];
    let outer_refs: Vec<Ref> = outer_args
        .iter()
        .map(|&t| {
            if t == dst {
                value
            } else {
                slot(&mut b, &mut slots, t)
            }
        })
        .collect();
    let outs = b.inline(outer, &outer_refs, None);
    let expr = b.finish(&outs);
    // Slots that the merged program no longer reads would be loads for nothing.
    let used: Vec<u32> = expr
        .insts
        .iter()
        .filter_map(|i| {
            if let Inst::Input { slot, .. } = i {
                Some(*slot)
            } else {
                None
            }
        })
        .collect();
    compact(expr, &used, &slots)
}

fn compact(mut e: Expr, used: &[u32], slots: &[TileId]) -> (Expr, Vec<TileId>) {
    let mut kept: Vec<u32> = used.to_vec();
    kept.arrange();
    kept.dedup();
    for i in &mut e.insts {
        if let Inst::Input { slot, .. } = i {
            *slot = kept.iter().position(|k| k == slot).unwrap_or(0) as u32;
        }
    }
    (e, kept.iter().map(|&s| slots[s as usize]).collect())
}

/// Joins one pair of neighbouring axes that every operand and tile treats as one.
fn join_one(k: &mut Kernel) -> bool {
    for inner in 1..k.axes.len() as AxisId {
        if joinable(k, inner - 1, inner) {
            join(k, inner - 1, inner);
            return true;
        }
    }
    false
}

fn joinable(k: &Kernel, outer: AxisId, inner: AxisId) -> bool {
    let both = |list: &[AxisId]| list.contains(&outer) == list.contains(&inner);
    if !k.tiles.iter().all(|t| both(&t.axes)) {
        return false;
    }
    for s in &k.body {
        if !both(s.over()) {
            return false;
        }
        // Folds count their rank in the order of `over`: the pair must be neighbours there too.
        if let (Some(a), Some(b)) = (
            s.over().iter().position(|&x| x == outer),
            s.over().iter().position(|&x| x == inner),
        ) && b != a + 1
        {
            return false;
        }
        let indexes = |e: &expr::Expr| {
            e.insts.iter().any(|i| matches!(i, Inst::Index { axis } if *axis == outer as u32 || *axis == inner as u32))
        };
        if let Stmt::Map { expr, .. } = s
            && indexes(expr)
        {
            return false;
        }
        let renamed = |l: &kernel::Label| [outer, inner].iter().any(|a| [l.from, l.to].contains(a));
        if let Stmt::Relabel { labels, .. } = s
            && labels.iter().any(renamed)
        {
            return false;
        }
    }
    let extent = &k.axes[inner as usize].extent;
    k.operands.iter().all(|o| {
        if o.access
            .bounds
            .iter()
            .flat_map(|b| &b.terms)
            .any(|(a, _)| *a == outer || *a == inner)
        {
            return false;
        }
        match (o.access.term(outer), o.access.term(inner)) {
            (None, None) => true,
            (Some(a), Some(b)) => match (a.stride(), b.stride()) {
                (Some(a), Some(b)) => *a == b.clone() * extent.clone(),
                _ => false,
            },
            _ => false,
        }
    })
}

fn join(k: &mut Kernel, outer: AxisId, inner: AxisId) {
    let extent = k.axes[outer as usize].extent.clone() * k.axes[inner as usize].extent.clone();
    k.axes[inner as usize].extent = extent.clone();
    k.axes[inner as usize].name = format!(
        "{}{}",
        k.axes[outer as usize].name, k.axes[inner as usize].name
    );
    for o in &mut k.operands {
        o.access.terms.retain(|t| t.axis != outer);
        for t in o.access.terms.iter_mut().filter(|t| t.axis == inner) {
            let stride = t.leaves[0].stride.clone();
            t.leaves = vec![Leaf {
                extent: extent.clone(),
                stride,
            }];
        }
    }
    remove_axis(k, outer);
}

/// Removes `axis` everywhere and renumbers those after it.
pub(crate) fn remove_axis(k: &mut Kernel, axis: AxisId) {
    let to = |a: AxisId| if a > axis { a - 1 } else { a };
    k.axes.remove(axis as usize);
    for o in &mut k.operands {
        o.access.terms.retain(|t| t.axis != axis);
        o.access.terms.iter_mut().for_each(|t| t.axis = to(t.axis));
        for b in &mut o.access.bounds {
            b.terms.retain(|t| t.0 != axis);
            b.terms.iter_mut().for_each(|t| t.0 = to(t.0));
        }
    }
    for t in &mut k.tiles {
        t.axes.retain(|&a| a != axis);
        t.axes.iter_mut().for_each(|a| *a = to(*a));
    }
    for s in &mut k.body {
        match s {
            Stmt::Contract { over, .. } | Stmt::Fold { over, .. } => {
                over.retain(|&a| a != axis);
                over.iter_mut().for_each(|a| *a = to(*a));
            }
            Stmt::Map { expr, .. } => {
                for i in &mut expr.insts {
                    if let Inst::Index { axis: a } = i {
                        *a = to(*a as AxisId) as u32;
                    }
                }
            }
            Stmt::Relabel { labels, along, .. } => {
                labels.iter_mut().for_each(|l| {
                    l.from = to(l.from);
                    l.to = to(l.to);
                });
                *along = along.map(to);
            }
            Stmt::Load { .. } | Stmt::Store { .. } => {}
        }
    }
}

/// Drops tiles that no statement names and renumbers the rest.
fn drop_tiles(k: &mut Kernel) {
    let mut used = vec![false; k.tiles.len()];
    for s in &k.body {
        for t in s.reads().into_iter().chain(s.writes()) {
            used[t as usize] = true;
        }
    }
    let mut to = vec![0 as TileId; used.len()];
    let mut next = 0;
    for (t, &u) in used.iter().enumerate() {
        to[t] = next;
        next += u as TileId;
    }
    let mut keep = used.iter();
    k.tiles.retain(|_| keep.next().copied().unwrap_or(false));
    let f = |t: &mut TileId| *t = to[*t as usize];
    for s in &mut k.body {
        match s {
            Stmt::Load { dst, .. } => f(dst),
            Stmt::Store { src, .. } => f(src),
            Stmt::Map { dst, args, .. } => {
                f(dst);
                args.iter_mut().for_each(f);
            }
            Stmt::Relabel { dst, src, .. } => {
                f(dst);
                f(src);
            }
            Stmt::Contract { acc, a, b, .. } => {
                f(acc);
                f(a);
                f(b);
            }
            Stmt::Fold {
                state,
                args,
                rescale,
                ..
            } => {
                state.iter_mut().for_each(f);
                args.iter_mut().for_each(f);
                if let Some(r) = rescale {
                    r.tiles.iter_mut().for_each(f);
                }
            }
        }
    }
}

/// Number that orders strides for people and schedules alike: symbols count as a middling size.
pub(crate) fn magnitude(d: &Dim) -> i64 {
    d.eval(&|_| Some(61)).map_or(i64::MAX, i64::abs)
}
