//! Other layouts of activations: values of a region of a program whose elements lie in another order, or in
//! blocks, with every kernel that touches them going by the new strides.
//!
//! Lowering gives each value a layout by rule, before anything is known of the machine. A value that only
//! kernels touch may lie in any order: each of their addresses is a sum of coordinates along the value's
//! dimensions times strides, and where the coordinates are found, and proved to stay inside their
//! dimensions, other strides give the same element. Kernels that take elements one by one have the values
//! on both sides in one order, or they would turn them: such values change together, as a region.
use crate::join::split_axis;
use crate::kernels::simplify::simplify;
use kernel::{Access, AxisId, Family, Kernel, OperandId, Term};
use layout::{Dim, Layout, Leaf, Mode};
use plan::{Item, ItemWork, Program, ProgramValue, Segment, ValueIx, ValueOrigin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Rounds of cutting axes before a kernel is given up.
const CUTS: usize = 16;

/// An order in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The innermost dimension goes behind the outermost one: of channels-last, row-major.
    InnerForward,
    /// The dimension behind the outermost one goes innermost: of row-major, channels-last.
    SecondInner,
    /// The innermost dimension in blocks of so many, which go behind the outermost dimension.
    InnerBlocked(i64),
    /// The dimension behind the outermost one in blocks of so many, which stay, each block innermost.
    SecondBlocked(i64),
}

/// Values that change together, and the items that touch them.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub values: Vec<ValueIx>,
    pub segment: usize,
    /// Places of the items in their segment.
    pub items: Vec<usize>,
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
pub(crate) fn regions(program: &Program) -> Vec<Region> {
    let mut home: BTreeMap<ValueIx, usize> = BTreeMap::new();
    let mut fixed: BTreeSet<ValueIx> = program.outputs.iter().map(|o| o.1).collect();
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

/// The parts of `v`, innermost first as it lies, with their strides in the order `how`; and its new layout.
fn ordered(v: &ProgramValue, how: Order) -> Option<(Vec<Part>, Layout)> {
    let mut parts = chain(v)?;
    let n = parts.len();
    if n < 2 {
        return None;
    }
    let block = |parts: &mut Vec<Part>, at: usize, b: i64| -> Option<()> {
        let p = parts[at].clone();
        let all = p.extent.known()?;
        if b < 2 || all <= b || all % b != 0 {
            return None;
        }
        parts[at].extent = Dim::Known(b);
        let outer = Part {
            extent: Dim::Known(all / b),
            old: p.old.clone() * Dim::Known(b),
            ..p
        };
        parts.insert(at + 1, outer);
        Some(())
    };
    // Numbers of parts in memory, innermost first.
    let memory: Vec<usize> = match how {
        Order::InnerForward => (1..n - 1).chain([0, n - 1]).collect(),
        Order::SecondInner if n > 2 => [n - 2].into_iter().chain(0..n - 2).chain([n - 1]).collect(),
        Order::InnerBlocked(b) if n > 2 => {
            block(&mut parts, 0, b)?;
            // The block, the dimensions between, the blocks, the outermost.
            [0].into_iter().chain(2..n).chain([1, n]).collect()
        }
        Order::SecondBlocked(b) if n > 2 => {
            block(&mut parts, n - 2, b)?;
            [n - 2]
                .into_iter()
                .chain(0..n - 2)
                .chain([n - 1, n])
                .collect()
        }
        _ => return None,
    };
    let memory = match (how, n) {
        (Order::InnerForward, 2) => vec![1, 0],
        _ => memory,
    };
    let mut stride = Dim::ONE;
    for &i in &memory {
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
    (layout != v.layout).then_some((parts, layout))
}

/// In what order the dimensions of `v` lie, for people.
fn said(v: &ProgramValue, how: Order) -> Option<String> {
    let (mut parts, _) = ordered(v, how)?;
    let rank = v.shape.len();
    // Strides of known sizes or not: each is a product of the extents inside it.
    let inside = |p: &Part| {
        parts
            .iter()
            .filter(|q| p.new.exact_div(&q.new).is_some())
            .count()
    };
    let mut keys: Vec<(usize, usize)> = parts.iter().map(|p| (inside(p), p.dim)).collect();
    let blocked = matches!(how, Order::InnerBlocked(_) | Order::SecondBlocked(_));
    keys.sort_by(|a, b| b.cmp(a));
    parts.clear();
    let order: Vec<usize> = keys.into_iter().map(|k| k.1).collect();
    let last: Vec<usize> = [0].into_iter().chain(2..rank).chain([1]).collect();
    let dims = order
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    Some(match how {
        Order::InnerBlocked(b) | Order::SecondBlocked(b) if blocked => {
            format!("in blocks of {b} (dimensions {dims})")
        }
        _ if order.is_sorted() => "row-major".into(),
        _ if rank > 2 && order == last => "channels-last".into(),
        _ => format!("in the order {dims} of its dimensions"),
    })
}

/// `program` with the values of `region` in the order `how`, and what that is for people; `None` where one
/// of the kernels has an address that cannot follow, or nothing would change.
pub(crate) fn relaid(program: &Program, region: &Region, how: Order) -> Option<(Program, String)> {
    let mut out = program.clone();
    let mut parts: BTreeMap<ValueIx, Vec<Part>> = BTreeMap::new();
    for &v in &region.values {
        let (p, layout) = ordered(program.value(v), how)?;
        out.values[v as usize].layout = layout;
        parts.insert(v, p);
    }
    let Some(Segment::Straight(items)) = out.segments.get_mut(region.segment) else {
        return None;
    };
    for &i in &region.items {
        let item: &mut Item = items.get_mut(i)?;
        let ItemWork::Kernel { kernel, args } = &mut item.work else {
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
        *kernel = Arc::new(k);
    }
    let said = said(program.value(*region.values.first()?), how)?;
    Some((out, said))
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
                next.terms.sort_by_key(|t| t.axis);
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
    let mut sum = Dim::ZERO;
    for (p, a_) in parts.iter().zip(&mut along) {
        let sorted = |l: &[(AxisId, Dim)]| {
            let mut l = l.to_vec();
            l.sort_by_key(|t| t.0);
            l
        };
        let own = sorted(&a_.terms);
        let bound = a.bounds.iter().find(|b| {
            let many = |t: &&(AxisId, Dim)| !k.axes[t.0 as usize].extent.is_one();
            let terms: Vec<(AxisId, Dim)> = b.terms.iter().filter(many).cloned().collect();
            !own.is_empty() && sorted(&terms) == own
        });
        // What is outside the bound is no element.
        if let Some(b) = bound {
            a_.base = b.base.clone();
            if !b.extent.provably_le(&p.extent) {
                return None;
            }
        } else {
            let mut top = Dim::ONE;
            for (axis, q) in &own {
                let extent = k.axes[*axis as usize].extent.clone();
                if q.known().is_none_or(|q| q < 0) {
                    return None;
                }
                top = top + q.clone() * (extent - Dim::ONE);
            }
            if !top.provably_le(&p.extent) {
                return None;
            }
        }
        sum = sum + a_.base.clone() * p.old.clone();
    }
    (sum == a.offset).then_some(Placed::At(along))
}
