//! The schedule of a near box, taken without looking for another where it is predicted to be as
//! good here as it was there.
use super::{Choice, Ctx, Facts, WORTH_SHARING, set_chunk};
use crate::bind::predict::predict_step;
use machine::{Cost, Work};
use plan::Why;

/// What a step may take of the time that its work in the earlier box leads to expect.
const SLACK: f64 = 1.1;
/// Differences below this are nothing, seconds.
const NOTHING: f64 = 1e-6;

/// Operations and bytes of a step.
fn size(w: &Work) -> (f64, f64) {
    let ops = w.ops.iter().map(|o| o.2).sum();
    (ops, w.unique_read + w.unique_written)
}

/// Time that grows with a step's size.
fn busy(c: &Cost) -> f64 {
    (c.time_s - c.launch_s - c.latency_s).max(0.0)
}

/// The earlier choice with what it costs in this box; `None` where another may be better.
pub(super) fn take(ctx: Ctx, name: &str, facts: &Facts, whys: &mut Vec<Why>) -> Option<Choice> {
    let e = facts.earlier.as_ref()?;
    if ctx.target.gpu.is_some() || ctx.sweep.is_some() || ctx.forced.is_some() {
        return None;
    }
    if e.packed.iter().any(|p| !(facts.constant)(p.0)) {
        return None;
    }
    let (work, cost) = predict_step(ctx, e.kernel, e.schedule)?;
    let ((ops, bytes), (ops_then, bytes_then)) = (size(&work), size(e.work));
    let grown = |now: f64, then: f64| if then > 0.0 { now / then } else { 1.0 };
    let growth = grown(ops, ops_then).max(grown(bytes, bytes_then));
    if busy(&cost) > SLACK * growth * busy(e.cost) + NOTHING {
        return None;
    }
    // One that is worth sharing out now is cut anew.
    let workers = ctx.workers as u64;
    if work.tasks < workers && busy(&cost) > WORTH_SHARING * ctx.machine.costs.handoff_s.value {
        return None;
    }
    let mut schedule = e.schedule.clone();
    set_chunk(ctx, &mut schedule, &work, cost.time_s);
    whys.push(Why {
        pass: "schedule".into(),
        subject: name.into(),
        choice: "that of the near box".into(),
        reason: format!(
            "predicted {:.1} us, bound by {}; no slower for its size than there",
            cost.time_s * 1e6,
            cost.bound
        ),
        alternatives: vec![],
    });
    let mut kernel = e.kernel.clone();
    kernel.name = name.into();
    Some(Choice {
        kernel,
        schedule,
        packed: e.packed.clone(),
        work,
        cost,
    })
}
