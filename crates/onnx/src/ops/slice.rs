//! Slice: bounds as attributes before opset 10, as inputs since.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use expr::{Binary, Expr, Inst};
use graph::{Op, ValueId, View};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Slice", lower)];

/// Beyond this a bound means "to the end": exporters write it in many ways, and no dimension that
/// fits a machine's memory is longer.
const FAR: i64 = 1_000_000_000;

/// A bound counted from the start. Bounds of unknown sign are sizes, so not negative.
fn from_start(b: &Dim, d: &Dim) -> Dim {
    let negative = b.known().map_or_else(|| !b.provably_nonneg() && (-b.clone()).provably_nonneg(), |n| n < 0);
    if negative { d.clone() + b.clone() } else { b.clone() }
}

/// First coordinate and extent for step 1 and more.
pub(crate) fn forward(start: &Dim, end: &Dim, step: i64, d: &Dim) -> (Dim, Dim) {
    // A bound stated relative to the end of a symbolic dimension is taken to lie inside it:
    // a maximum with 0 would hide equal extents from one another.
    let clamp = |b: &Dim, low: bool| -> Dim {
        if b.known().is_some_and(|n| n >= FAR) {
            return d.clone();
        }
        if b.known().is_some_and(|n| n <= -FAR) {
            return Dim::ZERO;
        }
        let b = from_start(b, d);
        match (b.known(), d.known()) {
            (Some(b), Some(d)) => Dim::Known(b.clamp(0, d)),
            (Some(b), None) if b < 0 => Dim::ZERO,
            (Some(_), None) if low => b,
            _ if (d.clone() - b.clone()).provably_nonneg() => b,
            _ if low => b,
            _ if (b.clone() - d.clone()).known().is_some() && b.provably_le(d) => b,
            _ => b.min_with(d),
        }
    };
    let (s, e) = (clamp(start, true), clamp(end, false));
    let span = e.clone() - s.clone();
    let n = span.ceil_div(&Dim::Known(step));
    let n = match n.known() {
        Some(n) => Dim::Known(n.max(0)),
        None if e == *d || n.provably_nonneg() || !has_min(&e) => n,
        None => n.max_with(&Dim::ZERO),
    };
    (s, n)
}

fn has_min(d: &Dim) -> bool {
    d.terms().any(|(_, atoms)| atoms.iter().any(|a| matches!(a, layout::Atom::Min(..))))
}

/// First coordinate and extent for negative steps.
fn backward(start: &Dim, end: &Dim, step: i64, d: &Dim) -> (Dim, Dim) {
    let last = d.clone() - Dim::ONE;
    let s = match start.known() {
        Some(n) if n >= FAR => last.clone(),
        _ => {
            let s = from_start(start, d);
            match (s.known(), d.known()) {
                (Some(s), Some(d)) => Dim::Known(s.clamp(-1, d - 1)),
                _ if s.provably_le(&last) => s,
                _ => s.min_with(&last),
            }
        }
    };
    let minus = Dim::Known(-1);
    let e = match end.known() {
        Some(n) if n <= -FAR => minus,
        _ => {
            let e = from_start(end, d);
            match (e.known(), d.known()) {
                (Some(e), Some(d)) => Dim::Known(e.clamp(-1, d - 1)),
                (Some(e), None) => Dim::Known(e.max(-1)),
                _ => e,
            }
        }
    };
    let n = (s.clone() - e).ceil_div(&Dim::Known(step.saturating_neg()));
    (s, n.known().map_or(n, |n| Dim::Known(n.max(0))))
}

/// The longest chain of sums that is followed back.
const CHAIN: usize = 8;

/// What `e` adds to one of its inputs, and which; `None` where it does anything else.
fn sum(e: &Expr, numbers: &[Option<i64>]) -> Option<(usize, i64)> {
    let mut terms: Vec<Option<(Option<usize>, i64)>> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let at = |r: u32| terms.get(r as usize).copied().flatten();
        let t = match *inst {
            Inst::Input { slot, .. } => match numbers.get(slot as usize)? {
                Some(k) => Some((None, *k)),
                None => Some((Some(slot as usize), 0)),
            },
            Inst::Int { value, .. } => Some((None, value)),
            // Bounds are wide integers, or so small that no size is lost.
            Inst::Cast(a, to) if to.is_int() && to.bits() >= 32 => at(a),
            Inst::Binary(Binary::Add, a, b) => match (at(a)?, at(b)?) {
                ((s, p), (None, q)) | ((None, q), (s, p)) => Some((s, p.checked_add(q)?)),
                _ => None,
            },
            Inst::Binary(Binary::Sub, a, b) => match (at(a)?, at(b)?) {
                ((s, p), (None, q)) => Some((s, p.checked_sub(q)?)),
                _ => None,
            },
            _ => None,
        };
        terms.push(t);
    }
    let [out] = e.outputs.as_slice() else { return None };
    let (slot, by) = terms.get(*out as usize).copied().flatten()?;
    Some((slot?, by))
}

/// One number that the data gives, as a value and what is added to it.
fn counted<'m>(c: &mut Ctx<'m>, mut v: ValueId) -> (ValueId, i64) {
    let mut by = 0i64;
    for _ in 0..CHAIN {
        let Some(node) = c.b().graph().producer(v).cloned() else { break };
        let (slot, add) = match &node.op {
            Op::View(View::Reshape(_)) => (0, 0),
            Op::Map(e) => {
                let numbers: Vec<Option<i64>> = node
                    .inputs
                    .iter()
                    .map(|&i| c.const_ints(i).filter(|k| k.len() == 1).map(|k| k[0]))
                    .collect();
                let Some(found) = sum(e, &numbers) else { break };
                found
            }
            _ => break,
        };
        let Some(sum) = by.checked_add(add) else { break };
        let Some(&from) = node.inputs.get(slot) else { break };
        // Of several numbers not all need be the same.
        if Dim::product(&c.shape(from)).known() != Some(1) {
            break;
        }
        (v, by) = (from, sum);
    }
    (v, by)
}

/// Whether the bounds `starts` and `ends` are one number each and hold one element between them,
/// wherever that is: `x[i:i + 1]`. That `i` is inside is the model's affair, and asked of every
/// request: the step refuses to give another number of elements.
fn single<'m>(c: &mut Ctx<'m>, starts: ValueId, ends: ValueId) -> bool {
    if [starts, ends].iter().any(|&v| Dim::product(&c.shape(v)).known() != Some(1)) {
        return false;
    }
    let ((a, i), (b, j)) = (counted(c, starts), counted(c, ends));
    a == b && j.checked_sub(i) == Some(1)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let shape = c.shape(x);
    let as_dims = |v: Option<Vec<i64>>| v.map(|v| v.into_iter().map(Dim::Known).collect::<Vec<_>>());
    let (starts, ends, axes, steps);
    let mut known = true;
    if n.opset < 10 {
        n.at_most(1)?;
        starts = as_dims(n.ints("starts")?);
        ends = as_dims(n.ints("ends")?);
        axes = n.ints("axes")?;
        steps = None;
    } else {
        n.at_most(5)?;
        starts = c.sizes(n.input(1)?)?;
        ends = c.sizes(n.input(2)?)?;
        axes = n.opt(3).map(|v| c.const_ints(v).unwrap_or_default());
        steps = n.opt(4).map(|v| c.const_ints(v).unwrap_or_default());
        known = !axes.as_ref().is_some_and(Vec::is_empty) || starts.as_ref().is_some_and(Vec::is_empty);
        known &= !steps.as_ref().is_some_and(Vec::is_empty) || starts.as_ref().is_some_and(Vec::is_empty);
    }
    let (Some(starts), Some(ends), true) = (starts, ends, known) else {
        // Only the named axes change, if it is known which.
        let axes = n.opt(3).and_then(|v| c.const_ints(v));
        let mut out: Vec<Option<Dim>> = shape.iter().cloned().map(Some).collect();
        let count = c.shape(n.input(1)?).first().and_then(Dim::known).unwrap_or(shape.len() as i64);
        let axes = axes.unwrap_or_else(|| if n.opt(3).is_some() { (0..shape.len() as i64).collect() } else { (0..count).collect() });
        let forward = n.opt(4).is_none_or(|v| c.const_ints(v).is_some_and(|k| k == [1]));
        let one = forward && axes.len() == 1 && single(c, n.input(1)?, n.input(2)?);
        for a in axes {
            out[axis_of(a, shape.len())?] = one.then_some(Dim::ONE);
        }
        let d = c.dtype(x);
        return c.host(n, &[(d, out)]);
    };
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if ends.len() != starts.len() || axes.len() != starts.len() || steps.len() != starts.len() {
        return Err("starts, ends, axes and steps must be of one length".into());
    }
    let mut view = (vec![Dim::ZERO; shape.len()], vec![1i64; shape.len()], shape.clone());
    for (i, &a) in axes.iter().enumerate() {
        let a = axis_of(a, shape.len())?;
        let (s, e) = match steps[i] {
            0 => return Err("a step is 0".into()),
            k if k > 0 => forward(&starts[i], &ends[i], k, &shape[a]),
            k => backward(&starts[i], &ends[i], k, &shape[a]),
        };
        (view.0[a], view.1[a], view.2[a]) = (s, steps[i], e);
    }
    let y = c.add1(n, Op::View(View::Slice { starts: view.0, steps: view.1, extents: view.2 }), &[x], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
