//! What happened in a window, as the supervisor is told.
use device::Device;
use plan::{Activity, Plan, Program, Step, Timeline, VerifiedPlan};
use runtime::{Observed, SessionHandle};
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
    prices: StepPrices,
}

/// What steps of plans were predicted to take with so many workers: a run may have fewer than its plan is
/// for, where others wait for some.
#[derive(Default)]
struct StepPrices(Vec<Price>);

struct Price {
    plan: Arc<VerifiedPlan>,
    workers: u32,
    /// Seconds of each step.
    steps: Vec<f64>,
}

impl StepPrices {
    /// Prices that are kept of a session: of a plan in use and one that is tried.
    const MOST: usize = 8;

    /// Seconds of each of a plan's steps with `workers`.
    fn steps(&mut self, plan: &Arc<VerifiedPlan>, workers: u32, on: &dyn Device) -> &[f64] {
        let is = |p: &Price| Arc::ptr_eq(&p.plan, plan) && p.workers == workers;
        let at = self.0.iter().position(is).unwrap_or_else(|| {
            if self.0.len() == Self::MOST {
                self.0.remove(0);
            }
            let own = plan.plan();
            let steps = match own.devices.as_slice() {
                // Over two devices each has all its workers.
                [d] if d.workers != workers => {
                    planner::predict_steps(own, on.machine(), on.target(), workers as usize)
                        .iter()
                        .map(|c| c.time_s)
                        .collect()
                }
                _ => own
                    .blocks()
                    .flat_map(|b| &b.steps)
                    .map(|s| s.predicted.time_s)
                    .collect(),
            };
            self.0.push(Price {
                plan: plan.clone(),
                workers,
                steps,
            });
            self.0.len() - 1
        });
        &self.0[at].steps
    }

    /// Seconds of a run with `workers`: what its plan is predicted to take, the steps' share of it with
    /// these.
    fn run(&mut self, plan: &Arc<VerifiedPlan>, workers: u32, on: &dyn Device) -> f64 {
        let planned = |p: &VerifiedPlan| -> f64 {
            let steps = p.plan().blocks().flat_map(|b| &b.steps);
            steps.map(|s| s.predicted.time_s).sum()
        };
        let steps: f64 = self.steps(plan, workers, on).iter().sum();
        predicted_s(plan) + steps - planned(plan)
    }
}

/// What `s` is called among `all`: its model, with its number where another has the same.
pub(super) fn called(s: &SessionHandle, all: &[Arc<SessionHandle>]) -> String {
    match all.iter().filter(|o| o.name() == s.name()).count() {
        0 | 1 => s.name().to_string(),
        _ => format!("{} (session {})", s.name(), s.id()),
    }
}

/// Takes in what was seen of session `s`, called `name`, in a window of `seconds`; `trying`: a plan of its is being tried,
/// and every run counts for that.
pub(super) fn session(
    (s, name): (&SessionHandle, String),
    seen: &Observed,
    known: &mut Known,
    on: &dyn Device,
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
    let prices = &mut known.prices;
    let ratios: Vec<f64> = usual()
        .filter(|r| r.steady)
        .map(|r| r.seconds / prices.run(&r.plan, r.workers, on))
        .filter(|v| v.is_finite())
        .collect();
    let predicted = known.plan.as_deref().map_or(0.0, predicted_s);
    let (finished, outside) = (s.finished(), s.planned_for_requests());
    let out = SessionSeen {
        session: s.id(),
        name,
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
    (out, steps(s.id(), seen, known, on))
}

fn predicted_s(p: &VerifiedPlan) -> f64 {
    p.plan().predicted.time_s
}

/// Steps that were timed, of the plan in use, as with the workers that it is for.
fn steps(session: u32, seen: &Observed, known: &mut Known, on: &dyn Device) -> Vec<StepSeen> {
    let Some(plan) = &known.plan else {
        return Vec::new();
    };
    let timed = seen.timed.iter().filter(|t| Arc::ptr_eq(&t.plan, plan));
    let ratios: Vec<Vec<f64>> = timed
        .map(|t| {
            let predicted = known.prices.steps(plan, t.workers, on);
            let walls = walls(plan.plan(), &t.timeline);
            let each = walls.iter().zip(predicted);
            each.map(|(&ns, p)| ns as f64 * 1e-9 / p).collect()
        })
        .collect();
    // A GPU's own clock takes no part of what it times.
    let all = plan.plan().blocks().flat_map(|b| {
        let far = |s: &Step| s.device > 0 || b.is_transfer(s);
        b.steps.iter().map(move |s| (s, far(s)))
    });
    all.enumerate()
        .filter(|(_, (s, far))| *far || s.predicted.time_s >= LEAST_S)
        .filter_map(|(i, (s, _))| {
            let each: Vec<f64> = ratios
                .iter()
                .filter_map(|r| r.get(i).copied().filter(|r| *r > 0.0 && r.is_finite()))
                .collect();
            Some(StepSeen {
                session,
                step: s.name.clone(),
                bound: s.predicted.bound.clone(),
                predicted_s: s.predicted.time_s,
                measured_s: median(&each)? * s.predicted.time_s,
                count: each.len() as u64,
            })
        })
        .collect()
}

/// Wall time of each step in nanoseconds, those that copy between two memories included: a device's queue
/// knows of them.
fn walls(plan: &Plan, timeline: &Timeline) -> Vec<u64> {
    let mut out = timeline.step_wall_ns();
    let mut blocks = plan.blocks();
    if let (Some(b), None) = (blocks.next(), blocks.next()) {
        for s in &timeline.device {
            let link = b
                .steps
                .get(s.step as usize)
                .is_some_and(|t| b.is_transfer(t));
            let copies = matches!(s.what, Activity::Upload | Activity::Download);
            if let Some(ns) = out.get_mut(s.step as usize).filter(|_| link && copies) {
                *ns += s.end_ns.saturating_sub(s.start_ns);
            }
        }
    }
    out
}

/// Whether plans of the program can be tried beside others: it is one block, from inputs to outputs.
pub(super) fn may_change(program: &Program) -> bool {
    program.segments.len() == 1 && program.states.is_empty()
}
