//! Plans of loop bodies and branches, with how often each runs.
use crate::units;
use crate::{MemoryView, StepView};
use plan::{Decisions, Plan, Why};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A branch or loop body of control flow, planned on its own.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BodyView {
    /// Model node that it belongs to.
    pub node: String,
    /// `then`, `else` or `body`.
    pub which: String,
    /// How often it runs in a request, where that is known: 1 for branches, a constant trip count
    /// for loops.
    pub times: Option<u64>,
    /// Predicted time of one run, microseconds, bodies inside it included; none where its sizes are
    /// known only while a request runs.
    pub predicted_us: Option<f64>,
    /// Sizes in it that only data gives, as they are taken (`n=1`).
    pub taken: Vec<String>,
    /// Why there is no prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What bounds that time: microseconds by bound.
    pub bounds_us: BTreeMap<String, f64>,
    /// Memory it takes.
    pub memory: Option<MemoryView>,
    /// Its plan.
    #[serde(skip)]
    pub plan: Option<Arc<Plan>>,
    /// Its steps, numbered on from those of the plan that it belongs to.
    pub steps: Vec<StepView>,
    /// Branches and loop bodies inside it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inner: Vec<BodyView>,
}

impl BodyView {
    /// Itself and what is inside it, in order.
    pub fn all(&self) -> Vec<&BodyView> {
        let inner = self.inner.iter().flat_map(BodyView::all);
        std::iter::once(self).chain(inner).collect()
    }
}

/// Makes the steps of bodies, numbered from `number` on, and adds their decisions to `whys`.
pub(crate) fn with_steps(bodies: &mut [BodyView], number: &mut u32, whys: &mut Vec<Why>) {
    for body in bodies {
        if let Some(plan) = &body.plan {
            let decisions = Decisions::of(&plan.whys);
            let view = |(step, n)| StepView::new(n, step, &plan.dims, &decisions);
            body.steps = plan.steps().zip(*number..).map(view).collect();
            *number += body.steps.len() as u32;
            whys.extend(plan.whys.iter().cloned());
        }
        with_steps(&mut body.inner, number, whys);
    }
}

/// As [`counted`], with what is inside, which counts as often as it and what it stands in run.
pub fn counted_inside(bodies: &[BodyView]) -> Vec<(&BodyView, f64)> {
    let mut out = Vec::new();
    for (body, times) in counted(bodies) {
        out.push((body, times));
        let inner = counted_inside(&body.inner).into_iter();
        out.extend(inner.map(|(b, n)| (b, n * times)));
    }
    out
}

/// The bodies that count in a request and how often: the costlier branch of each `If`, a loop's body as
/// often as it runs (once where that is not known).
pub fn counted(bodies: &[BodyView]) -> Vec<(&BodyView, f64)> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < bodies.len() {
        let b = &bodies[i];
        match bodies.get(i + 1) {
            Some(e) if b.which == "then" && e.which == "else" => {
                let costlier = if e.predicted_us > b.predicted_us {
                    e
                } else {
                    b
                };
                out.push((costlier, 1.0));
                i += 2;
            }
            _ => {
                out.push((b, b.times.unwrap_or(1) as f64));
                i += 1;
            }
        }
    }
    out
}

/// Predicted microseconds that bodies add to a request: those that are [`counted`].
pub fn bodies_us(bodies: &[BodyView]) -> f64 {
    let each = counted(bodies).into_iter();
    each.map(|(b, n)| b.predicted_us.unwrap_or(0.0) * n).sum()
}

/// What the prediction takes for granted about control flow, a line each.
pub fn bodies_text(bodies: &[BodyView]) -> Vec<String> {
    let time = |b: &BodyView| match b.predicted_us {
        Some(us) => units::seconds(us * 1e-6),
        None => match &b.why {
            Some(why) => format!("not predicted ({why})"),
            None => "unknown until its sizes are known".into(),
        },
    };
    let taken = |all: &[&BodyView]| {
        let mut list: Vec<&str> = all
            .iter()
            .flat_map(|b| &b.taken)
            .map(String::as_str)
            .collect();
        list.dedup();
        match list.is_empty() {
            true => String::new(),
            false => format!(
                "; sizes that only its data gives taken as {}",
                list.join(", ")
            ),
        }
    };
    let mut lines = Vec::new();
    let mut i = 0;
    while i < bodies.len() {
        let b = &bodies[i];
        match bodies.get(i + 1) {
            Some(e) if b.which == "then" && e.which == "else" => {
                let larger = if e.predicted_us > b.predicted_us {
                    "else"
                } else {
                    "then"
                };
                lines.push(format!(
                    "if {}: then {}, else {}; the larger ({larger}) is counted{}",
                    b.node,
                    time(b),
                    time(e),
                    taken(&[b, e])
                ));
                i += 2;
            }
            _ => {
                let line = match b.times {
                    Some(n) => format!("loop {}: {} each time, {n} times", b.node, time(b)),
                    None => format!(
                        "loop {}: {} each time; how often is known only when it runs, counted once",
                        b.node,
                        time(b)
                    ),
                };
                lines.push(line + &taken(&[b]));
                i += 1;
            }
        }
    }
    lines
}
