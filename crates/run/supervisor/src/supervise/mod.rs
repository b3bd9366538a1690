//! Watches what really happens and changes the plan where that pays.
//!
//! A window of about 100 ms comes in. What persists over several windows is a fact: cores lost, rates
//! that are not those of the machine's description, traffic that has shifted, another shape, a queue
//! that grows. A fact makes the supervisor ask the planner; the best proposal above the threshold is
//! prepared beside the traffic, tried on a fraction of the requests, compared by a rank test, and
//! promoted or rolled back. What was changed or did not work has to wait before it is touched again,
//! four times as long each time, so that a load that swings cannot make the plan swing with it.
//!
//! Everything it decides is a [`Decision`]; the same observations give the same decisions.
mod log;
#[cfg(test)]
mod tests;
mod types;
mod watch;

use layout::Arrange;
pub use log::{Log, LogError, Record, Replayed, replay};
pub use types::{
    Action, Compare, Decision, Mode, Observation, Options, Proposal, ProposalId, SessionSeen,
    StepSeen, TrialSeen, Window,
};

use crate::stats::{median, quantile, rank_test};
use plan::{Alternative, Why};
use std::collections::{BTreeMap, VecDeque};
use watch::{Fact, Urgency, Watch};

/// Seconds after which an answer that did not come is not waited for any more.
const PATIENCE_S: f64 = 30.0;
/// Seconds between two questions to the planner at least.
const ASK_S: f64 = 0.2;
/// Longest time between them when the answers were of no use.
const SELDOM_S: f64 = 10.0;
/// An answer of no use is followed by a rest so many times as long as it took: planning takes processors from
/// requests, and what is measured swings a little all the time.
const REST: f64 = 4.0;
/// Longest that a trial has to last where something has been changed to and fro, seconds.
const LONG_TRIAL_S: f64 = 20.0;
/// However long a trial is to last, it ends where a request takes so many times more than it was to take less: a load that
/// swings does not make up for that.
const FAR: f64 = 8.0;
/// Each further wait is longer by this.
const LONGER: f64 = 4.0;
/// Samples kept of each side of a trial: every request counts, or every second, fourth, ... where there
/// are more.
const SAMPLES: usize = 1024;
/// Seconds after a change in which measurements are of both plans.
const SETTLE_S: f64 = 0.25;

/// A subject that was changed, or on which something was tried in vain.
#[derive(Clone, Debug, Default)]
struct Cooldown {
    /// Earliest time of the next attempt.
    not_before: f64,
    /// How often in a row.
    times: i32,
    /// When last.
    last: f64,
}

#[derive(Clone, Debug)]
enum Phase {
    /// Nothing is under way.
    Idle,
    /// The planner was asked.
    Asked { since: f64 },
    /// A proposal is being prepared.
    Preparing { proposal: Box<Proposal>, since: f64 },
    /// A proposal is being tried.
    Trying {
        proposal: Box<Proposal>,
        since: f64,
        with: Side,
        without: Side,
    },
}

/// The supervisor of one engine.
#[derive(Clone, Debug)]
pub struct Supervisor {
    options: Options,
    now: f64,
    watch: Watch,
    phase: Phase,
    /// Facts since the planner was asked last.
    open: Vec<String>,
    last_asked: f64,
    /// Answers in a row that were of no use.
    in_vain: i32,
    /// Earliest time of the next question.
    rests: f64,
    settled: f64,
    past: BTreeMap<String, Cooldown>,
    decisions: VecDeque<Decision>,
    rates: BTreeMap<u32, f64>,
    said: Option<(u32, Vec<u32>)>,
}

impl Supervisor {
    /// A supervisor that has seen nothing yet.
    pub fn new(options: Options) -> Supervisor {
        Supervisor {
            options,
            now: 0.0,
            watch: Watch::default(),
            phase: Phase::Idle,
            open: Vec::new(),
            last_asked: f64::NEG_INFINITY,
            in_vain: 0,
            rests: f64::NEG_INFINITY,
            settled: f64::NEG_INFINITY,
            past: BTreeMap::new(),
            decisions: VecDeque::new(),
            rates: BTreeMap::new(),
            said: None,
        }
    }

    /// What it decides by.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The last decisions, oldest first.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.iter()
    }

    /// The proposal that is being tried.
    pub fn trying(&self) -> Option<&Proposal> {
        match &self.phase {
            Phase::Trying { proposal, .. } => Some(proposal),
            _ => None,
        }
    }

    /// What follows from `observation` at `now` seconds of the caller's clock.
    pub fn step(&mut self, now: f64, observation: Observation) -> Vec<Action> {
        let mut out = Vec::new();
        if self.options.mode == Mode::Off {
            return out;
        }
        if now > self.now {
            self.now = now;
        }
        match observation {
            Observation::Window(w) => self.window(&w, &mut out),
            Observation::Proposed(list) => self.proposed(list, &mut out),
            Observation::Ready { proposal, failed } => self.ready(proposal, failed, &mut out),
        }
        out
    }

    fn note(&mut self, out: &mut Vec<Action>, why: Why) {
        let d = Decision { at: self.now, why };
        while self.decisions.len() >= self.options.history.max(1) {
            self.decisions.pop_front();
        }
        self.decisions.push_back(d.clone());
        out.push(Action::Note(d));
    }

    fn window(&mut self, w: &Window, out: &mut Vec<Action>) {
        for s in &w.sessions {
            if s.seconds > 0.0 {
                let r = self.rates.entry(s.session).or_insert(0.0);
                *r += 0.3 * (s.arrivals as f64 / s.seconds - *r);
            }
        }
        let mut seen = w;
        let without_steps;
        if self.now < self.settled {
            // Runs that began before the change are among these.
            without_steps = Window {
                steps: Vec::new(),
                sessions: w
                    .sessions
                    .iter()
                    .map(|s| SessionSeen {
                        run_s: 0.0,
                        ..s.clone()
                    })
                    .collect(),
                ..w.clone()
            };
            seen = &without_steps;
        }
        let facts = self.watch.see(seen, &self.options);
        let workers = facts.iter().any(|f| f.workers);
        for f in facts {
            self.noticed(f, out);
        }
        if workers {
            self.workers(out);
        }
        self.forgive();
        if let Some(t) = &w.trial {
            self.trial(t, out);
        }
        self.overdue(out);
        self.ask(out);
    }

    fn noticed(&mut self, f: Fact, out: &mut Vec<Action>) {
        if f.urgency >= Urgency::Soon {
            self.in_vain = 0;
        }
        if f.urgency == Urgency::AtOnce {
            self.rests = f64::NEG_INFINITY;
        }
        self.open.push(format!("{}: {}", f.subject, f.what));
        if self.open.len() > 16 {
            self.open.remove(0);
        }
        self.note(
            out,
            Why {
                pass: "noticed".into(),
                subject: f.subject,
                choice: f.what,
                alternatives: vec![],
                reason: f.reason,
            },
        );
    }

    fn workers(&mut self, out: &mut Vec<Action>) {
        let now = self.watch.usable();
        if self.said.as_ref() == Some(&now) {
            return;
        }
        let (usable, avoid) = now.clone();
        self.said = Some(now);
        let list: Vec<String> = avoid.iter().map(ToString::to_string).collect();
        let s = if usable == 1 { "" } else { "s" };
        let choice = match list.is_empty() {
            true => format!("{usable} worker{s}"),
            false => format!("{usable} worker{s}, worker {} last", list.join(", ")),
        };
        self.note(
            out,
            Why {
                pass: "workers".into(),
                subject: "grants".into(),
                choice,
                alternatives: vec![],
                reason: "a task on a core that somebody else uses holds up the whole step".into(),
            },
        );
        if self.options.mode == Mode::On {
            out.push(Action::Workers { usable, avoid });
        }
    }

    /// A subject that was left alone for long enough may be changed sooner the next time.
    fn forgive(&mut self) {
        let (now, after) = (self.now, self.options.forgive_s);
        self.past.retain(|_, p| {
            while p.times > 0 && now - p.last > after {
                p.times -= 1;
                p.last += after;
            }
            p.times > 0 || now < p.not_before
        });
    }

    /// Seconds that a subject has to wait after its `times`-th change.
    fn wait(&self, times: i32) -> f64 {
        (self.options.back_off_s * LONGER.powi((times - 1).clamp(0, 30)))
            .min(self.options.max_back_off_s)
    }

    fn touched(&mut self, subject: &str) -> f64 {
        let times = self.past.get(subject).map_or(0, |p| p.times) + 1;
        let wait = self.wait(times);
        let past = Cooldown {
            not_before: self.now + wait,
            times,
            last: self.now,
        };
        self.past.insert(subject.to_string(), past);
        wait
    }

    fn overdue(&mut self, out: &mut Vec<Action>) {
        let (subject, id, what) = match &self.phase {
            Phase::Asked { since } if self.now - since > PATIENCE_S => {
                self.phase = Phase::Idle;
                return;
            }
            Phase::Preparing { proposal, since } if self.now - since > PATIENCE_S => (
                proposal.subject.clone(),
                proposal.id,
                "was not ready in time",
            ),
            _ => return,
        };
        self.give_up(&subject, id, what.into(), vec![], out);
    }

    fn ask(&mut self, out: &mut Vec<Action>) {
        if !matches!(self.phase, Phase::Idle)
            || self.open.is_empty()
            || self.now < self.rests
            || self.now - self.last_asked
                < (ASK_S * 2f64.powi(self.in_vain.clamp(0, 10))).min(SELDOM_S)
        {
            return;
        }
        let reasons = std::mem::take(&mut self.open);
        self.last_asked = self.now;
        self.phase = Phase::Asked { since: self.now };
        self.note(
            out,
            Why {
                pass: "asked".into(),
                subject: "planner".into(),
                choice: "proposals for all sessions".into(),
                alternatives: vec![],
                reason: reasons.join("; "),
            },
        );
        out.push(Action::Propose(Box::new(self.watch.observations())));
    }

    fn proposed(&mut self, mut list: Vec<Proposal>, out: &mut Vec<Action>) {
        let Phase::Asked { since } = self.phase else {
            return;
        };
        self.phase = Phase::Idle;
        self.in_vain += 1;
        self.rests = self.now + (REST * (self.now - since)).min(SELDOM_S);
        list.retain(|p| p.gain.is_finite());
        list.arrange_by(|a, b| b.gain.total_cmp(&a.gain).then(a.id.cmp(&b.id)));
        let mut refused = Vec::new();
        for p in &list {
            if let Some((why, waits)) = self.refuses(p) {
                refused.push((p, why, waits));
                continue;
            }
            let why = Why {
                pass: "trying".into(),
                subject: p.subject.clone(),
                choice: p.why.choice.clone(),
                alternatives: others(&list, p.id),
                reason: format!("predicted gain {:.0}%: {}", 100.0 * p.gain, p.why.reason),
            };
            let chosen = p.clone();
            (self.in_vain, self.rests) = (0, f64::NEG_INFINITY);
            self.note(out, why);
            if self.options.mode == Mode::On {
                out.push(Action::Prepare(chosen.id));
                self.phase = Phase::Preparing {
                    proposal: Box::new(chosen),
                    since: self.now,
                };
            }
            return;
        }
        let waits = refused.iter().any(|r| r.2);
        let first = refused
            .first()
            .map(|(p, why, _)| (p.subject.clone(), p.why.choice.clone(), why.clone()));
        if waits {
            // It would pay and is only too early: ask again when its time has come.
            self.open.push("a change that had to wait".into());
            let next = list
                .iter()
                .filter_map(|p| self.past.get(&p.subject))
                .map(|p| p.not_before)
                .filter(|t| *t > self.now)
                .fold(f64::INFINITY, f64::min);
            if next.is_finite() {
                (self.last_asked, self.in_vain) = (next - ASK_S, 0);
                self.rests = f64::NEG_INFINITY;
            }
        }
        if let Some((subject, choice, reason)) = first {
            self.note(
                out,
                Why {
                    pass: "not tried".into(),
                    subject,
                    choice,
                    alternatives: others(&list, u64::MAX),
                    reason,
                },
            );
        }
    }

    /// Why a proposal is not tried now, and whether it would be later.
    fn refuses(&self, p: &Proposal) -> Option<(String, bool)> {
        let past = self.past.get(&p.subject).cloned().unwrap_or_default();
        let bar = self.options.threshold * (1.0 + f64::from(past.times.clamp(0, 8)));
        if p.gain < bar {
            let why = format!(
                "its predicted gain of {:.1}% is below {:.1}%",
                100.0 * p.gain,
                100.0 * bar
            );
            return Some((why, false));
        }
        if self.now < past.not_before {
            let left = past.not_before - self.now;
            let why = format!(
                "it was changed or tried {} times and has to wait another {left:.1} s",
                past.times
            );
            return Some((why, true));
        }
        None
    }

    fn ready(&mut self, id: ProposalId, failed: Option<String>, out: &mut Vec<Action>) {
        let proposal = match &self.phase {
            Phase::Preparing { proposal, .. } if proposal.id == id => proposal.clone(),
            _ => return,
        };
        if let Some(why) = failed {
            return self.give_up(
                &proposal.subject,
                id,
                format!("could not be made: {why}"),
                vec![],
                out,
            );
        }
        let rate: f64 = proposal
            .sessions
            .iter()
            .filter_map(|s| self.rates.get(s))
            .sum();
        // Enough samples of both sides within a second, and no more requests than that needs.
        let every = match rate {
            r if r < 100.0 => 2,
            r if r < 1000.0 => 4,
            _ => 10,
        };
        self.phase = Phase::Trying {
            proposal,
            since: self.now,
            with: Side::new(),
            without: Side::new(),
        };
        out.push(Action::Try {
            proposal: id,
            every,
        });
    }

    fn trial(&mut self, t: &TrialSeen, out: &mut Vec<Action>) {
        let (now, o) = (self.now, self.options.clone());
        let Phase::Trying {
            proposal,
            since,
            with,
            without,
        } = &mut self.phase
        else {
            return;
        };
        if t.proposal != proposal.id {
            return;
        }
        with.add(&t.with);
        without.add(&t.without);
        let (with, without) = (&with.samples, &without.samples);
        let (id, subject) = (proposal.id, proposal.subject.clone());
        let gain = proposal.gain.max(0.0);
        if t.failed > 0 || t.differed > 0 {
            let what = match t.failed {
                0 => format!(
                    "outputs of {} of {} requests differed",
                    t.differed, t.compared
                ),
                n => format!("{n} requests failed with it"),
            };
            return self.give_up(&subject, id, what, vec![], out);
        }
        let n = with.len().min(without.len());
        let (Some(new), Some(old)) = (median(with), median(without)) else {
            if now - *since > o.trial_s {
                self.give_up(
                    &subject,
                    id,
                    "no requests came to try it on".into(),
                    vec![],
                    out,
                );
            }
            return;
        };
        // What was changed before, or tried in vain, may swing with the load: means count, for medians see
        // the more frequent half only.
        let times = self.past.get(&subject).map_or(0, |p| p.times);
        let lasts = lasts_s(times, o.back_off_s);
        let swings = times > 1;
        let rank = rank_test(without, with).unwrap_or(0.0);
        let (z, faster) = match swings {
            false => (rank, old / new.max(f64::MIN_POSITIVE) - 1.0),
            true => difference(without, with),
        };
        let seen = format!(
            "median {:.3} ms with it ({} requests), {:.3} ms without ({}), {z:+.1} standard deviations by {}",
            1e3 * new,
            with.len(),
            1e3 * old,
            without.len(),
            if swings { "mean" } else { "rank" }
        );
        let alternatives = vec![
            Alternative {
                what: "with".into(),
                predicted_s: new,
            },
            Alternative {
                what: "without".into(),
                predicted_s: old,
            },
        ];
        if n < o.least_samples.max(1) {
            if now - *since > o.trial_s {
                self.give_up(
                    &subject,
                    id,
                    format!("too few requests to tell: {seen}"),
                    alternatives,
                    out,
                );
            }
            return;
        }
        let far = new - old > FAR * old * gain / (1.0 + gain);
        if now - *since < lasts && !(far && z <= -o.sure) {
            return;
        }
        if z >= o.sure && faster >= o.threshold / 2.0 {
            return self.promote(seen, alternatives, out);
        }
        let shows_nothing =
            (n >= o.most_samples && times == 0) || now - *since > o.trial_s.max(lasts);
        if z <= -o.sure || shows_nothing {
            let what = match z <= -o.sure {
                true => format!("slower: {seen}"),
                false => format!("no faster by enough: {seen}"),
            };
            self.give_up(&subject, id, what, alternatives, out);
        }
    }

    fn promote(&mut self, seen: String, alternatives: Vec<Alternative>, out: &mut Vec<Action>) {
        let Phase::Trying { proposal, .. } = std::mem::replace(&mut self.phase, Phase::Idle) else {
            return;
        };
        let wait = self.touched(&proposal.subject);
        self.watch.replanned(&proposal.sessions);
        self.settled = self.now + SETTLE_S;
        self.note(
            out,
            Why {
                pass: "promoted".into(),
                subject: proposal.subject.clone(),
                choice: proposal.why.choice.clone(),
                alternatives,
                reason: format!("{seen}; it stays for {wait:.1} s at least"),
            },
        );
        out.push(Action::Promote(proposal.id));
        // With this changed something else may pay, and other sessions are affected too.
        self.open.push(format!("{} has changed", proposal.subject));
    }

    fn give_up(
        &mut self,
        subject: &str,
        id: ProposalId,
        what: String,
        alternatives: Vec<Alternative>,
        out: &mut Vec<Action>,
    ) {
        self.phase = Phase::Idle;
        let wait = self.touched(subject);
        self.note(
            out,
            Why {
                pass: "rolled back".into(),
                subject: subject.into(),
                choice: "as it was".into(),
                alternatives,
                reason: format!("{what}; not tried again for {wait:.1} s"),
            },
        );
        out.push(Action::RollBack(id));
    }
}

/// Seconds that a trial lasts at least of what was changed, or tried in vain, so often: several swings of the load, with
/// which it may swing.
fn lasts_s(times: i32, back_off_s: f64) -> f64 {
    match times {
        0 => 0.0,
        n => (back_off_s * LONGER.powi((n - 1).clamp(0, 30))).min(LONG_TRIAL_S),
    }
}

/// The best proposals besides the chosen one.
fn others(list: &[Proposal], chosen: ProposalId) -> Vec<Alternative> {
    let alternative = |p: &Proposal| Alternative {
        what: format!(
            "{}: {} (gain {:.0}%)",
            p.subject,
            p.why.choice,
            100.0 * p.gain
        ),
        predicted_s: p.why.alternatives.first().map_or(0.0, |a| a.predicted_s),
    };
    let rest = list.iter().filter(|p| p.id != chosen);
    rest.take(4).map(alternative).collect()
}

/// One side of a trial.
#[derive(Clone, Debug)]
struct Side {
    samples: Vec<f64>,
    /// Every so many requests are kept.
    stride: usize,
    /// Requests since the last that was kept.
    since: usize,
}

impl Side {
    fn new() -> Side {
        Side {
            samples: Vec::new(),
            stride: 1,
            since: 0,
        }
    }

    fn add(&mut self, from: &[f64]) {
        for v in from.iter().filter(|v| v.is_finite() && **v >= 0.0) {
            self.since += 1;
            if self.since < self.stride {
                continue;
            }
            self.since = 0;
            self.samples.push(*v);
            if self.samples.len() >= SAMPLES {
                let mut keep = false;
                self.samples.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
        }
    }
}

/// By how many standard errors the mean of `new` is below that of `old`, and by which share it is
/// faster; outliers count as the 98th of a hundred.
fn difference(old: &[f64], new: &[f64]) -> (f64, f64) {
    let of = |v: &[f64]| {
        let most = quantile(v, 0.98).unwrap_or(0.0);
        let n = v.len().max(1) as f64;
        let mean = v.iter().map(|x| x.min(most)).sum::<f64>() / n;
        let var = v.iter().map(|x| (x.min(most) - mean).powi(2)).sum::<f64>() / n;
        (mean, var / n)
    };
    let ((a, x), (b, y)) = (of(old), of(new));
    (
        (a - b) / (x + y).sqrt().max(1e-15),
        a / b.max(f64::MIN_POSITIVE) - 1.0,
    )
}
