//! Detection of lasting changes in a stream of windows: lost workers, machine rates, traffic, shapes, queues.
use super::types::{Options, SessionSeen, StepSeen, Window};
use crate::admission::SessionId;
use crate::stats::{Recent, median};
use layout::Arrange;
use machine::Bound;
use plan::{Load, Observations, RateSeen};
use std::collections::{BTreeMap, VecDeque};

/// Steps that are watched; a plan with more is judged by those that come first.
const STEPS: usize = 8192;
/// A worker that has less of its core than this is lost, one that has more than [`BACK`] is back.
const LOST: f64 = 0.75;
const BACK: f64 = 0.9;
/// Windows that are not used for rates after a worker was lost or came back.
const DISTURBED: u32 = 4;
/// A queue is growing when it is longer than this at least.
const LONG_QUEUE: u64 = 4;

/// A number that is taken to have changed only when several windows in a row say so.
#[derive(Clone, Debug)]
struct Level {
    held: f64,
    last: VecDeque<f64>,
}

impl Level {
    fn new(held: f64) -> Level {
        Level {
            held,
            last: VecDeque::new(),
        }
    }

    /// Whether `v` completes a run of `persist` values that all differ from what is held by more than
    /// `deviation`, in the same direction; what is held is then their median.
    fn see(&mut self, v: f64, persist: usize, deviation: f64) -> bool {
        let off = (v / self.held.max(f64::MIN_POSITIVE)).ln();
        let bar = deviation.ln_1p();
        if !off.is_finite() || off.abs() <= bar {
            self.last.clear();
            return false;
        }
        if let Some(l) = self.last.back()
            && (l / self.held).ln().signum() != off.signum()
        {
            self.last.clear();
        }
        self.last.push_back(v);
        if self.last.len() < persist.max(1) {
            return false;
        }
        let all: Vec<f64> = self.last.drain(..).collect();
        self.held = median(&all).unwrap_or(self.held);
        true
    }
}

#[derive(Clone, Debug)]
struct WorkerState {
    share: f64,
    lost: bool,
    agree: usize,
}

#[derive(Clone, Debug)]
struct SessionState {
    /// Requests per second, over a few windows.
    recent: Recent<5>,
    rate: Option<Level>,
    warm: usize,
    shape: Option<u64>,
    other_shape: usize,
    growing: usize,
    queued: u64,
    /// Rates of single windows.
    single: Recent<20>,
    /// Measured over predicted time of its runs.
    run: Level,
    /// Windows until `run` is known again after a change of the plan.
    settling: usize,
}

impl Default for SessionState {
    fn default() -> Self {
        SessionState {
            recent: Recent::default(),
            rate: None,
            warm: 0,
            shape: None,
            other_shape: 0,
            growing: 0,
            queued: 0,
            single: Recent::default(),
            run: Level::new(1.0),
            settling: 0,
        }
    }
}

/// When the planner is to be asked about something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// When it is asked next.
    Someday,
    /// Soon, however often it knew nothing better before.
    Soon,
    /// Even if it rests: not a number that may swing, but other workers or requests.
    AtOnce,
}

/// Something that has changed for good, as far as one can tell.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fact {
    /// What it is about.
    pub subject: String,
    /// What is the case now.
    pub what: String,
    /// What shows it.
    pub reason: String,
    /// Whether the workers to be granted change.
    pub workers: bool,
    /// When the planner is to be asked.
    pub urgency: Urgency,
}

/// What is held to be true.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    workers: Vec<WorkerState>,
    rates: BTreeMap<Bound, Level>,
    /// Per bound: whether it was ever as described.
    was_right: BTreeMap<Bound, bool>,
    sessions: BTreeMap<SessionId, SessionState>,
    steps: BTreeMap<(SessionId, String), (Recent<16>, f64)>,
    disturbed: u32,
    windows: u64,
}

impl Watch {
    /// Takes a window in; returns what changed.
    pub fn see(&mut self, w: &Window, o: &Options) -> Vec<Fact> {
        self.windows += 1;
        let mut facts = Vec::new();
        let quiet = self.see_workers(&w.workers, o, &mut facts);
        self.disturbed = match quiet {
            true => self.disturbed.saturating_sub(1),
            false => DISTURBED,
        };
        self.see_steps(&w.steps, o, &mut facts);
        for s in &w.sessions {
            self.see_session(s, o, &mut facts);
        }
        facts
    }

    /// Whether all workers have been alone for the whole window.
    fn see_workers(&mut self, shares: &[f64], o: &Options, facts: &mut Vec<Fact>) -> bool {
        let mut quiet = true;
        for (i, share) in shares.iter().enumerate() {
            let share = if share.is_finite() {
                share.clamp(0.0, 1.0)
            } else {
                1.0
            };
            if self.workers.len() <= i {
                self.workers.push(WorkerState {
                    share: 1.0,
                    lost: false,
                    agree: 0,
                });
            }
            let s = &mut self.workers[i];
            // A neighbour that is known of disturbs nothing any more.
            quiet &= share >= BACK || s.lost;
            let other = if s.lost { share > BACK } else { share < LOST };
            s.agree = if other { s.agree + 1 } else { 0 };
            if s.lost && !other {
                s.share += 0.25 * (share - s.share);
            }
            if s.agree < o.persist.max(1) {
                continue;
            }
            (s.lost, s.agree, s.share) = (!s.lost, 0, share);
            let what = match s.lost {
                true => "lost its core",
                false => "has its core back",
            };
            quiet = false;
            facts.push(Fact {
                subject: format!("worker {i}"),
                what: what.into(),
                reason: format!(
                    "it had its core for {:.0}% of the time that it wanted it, for {} windows in a row",
                    100.0 * share,
                    o.persist.max(1)
                ),
                workers: true,
                urgency: Urgency::AtOnce,
            });
        }
        quiet
    }

    fn see_steps(&mut self, steps: &[StepSeen], o: &Options, facts: &mut Vec<Fact>) {
        let mut by_bound: BTreeMap<&Bound, Vec<(f64, f64)>> = BTreeMap::new();
        for s in steps {
            let ratio = s.measured_s / s.predicted_s;
            if !(ratio.is_finite() && ratio > 0.0) || s.count == 0 {
                continue;
            }
            by_bound
                .entry(&s.bound)
                .or_default()
                .push((ratio, s.predicted_s));
            let key = (s.session, s.step.clone());
            if self.steps.len() < STEPS || self.steps.contains_key(&key) {
                let e = self.steps.entry(key).or_default();
                e.0.push(ratio);
                e.1 = s.predicted_s;
            }
        }
        if self.disturbed > 0 {
            return;
        }
        let mut changed = Vec::new();
        for (bound, mut ratios) in by_bound {
            // The median by time: a hundred short steps say less than one that takes most of it.
            ratios.arrange_by(|a, b| a.0.total_cmp(&b.0));
            let half: f64 = ratios.iter().map(|r| r.1).sum::<f64>() / 2.0;
            let mut sum = 0.0;
            let at = ratios.iter().find(|r| {
                sum += r.1;
                sum >= half
            });
            let Some(&(ratio, _)) = at else { continue };
            let level = self
                .rates
                .entry(bound.clone())
                .or_insert_with(|| Level::new(1.0));
            let right = self.was_right.entry(bound.clone()).or_insert(false);
            *right |= (ratio - 1.0).abs() <= o.deviation;
            let before = level.held;
            if level.see(ratio, o.persist, o.deviation) {
                changed.push((bound.clone(), before, level.held, *right));
            }
        }
        let compute = |b: &Bound| matches!(b, Bound::Compute(_));
        let all_slow = changed.iter().any(|c| compute(&c.0) && c.2 > c.1);
        for (bound, before, now, right) in changed {
            let diagnosis = match (&bound, now > before) {
                (Bound::Compute(_), true) if right => {
                    "the clock is throttled, or somebody shares the cores or the memory"
                }
                (Bound::Memory(_), true) if right && !all_slow => {
                    "somebody else uses the memory, or less of a cache is ours"
                }
                (_, true) if right => "the machine is slower than it was",
                (_, true) => "the machine's description promises too much",
                (_, false) if before > 1.0 => "what slowed it is gone",
                (_, false) => "the machine's description promises too little",
            };
            facts.push(Fact {
                subject: format!("steps bound by {bound}"),
                what: format!("{:.2} times the predicted time, was {before:.2}", now),
                reason: format!("{diagnosis}: {} windows in a row agree", o.persist.max(1)),
                workers: false,
                urgency: Urgency::Soon,
            });
        }
    }

    fn see_session(&mut self, s: &SessionSeen, o: &Options, facts: &mut Vec<Fact>) {
        let disturbed = self.disturbed > 0;
        let state = self.sessions.entry(s.session).or_default();
        let subject = match s.name.is_empty() {
            true => format!("session {}", s.session),
            false => s.name.clone(),
        };
        if s.seconds > 0.0 {
            state.recent.push(s.arrivals as f64 / s.seconds);
            state.single.push(s.arrivals as f64 / s.seconds);
            state.warm += 1;
        }
        // A rate needs a second to be known; a count of `n` differs by its root from window to window.
        if state.warm >= 10 {
            let values = state.recent.values();
            let now = values.iter().sum::<f64>() / values.len() as f64;
            let expected = now * s.seconds * values.len() as f64;
            let noise = 3.0 / expected.max(1.0).sqrt();
            let level = state.rate.get_or_insert_with(|| Level::new(now.max(1e-3)));
            let before = level.held;
            if level.see(now.max(1e-3), o.persist, 0.5 + noise) {
                facts.push(Fact {
                    subject: subject.clone(),
                    what: format!("{:.1} requests/s, were {before:.1}", level.held),
                    reason: "traffic has shifted".into(),
                    workers: false,
                    urgency: Urgency::Someday,
                });
            }
        }
        if let Some((shape, n)) = s.shapes.iter().max_by_key(|x| (x.1, x.0))
            && 2 * n > s.arrivals
        {
            match state.shape {
                Some(old) if old != *shape => state.other_shape += 1,
                Some(_) => state.other_shape = 0,
                None => state.shape = Some(*shape),
            }
            if state.other_shape >= o.persist.max(1) {
                (state.shape, state.other_shape) = (Some(*shape), 0);
                // What was measured of the old shape says nothing about the new one.
                state.run = Level::new(1.0);
                self.steps.retain(|k, _| k.0 != s.session);
                facts.push(Fact {
                    subject: subject.clone(),
                    what: "most requests have another shape".into(),
                    reason: format!(
                        "{n} of {} requests of the last window, for {} windows in a row; {} were of sizes that no plan covers",
                        s.arrivals,
                        o.persist.max(1),
                        s.outside
                    ),
                    workers: false,
                    urgency: Urgency::AtOnce,
                });
            }
        }
        let Some(state) = self.sessions.get_mut(&s.session) else {
            return;
        };
        let grows = s.queued > state.queued.max(LONG_QUEUE) && s.arrivals > s.finished;
        state.growing = if grows { state.growing + 1 } else { 0 };
        state.queued = s.queued;
        if state.growing >= o.persist.max(1) {
            state.growing = 0;
            facts.push(Fact {
                subject: subject.clone(),
                what: format!("{} requests wait", s.queued),
                reason: "its queue has grown for several windows in a row".into(),
                workers: false,
                urgency: Urgency::Someday,
            });
        }
        let ratio = s.run_s / s.predicted_s;
        if state.settling > 0 && ratio.is_finite() && ratio > 0.0 {
            // The new plan's own ratio: what differs from it later is news.
            state.settling -= 1;
            if state.settling == 0 {
                state.run = Level::new(ratio);
            }
        } else if !disturbed && ratio.is_finite() && ratio > 0.0 {
            let before = state.run.held;
            if state.run.see(ratio, o.persist, o.deviation.max(0.15)) {
                facts.push(Fact {
                    subject,
                    what: format!(
                        "runs take {:.2} times the predicted time, {before:.2} until then",
                        state.run.held
                    ),
                    reason: "measured for several windows in a row".into(),
                    workers: false,
                    urgency: Urgency::Soon,
                });
            }
        }
    }

    /// Forgets what was measured of sessions whose plan has changed.
    pub fn replanned(&mut self, sessions: &[SessionId]) {
        self.steps.retain(|k, _| !sessions.contains(&k.0));
        for s in sessions {
            if let Some(state) = self.sessions.get_mut(s) {
                state.settling = 3;
                state.growing = 0;
            }
        }
    }

    /// Workers worth granting, and those to be avoided.
    pub fn usable(&self) -> (u32, Vec<u32>) {
        let lost: f64 = self.lost();
        let n = self.workers.len() as f64;
        // Half a core is worth a worker, less is not.
        let usable = (n - (lost - 0.25).max(0.0).floor()).max(1.0) as u32;
        let avoid = (0..self.workers.len())
            .filter(|&i| self.workers[i].lost)
            .map(|i| i as u32);
        (usable, avoid.collect())
    }

    fn lost(&self) -> f64 {
        let lost = self.workers.iter().filter(|w| w.lost);
        lost.map(|w| 1.0 - w.share).sum()
    }

    /// What the planner is told.
    pub fn observations(&self) -> Observations {
        let top = self.sessions.keys().next_back().map_or(0, |s| s + 1) as usize;
        let mut load = Load {
            queued: vec![0; top.min(1 << 16)],
            arrivals: vec![0.0; top.min(1 << 16)],
            lost_workers: self.lost(),
            shares: self
                .workers
                .iter()
                .map(|w| if w.lost { w.share } else { 1.0 })
                .collect(),
        };
        for (id, s) in &self.sessions {
            if let Some(q) = load.queued.get_mut(*id as usize) {
                *q = u32::try_from(s.queued).unwrap_or(u32::MAX);
            }
            if let Some(a) = load.arrivals.get_mut(*id as usize) {
                let v = s.recent.values();
                *a = v.iter().sum::<f64>() / v.len().max(1) as f64;
            }
        }
        let steps = self
            .steps
            .iter()
            .filter_map(|((session, step), (ratios, predicted_s))| {
                Some(plan::Observation {
                    session: *session,
                    step: step.clone(),
                    predicted_s: *predicted_s,
                    measured_s: predicted_s * ratios.median()?,
                    count: ratios.len() as u64,
                })
            })
            .collect();
        let rates = self
            .rates
            .iter()
            .filter(|(_, l)| l.held != 1.0)
            .map(|(bound, l)| RateSeen {
                bound: bound.clone(),
                factor: 1.0 / l.held,
            })
            .collect();
        Observations {
            steps,
            load,
            devices: Vec::new(),
            rates,
        }
    }
}
