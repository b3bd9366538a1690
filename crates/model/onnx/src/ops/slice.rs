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

/// One dimension that is sliced, and the node that does it. What a bound is taken to be where its
/// symbols do not say it is noted as an assumption: writing it out as minima and maxima would hide
/// equal extents from one another. Only where another plan cannot be made for what is broken, for an extent that changes
/// from round to round of a loop, they are written out.
struct Axis<'a, 'm> {
    c: &'a mut Ctx<'m>,
    n: &'a NodeView<'m>,
    /// The dimension's extent.
    d: Dim,
    /// Whether minima and maxima are written out.
    explicit: bool,
}

impl Axis<'_, '_> {
    /// A bound counted from the start; one of unknown sign is a size.
    fn counted_from_start(&mut self, b: &Dim) -> Dim {
        let negative = match b.known() {
            Some(n) => n < 0,
            None => !b.provably_nonneg() && (-b.clone()).provably_nonneg(),
        };
        match negative {
            true => {
                // What is 0 after all counts from the start.
                self.at_most(b, &Dim::Known(-1));
                self.d.clone() + b.clone()
            }
            false => {
                self.at_most(&Dim::ZERO, b);
                b.clone()
            }
        }
    }

    fn at_most(&mut self, a: &Dim, b: &Dim) {
        self.c.assume_at_most(self.n, a, b);
    }

    /// `b` moved into `low..=high`. An end may lie beyond a symbolic extent; any other bound is
    /// taken to lie inside.
    fn clamp(&mut self, b: &Dim, low: Dim, high: Dim, end: bool) -> Dim {
        match (b.known(), low.known(), high.known()) {
            (Some(n), _, _) if n >= FAR => return high,
            (Some(n), _, _) if n <= -FAR => return low,
            _ => {}
        }
        let b = self.counted_from_start(b);
        if let (Some(b), Some(low), Some(high)) = (b.known(), low.known(), high.known()) {
            return Dim::Known(b.min(high).max(low));
        }
        // A bound that is never inside needs no assumption, which no request would fulfil.
        if b.provably_le(&low) {
            return low;
        }
        if high.provably_le(&b) {
            return high;
        }
        if self.explicit {
            return b.max_with(&low).min_with(&high);
        }
        self.at_most(&low, &b);
        if end {
            return b.min_with(&high);
        }
        self.at_most(&b, &high);
        b
    }

    /// First coordinate and extent for steps of `step`, which is not 0.
    fn cut(&mut self, start: &Dim, end: &Dim, step: i64) -> (Dim, Dim) {
        let (d, last) = (self.d.clone(), self.d.clone() - Dim::ONE);
        // The standard moves a start before the first element onto it also where steps go down;
        // its reference leaves nothing where the start is the least number there is.
        let least = step < 0 && start.known() == Some(i64::MIN);
        if d.is_zero() || least {
            return (Dim::ZERO, Dim::ZERO);
        }
        let (s, span) = if step > 0 {
            let s = self.clamp(start, Dim::ZERO, d.clone(), false);
            let e = self.clamp(end, Dim::ZERO, d, true);
            (s.clone(), e - s)
        } else {
            let s = self.clamp(start, Dim::ZERO, last.clone(), false);
            let e = self.clamp(end, Dim::Known(-1), last, true);
            (s.clone(), s - e)
        };
        let step = Dim::Known(step.abs());
        if let Some(n) = span.known() {
            return (s, Dim::Known(n.max(0)).ceil_div(&step));
        }
        if self.explicit {
            return (s, span.max_with(&Dim::ZERO).ceil_div(&step));
        }
        self.at_most(&Dim::ZERO, &span);
        (s, span.ceil_div(&step))
    }
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

/// First coordinate and extent of what is between `bounds` in a dimension of extent `d`.
fn part<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, d: &Dim, bounds: [&Dim; 2], step: i64) -> (Dim, Dim) {
    let explicit = c.changes_by_round(d);
    let mut axis = Axis { c, n, d: d.clone(), explicit };
    // A step beyond every dimension ends after the first element, however long it is.
    axis.cut(bounds[0], bounds[1], step.clamp(-FAR, FAR))
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
        let given = n.opt(3).is_none() || axes.is_some();
        let mut out: Vec<Option<Dim>> = shape.iter().cloned().map(Some).collect();
        let count = c.shape(n.input(1)?).first().and_then(Dim::known).unwrap_or(shape.len() as i64);
        let axes = axes.unwrap_or_else(|| if n.opt(3).is_some() { (0..shape.len() as i64).collect() } else { (0..count).collect() });
        let forward = n.opt(4).is_none_or(|v| c.const_ints(v).is_some_and(|k| k == [1]));
        let one = forward && axes.len() == 1 && single(c, n.input(1)?, n.input(2)?);
        let count = axes.len();
        let (starts, ends) = (c.some_sizes(n.input(1)?, count), c.some_sizes(n.input(2)?, count));
        let steps = match n.opt(4) {
            Some(v) => c.const_ints(v).filter(|s| s.len() == count && !s.contains(&0)),
            None => Some(vec![1; count]),
        };
        for (i, a) in axes.into_iter().enumerate() {
            let a = axis_of(a, shape.len())?;
            out[a] = match (&starts[i], &ends[i], &steps) {
                _ if one => Some(Dim::ONE),
                (Some(start), Some(end), Some(steps)) if given => Some(part(c, n, &shape[a], [start, end], steps[i]).1),
                _ => None,
            };
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
        if steps[i] == 0 {
            return Err("a step is 0".into());
        }
        let (s, e) = part(c, n, &shape[a], [&starts[i], &ends[i]], steps[i]);
        (view.0[a], view.1[a], view.2[a]) = (s, steps[i].clamp(-FAR, FAR), e);
    }
    let y = c.add1(n, Op::View(View::Slice { starts: view.0, steps: view.1, extents: view.2 }), &[x], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
