//! State of the scheduler: its sessions and runs.
use super::{Action, RISES_S, Refusal, Request, RequestId, SessionId, SessionPolicy};
use crate::batching::{Batcher, Waiting};
use crate::stats::Recent;

/// Requests that ran in time before the margin for deadlines is narrowed by a step.
const GOOD: u32 = 64;
/// Widest margin on predicted times.
const WIDEST: f64 = 4.0;
/// Narrowest.
const NARROWEST: f64 = 1.05;

/// A run: requests with workers.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub session: SessionId,
    pub priority: i32,
    /// Requests with when they must be done.
    pub requests: Vec<(RequestId, f64)>,
    pub wanted: u32,
    pub granted: u32,
    /// What the caller was told last.
    pub told: u32,
    /// Predicted worker seconds.
    pub predicted: f64,
    /// Worker seconds it has had, as of `since`.
    pub spent: f64,
    pub since: f64,
    pub stopped: bool,
}

impl Run {
    pub fn advance(&mut self, now: f64) {
        self.spent += f64::from(self.granted) * (now - self.since).max(0.0);
        self.since = now;
    }

    pub fn grant(&mut self, now: f64, workers: u32) {
        self.advance(now);
        self.granted = workers;
    }

    /// Predicted worker seconds still to come.
    pub fn left(&self, now: f64, ratio: f64) -> f64 {
        let spent = self.spent + f64::from(self.granted) * (now - self.since).max(0.0);
        (self.predicted * ratio - spent).max(0.0)
    }
}

/// A session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub policy: SessionPolicy,
    pub queue: Batcher,
    /// Where it stands in virtual time: worker seconds by weight.
    pub tag: f64,
    pub running: usize,
    pub draining: bool,
    pub said_drained: bool,
    pub finished: u64,
    pub rejected: u64,
    pub expired: u64,
    pub missed: u64,
    /// Measured over predicted worker seconds.
    ratios: Recent<32>,
    /// Predicted times are taken that much longer when a deadline is to be kept.
    margin: f64,
    good: u32,
}

impl Default for Session {
    fn default() -> Self {
        Session {
            policy: SessionPolicy::default(),
            queue: Batcher::default(),
            tag: 0.0,
            running: 0,
            draining: false,
            said_drained: false,
            finished: 0,
            rejected: 0,
            expired: 0,
            missed: 0,
            ratios: Recent::default(),
            margin: 1.1,
            good: 0,
        }
    }
}

/// A run that was made.
pub(super) struct StartedRun {
    pub run: Run,
    pub start_tag: f64,
}

impl Session {
    pub fn set(&mut self, mut policy: SessionPolicy) {
        if !(policy.weight.is_finite() && policy.weight > 0.0) {
            policy.weight = 1.0;
        }
        policy.workers = policy.workers.max(1);
        self.queue.set(policy.batching);
        self.policy = policy;
        self.draining = false;
        self.said_drained = false;
    }

    pub fn push(&mut self, now: f64, request: Request) {
        let within = request.deadline_s.or(self.policy.deadline);
        let arrived = now - request.since_s;
        self.queue.push(Waiting {
            request,
            arrived,
            due: within.map_or(f64::INFINITY, |d| arrived + d),
        });
    }

    /// Measured over predicted, the median of the last runs; 1 before the first.
    pub fn ratio(&self) -> f64 {
        self.ratios.median().unwrap_or(1.0)
    }

    /// By how much predicted times are stretched where a deadline is to be kept: in a long queue most requests
    /// are as late as they may be when their turn comes.
    pub fn stretch(&self) -> f64 {
        self.ratio() * self.margin
    }

    /// When the request at the head of the queue has waited long enough to go before what is urgent.
    pub fn rises_at(&self) -> f64 {
        let head = self.queue.head();
        head.map_or(f64::INFINITY, |w| w.arrived + RISES_S)
    }

    /// Worker seconds that wait.
    pub fn backlog_s(&self) -> f64 {
        self.queue.backlog_s() * f64::from(self.policy.workers) * self.ratio()
    }

    fn gave_up(&mut self, w: &Waiting, now: f64, out: &mut Vec<Action>) {
        self.expired += 1;
        self.late();
        out.push(Action::Expire {
            request: w.request.id,
            why: Refusal::Late {
                predicted_s: now - w.arrived + w.request.cost_s * self.stretch(),
                deadline_s: w.due - w.arrived,
            },
        });
    }

    /// Gives up what waits and cannot be done in time any more.
    pub fn expire(&mut self, now: f64, out: &mut Vec<Action>) {
        let stretch = self.stretch();
        let late = self.queue.remove_late(|w| w.latest_start(stretch) < now);
        for w in late {
            self.gave_up(&w, now, out);
        }
    }

    /// As [`Session::expire`] for the head alone, until one can be done in time.
    pub fn expire_head(&mut self, now: f64, out: &mut Vec<Action>) {
        while let Some(head) = self.queue.head()
            && head.latest_start(self.stretch()) < now
        {
            let id = head.request.id;
            if let Some(w) = self.queue.remove(id) {
                self.gave_up(&w, now, out);
            }
        }
    }

    /// Makes a run of what waits; `None` when nothing does.
    pub fn start(&mut self, now: f64, workers: u32) -> Option<StartedRun> {
        let batch = self.queue.take()?;
        let wanted = self.policy.workers;
        let predicted = batch.cost_s * f64::from(wanted);
        let start_tag = self.tag;
        self.tag += predicted * self.ratio() / self.policy.weight;
        self.running += 1;
        let session = batch.requests.first().map_or(0, |w| w.request.session);
        Some(StartedRun {
            start_tag,
            run: Run {
                session,
                priority: self.policy.priority,
                requests: batch
                    .requests
                    .iter()
                    .map(|w| (w.request.id, w.due))
                    .collect(),
                wanted,
                granted: workers,
                told: workers,
                predicted,
                spent: 0.0,
                since: now,
                stopped: false,
            },
        })
    }

    /// A run has ended.
    pub fn ended(&mut self, run: &Run, now: f64) {
        // What it really took counts, so that wrong predictions do not buy a larger share.
        self.tag += (run.spent - run.predicted * self.ratio()) / self.policy.weight;
        self.running = self.running.saturating_sub(1);
        self.finished += run.requests.len() as u64;
        if !run.stopped && run.predicted > 0.0 && run.spent > 0.0 {
            self.ratios.push(run.spent / run.predicted);
        }
        for (_, due) in &run.requests {
            if now > *due {
                self.missed += 1;
                self.late();
            } else if due.is_finite() {
                self.good += 1;
                if self.good >= GOOD {
                    self.good = 0;
                    self.margin = (self.margin * 0.98).max(NARROWEST);
                }
            }
        }
    }

    fn late(&mut self) {
        self.good = 0;
        self.margin = (self.margin * 1.1).min(WIDEST);
    }
}
