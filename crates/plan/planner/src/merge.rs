//! Other fusions of a program: two kernels as one that the rule (`fuse`) keeps apart, without the value
//! between them.
//!
//! The rule joins nodes of a graph whose axes are one another's, so that what it makes has a good schedule
//! everywhere. Kernels can be joined beyond that: where the second reads every element of what the first
//! writes where the first has it, the statements of both are one kernel's, over the axes of both, and each
//! task makes the piece that it goes on to use. Whether that pays is for schedules and machine to say.
use crate::kernels::simplify::simplify;
use expr::Inst;
use kernel::{Access, Axis, AxisId, Family, Kernel, Operand, OperandId, Role, Stmt, Term, TileId};
use layout::{Arrange, Dim, Inserted, Leaf};
use plan::{Fate, Item, ItemWork, Program, Segment, ValueIx};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Families whose statements are as good inside another kernel.
const FAMILIES: [Family; 6] = [
    Family::Map,
    Family::Row,
    Family::Contract,
    Family::Conv,
    Family::Pool,
    Family::Move,
];

/// Families of kernels with a product.
const FACTORED: [Family; 2] = [Family::Contract, Family::Conv];

/// Which pairs are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joinable {
    /// Those whose second kernel has no product.
    Readers,
    /// Those of which neither has a product: a library's product neither makes its factors nor is made by its reader.
    Productless,
    /// All: a factor of a product may be what the first kernel makes.
    All,
}

/// The items at two places of a segment as one, which stands at the second's.
#[derive(Clone, Debug)]
pub struct ItemMerge {
    /// Segment and places of the two.
    pub(crate) at: (usize, usize, usize),
    /// The two as one.
    pub(crate) item: Item,
}

/// Share of their time that kernels have to take less otherwise: as one, in two, or laid out anew.
pub(crate) const LESS: f64 = 0.03;

/// Items of pairs so far, by segment and place: none is part of two.
#[derive(Default)]
pub struct Paired(BTreeSet<(usize, usize)>);

impl Paired {
    /// Keeps those of `pairs` whose items are part of none so far, and counts these.
    pub fn take(&mut self, pairs: &mut Vec<ItemMerge>) {
        pairs.retain(|j| {
            let (s, a, b) = j.at;
            let free = !self.0.contains(&(s, a)) && !self.0.contains(&(s, b));
            if free {
                self.0.extend([(s, a), (s, b)]);
            }
            free
        });
    }

    /// Counts the items of `pairs` no longer.
    pub fn release(&mut self, pairs: &[ItemMerge]) {
        for (s, a, b) in pairs.iter().map(|j| j.at) {
            self.0.remove(&(s, a));
            self.0.remove(&(s, b));
        }
    }
}

/// The pairs of `program`'s items that can be one.
pub fn joinings(program: &Program, which: Joinable) -> Vec<ItemMerge> {
    let mut readers = vec![0u32; program.values.len()];
    let mut writers = vec![0u32; program.values.len()];
    let count = |list: &mut Vec<u32>, v: ValueIx| {
        if let Some(n) = list.get_mut(v as usize) {
            *n += 1;
        }
    };
    for (at, s) in program.segments.iter().enumerate() {
        if !matches!(s, Segment::Straight(_)) {
            let read = program.segment_reads(at);
            read.iter().for_each(|&v| count(&mut readers, v));
        }
        for i in s.items() {
            if matches!(s, Segment::Straight(_)) {
                i.reads().iter().for_each(|&v| count(&mut readers, v));
            }
            i.writes().iter().for_each(|&v| count(&mut writers, v));
        }
    }
    let given = program.outputs.iter().map(|o| o.1);
    let kept: BTreeSet<ValueIx> = given.chain(program.passed.iter().copied()).inserted();
    let mut out = vec![];
    for (s, segment) in program.segments.iter().enumerate() {
        let Segment::Straight(items) = segment else {
            continue;
        };
        let mut last: BTreeMap<ValueIx, usize> = BTreeMap::new();
        for (j, b) in items.iter().enumerate() {
            last.extend(b.reads().into_iter().map(|v| (v, j)));
        }
        for (i, a) in items.iter().enumerate() {
            let &[v] = a.writes().as_slice() else {
                continue;
            };
            if kept.contains(&v) || readers[v as usize] != 1 || writers[v as usize] != 1 {
                continue;
            }
            let Some(j) = last.get(&v).copied().filter(|j| *j > i) else {
                continue;
            };
            if let Some(item) = one_item(a, &items[j], v, which) {
                out.push(ItemMerge {
                    at: (s, i, j),
                    item,
                });
            }
        }
    }
    out
}

/// `program` with these pairs as one each; no item is part of two.
pub fn join(program: &Program, how: &[&ItemMerge]) -> Program {
    let mut out = program.clone();
    for (s, segment) in out.segments.iter_mut().enumerate() {
        let Segment::Straight(items) = segment else {
            continue;
        };
        let mut gone: BTreeSet<usize> = BTreeSet::new();
        for h in how.iter().filter(|h| h.at.0 == s) {
            let (_, i, j) = h.at;
            for f in &mut out.fates {
                if let Fate::Items(names) = &mut f.fate {
                    for n in names.iter_mut() {
                        if *n == items[i].name || *n == items[j].name {
                            n.clone_from(&h.item.name);
                        }
                    }
                    names.dedup();
                }
            }
            items[j] = h.item.clone();
            gone.insert(i);
        }
        let mut at = 0..;
        items.retain(|_| at.next().is_none_or(|i| !gone.contains(&i)));
    }
    out
}

/// The operand of `k` with this role that is `v`, if there is just one.
fn operand(k: &Kernel, args: &[ValueIx], v: ValueIx, role: Role) -> Option<OperandId> {
    let own = |(o, a): (&kernel::Operand, &ValueIx)| *a == v && o.role == role;
    let mut all = (0..k.operands.len()).filter(|&i| own((&k.operands[i], &args[i])));
    let first = all.next()?;
    all.next().is_none().then_some(first as OperandId)
}

/// `a`, which writes `v`, and `b`, which reads it, as one item.
fn one_item(a: &Item, b: &Item, v: ValueIx, which: Joinable) -> Option<Item> {
    let (
        ItemWork::Kernel {
            kernel: ka,
            args: xa,
        },
        ItemWork::Kernel {
            kernel: kb,
            args: xb,
        },
    ) = (&a.work, &b.work)
    else {
        return None;
    };
    if a.given.is_some() || b.given.is_some() {
        return None;
    }
    let plain = |k: &Kernel| {
        FAMILIES.contains(&k.family) && k.body.iter().all(|s| !matches!(s, Stmt::Relabel { .. }))
    };
    let contracts = |k: &Kernel| k.body.iter().any(|s| matches!(s, Stmt::Contract { .. }));
    let apart = match which {
        // What a CPU's product reads is packed and read by panels: it is no tile that something made.
        Joinable::Readers => contracts(kb),
        Joinable::Productless => contracts(ka) || contracts(kb),
        Joinable::All => false,
    };
    if apart || !plain(ka) || !plain(kb) {
        return None;
    }
    let (write, read) = (
        operand(ka, xa, v, Role::Write)?,
        operand(kb, xb, v, Role::Read)?,
    );
    let (mut ka, mut kb) = (Kernel::clone(ka), Kernel::clone(kb));
    let to = matched(&mut ka, write, &mut kb, read)?;
    let (kernel, kept) = merged(ka, write, kb, read, &to)?;
    let args = kept.into_iter().map(|(second, o)| match second {
        false => xa.get(o as usize).copied(),
        true => xb.get(o as usize).copied(),
    });
    let args: Vec<ValueIx> = args.collect::<Option<_>>()?;
    let name = format!("{} + {}", a.name, b.name);
    let mut kernel = simplify(kernel);
    kernel.name.clone_from(&name);
    kernel.verify().ok()?;
    if kernel.operands.len() != args.len() {
        return None;
    }
    let mut nodes = a.nodes.clone();
    nodes.extend(b.nodes.iter().filter(|n| !a.nodes.contains(n)).cloned());
    Some(Item {
        name,
        work: ItemWork::Kernel {
            kernel: Arc::new(kernel),
            args,
        },
        nodes,
        given: None,
    })
}

/// The terms of a plain access, but for axes of one position, by axis with stride and extent; `None` where
/// it is bounded, gathered or taken apart.
fn terms(k: &Kernel, o: OperandId) -> Option<Vec<(AxisId, Dim, Dim)>> {
    let a: &Access = &k.operands[o as usize].access;
    if !a.bounds.is_empty() || !a.indexed.is_empty() || !a.offset.is_zero() {
        return None;
    }
    let mut out = vec![];
    for t in &a.terms {
        let extent = k.axes[t.axis as usize].extent.clone();
        out.push((t.axis, t.stride()?.clone(), extent));
    }
    Some(out)
}

/// The axis of the first kernel that each axis of the second is, where the second reads what the first
/// writes element by element; axes are cut in either until they are the same. `None` where they cannot be.
fn matched(
    a: &mut Kernel,
    write: OperandId,
    b: &mut Kernel,
    read: OperandId,
) -> Option<Vec<Option<AxisId>>> {
    let mut pairs: Vec<(AxisId, AxisId)> = vec![];
    let mut inner = Dim::ONE;
    loop {
        let left = |list: Vec<(AxisId, Dim, Dim)>, taken: &dyn Fn(AxisId) -> bool| {
            let rest = list.into_iter().filter(|t| !taken(t.0));
            rest.collect::<Vec<_>>()
        };
        let of_a = left(terms(a, write)?, &|x| pairs.iter().any(|p| p.0 == x));
        let of_b = left(terms(b, read)?, &|x| pairs.iter().any(|p| p.1 == x));
        if of_a.is_empty() && of_b.is_empty() {
            break;
        }
        let next = |l: &[(AxisId, Dim, Dim)]| l.iter().find(|t| t.1 == inner).cloned();
        let (x, y) = (next(&of_a)?, next(&of_b)?);
        if x.2 == y.2 {
            pairs.push((x.0, y.0));
            inner = inner * x.2;
        } else if x.2.exact_div(&y.2).is_some() {
            split_axis(a, x.0, &y.2)?;
        } else if y.2.exact_div(&x.2).is_some() {
            split_axis(b, y.0, &x.2)?;
        } else {
            return None;
        }
    }
    // All that the first makes of the value is read, and by its own place.
    let of = |y: AxisId| pairs.iter().find(|p| p.1 == y).map(|p| p.0);
    Some((0..b.axes.len() as AxisId).map(of).collect())
}

/// Cuts an axis in two, of which the inner one has `inner` positions and keeps the number; the outer one
/// comes last. `None` where a statement counts its positions or an address is no plain stride along it.
pub(crate) fn split_axis(k: &mut Kernel, axis: AxisId, inner: &Dim) -> Option<()> {
    let extent = k.axes.get(axis as usize)?.extent.clone();
    let outer = extent.exact_div(inner)?;
    let new = k.axes.len() as AxisId;
    let counted = |e: &expr::Expr| {
        let own = |i: &Inst| matches!(i, Inst::Index { axis: a } if *a == u32::from(axis));
        e.insts.iter().any(own)
    };
    for s in &k.body {
        match s {
            Stmt::Map { expr, .. } if counted(expr) => return None,
            // Its own index counts reduced positions; two axes have the same, outermost first.
            Stmt::Relabel { .. } => return None,
            _ => {}
        }
    }
    let plain = |o: &kernel::Operand| {
        let t = o.access.term(axis);
        t.is_none_or(|t| t.stride().is_some())
    };
    if !k.operands.iter().all(plain) {
        return None;
    }
    let name = &k.axes[axis as usize].name;
    let mut outer_name = format!("{name}.outer");
    while k.axes.iter().any(|a| a.name == outer_name) {
        outer_name.push('_');
    }
    k.axes[axis as usize].extent = inner.clone();
    k.axes.push(Axis {
        name: outer_name,
        extent: outer.clone(),
    });
    for o in &mut k.operands {
        let a = &mut o.access;
        let mut more = vec![];
        for t in a.terms.iter_mut().filter(|t| t.axis == axis) {
            let stride = t.stride()?.clone();
            t.leaves = vec![Leaf {
                extent: inner.clone(),
                stride: stride.clone(),
            }];
            more.push(Term::flat(new, outer.clone(), stride * inner.clone()));
        }
        a.terms.extend(more);
        for b in &mut a.bounds {
            let own = b.terms.iter().find(|t| t.0 == axis).map(|t| t.1.clone());
            if let Some(c) = own {
                b.terms.push((new, c * inner.clone()));
            }
        }
    }
    for t in &mut k.tiles {
        if t.axes.contains(&axis) {
            t.axes.push(new);
        }
    }
    for s in &mut k.body {
        if let Stmt::Contract { over, .. } | Stmt::Fold { over, .. } = s
            && let Some(at) = over.iter().position(|a| *a == axis)
        {
            over.insert(at, new);
        }
    }
    Some(())
}

/// An operand of the merged kernel: whether it is the second's, and its number there.
type MergedOperand = (bool, OperandId);

/// The numbers of a merge: what the second kernel's axes, tiles and operands are in the merged one, and the
/// first one's operands.
struct Numbers {
    axes: Vec<AxisId>,
    tiles: Vec<TileId>,
    first: Vec<OperandId>,
    second: Vec<OperandId>,
    /// Operands that stay.
    kept: Vec<MergedOperand>,
}

impl Numbers {
    fn axis(&self, a: AxisId) -> AxisId {
        self.axes.get(a as usize).copied().unwrap_or(0)
    }

    fn tile(&self, t: &mut TileId) {
        *t = self.tiles.get(*t as usize).copied().unwrap_or(0);
    }

    /// A statement of the second kernel; `None` where it has no form in a merged one.
    fn statement(&self, mut s: Stmt) -> Option<Stmt> {
        match &mut s {
            Stmt::Load { dst: tile, operand } | Stmt::Store { operand, src: tile } => {
                *operand = self.second[*operand as usize];
                self.tile(tile);
            }
            Stmt::Map { dst, expr, args } => {
                self.tile(dst);
                args.iter_mut().for_each(|t| self.tile(t));
                for i in &mut expr.insts {
                    if let Inst::Index { axis: x } = i {
                        *x = u32::from(self.axis(*x as AxisId));
                    }
                }
            }
            Stmt::Fold {
                state,
                args,
                over,
                rescale,
                ..
            } => {
                state.iter_mut().chain(args).for_each(|t| self.tile(t));
                over.iter_mut().for_each(|a| *a = self.axis(*a));
                if let Some(r) = rescale {
                    r.tiles.iter_mut().for_each(|t| self.tile(t));
                }
            }
            Stmt::Contract { acc, a, b, over } => {
                [acc, a, b].into_iter().for_each(|t| self.tile(t));
                over.iter_mut().for_each(|a| *a = self.axis(*a));
            }
            Stmt::Relabel { .. } => return None,
        }
        Some(s)
    }
}

/// The statement of `a` that stores operand `write`, and the tile that it stores; `None` where that tile changes
/// afterwards.
fn stored_tile(a: &Kernel, write: OperandId) -> Option<(usize, TileId)> {
    let store = |s: &Stmt| match s {
        Stmt::Store { operand, src } if *operand == write => Some(*src),
        _ => None,
    };
    let at = a.body.iter().position(|s| store(s).is_some())?;
    let tile = store(&a.body[at])?;
    let changes = a.body[at..].iter().any(|s| s.writes().contains(&tile));
    (!changes).then_some((at, tile))
}

/// The tile that operand `read` of `b` is loaded to; `None` where it is loaded or used in another way as well.
fn loaded_tile(b: &Kernel, read: OperandId) -> Option<TileId> {
    let mut loads = b.body.iter().filter_map(|s| match s {
        Stmt::Load { dst, operand } if *operand == read => Some(*dst),
        _ => None,
    });
    let loaded = loads.next()?;
    let written = b.body.iter().filter(|s| s.writes().contains(&loaded));
    let mut indexed = b.operands.iter().flat_map(|x| &x.access.indexed);
    let other_use = loads.next().is_some() || written.count() != 1;
    (!other_use && !indexed.any(|i| i.by == read)).then_some(loaded)
}

/// Adds the axes of `b` that are none of `k`'s; the numbers of all of them in `k`.
fn add_axes(k: &mut Kernel, b: &Kernel, to: &[Option<AxisId>]) -> Vec<AxisId> {
    let mut axes: Vec<AxisId> = vec![];
    for (axis, found) in b.axes.iter().zip(to) {
        axes.push(found.unwrap_or(k.axes.len() as AxisId));
        if found.is_none() {
            let name = unique(&axis.name, k.axes.iter().map(|x| x.name.as_str()));
            k.axes.push(Axis {
                name,
                extent: axis.extent.clone(),
            });
        }
    }
    axes
}

/// Gives `k` its operands but `write`, then those of `b` but `read`.
fn merge_operands(k: &mut Kernel, write: OperandId, b: &Kernel, read: OperandId, n: &mut Numbers) {
    let mut operands: Vec<Operand> = vec![];
    n.first = vec![0; k.operands.len()];
    n.second = vec![0; b.operands.len()];
    for (i, o) in k.operands.iter().enumerate() {
        if i as OperandId != write {
            n.first[i] = operands.len() as OperandId;
            n.kept.push((false, i as OperandId));
            operands.push(o.clone());
        }
    }
    for i in operands.iter_mut().flat_map(|o| &mut o.access.indexed) {
        i.by = n.first[i.by as usize];
    }
    for (i, o) in b.operands.iter().enumerate() {
        if i as OperandId == read {
            continue;
        }
        n.second[i] = operands.len() as OperandId;
        n.kept.push((true, i as OperandId));
        let mut o = o.clone();
        o.name = unique(&o.name, operands.iter().map(|x| x.name.as_str()));
        let access = &mut o.access;
        access
            .terms
            .iter_mut()
            .for_each(|t| t.axis = n.axis(t.axis));
        access.terms.arrange_by_key(|t| t.axis);
        let terms = access.bounds.iter_mut().flat_map(|b| &mut b.terms);
        terms.for_each(|t| t.0 = n.axis(t.0));
        let indexed = access.indexed.iter_mut();
        indexed.for_each(|x| x.by = n.second[x.by as usize]);
        operands.push(o);
    }
    k.operands = operands;
}

/// The statements of `a` and, behind them, those of `b`, whose axes are `to` of `a`'s where they are; `a`
/// does not store operand `write` and `b` does not load `read`. With the operands that stay.
fn merged(
    a: Kernel,
    write: OperandId,
    b: Kernel,
    read: OperandId,
    to: &[Option<AxisId>],
) -> Option<(Kernel, Vec<MergedOperand>)> {
    let (store, stored) = stored_tile(&a, write)?;
    let loaded = loaded_tile(&b, read)?;
    let mut k = a;
    let own_tiles = k.tiles.len();
    let mut n = Numbers {
        axes: add_axes(&mut k, &b, to),
        tiles: vec![],
        first: vec![],
        second: vec![],
        kept: vec![],
    };
    merge_operands(&mut k, write, &b, read, &mut n);
    for (t, tile) in b.tiles.iter().enumerate() {
        if t as TileId == loaded {
            n.tiles.push(stored);
            continue;
        }
        let mut tile = tile.clone();
        tile.name = unique(&tile.name, k.tiles.iter().map(|x| x.name.as_str()));
        tile.axes.iter_mut().for_each(|a| *a = n.axis(*a));
        tile.axes.arrange();
        n.tiles.push(k.tiles.len() as TileId);
        k.tiles.push(tile);
    }
    if own_tiles + b.tiles.len() > usize::from(TileId::MAX) {
        return None;
    }
    k.body.remove(store);
    for s in &mut k.body {
        if let Stmt::Load { operand, .. } | Stmt::Store { operand, .. } = s {
            *operand = n.first[*operand as usize];
        }
    }
    for s in b.body.iter().cloned() {
        if !matches!(&s, Stmt::Load { operand, .. } if *operand == read) {
            k.body.push(n.statement(s)?);
        }
    }
    let contracts = k.body.iter().any(|s| matches!(s, Stmt::Contract { .. }));
    let folds = k.body.iter().any(|s| matches!(s, Stmt::Fold { .. }));
    k.family = match (contracts, folds) {
        (true, _) if FACTORED.contains(&b.family) => b.family,
        (true, _) => k.family,
        (false, true) => Family::Row,
        (false, false) => Family::Map,
    };
    Some((k, n.kept))
}

/// `name`, or another that begins so and is none of `taken`.
fn unique<'a>(name: &str, taken: impl Iterator<Item = &'a str>) -> String {
    let taken: BTreeSet<&str> = taken.inserted();
    let mut out = name.to_string();
    while taken.contains(out.as_str()) {
        out.push('_');
    }
    out
}
