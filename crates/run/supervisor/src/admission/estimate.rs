//! Estimates whether a request can meet its deadline.
use super::{Refusal, Request, Scheduler};

impl Scheduler {
    /// Why `request` is turned away before it waits; `None` when it may.
    pub(super) fn refusal(&self, request: &Request) -> Option<Refusal> {
        let Some(s) = self.sessions.get(&request.session) else {
            return Some(Refusal::Unknown(request.session));
        };
        if !(request.cost_s.is_finite() && request.cost_s >= 0.0) || request.items == 0 {
            return Some(Refusal::Malformed(format!(
                "it has {} items and a predicted time of {} s; both must be known",
                request.items, request.cost_s
            )));
        }
        if s.draining {
            return Some(Refusal::Draining);
        }
        let deadline_s = request.deadline_s.or(s.policy.deadline)?;
        let predicted_s = request.since_s + self.predicted(request)?;
        // A deadline that is not a number is kept by nothing.
        if predicted_s <= deadline_s {
            return None;
        }
        Some(Refusal::Late {
            predicted_s,
            deadline_s,
        })
    }

    /// Predicted seconds from now to the end of `request`, were it to come now, with the margin that
    /// its session has learned to keep.
    ///
    /// Workers are taken for a fluid: what has a higher priority goes first, the session's own backlog
    /// is served beside others of its priority by weight, and never by more workers than its
    /// instances have.
    pub fn predicted(&self, request: &Request) -> Option<f64> {
        let own = self.sessions.get(&request.session)?;
        let workers = f64::from(self.total.max(1));
        let each = f64::from(own.policy.workers.min(self.total.max(1)));
        let (mut before, mut mine) = (0.0, own.backlog_s());
        let mut beside: Vec<(f64, f64)> = Vec::new();
        for r in self.runs.values() {
            let ratio = self.sessions.get(&r.session).map_or(1.0, |s| s.ratio());
            let left = r.left(self.now, ratio);
            if r.session == request.session {
                mine += left;
            } else if r.priority >= own.policy.priority {
                before += left;
            }
        }
        for (id, s) in &self.sessions {
            if *id == request.session || s.queue.is_empty() {
                continue;
            }
            if s.policy.priority > own.policy.priority {
                before += s.backlog_s();
            } else if s.policy.priority == own.policy.priority {
                beside.push((s.backlog_s(), s.policy.weight / own.policy.weight));
            }
        }
        let wanted = f64::from(own.policy.workers);
        let cost = request.cost_s * own.stretch();
        let all_mine = mine + cost * wanted;
        let shared: f64 = beside.iter().map(|(b, w)| b.min(w * all_mine)).sum();
        let held = if own.policy.batching.max_items > 1 && !own.queue.is_full() {
            own.policy.batching.max_delay_s
        } else {
            0.0
        };
        let instances = own.policy.max_running.max(1) as f64;
        let wait = ((before + mine + shared) / workers).max(mine / (instances * each).min(workers));
        // On fewer workers than it asks for a run takes longer.
        Some(wait * own.stretch() / own.ratio() + held + cost * wanted / each)
    }
}
