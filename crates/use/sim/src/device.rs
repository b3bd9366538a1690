//! A simulated device: workers, runs, what a window sees of them.
use crate::backend::{Offer, Way};
use crate::cost::StepTime;
use layout::Arrange;
use std::collections::BTreeMap;
use std::sync::Arc;
use supervisor::admission::{RequestId, RunId, Scheduler};
use supervisor::supervise::{Log, Supervisor, TrialSeen};

/// A run on its workers.
#[derive(Debug)]
pub(crate) struct Run {
    pub session: usize,
    pub requests: Vec<RequestId>,
    pub items: u32,
    pub way: Way,
    /// Workers granted, by number.
    pub workers: Vec<u32>,
    pub steps: Arc<[StepTime]>,
    /// Step that it is at.
    pub at: usize,
    /// When the present stretch of that step began and how long it lasts.
    pub began: f64,
    pub len: f64,
    /// Share of the step that was left when that stretch began.
    pub left: f64,
    /// Whether the step was interrupted: its time says nothing.
    pub disturbed: bool,
    /// Whether its plan was made for its size.
    pub planned: bool,
    pub started: f64,
    /// Events of an older version are void.
    pub version: u64,
    /// Whether it runs with what is tried; `None`: nothing is.
    pub trial: Option<bool>,
    /// Worker seconds so far, as of `since`.
    pub spent: f64,
    pub since: f64,
    pub predicted_s: f64,
    pub panics_at: Option<usize>,
}

impl Run {
    pub fn account(&mut self, now: f64) {
        self.spent += self.workers.len() as f64 * (now - self.since).max(0.0);
        self.since = now;
    }
}

/// A worker.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub run: Option<RunId>,
    /// When it is done with the task of a run that it was taken from.
    pub free_at: f64,
    /// Share of its core.
    pub share: f64,
    /// Taken last.
    pub avoid: bool,
    pub dead: bool,
}

/// A session on a device.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub way: Way,
    pub instances: u32,
    pub max_delay_s: f64,
    pub marginal: f64,
    /// Size of most requests of late.
    pub size: u32,
    pub runs: u64,
}

/// What a window collects of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub arrivals: u64,
    pub finished: u64,
    pub outside: u64,
    pub sizes: BTreeMap<u32, u64>,
    /// Measured and predicted seconds of runs.
    pub runs: Vec<(f64, f64)>,
    /// Measured over predicted, by step.
    pub steps: BTreeMap<Arc<str>, StepSamples>,
}

#[derive(Clone, Debug)]
pub(crate) struct StepSamples {
    pub bound: machine::Bound,
    pub predicted_s: f64,
    pub ratios: Vec<f64>,
}

/// A trial under way.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub offer: Offer,
    pub every: u32,
    pub count: u32,
    /// The division changes: windows take turns, not requests.
    pub by_window: bool,
    /// Whether this window is one with it.
    pub on: bool,
    pub per_item: bool,
    pub seen: TrialSeen,
}

/// A device.
#[derive(Debug)]
pub(crate) struct Device {
    pub scheduler: Scheduler,
    pub supervisor: Supervisor,
    pub workers: Vec<Worker>,
    pub usable: u32,
    pub runs: BTreeMap<RunId, Run>,
    /// By session; `None` where it does not run here.
    pub slots: Vec<Option<Slot>>,
    pub seen: Vec<Seen>,
    pub trial: Option<Trial>,
    pub clock: f64,
    pub memory: f64,
    pub panic_rate: f64,
    pub heal_s: f64,
    pub gone: bool,
    pub wake: f64,
    /// Worker seconds granted.
    pub busy: f64,
    pub log: Option<Log<Vec<u8>>>,
}

impl Device {
    /// Workers that can be granted.
    pub fn alive(&self) -> u32 {
        if self.gone {
            return 0;
        }
        let alive = self.workers.iter().filter(|w| !w.dead).count() as u32;
        alive.min(self.usable).max(u32::from(alive > 0))
    }

    /// Gives `run` workers until it has `n`: quiet ones first, then those that are free soonest. Returns
    /// when the last of them is free.
    pub fn take(&mut self, run: RunId, n: usize) -> f64 {
        let have = self.runs.get(&run).map_or(0, |r| r.workers.len());
        let mut free: Vec<usize> = (0..self.workers.len())
            .filter(|&i| self.workers[i].run.is_none() && !self.workers[i].dead)
            .collect();
        free.arrange_by(|&a, &b| {
            let (x, y) = (&self.workers[a], &self.workers[b]);
            (x.avoid, x.free_at, a)
                .partial_cmp(&(y.avoid, y.free_at, b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let mut at = 0.0f64;
        for i in free.into_iter().take(n.saturating_sub(have)) {
            self.workers[i].run = Some(run);
            at = at.max(self.workers[i].free_at);
            if let Some(r) = self.runs.get_mut(&run) {
                r.workers.push(i as u32);
            }
        }
        at
    }

    /// Takes workers from `run` until it has `n`, those to be avoided first; each is done with its task
    /// at `free_at`.
    pub fn give_up(&mut self, run: RunId, n: usize, free_at: f64) {
        let Some(r) = self.runs.get_mut(&run) else {
            return;
        };
        while r.workers.len() > n {
            let workers = &self.workers;
            let of = |&i: &usize| (workers[r.workers[i] as usize].avoid, r.workers[i]);
            let Some(at) = (0..r.workers.len()).max_by_key(of) else {
                return;
            };
            let w = r.workers.swap_remove(at) as usize;
            self.workers[w].run = None;
            self.workers[w].free_at = free_at;
        }
    }
}
