//! What happened in a window, as the supervisor is told.
use plan::{Program, VerifiedPlan};
use runtime::{Seen, Served};
use std::collections::BTreeMap;
use std::sync::Arc;
use supervisor::stats::median;
use supervisor::supervise::{SessionSeen, StepSeen};

/// Steps predicted to take less are not judged: reading the clock takes a share of them.
const LEAST_S: f64 = 5e-6;
/// Runs in a window from which on two of them are timed step by step, else one in every other window.
const PLENTY: usize = 8;

/// What is known of a session from window to window.
#[derive(Default)]
pub(super) struct Known {
    finished: u64,
    outside: u64,
    windows: u64,
    /// The plan that most of its runs used of late.
    pub plan: Option<Arc<VerifiedPlan>>,
}

/// Takes in what was seen of a session in a window of `seconds`; `trying`: a plan of its is being tried, and
/// every run counts for that.
pub(super) fn session(
    s: &Served,
    seen: &Seen,
    known: &mut Known,
    seconds: f64,
    trying: bool,
) -> (SessionSeen, Vec<StepSeen>) {
    known.windows += 1;
    let usual = || seen.runs.iter().filter(|r| r.with != Some(true));
    let mut uses: BTreeMap<usize, (usize, &Arc<VerifiedPlan>)> = BTreeMap::new();
    for r in usual() {
        let e = uses.entry(Arc::as_ptr(&r.plan) as usize);
        e.or_insert((0, &r.plan)).0 += 1;
    }
    if let Some((_, plan)) = uses.values().max_by_key(|u| u.0) {
        known.plan = Some((*plan).clone());
    }
    let ratio = |r: &runtime::RunSeen| r.seconds / predicted_s(&r.plan);
    let ratios: Vec<f64> = usual()
        .filter(|r| r.as_planned)
        .map(ratio)
        .filter(|v| v.is_finite())
        .collect();
    let predicted = known.plan.as_deref().map_or(0.0, predicted_s);
    let (finished, outside) = (s.finished(), s.planned_for_requests());
    let out = SessionSeen {
        session: s.id(),
        seconds,
        arrivals: seen.arrivals,
        finished: finished.saturating_sub(known.finished),
        queued: s.load().queued as u64,
        run_s: median(&ratios).unwrap_or(0.0) * predicted,
        predicted_s: predicted,
        shapes: seen.shapes.clone(),
        outside: outside.saturating_sub(known.outside),
    };
    (known.finished, known.outside) = (finished, outside);
    // What is timed step by step counts for no trial.
    let time = match (trying, seen.runs.len() >= PLENTY) {
        (true, _) => 0,
        (false, true) => 2,
        (false, false) => (known.windows % 2) as u32,
    };
    s.time_steps(time);
    (out, steps(s.id(), seen, known.plan.as_ref()))
}

fn predicted_s(p: &VerifiedPlan) -> f64 {
    p.plan().predicted.time_s
}

/// Steps that were timed, of the plan in use.
fn steps(session: u32, seen: &Seen, used: Option<&Arc<VerifiedPlan>>) -> Vec<StepSeen> {
    let Some(plan) = used else {
        return Vec::new();
    };
    let timed = seen.timed.iter().filter(|t| Arc::ptr_eq(&t.0, plan));
    let walls: Vec<Vec<u64>> = timed.map(|t| t.1.step_wall_ns()).collect();
    let all = plan.plan().blocks().flat_map(|b| &b.steps);
    all.enumerate()
        .filter(|(_, s)| s.predicted.time_s >= LEAST_S)
        .filter_map(|(i, s)| {
            let each: Vec<f64> = walls
                .iter()
                .filter_map(|w| w.get(i).filter(|ns| **ns > 0))
                .map(|ns| *ns as f64 * 1e-9)
                .collect();
            Some(StepSeen {
                session,
                step: s.name.clone(),
                bound: s.predicted.bound.clone(),
                predicted_s: s.predicted.time_s,
                measured_s: median(&each)?,
                count: each.len() as u64,
            })
        })
        .collect()
}

/// Whether plans of the program can be tried beside others: it is one block, from inputs to outputs.
pub(super) fn may_change(program: &Program) -> bool {
    program.segments.len() == 1 && program.states.is_empty()
}
