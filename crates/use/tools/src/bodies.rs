//! Branches and loop bodies: planned on their own, so that a prediction can count them.
use layout::{DimBox, Range};
use plan::{Plan, PlanError, Program, Segment, SymbolOrigin, ValueIx, ValueOrigin};
use report::{BodyView, MemoryView, bodies_us, counted};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a program is planned for a box.
pub(crate) type Bind<'a> = &'a dyn Fn(&Program, &DimBox) -> Result<Plan, PlanError>;

/// Deepest nesting that is looked into.
const DEPTH: usize = 8;

/// Bodies of `program`'s control flow, in order: `then` before `else`.
pub fn bodies(program: &Program, dims: &DimBox, bind: Bind<'_>) -> Vec<BodyView> {
    inside(program, dims, bind, 0)
}

fn inside(program: &Program, dims: &DimBox, bind: Bind<'_>, depth: usize) -> Vec<BodyView> {
    let mut out = Vec::new();
    if depth >= DEPTH {
        return out;
    }
    for s in &program.segments {
        match s {
            Segment::If {
                node,
                captures,
                then_branch,
                else_branch,
                ..
            } => {
                let fed: Vec<Option<ValueIx>> = captures.iter().copied().map(Some).collect();
                for (which, body) in [("then", then_branch), ("else", else_branch)] {
                    let view = one(program, body, &fed, dims, bind, depth);
                    out.push(BodyView {
                        node: node.clone(),
                        which: which.into(),
                        times: Some(1),
                        ..view
                    });
                }
            }
            Segment::Loop {
                node,
                trip,
                carried,
                captures,
                body,
                outputs,
                ..
            } => {
                let mut fed = vec![None, None];
                fed.extend(carried.iter().chain(captures).copied().map(Some));
                let view = one(program, body, &fed, dims, bind, depth);
                out.push(BodyView {
                    node: node.clone(),
                    which: "body".into(),
                    times: trip
                        .and_then(|t| constant(program, t))
                        .or_else(|| stacked(program, outputs.get(carried.len()), dims)),
                    ..view
                });
            }
            _ => {}
        }
    }
    out
}

/// How often a loop runs that stacks what it scans: the first extent of that, where it is no secret of
/// the data.
fn stacked(program: &Program, scan: Option<&ValueIx>, dims: &DimBox) -> Option<u64> {
    let d = program.value(*scan?).shape.first()?;
    let mut used = std::collections::BTreeSet::new();
    d.symbols(&mut used);
    let late = |s: &plan::ProgramSymbol| matches!(s.origin, SymbolOrigin::Late { .. });
    if program
        .symbols
        .iter()
        .any(|s| late(s) && used.contains(&s.name))
    {
        return None;
    }
    u64::try_from(dims.at_top(d)?).ok()
}

/// A constant scalar.
fn constant(program: &Program, v: ValueIx) -> Option<u64> {
    let ValueOrigin::Weight(w) = program.value(v).origin else {
        return None;
    };
    let w = program.weights.get(w).filter(|w| w.bytes.len() <= 8)?;
    let t = tensor::Tensor::from_bytes(w.dtype, &w.shape, w.bytes.to_vec()).ok()?;
    (!t.is_empty()).then(|| u64::try_from(t.get_i64(0)).ok())?
}

/// Dims of a body whose inputs are fed with `fed` of `outer`.
fn fed_dims(outer: &Program, body: &Program, fed: &[Option<ValueIx>], dims: &DimBox) -> DimBox {
    let mut own = DimBox::new();
    for s in &body.symbols {
        let range: Option<Range> = match s.origin {
            SymbolOrigin::Input { input, axis } => fed
                .get(input as usize)
                .copied()
                .flatten()
                .and_then(|v| dims.bounds(outer.value(v).shape.get(axis as usize)?)),
            _ => dims.get(&s.name),
        };
        if let Some(r) = range {
            own.insert(s.name.clone(), r.lo, r.hi);
        }
    }
    own
}

/// A body, what it is fed with, and how many outputs it has before those of its segment.
type Fed<'a> = (&'a Program, Vec<Option<ValueIx>>, usize);

/// `dims` with sizes for what only data gives: those of the larger branch, of a loop's body, and 1 for
/// others, which are named as they are taken.
pub(crate) fn with_late(
    program: &Program,
    mut dims: DimBox,
    depth: usize,
) -> (DimBox, Vec<String>) {
    let mut taken = Vec::new();
    for s in &program.segments {
        let (outputs, bodies): (&[ValueIx], Vec<Fed>) = match s {
            Segment::If {
                captures,
                then_branch,
                else_branch,
                outputs,
                ..
            } => {
                let fed: Vec<Option<ValueIx>> = captures.iter().copied().map(Some).collect();
                (
                    outputs,
                    vec![(&**then_branch, fed.clone(), 0), (&**else_branch, fed, 0)],
                )
            }
            Segment::Loop {
                carried,
                captures,
                body,
                outputs,
                ..
            } => {
                let mut fed = vec![None, None];
                fed.extend(carried.iter().chain(captures).copied().map(Some));
                // Its first output is the condition; scans have an axis more than theirs.
                (
                    &outputs[..carried.len().min(outputs.len())],
                    vec![(&**body, fed, 1)],
                )
            }
            _ => continue,
        };
        if depth >= DEPTH {
            continue;
        }
        for (body, fed, skip) in bodies {
            let own = fed_dims(program, body, &fed, &dims);
            let (own, _) = with_late(body, own, depth + 1);
            for (n, out) in outputs.iter().enumerate() {
                let Some(&(_, inner)) = body.outputs.get(n + skip) else {
                    continue;
                };
                for (axis, d) in body.value(inner).shape.iter().enumerate() {
                    let of = |x: &&plan::ProgramSymbol| {
                        let late = SymbolOrigin::Late {
                            value: *out,
                            axis: axis as u32,
                        };
                        x.origin == late
                    };
                    let (Some(sym), Some(n)) = (program.symbols.iter().find(of), own.at_top(d))
                    else {
                        continue;
                    };
                    let n = dims.get(&sym.name).map_or(n, |r| r.hi.max(n));
                    dims.insert(sym.name.clone(), n, n);
                }
            }
        }
    }
    for s in &program.symbols {
        if matches!(s.origin, SymbolOrigin::Late { .. }) && dims.get(&s.name).is_none() {
            dims.insert(s.name.clone(), 1, 1);
            taken.push(format!("{}=1", s.name));
        }
    }
    (dims, taken)
}

/// Predicted microseconds and memory of a body whose inputs are fed with `fed` of `outer`; whose it is and
/// how often it runs are left open.
fn one(
    outer: &Program,
    body: &Program,
    fed: &[Option<ValueIx>],
    dims: &DimBox,
    bind: Bind<'_>,
    depth: usize,
) -> BodyView {
    let mut view = BodyView {
        node: String::new(),
        which: String::new(),
        times: None,
        predicted_us: None,
        taken: vec![],
        why: None,
        bounds_us: BTreeMap::new(),
        memory: None,
        plan: None,
        steps: vec![],
        inner: vec![],
    };
    let own = fed_dims(outer, body, fed, dims);
    let (own, taken) = with_late(body, own, depth);
    view.taken = taken;
    let mut program = body.clone();
    program.weights = outer.weights.clone();
    let plan = match bind(&program, &own) {
        Ok(plan) => plan,
        Err(e) => {
            view.why = Some(e.to_string());
            return view;
        }
    };
    // A part that is planned later is not predicted: half a number would mislead.
    let whole = !plan
        .segments
        .iter()
        .any(|s| matches!(s, plan::PlanSegment::Deferred { .. }));
    let inner = inside(&program, &own, bind, depth + 1);
    let mut memory = MemoryView::of(&plan, 1);
    for m in inner.iter().filter_map(|b| b.memory.as_ref()) {
        memory = memory.with_body(m);
    }
    view.memory = Some(memory);
    if whole {
        view.predicted_us = Some(plan.predicted.time_s * 1e6 + bodies_us(&inner));
        for step in plan.blocks().flat_map(|b| &b.steps) {
            let bound = step.predicted.bound.to_string();
            *view.bounds_us.entry(bound).or_default() += step.predicted.time_s * 1e6;
        }
        for (b, n) in counted(&inner) {
            for (bound, us) in &b.bounds_us {
                *view.bounds_us.entry(bound.clone()).or_default() += us * n;
            }
        }
    }
    view.plan = Some(Arc::new(plan));
    view.inner = inner;
    view
}
