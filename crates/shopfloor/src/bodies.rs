//! Branches and loop bodies: planned on their own, so that a prediction can count them.
use layout::{DimBox, Range};
use plan::{Plan, PlanError, Program, Segment, SymbolOrigin, ValueIx, ValueOrigin};
use report::{BodyView, MemoryView, bodies_us};

/// How a program is planned for a box.
pub(crate) type Bind<'a> = &'a dyn Fn(&Program, &DimBox) -> Result<Plan, PlanError>;

/// Deepest nesting that is looked into.
const DEPTH: usize = 8;

/// Bodies of `program`'s control flow, in order: `then` before `else`.
pub(crate) fn bodies(program: &Program, dims: &DimBox, bind: Bind<'_>) -> Vec<BodyView> {
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
                    let (us, memory) = one(program, body, &fed, dims, bind, depth);
                    out.push(BodyView {
                        node: node.clone(),
                        which: which.into(),
                        times: Some(1),
                        predicted_us: us,
                        memory,
                    });
                }
            }
            Segment::Loop {
                node,
                trip,
                carried,
                captures,
                body,
                ..
            } => {
                let mut fed = vec![None, None];
                fed.extend(carried.iter().chain(captures).copied().map(Some));
                let (us, memory) = one(program, body, &fed, dims, bind, depth);
                out.push(BodyView {
                    node: node.clone(),
                    which: "body".into(),
                    times: trip.and_then(|t| constant(program, t)),
                    predicted_us: us,
                    memory,
                });
            }
            _ => {}
        }
    }
    out
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

/// Predicted microseconds and memory of a body whose inputs are fed with `fed` of `outer`.
fn one(
    outer: &Program,
    body: &Program,
    fed: &[Option<ValueIx>],
    dims: &DimBox,
    bind: Bind<'_>,
    depth: usize,
) -> (Option<f64>, Option<MemoryView>) {
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
    let mut program = body.clone();
    program.weights = outer.weights.clone();
    let Ok(plan) = bind(&program, &own) else {
        return (None, None);
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
    let us = plan.predicted.time_s * 1e6 + bodies_us(&inner);
    (whole.then_some(us), Some(memory))
}
