//! What takes time, on a thread that stands back for others: planning, proving, compiling, comparing.
use super::Counters;
use crate::{Engine, Tolerance, compare};
use layout::DType;
use plan::{Allotment, Candidate, Observations, Plan, Serving, VerifiedPlan};
use runtime::{CapturedRequest, Prepared, SessionHandle, batch_symbol};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use supervisor::supervise::ProposalId;
use tensor::Tensor;

/// A session that the planner is asked about.
pub(super) struct SessionQuery {
    pub served: Arc<SessionHandle>,
    pub plan: Arc<VerifiedPlan>,
}

/// Something to do.
pub(super) enum Task {
    Propose(Box<Observations>, Vec<SessionQuery>),
    Prepare(ProposalId, Weak<SessionHandle>, Box<Plan>),
    Compare(
        ProposalId,
        Weak<SessionHandle>,
        Prepared,
        Box<CapturedRequest>,
    ),
}

/// What came of it.
pub(super) enum Answer {
    Proposed(Vec<Candidate>),
    Prepared(ProposalId, Result<Prepared, String>),
    /// How the outputs differ, if they do; `Err`: they could not be compared.
    Compared(ProposalId, Result<Option<String>, String>),
}

/// Starts the thread: it ends when the sender is dropped.
pub(super) fn start(
    engine: &Arc<Engine>,
    counters: Arc<Counters>,
) -> std::io::Result<(Sender<Task>, Receiver<Answer>)> {
    let (to, tasks) = channel();
    let (answers, from) = channel();
    let engine = Arc::downgrade(engine);
    std::thread::Builder::new()
        .name("shopfloor-plans".into())
        .spawn(move || {
            cpu::stand_back();
            for task in tasks {
                let answer = plan::with_pauses(cpu::step_aside, || answer(&engine, task));
                let Some(answer) = answer else {
                    return;
                };
                counters
                    .planning_ns
                    .store(cpu::thread_time_ns(), Ordering::Relaxed);
                if answers.send(answer).is_err() {
                    return;
                }
            }
        })?;
    Ok((to, from))
}

const BUG: &str = "the planner panicked, which is a bug of this program; please report it";

fn answer(engine: &Weak<Engine>, task: Task) -> Option<Answer> {
    // A bug of the planner is no reason to lose the supervisor.
    let safe = |f: &mut dyn FnMut() -> Option<Answer>| catch_unwind(AssertUnwindSafe(f));
    match task {
        Task::Propose(seen, asked) => {
            let r = safe(&mut || {
                Some(Answer::Proposed(propose(
                    &*engine.upgrade()?,
                    &seen,
                    &asked,
                )))
            });
            r.unwrap_or(Some(Answer::Proposed(Vec::new())))
        }
        Task::Prepare(id, served, plan) => {
            let mut plan = Some(*plan);
            let r = safe(&mut || {
                let out = match (served.upgrade(), plan.take()) {
                    (Some(s), Some(plan)) => s.prepare(plan).map_err(|e| e.to_string()),
                    _ => Err("its session has ended".into()),
                };
                Some(Answer::Prepared(id, out))
            });
            r.unwrap_or_else(|_| Some(Answer::Prepared(id, Err(BUG.into()))))
        }
        Task::Compare(id, served, prepared, kept) => {
            let r = safe(&mut || {
                let out = match served.upgrade() {
                    Some(s) => compared(&s, &prepared, &kept),
                    None => Err("its session has ended".into()),
                };
                Some(Answer::Compared(id, out))
            });
            r.unwrap_or_else(|_| Some(Answer::Compared(id, Err(BUG.into()))))
        }
    }
}

fn propose(engine: &Engine, seen: &Observations, asked: &[SessionQuery]) -> Vec<Candidate> {
    let allotments: Vec<Allotment> = asked.iter().map(|a| a.served.options().allotment).collect();
    let serving: Vec<Serving<'_>> = asked
        .iter()
        .zip(&allotments)
        .map(|(a, allotment)| {
            let policy = a.served.policy();
            let program = a.served.program();
            let own = a.plan.plan().devices.first().map_or(1, |d| d.workers);
            let fit = (engine.workers() / own.max(1)).max(1);
            // Only where the session joins requests is it known that items do not influence each other.
            let items = policy.batching.max_items.max(1);
            Serving {
                session: a.served.id(),
                program,
                plan: a.plan.plan(),
                allotment,
                batch: batch_symbol(program).filter(|_| items > 1),
                items,
                instances: u32::try_from(policy.max_running).map_or(fit, |n| n.clamp(1, fit)),
            }
        })
        .collect();
    engine.planner().propose(seen, &serving)
}

/// Whether the other plan gives the outputs that one plan gave for a live request.
fn compared(
    s: &SessionHandle,
    prepared: &Prepared,
    kept: &CapturedRequest,
) -> Result<Option<String>, String> {
    let other = (!kept.with).then_some(prepared);
    let again = s
        .run_beside(other, &kept.inputs)
        .map_err(|e| e.to_string())?;
    let program = s.program();
    let named = |all: &[Tensor]| -> Vec<(String, Tensor)> {
        let names = program.outputs.iter().map(|o| o.0.clone());
        names.zip(all.iter().cloned()).collect()
    };
    let half = |t: &Tensor| matches!(t.dtype(), DType::F16 | DType::BF16);
    let rtol = match kept.outputs.iter().any(half) {
        true => 1e-2,
        false => 1e-3,
    };
    let tolerance = Tolerance { rtol, atol: 1e-6 };
    let (with, without) = match kept.with {
        true => (&kept.outputs, &again),
        false => (&again, &kept.outputs),
    };
    Ok(compare(&named(with), &named(without), tolerance).complaint())
}
