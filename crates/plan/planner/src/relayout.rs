//! Other layouts of activations: values of a region of a program whose elements lie in another order, or in
//! blocks, with every kernel that touches them going by the new strides.
//!
//! Lowering gives each value a layout by rule, before anything is known of the machine. A value that only
//! kernels touch may lie in any order: each of their addresses is a sum of coordinates along the value's
//! dimensions times strides, and where the coordinates are found, and proved to stay inside their
//! dimensions, other strides give the same element. Kernels that take elements one by one have the values
//! on both sides in one order, or they would turn them: such values change together, as a region.
use crate::kernels::simplify::simplify;
use crate::merge::split_axis;
use kernel::{Access, AxisId, Family, Kernel, OperandId, Stmt, Term};
use layout::{Arrange, Inserted};
use layout::{Dim, Layout, Leaf, Mode};
use plan::{Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rounds of cutting axes before a kernel is given up.
const CUTS: usize = 16;

/// An order in memory, said by dimensions and not by how a value lies: a dimension of one position, as a
/// batch often is, is in nobody's way then, and of values that lie differently all come to lie alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The last dimension innermost.
    RowMajor,
    /// The second dimension innermost, the others in their order: of pictures, channels-last.
    SecondInner,
    /// The last two dimensions in each other's place: of matrices, column by column.
    LastTurned,
    /// The second and the third dimension in each other's place: of heads, positions first.
    SecondLater,
    /// The second dimension in blocks of so many, each block innermost.
    SecondBlocked(i64),
    /// The last dimension in blocks of so many, each block innermost and the blocks behind the first
    /// dimension; behind none where there are two.
    LastBlocked(i64),
}

/// Which part of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    ValueUses,
    Blocks,
    Block,
}

impl Order {
    /// All that are worth a look where a vector has so many `lanes`.
    pub fn all(lanes: i64) -> [Order; 6] {
        [
            Order::RowMajor,
            Order::SecondInner,
            Order::LastTurned,
            Order::SecondLater,
            Order::SecondBlocked(lanes),
            Order::LastBlocked(lanes),
        ]
    }

    /// The dimension that is cut into blocks, and their size.
    fn block(self, rank: usize) -> Option<(usize, i64)> {
        match self {
            Order::SecondBlocked(b) => Some((1, b)),
            Order::LastBlocked(b) => Some((rank - 1, b)),
            _ => None,
        }
    }

    /// Dimensions, or parts of them, outermost first; `None` where there are too few for this order, or
    /// where it is another one of the same rank.
    fn of(self, rank: usize) -> Option<Vec<(usize, Which)>> {
        let whole = |l: Vec<usize>| {
            l.into_iter()
                .map(|d| (d, Which::ValueUses))
                .collect::<Vec<_>>()
        };
        Some(match self {
            Order::RowMajor => whole((0..rank).collect()),
            Order::SecondInner if rank > 2 => {
                whole([0].into_iter().chain(2..rank).chain([1]).collect())
            }
            Order::LastTurned if rank == 2 || rank > 3 => {
                whole((0..rank - 2).chain([rank - 1, rank - 2]).collect())
            }
            Order::SecondLater if rank > 3 => whole([0, 2, 1].into_iter().chain(3..rank).collect()),
            Order::SecondBlocked(_) if rank > 2 => {
                let mut l = whole([0, 1].into_iter().chain(2..rank).chain([1]).collect());
                (l[1].1, l[rank].1) = (Which::Blocks, Which::Block);
                l
            }
            Order::LastBlocked(_) if rank > 1 => {
                let last = rank - 1;
                let first: Vec<usize> = if rank > 2 { vec![0] } else { vec![] };
                let at = first.len();
                let between = at..last;
                let mut l = whole(
                    first
                        .into_iter()
                        .chain([last])
                        .chain(between)
                        .chain([last])
                        .collect(),
                );
                (l[at].1, l[rank].1) = (Which::Blocks, Which::Block);
                l
            }
            _ => return None,
        })
    }
}

/// Values that change together, and the items that touch them.
#[derive(Clone, Debug)]
pub struct Region {
    /// The values.
    pub values: Vec<ValueIx>,
    pub(crate) segment: usize,
    /// Places of the items in their segment.
    pub(crate) items: Vec<usize>,
}

/// A dimension of a value, or a part of one that is cut into blocks.
#[derive(Clone, Debug)]
struct Part {
    dim: usize,
    extent: Dim,
    old: Dim,
    new: Dim,
}

/// The regions of `program`: values that only kernels of one segment touch.
pub fn regions(program: &Program) -> Vec<Region> {
    let mut home: BTreeMap<ValueIx, usize> = BTreeMap::new();
    let mut fixed: BTreeSet<ValueIx> = program.outputs.iter().map(|o| o.1).inserted();
    fixed.extend(&program.passed);
    for (s, segment) in program.segments.iter().enumerate() {
        if !matches!(segment, Segment::Straight(_)) {
            fixed.extend(program.segment_reads(s));
        }
        for item in segment.items() {
            let touched = item.reads().into_iter().chain(item.writes());
            let ours = matches!(segment, Segment::Straight(_))
                && matches!(item.work, ItemWork::Kernel { .. })
                && item.given.is_none();
            for v in touched {
                if !ours || *home.entry(v).or_insert(s) != s {
                    fixed.insert(v);
                }
            }
        }
    }
    let free = |v: ValueIx| {
        let value = program.value(v);
        let known = value.origin == ValueOrigin::Made && !fixed.contains(&v);
        known && chain(value).is_some_and(|c| c.len() > 1)
    };
    let mut out: Vec<Region> = vec![];
    let mut seen: BTreeSet<ValueIx> = BTreeSet::new();
    for (&v, &segment) in &home {
        if !free(v) || !seen.insert(v) {
            continue;
        }
        let items = program.segments[segment].items();
        let (mut values, mut at, mut left) = (vec![v], BTreeSet::new(), vec![v]);
        while let Some(v) = left.pop() {
            for (i, item) in items.iter().enumerate() {
                let touched: Vec<ValueIx> = item.reads().into_iter().chain(item.writes()).collect();
                if !touched.contains(&v) {
                    continue;
                }
                at.insert(i);
                let ItemWork::Kernel { kernel, .. } = &item.work else {
                    continue;
                };
                let each = [Family::Map, Family::Move, Family::Pool];
                if !each.contains(&kernel.family) {
                    continue;
                }
                let rank = program.value(v).shape.len();
                for w in touched {
                    if free(w) && program.value(w).shape.len() == rank && seen.insert(w) {
                        values.push(w);
                        left.push(w);
                    }
                }
            }
        }
        out.push(Region {
            values,
            segment,
            items: at.into_iter().collect(),
        });
    }
    out
}

/// Dimensions of more than one position, innermost in memory first; `None` unless they lie densely.
fn chain(v: &ProgramValue) -> Option<Vec<Part>> {
    if v.storage != Dim::product(&v.shape) || !v.layout.offset.is_zero() {
        return None;
    }
    let mut left: Vec<Part> = vec![];
    for (dim, m) in v.layout.modes.iter().enumerate() {
        let [l] = m.leaves.as_slice() else {
            return None;
        };
        if !l.extent.is_one() {
            left.push(Part {
                dim,
                extent: l.extent.clone(),
                old: l.stride.clone(),
                new: Dim::ZERO,
            });
        }
    }
    let (mut inner, mut out) = (Dim::ONE, vec![]);
    while !left.is_empty() {
        let at = left.iter().position(|p| p.old == inner)?;
        let p = left.remove(at);
        inner = inner * p.extent.clone();
        out.push(p);
    }
    Some(out)
}

/// The parts of `v`, innermost first as it lies, with their strides in the order `how`; and its layout then,
/// which may be the one that it has.
fn ordered(v: &ProgramValue, how: Order) -> Option<(Vec<Part>, Layout)> {
    let rank = v.shape.len();
    let mut parts = chain(v)?;
    let memory = how.of(rank)?;
    let cut = how.block(rank);
    if let Some((dim, b)) = cut {
        let at = parts.iter().position(|p| p.dim == dim)?;
        let all = parts[at].extent.known()?;
        if b < 2 || all <= b || all % b != 0 {
            return None;
        }
        let blocks = Part {
            extent: Dim::Known(all / b),
            old: parts[at].old.clone() * Dim::Known(b),
            ..parts[at].clone()
        };
        parts[at].extent = Dim::Known(b);
        parts.insert(at + 1, blocks);
    }
    let mut stride = Dim::ONE;
    for (dim, which) in memory.into_iter().rev() {
        // The block of a dimension comes before its blocks.
        let mut own = (0..parts.len()).filter(|&i| parts[i].dim == dim);
        let i = match which {
            Which::ValueUses | Which::Block => own.next(),
            Which::Blocks => own.nth(1),
        };
        // A dimension of one position has no part.
        let Some(i) = i else { continue };
        parts[i].new = stride.clone();
        stride = stride * parts[i].extent.clone();
    }
    let mut layout = v.layout.clone();
    for (dim, m) in layout.modes.iter_mut().enumerate() {
        let own = parts.iter().rev().filter(|p| p.dim == dim);
        let leaves: Vec<Leaf> = own
            .map(|p| Leaf {
                extent: p.extent.clone(),
                stride: p.new.clone(),
            })
            .collect();
        if !leaves.is_empty() {
            *m = Mode { leaves };
        }
    }
    Some((parts, layout))
}

/// The order `how` of a value of so many dimensions, for people.
fn said(rank: usize, how: Order) -> String {
    let order = how.of(rank).unwrap_or_default();
    let dims: Vec<String> = order.iter().map(|d| d.0.to_string()).collect();
    let dims = dims.join(", ");
    match (how, how.block(rank)) {
        (_, Some((_, b))) => format!("in blocks of {b} (dimensions {dims})"),
        (Order::RowMajor, _) => "row-major".into(),
        (Order::SecondInner, _) => "channels-last".into(),
        _ => format!("in the order {dims} of its dimensions"),
    }
}

/// What a region's other order changes in a program.
#[derive(Clone, Debug)]
pub struct Relayout {
    layouts: Vec<(ValueIx, Layout)>,
    segment: usize,
    kernels: Vec<(usize, Arc<Kernel>)>,
    /// The order, for people.
    pub said: String,
}

impl Relayout {
    /// Has `program` as it says, and itself as the program was: again, and both are as before.
    pub fn swap(&mut self, program: &mut Program) {
        for (v, layout) in &mut self.layouts {
            std::mem::swap(&mut program.values[*v as usize].layout, layout);
        }
        let Some(Segment::Straight(items)) = program.segments.get_mut(self.segment) else {
            return;
        };
        for (i, new) in &mut self.kernels {
            if let Some(ItemWork::Kernel { kernel, .. }) = items.get_mut(*i).map(|i| &mut i.work) {
                std::mem::swap(kernel, new);
            }
        }
    }
}

/// How the values of `region` come to lie in the order `how`; `None` where one of the kernels has an address
/// that cannot follow, or nothing would change.
pub fn relaid(program: &Program, region: &Region, how: Order) -> Option<Relayout> {
    let mut layouts = vec![];
    let mut parts: BTreeMap<ValueIx, Vec<Part>> = BTreeMap::new();
    for &v in &region.values {
        let (p, layout) = ordered(program.value(v), how)?;
        // One that lies so already stays, and the others come to lie as it does.
        if layout != program.value(v).layout {
            layouts.push((v, layout));
            parts.insert(v, p);
        }
    }
    if parts.is_empty() {
        return None;
    }
    let Some(Segment::Straight(items)) = program.segments.get(region.segment) else {
        return None;
    };
    let mut kernels = vec![];
    for &i in &region.items {
        let ItemWork::Kernel { kernel, args } = &items.get(i)?.work else {
            return None;
        };
        let mut k = Kernel::clone(kernel);
        for (o, v) in args.iter().enumerate() {
            if let Some(p) = parts.get(v) {
                k = follow(k, o as OperandId, p)?;
            }
        }
        let k = simplify(k);
        if k.operands.len() != args.len() || k.verify().is_err() {
            return None;
        }
        kernels.push((i, Arc::new(k)));
    }
    let rank = program.value(*region.values.first()?).shape.len();
    Some(Relayout {
        layouts,
        segment: region.segment,
        kernels,
        said: said(rank, how),
    })
}

/// `items` without those that copy a value of `program` to one of `free` as it lies: who reads the copy
/// reads the value. What a region's other order makes of a step that turned something is such a copy.
/// `free` are values that these items alone touch. With the names of what is gone.
pub fn without_copies(
    program: &Program,
    items: &[Item],
    free: &BTreeSet<ValueIx>,
) -> (Vec<Item>, Vec<String>) {
    let (mut out, mut gone) = (items.to_vec(), vec![]);
    let mut i = 0;
    while i < out.len() {
        match copied(program, &out, i, free) {
            Some((from, to)) => {
                gone.push(out.remove(i).name);
                for item in &mut out[i..] {
                    if let ItemWork::Kernel { args, .. } = &mut item.work {
                        args.iter_mut()
                            .filter(|a| **a == to)
                            .for_each(|a| *a = from);
                    }
                }
            }
            None => i += 1,
        }
    }
    (out, gone)
}

/// What item `i` copies and where to, if it does nothing else and the copy may be missing.
fn copied(
    program: &Program,
    items: &[Item],
    i: usize,
    free: &BTreeSet<ValueIx>,
) -> Option<(ValueIx, ValueIx)> {
    let ItemWork::Kernel { kernel, args } = &items[i].work else {
        return None;
    };
    let (
        [
            Stmt::Load { dst, operand: a },
            Stmt::Store { src, operand: b },
        ],
        2,
        None,
    ) = (
        kernel.body.as_slice(),
        kernel.operands.len(),
        &items[i].given,
    )
    else {
        return None;
    };
    let (from, to) = (*args.get(*a as usize)?, *args.get(*b as usize)?);
    let (read, write) = (
        kernel.operands.get(*a as usize)?,
        kernel.operands.get(*b as usize)?,
    );
    let (v, w) = (program.value(from), program.value(to));
    let asked = matches!(v.origin, ValueOrigin::Made | ValueOrigin::Input(_)) && free.contains(&to);
    let plain = read.access == write.access && dense(kernel, &read.access)? == w.storage;
    if dst != src || !asked || !plain || v.storage != w.storage || v.dtype != w.dtype {
        return None;
    }
    // Nobody else writes the copy, and nobody who reads it reads the value too: a kernel's operands are
    // different values. The value is whole when it is copied, and made once.
    let others = items.iter().enumerate().filter(|o| o.0 != i);
    for (j, o) in others {
        let (reads, writes) = (o.reads(), o.writes());
        let both = reads.contains(&to) && reads.contains(&from);
        if writes.contains(&to) || both || (j > i && writes.contains(&from)) {
            return None;
        }
    }
    Some((from, to))
}

/// How many elements the axes of `k` reach by this access, where they lie side by side from the first.
fn dense(k: &Kernel, a: &Access) -> Option<Dim> {
    if !a.bounds.is_empty() || !a.indexed.is_empty() || !a.offset.is_zero() {
        return None;
    }
    let mut left: Vec<&Term> = a.terms.iter().collect();
    left.retain(|t| !k.axes[t.axis as usize].extent.is_one());
    let mut inner = Dim::ONE;
    while !left.is_empty() {
        let at = left.iter().position(|t| t.stride() == Some(&inner))?;
        let t = left.remove(at);
        inner = inner * k.axes[t.axis as usize].extent.clone();
    }
    Some(inner)
}

/// Where a coordinate of an address goes along a dimension.
struct Along {
    terms: Vec<(AxisId, Dim)>,
    base: Dim,
}

impl Along {
    fn none() -> Along {
        Along {
            terms: vec![],
            base: Dim::ZERO,
        }
    }
}

/// `k` with operand `o` going by the new strides.
fn follow(mut k: Kernel, o: OperandId, parts: &[Part]) -> Option<Kernel> {
    for _ in 0..CUTS {
        match placed(&k, o, parts)? {
            Placed::Cut(axis, inner) => split_axis(&mut k, axis, &inner)?,
            Placed::At(along) => {
                let access = &mut k.operands[o as usize].access;
                let mut next = Access {
                    terms: vec![],
                    offset: Dim::ZERO,
                    ..access.clone()
                };
                for (p, a) in parts.iter().zip(&along) {
                    next.offset = next.offset + a.base.clone() * p.new.clone();
                    for (axis, q) in &a.terms {
                        let extent = k.axes[*axis as usize].extent.clone();
                        let stride = q.clone() * p.new.clone();
                        next.terms.push(Term::flat(*axis, extent, stride));
                    }
                }
                // Axes of one position lie anywhere.
                for t in &access.terms {
                    if !next.terms.iter().any(|n| n.axis == t.axis) {
                        next.terms.push(t.clone());
                    }
                }
                next.terms.arrange_by_key(|t| t.axis);
                *access = next;
                return Some(k);
            }
        }
    }
    None
}

/// What is known of an address.
enum Placed {
    /// An axis goes through a dimension and on along the next: it is cut at so many positions first.
    Cut(AxisId, Dim),
    /// Its coordinates along each part.
    At(Vec<Along>),
}

fn placed(k: &Kernel, o: OperandId, parts: &[Part]) -> Option<Placed> {
    let a = &k.operands[o as usize].access;
    if !a.indexed.is_empty() {
        return None;
    }
    let mut along: Vec<Along> = parts.iter().map(|_| Along::none()).collect();
    for t in &a.terms {
        let extent = &k.axes[t.axis as usize].extent;
        if extent.is_one() {
            continue;
        }
        let stride = t.stride()?;
        // The outermost part that the stride is a multiple of.
        let (i, q) = (0..parts.len())
            .rev()
            .find_map(|i| Some((i, stride.exact_div(&parts[i].old)?)))?;
        let p = &parts[i];
        let through = q.is_one() && i + 1 < parts.len() && *extent != p.extent;
        if through && extent.exact_div(&p.extent).is_some() {
            return Some(Placed::Cut(t.axis, p.extent.clone()));
        }
        along[i].terms.push((t.axis, q));
    }
    let sorted = |l: &[(AxisId, Dim)]| {
        let mut l = l.to_vec();
        l.arrange_by_key(|t| t.0);
        l
    };
    // What is outside a bound is no element, so that a coordinate with one is inside its dimension.
    let (mut rest, mut bound) = (a.offset.clone(), vec![false; parts.len()]);
    for ((p, a_), bound) in parts.iter().zip(&mut along).zip(&mut bound) {
        let own = sorted(&a_.terms);
        let found = a.bounds.iter().find(|b| {
            let many = |t: &&(AxisId, Dim)| !k.axes[t.0 as usize].extent.is_one();
            let terms: Vec<(AxisId, Dim)> = b.terms.iter().filter(many).cloned().collect();
            !own.is_empty() && sorted(&terms) == own
        });
        if let Some(b) = found {
            if !b.extent.provably_le(&p.extent) {
                return None;
            }
            a_.base = b.base.clone();
            rest = rest - b.base.clone() * p.old.clone();
            *bound = true;
        }
    }
    // The rest of the offset is where a part of the value begins, as of what is concatenated.
    for ((p, a_), bound) in parts.iter().zip(&mut along).zip(&bound).rev() {
        let whole = match (rest.known(), p.old.known()) {
            (Some(rest), Some(old)) if rest >= 0 => Dim::Known(rest / old),
            _ => rest.exact_div(&p.old).unwrap_or(Dim::ZERO),
        };
        if !*bound && !whole.is_zero() {
            rest = rest - whole.clone() * p.old.clone();
            a_.base = whole;
        }
    }
    for ((p, a_), _) in parts.iter().zip(&along).zip(&bound).filter(|x| !*x.1) {
        let mut top = a_.base.clone() + Dim::ONE;
        for (axis, q) in &a_.terms {
            let extent = k.axes[*axis as usize].extent.clone();
            if q.known().is_none_or(|q| q < 0) {
                return None;
            }
            top = top + q.clone() * (extent - Dim::ONE);
        }
        if !Dim::ZERO.provably_le(&a_.base) || !top.provably_le(&p.extent) {
            return None;
        }
    }
    rest.is_zero().then_some(Placed::At(along))
}
