//! Other fusions of a program: kernels cut in two, with what goes from one to the other in memory.
//!
//! The rule that makes a program (`fuse`) knows no machine and puts together what can be. Apart, the two
//! parts may be cut into tasks each in its own way: a sum over few long rows keeps few workers busy, what
//! is computed for it element by element keeps all of them. A cut is made between statements, so that
//! program and kernels stay what every reader knows; it shares values, inputs, outputs and constants with
//! the program that it is a cut of.
use crate::kernels::simplify::{remove_axis, simplify};
use expr::{ExprBuilder, Inst};
use kernel::{
    Access, AxisId, Family, Kernel, Operand, OperandId, Role, Stmt, Term, Tile, TileId, TileIds,
};
use layout::{Dim, Inserted, Layout};
use plan::{Fate, Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin};
use std::collections::BTreeSet;
use std::sync::Arc;

/// An item in two.
#[derive(Clone, Debug)]
pub struct ItemSplit {
    first: (Kernel, Vec<Arg>),
    rest: (Kernel, Vec<Arg>),
    /// What goes from the first to the rest.
    tile: Tile,
    shape: Vec<Dim>,
}

/// The value of an operand of a part.
#[derive(Clone, Copy, Debug)]
enum Arg {
    /// That of the whole kernel's operand.
    ValueUses(OperandId),
    /// What goes from the first part to the rest.
    Between,
}

/// The ways to cut `kernel`; none for kernels whose statements depend on each other position by position.
pub fn partings(kernel: &Kernel) -> Vec<ItemSplit> {
    let families = [
        Family::Contract,
        Family::Conv,
        Family::Map,
        Family::Row,
        Family::Pool,
    ];
    let whole = |s: &Stmt| match s {
        Stmt::Fold { rescale, .. } => rescale.is_none(),
        Stmt::Relabel { along, .. } => along.is_none(),
        _ => true,
    };
    if !families.contains(&kernel.family) || !kernel.body.iter().all(whole) {
        return Vec::new();
    }
    let mut out: Vec<ItemSplit> = (1..kernel.body.len())
        .filter_map(|at| parting(kernel, at))
        .collect();
    for at in 0..kernel.body.len() {
        if let Some(k) = exposed(kernel, at) {
            out.extend(parting(&k, at + 1));
        }
    }
    out
}

/// The kernel in which what fold `at` does to each element is a map of its own, if that is anything.
fn exposed(kernel: &Kernel, at: usize) -> Option<Kernel> {
    let Stmt::Fold {
        monoid,
        state,
        args,
        over,
        rescale: None,
    } = &kernel.body[at]
    else {
        return None;
    };
    let ([state], [_], &first) = (
        state.as_slice(),
        monoid.lift.outputs.as_slice(),
        args.first()?,
    ) else {
        return None;
    };
    let free = monoid.lift.counts().iter().all(|(_, n)| *n == 0);
    let places = |i: &Inst| matches!(i, Inst::Index { .. });
    let wide = &kernel.tiles[first as usize].axes;
    let inside = |t: &TileId| {
        let axes = &kernel.tiles[*t as usize].axes;
        axes.iter().all(|a| wide.contains(a))
    };
    if free || monoid.lift.insts.iter().any(places) || !args.iter().all(inside) {
        return None;
    }
    let dtype = kernel.tiles[*state as usize].dtype;
    let mut k = kernel.clone();
    let dst = k.tiles.len() as TileId;
    k.tiles.push(Tile {
        name: unique("element", kernel.tiles.iter().map(|t| t.name.as_str())),
        dtype,
        axes: wide.clone(),
    });
    let mut b = ExprBuilder::new();
    let same = b.input(0, dtype);
    let mut own = monoid.clone();
    own.lift = b.finish(&[same]);
    k.body[at] = Stmt::Fold {
        monoid: own,
        state: vec![*state],
        args: vec![dst],
        over: over.clone(),
        rescale: None,
    };
    let map = Stmt::Map {
        dst,
        expr: monoid.lift.clone(),
        args: args.clone(),
    };
    k.body.insert(at, map);
    Some(k)
}

/// A name that none of `taken` is.
fn unique<'a>(name: &str, taken: impl Iterator<Item = &'a str>) -> String {
    let taken: BTreeSet<&str> = taken.inserted();
    let mut out = name.to_string();
    while taken.contains(out.as_str()) {
        out.push('_');
    }
    out
}

/// Whether a statement only brings a tile: both parts may do that.
fn brings(s: &Stmt) -> bool {
    match s {
        Stmt::Load { .. } => true,
        Stmt::Map { args, expr, .. } => {
            args.is_empty() && !expr.insts.iter().any(|i| matches!(i, Inst::Index { .. }))
        }
        _ => false,
    }
}

/// `kernel` with the work of its statements before `at` in one part and that of the others in another;
/// `None` unless exactly one whole tile goes from one to the other.
fn parting(kernel: &Kernel, at: usize) -> Option<ItemSplit> {
    if brings(kernel.body.get(at)?) {
        return None;
    }
    let works = |i: &usize| !brings(&kernel.body[*i]);
    let first: Vec<usize> = (0..at).filter(works).collect();
    let rest: Vec<usize> = (at..kernel.body.len()).filter(works).collect();
    let made: BTreeSet<TileId> = first
        .iter()
        .flat_map(|&i| kernel.body[i].writes())
        .inserted();
    let of_rest = |f: &dyn Fn(&Stmt) -> TileIds| -> BTreeSet<TileId> {
        rest.iter().flat_map(|&i| f(&kernel.body[i])).inserted()
    };
    let (reads, writes) = (of_rest(&Stmt::reads), of_rest(&Stmt::writes));
    let mut crossing = made
        .iter()
        .filter(|t| reads.contains(t) || writes.contains(t));
    let &tile = crossing.next()?;
    if crossing.next().is_some() || writes.contains(&tile) {
        return None;
    }
    let between = kernel.tiles[tile as usize].clone();
    if between.dtype.bits() < 8 || between.dtype.is_held() {
        return None;
    }
    let shape: Vec<Dim> = between
        .axes
        .iter()
        .map(|&a| kernel.axes[a as usize].extent.clone())
        .collect();
    Some(ItemSplit {
        first: part(kernel, &first, tile, Role::Write)?,
        rest: part(kernel, &rest, tile, Role::Read)?,
        tile: between,
        shape,
    })
}

/// The part of `kernel` that does the statements `work` and writes or reads `tile` besides.
fn part(kernel: &Kernel, work: &[usize], tile: TileId, role: Role) -> Option<(Kernel, Vec<Arg>)> {
    let given = (role == Role::Read).then_some(tile);
    // What its work needs and does not make, from whatever brings it.
    let mut needed: BTreeSet<TileId> = BTreeSet::new();
    let mut made: BTreeSet<TileId> = given.into_iter().inserted();
    for &i in work {
        let s = &kernel.body[i];
        needed.extend(s.reads().into_iter().filter(|t| !made.contains(t)));
        made.extend(s.writes());
    }
    let mut body: Vec<Stmt> = Vec::new();
    for (i, s) in kernel.body.iter().enumerate() {
        let brought = brings(s) && s.writes().iter().any(|t| needed.contains(t));
        if brought || work.contains(&i) {
            body.push(s.clone());
        }
    }
    for t in &needed {
        let once = |s: &&Stmt| brings(s) && s.writes().contains(t);
        if body.iter().filter(once).count() != 1 {
            return None;
        }
    }
    let mut k = kernel.clone();
    let own = kernel.operands.len() as OperandId;
    k.operands.push(between(kernel, tile, role));
    match role {
        Role::Read => body.insert(
            0,
            Stmt::Load {
                dst: tile,
                operand: own,
            },
        ),
        Role::Write => body.push(Stmt::Store {
            operand: own,
            src: tile,
        }),
    }
    k.body = body;
    k.family = family(kernel, &k.body);
    let args = drop_operands(&mut k);
    let args = args
        .into_iter()
        .map(|o| match o == own {
            true => Arg::Between,
            false => Arg::ValueUses(o),
        })
        .collect();
    drop_axes(&mut k);
    let k = simplify(k);
    k.verify().ok()?;
    Some((k, args))
}

/// The operand by which `tile` goes from one part to the other: dense, the tile's last axis innermost.
fn between(kernel: &Kernel, tile: TileId, role: Role) -> Operand {
    let t = &kernel.tiles[tile as usize];
    let extent = |a: AxisId| kernel.axes[a as usize].extent.clone();
    let mut stride = Dim::ONE;
    let mut terms: Vec<Term> = Vec::new();
    for &a in t.axes.iter().rev() {
        terms.insert(0, Term::flat(a, extent(a), stride.clone()));
        stride = stride * extent(a);
    }
    let name = unique("between", kernel.operands.iter().map(|o| o.name.as_str()));
    Operand::new(
        &name,
        t.dtype,
        role,
        Access::strided(Dim::ZERO, terms),
        stride,
    )
}

/// What kind of loop nest statements of `kernel` are by themselves.
fn family(kernel: &Kernel, body: &[Stmt]) -> Family {
    let contracts = |b: &[Stmt]| b.iter().any(|s| matches!(s, Stmt::Contract { .. }));
    let folds = body.iter().any(|s| matches!(s, Stmt::Fold { .. }));
    match (contracts(body), folds) {
        (true, _) => kernel.family,
        (false, true) if contracts(&kernel.body) => Family::Row,
        (false, true) => kernel.family,
        (false, false) => Family::Map,
    }
}

/// Drops operands that nothing loads, stores or goes by; gives the old numbers of those that stay.
fn drop_operands(k: &mut Kernel) -> Vec<OperandId> {
    let mut used: BTreeSet<OperandId> = BTreeSet::new();
    for s in &k.body {
        if let Stmt::Load { operand, .. } | Stmt::Store { operand, .. } = s {
            used.insert(*operand);
        }
    }
    // Indices come before what they are for.
    for o in (0..k.operands.len() as OperandId).rev() {
        if used.contains(&o) {
            used.extend(k.operands[o as usize].access.indexed.iter().map(|i| i.by));
        }
    }
    let kept: Vec<OperandId> = used.into_iter().collect();
    let to = |o: OperandId| kept.binary_search(&o).unwrap_or(0) as OperandId;
    let mut operands: Vec<Operand> = kept
        .iter()
        .map(|&o| k.operands[o as usize].clone())
        .collect();
    for i in operands.iter_mut().flat_map(|o| &mut o.access.indexed) {
        i.by = to(i.by);
    }
    k.operands = operands;
    for s in &mut k.body {
        if let Stmt::Load { operand, .. } | Stmt::Store { operand, .. } = s {
            *operand = to(*operand);
        }
    }
    kept
}

/// Drops axes that no tile has that a statement names, and no operand that stays.
fn drop_axes(k: &mut Kernel) {
    let mut used: BTreeSet<AxisId> = BTreeSet::new();
    for s in &k.body {
        for t in s.reads().into_iter().chain(s.writes()) {
            used.extend(&k.tiles[t as usize].axes);
        }
        if let Stmt::Map { expr, .. } = s {
            for i in &expr.insts {
                if let Inst::Index { axis } = i {
                    used.insert(*axis as AxisId);
                }
            }
        }
    }
    for a in k.operands.iter().map(|o| &o.access) {
        used.extend(a.terms.iter().map(|t| t.axis));
        used.extend(a.bounds.iter().flat_map(|b| &b.terms).map(|t| t.0));
    }
    for a in (0..k.axes.len() as AxisId).rev() {
        if !used.contains(&a) {
            remove_axis(k, a);
        }
    }
}

impl ItemSplit {
    /// `item`, whose kernel this is a parting of, in two, with `value` between them.
    pub(crate) fn items(&self, item: &Item, value: ValueIx) -> Option<[Item; 2]> {
        let ItemWork::Kernel { args: whole, .. } = &item.work else {
            return None;
        };
        // What its text says of how it runs is said of the whole.
        if item.given.is_some() {
            return None;
        }
        let of = |(k, args): &(Kernel, Vec<Arg>), which: u32| -> Option<Item> {
            let args: Option<Vec<ValueIx>> = args
                .iter()
                .map(|a| match a {
                    Arg::ValueUses(o) => whole.get(*o as usize).copied(),
                    Arg::Between => Some(value),
                })
                .collect();
            let name = part_name(&item.name, which);
            let mut kernel = k.clone();
            kernel.name.clone_from(&name);
            Some(Item {
                name,
                work: ItemWork::Kernel {
                    kernel: Arc::new(kernel),
                    args: args?,
                },
                nodes: item.nodes.clone(),
                given: None,
            })
        };
        Some([of(&self.first, 1)?, of(&self.rest, 2)?])
    }

    /// What lies between the parts of `item`.
    pub(crate) fn value(&self, item: &Item) -> ProgramValue {
        ProgramValue {
            name: format!("{}.{}", item.name, self.tile.name),
            dtype: self.tile.dtype,
            shape: self.shape.clone(),
            layout: Layout::row_major(&self.shape, 1),
            storage: Dim::product(&self.shape),
            origin: ValueOrigin::Made,
        }
    }

    /// For people: where it is cut.
    pub fn what(&self) -> String {
        format!("behind '{}'", self.tile.name)
    }
}

/// Name of a part of an item.
fn part_name(item: &str, which: u32) -> String {
    format!("{item} ({which} of 2)")
}

/// `program` with some items of its segments in two: (segment, item, how). Values, inputs and outputs keep
/// their numbers.
pub fn apart(program: &Program, how: &[(usize, usize, &ItemSplit)]) -> Program {
    let mut out = program.clone();
    for (s, segment) in out.segments.iter_mut().enumerate() {
        let Segment::Straight(items) = segment else {
            continue;
        };
        let mut all = Vec::with_capacity(items.len());
        for (i, item) in items.drain(..).enumerate() {
            let value = out.values.len() as ValueIx;
            let found = how.iter().find(|h| (h.0, h.1) == (s, i));
            let Some((p, parts)) = found.and_then(|h| Some((h.2, h.2.items(&item, value)?))) else {
                all.push(item);
                continue;
            };
            out.values.push(p.value(&item));
            for f in &mut out.fates {
                if let Fate::Items(names) = &mut f.fate
                    && let Some(at) = names.iter().position(|n| *n == item.name)
                {
                    names.splice(at..=at, parts.iter().map(|p| p.name.clone()));
                }
            }
            all.extend(parts);
        }
        *items = all;
    }
    out
}
