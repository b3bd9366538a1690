//! State that stays in place between requests: the past that comes in and the present that goes
//! out share one buffer, laid out for the largest extent of the axis that grows. What was copied
//! from one to the other is not copied any more.
use crate::bind::late::missing;
use crate::bind::why;
use kernel::{Access, Kernel, Role, Stmt, Term};
use layout::{Dim, DimBox, Layout, Leaf};
use plan::{Item, ItemWork, Program, Segment, StatePair, ValueIx, Why};
use std::sync::Arc;

/// A pair of values that share one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateValue {
    /// The input.
    pub past: ValueIx,
    /// The output that carries it on.
    pub present: ValueIx,
    /// Elements of the buffer: those of the present at the top of the box.
    pub elements: i64,
}

/// Finds the declared pairs that can share a buffer, and the program with accesses rewritten to the
/// shared layout (`None` when there is no such pair).
pub(crate) fn alias(
    program: &Program,
    dims: &DimBox,
    whys: &mut Vec<Why>,
) -> (Vec<StateValue>, Option<Program>) {
    let mut done: Option<Program> = None;
    let mut values = Vec::new();
    // A request over several plans hands values on as tensors.
    let whole = match program.segments.as_slice() {
        [Segment::Straight(items)] => !missing(program, items, dims),
        _ => false,
    };
    for pair in &program.states {
        let current = done.as_ref().unwrap_or(program);
        let name = program
            .inputs
            .get(pair.input as usize)
            .map_or(String::new(), |&v| program.value(v).name.clone());
        let shared = match whole {
            true => share(current, *pair, dims),
            false => Err("a request is more than one block of steps".into()),
        };
        match shared {
            Ok((value, next, dropped)) => {
                let saved = match dropped {
                    0 => "nothing was copied between them".to_string(),
                    n => format!("{n} copies of the past into the present are gone"),
                };
                whys.push(why(
                    "state",
                    &name,
                    "in place",
                    format!("past and present share one buffer of the largest size that the plan covers; {saved}"),
                ));
                values.push(value);
                done = Some(next);
            }
            Err(reason) => whys.push(why("state", &name, "not in place", reason)),
        }
    }
    (values, done)
}

/// How one value's addresses change: whole rows of the growing axis move apart.
struct Grow<'a> {
    /// Elements from one row of the growing axis to the next, as the program has it.
    from: Dim,
    /// The same in the shared buffer.
    to: Dim,
    dims: &'a DimBox,
}

/// A state's two values in one buffer.
struct Shared<'a> {
    past: ValueIx,
    present: ValueIx,
    /// The buffer's shape: the present's, at the top of its range.
    shape: Vec<Dim>,
    elements: i64,
    /// How addresses of either value change.
    of_past: Grow<'a>,
    of_present: Grow<'a>,
    /// Where what is new begins.
    begin: Dim,
}

impl<'a> Shared<'a> {
    fn of(program: &Program, pair: StatePair, dims: &'a DimBox) -> Result<Shared<'a>, String> {
        let past = *program
            .inputs
            .get(pair.input as usize)
            .ok_or("there is no such input")?;
        let present = program
            .outputs
            .get(pair.output as usize)
            .ok_or("there is no such output")?
            .1;
        let (p, y) = (program.value(past), program.value(present));
        if p.dtype != y.dtype || p.shape.len() != y.shape.len() {
            return Err("past and present differ in type or rank".into());
        }
        let differ: Vec<usize> = (0..p.shape.len())
            .filter(|&d| p.shape[d] != y.shape[d])
            .collect();
        let &[grows] = differ.as_slice() else {
            return Err(format!(
                "past and present differ in {} axes; one must grow",
                differ.len()
            ));
        };
        if !p.layout.is_row_major(1) || !y.layout.is_row_major(1) {
            return Err("they are not row-major".into());
        }
        let top = dims.bounds(&y.shape[grows]).map(|r| r.hi);
        let top = top.ok_or("the growing axis has no upper bound")?;
        let inner = Dim::product(&y.shape[grows + 1..]);
        let mut shape = y.shape.clone();
        shape[grows] = Dim::Known(top);
        let elements = dims.bounds(&Dim::product(&shape)).map(|r| r.hi);
        let grow = |extent: &Dim| Grow {
            from: extent.clone() * inner.clone(),
            to: Dim::Known(top) * inner.clone(),
            dims,
        };
        Ok(Shared {
            past,
            present,
            shape,
            elements: elements.ok_or("its size has no upper bound")?,
            of_past: grow(&p.shape[grows]),
            of_present: grow(&y.shape[grows]),
            begin: p.shape[grows].clone() * inner,
        })
    }

    fn is_touched(&self, i: &Item) -> bool {
        let all = i.reads().into_iter().chain(i.writes());
        all.into_iter().any(|v| v == self.past || v == self.present)
    }

    /// Whether a kernel touches, by operand `o`, nothing of any row of the buffer before what is new begins: it begins there
    /// or later in the first row, goes forwards, and goes from row to row by whole rows alone.
    fn is_behind_the_past(&self, kernel: &Kernel, o: usize) -> bool {
        let (access, g) = (&kernel.operands[o].access, &self.of_present);
        let mut last = access.offset.clone();
        for t in &access.terms {
            for l in &t.leaves {
                let count = match t.leaves.len() {
                    1 => &kernel.axes[t.axis as usize].extent,
                    _ => &l.extent,
                };
                if !l.stride.provably_nonneg() {
                    return false;
                }
                if l.stride.exact_div(&g.to).is_none() {
                    last = last + (count.clone() - Dim::ONE) * l.stride.clone();
                }
            }
        }
        let in_first_row = g
            .dims
            .bounds(&(g.to.clone() - last))
            .is_some_and(|r| r.lo > 0);
        in_first_row && access.indexed.is_empty() && self.begin.provably_le(&access.offset)
    }

    /// Has a kernel's item go by the buffer's addresses; false where nothing is left to do for it.
    fn rewrite_item(&self, item: &mut Item) -> Result<bool, String> {
        let (past, present) = (self.past, self.present);
        let name = item.name.clone();
        let ItemWork::Kernel { kernel, args } = &mut item.work else {
            return Err(format!("host step '{name}' takes it, which needs it dense"));
        };
        for o in 0..args.len() {
            let g = match args[o] {
                v if v == past => &self.of_past,
                v if v == present => &self.of_present,
                _ => continue,
            };
            let fault = |e: &str| format!("kernel '{name}' {e}");
            rewrite(Arc::make_mut(kernel), o, g).map_err(&fault)?;
            if args[o] == present
                && kernel.operands[o].role == Role::Write
                && !writes_nothing(kernel, args, past, present)
                && !self.is_behind_the_past(kernel, o)
            {
                return Err(fault("writes the present where the past lies"));
            }
        }
        if writes_nothing(kernel, args, past, present) {
            return Ok(false);
        }
        let has = |role: Role, value: ValueIx| {
            let mut all = kernel.operands.iter().zip(args.iter());
            all.any(|(o, v)| o.role == role && *v == value)
        };
        if has(Role::Read, past) && has(Role::Write, present) {
            return Err(format!(
                "kernel '{name}' reads the past while it writes the present"
            ));
        }
        Ok(true)
    }
}

fn share(
    program: &Program,
    pair: StatePair,
    dims: &DimBox,
) -> Result<(StateValue, Program, usize), String> {
    let s = Shared::of(program, pair, dims)?;
    let mut next = program.clone();
    let mut home = None;
    let mut dropped = 0;
    for (at, segment) in next.segments.iter_mut().enumerate() {
        let reads = program.segment_reads(at);
        let Segment::Straight(items) = segment else {
            if reads.iter().any(|&v| v == s.past || v == s.present) {
                return Err("control flow takes it".into());
            }
            continue;
        };
        if !items.iter().any(|i| s.is_touched(i)) {
            continue;
        }
        if home.replace(at).is_some() {
            return Err("more than one segment takes it".into());
        }
        let mut kept = Vec::new();
        for mut item in std::mem::take(items) {
            match !s.is_touched(&item) || s.rewrite_item(&mut item)? {
                true => kept.push(item),
                false => dropped += 1,
            }
        }
        *items = kept;
    }
    if home.is_none() {
        return Err("nothing takes it".into());
    }
    for v in [s.past, s.present] {
        let value = &mut next.values[v as usize];
        value.layout = Layout::row_major(&s.shape, 1);
        for (m, e) in value.layout.modes.iter_mut().zip(&value.shape) {
            m.leaves.iter_mut().for_each(|l| l.extent = e.clone());
        }
        value.storage = Dim::Known(s.elements);
    }
    let value = StateValue {
        past: s.past,
        present: s.present,
        elements: s.elements,
    };
    Ok((value, next, dropped))
}

/// Whether a kernel only copies the past to where it already lies.
fn writes_nothing(kernel: &Kernel, args: &[ValueIx], past: ValueIx, present: ValueIx) -> bool {
    let [
        Stmt::Load { dst, operand: r },
        Stmt::Store { operand: w, src },
    ] = kernel.body.as_slice()
    else {
        return false;
    };
    let access = |o: u16| &kernel.operands[o as usize].access;
    dst == src
        && args[*r as usize] == past
        && args[*w as usize] == present
        && access(*r) == access(*w)
        && access(*r).indexed.is_empty()
}

/// Rewrites operand `o`'s access to the shared layout.
fn rewrite(kernel: &mut Kernel, o: usize, g: &Grow) -> Result<(), &'static str> {
    let axes: Vec<Dim> = kernel.axes.iter().map(|a| a.extent.clone()).collect();
    let access = &mut kernel.operands[o].access;
    let mut out = access.clone();
    out.offset = g
        .offset(&access.offset)
        .ok_or("begins in the middle of its rows")?;
    out.terms.clear();
    for t in &access.terms {
        out.terms.push(
            g.term(t, &axes[t.axis as usize])
                .ok_or("walks across its rows")?,
        );
    }
    for i in &mut out.indexed {
        i.stride = match i.stride.exact_div(&g.from) {
            Some(q) => q * g.to.clone(),
            None if g.within(&(i.extent.clone() * i.stride.clone())) => i.stride.clone(),
            None => return Err("gathers across its rows"),
        };
    }
    *access = Access { ..out };
    Ok(())
}

impl Grow<'_> {
    /// Whether `span` elements stay inside one row.
    fn within(&self, span: &Dim) -> bool {
        span.provably_le(&self.from)
            || self
                .dims
                .bounds(&(self.from.clone() - span.clone()))
                .is_some_and(|r| r.lo >= 0)
    }

    fn offset(&self, d: &Dim) -> Option<Dim> {
        if let Some(q) = d.exact_div(&self.from) {
            return Some(q * self.to.clone());
        }
        (self.within(d) && self.dims.bounds(d).is_some_and(|r| r.lo >= 0)).then(|| d.clone())
    }

    fn term(&self, t: &Term, extent: &Dim) -> Option<Term> {
        let mut leaves = Vec::new();
        for (i, l) in t.leaves.iter().enumerate() {
            let count = if t.leaves.len() == 1 && i == 0 {
                extent
            } else {
                &l.extent
            };
            if let Some(q) = l.stride.exact_div(&self.from) {
                leaves.push(Leaf {
                    extent: l.extent.clone(),
                    stride: q * self.to.clone(),
                });
                continue;
            }
            let span = count.clone() * l.stride.clone();
            if self.within(&span) {
                leaves.push(l.clone());
                continue;
            }
            // Joined axes come apart again: whole rows, then positions within one.
            let (rows, each) = (span.exact_div(&self.from)?, self.from.exact_div(&l.stride)?);
            leaves.push(Leaf {
                extent: rows,
                stride: self.to.clone(),
            });
            leaves.push(Leaf {
                extent: each,
                stride: l.stride.clone(),
            });
        }
        Some(Term {
            axis: t.axis,
            leaves,
        })
    }
}
