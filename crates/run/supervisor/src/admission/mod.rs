//! Which requests run now and with how many workers, which wait, which are turned away.
//!
//! A session with a higher priority goes first, and takes workers from runs of lower priority: a
//! [`Action::Resize`] says so, and the worker changes over when it is done with its task. What has
//! waited for [`RISES_S`] is of the highest priority there is from then on, so that nothing starves. Among
//! sessions of one priority workers are shared by weight (start-time fair queuing over worker
//! seconds, corrected by what runs really took). The workers granted never exceed those there are,
//! and none is idle while something that may run waits. A run is malleable: it starts with the
//! workers there are and is given more when they come free.
mod estimate;
mod state;
#[cfg(test)]
mod tests;
mod types;

use serde::{Deserialize, Serialize};
use state::{Run, Session};
use std::collections::BTreeMap;
pub use types::{Action, RISES_S, Refusal, Request, RequestId, RunId, SessionId, SessionPolicy};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A request came.
    Arrive(Request),
    /// A run ended, well or not.
    Finish(RunId),
    /// A request was given up by its caller.
    Cancel(RequestId),
    /// There are so many workers now.
    WorkersChanged(u32),
    /// No further requests of a session: what waits still runs.
    Drain(SessionId),
    /// A session begins, or its policy changes; a drained one begins anew.
    SetPolicy(SessionId, Box<SessionPolicy>),
    /// Time has gone by; see [`Scheduler::wake_at`].
    Tick,
}

/// What a session is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionLoad {
    /// Runs, those that stand still among them.
    pub running: usize,
    /// Requests that wait.
    pub queued: usize,
    /// Workers granted.
    pub workers: u32,
    /// Predicted worker seconds that wait.
    pub backlog_s: f64,
    /// Requests that were done.
    pub finished: u64,
    /// Requests turned away on arrival.
    pub rejected: u64,
    /// Requests that waited in vain.
    pub expired: u64,
    /// Requests that were done too late.
    pub missed: u64,
    /// Measured over predicted time of its runs: the median of the last ones.
    pub ratio: f64,
}

/// Admission and sharing of workers over all sessions of an engine.
#[derive(Clone, Debug)]
pub struct Scheduler {
    now: f64,
    total: u32,
    sessions: BTreeMap<SessionId, Session>,
    /// Runs by number: those that started first come first.
    runs: BTreeMap<RunId, Run>,
    next_run: RunId,
    /// Virtual time per priority: the start tag of what began last.
    virtual_time: BTreeMap<i32, f64>,
}

impl Scheduler {
    /// No sessions, and `workers` workers.
    pub fn new(workers: u32) -> Scheduler {
        Scheduler {
            now: 0.0,
            total: workers,
            sessions: BTreeMap::new(),
            runs: BTreeMap::new(),
            next_run: 0,
            virtual_time: BTreeMap::new(),
        }
    }

    /// What follows from `event` at `now` seconds of the caller's clock; a clock that goes back is
    /// taken to stand still.
    pub fn step(&mut self, now: f64, event: Event) -> Vec<Action> {
        let mut out = Vec::new();
        self.step_into(now, event, &mut out);
        out
    }

    /// As [`Scheduler::step`], into a list that the caller keeps.
    pub fn step_into(&mut self, now: f64, event: Event, out: &mut Vec<Action>) {
        if now > self.now {
            self.now = now;
        }
        match event {
            Event::Arrive(request) => return self.arrive(request, out),
            Event::Finish(run) => self.finish(run, out),
            Event::Cancel(request) => self.cancel(request, out),
            Event::WorkersChanged(n) => self.total = n,
            Event::Drain(id) => {
                if let Some(s) = self.sessions.get_mut(&id) {
                    s.draining = true;
                }
                self.drained(id, out);
            }
            Event::SetPolicy(id, policy) => {
                let v = self.virtual_time.get(&policy.priority).copied();
                let s = self.sessions.entry(id).or_default();
                if s.policy.priority != policy.priority || s.queue.is_empty() {
                    s.tag = v.unwrap_or(0.0);
                }
                s.set(*policy);
            }
            Event::Tick => self.expire(out),
        }
        self.dispatch(out);
    }

    /// When [`Event::Tick`] is due at the latest, in the caller's seconds: a batch that was held back
    /// is to start, or a request to be given up. `None`: not before something else happens.
    pub fn wake_at(&self) -> Option<f64> {
        let of = |s: &Session| {
            let head = s.queue.head()?;
            let ready = s.queue.ready_at(s.stretch()).filter(|r| *r > self.now);
            let late = head.latest_start(s.stretch()).max(self.now);
            let late = late.is_finite().then_some(late);
            match (ready, late) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            }
        };
        self.sessions.values().filter_map(of).min_by(f64::total_cmp)
    }

    /// When [`Event::Tick`] is due for a request that waits, whatever becomes of those before it: a caller that
    /// waits and keeps to this sees to it that what is left behind a batch is not left for good.
    pub fn wake_for(&self, session: SessionId, request: RequestId) -> Option<f64> {
        let s = self.sessions.get(&session)?;
        let (w, held) = s.queue.find(request, s.stretch())?;
        let late = w.latest_start(s.stretch());
        let after = |t: &f64| *t > self.now && t.is_finite();
        [held, late]
            .into_iter()
            .filter(after)
            .min_by(f64::total_cmp)
    }

    /// Forgets a session that ended; nothing of it may run or wait.
    pub fn forget(&mut self, session: SessionId) {
        let idle = |s: &Session| s.running == 0 && s.queue.is_empty();
        if self.sessions.get(&session).is_some_and(idle) {
            self.sessions.remove(&session);
        }
    }

    /// Workers there are.
    pub fn workers(&self) -> u32 {
        self.total
    }

    /// Workers granted.
    pub fn granted(&self) -> u32 {
        self.runs.values().map(|r| r.granted).sum()
    }

    /// What a session is at; `None` for one that never began.
    pub fn load(&self, session: SessionId) -> Option<SessionLoad> {
        let s = self.sessions.get(&session)?;
        let own = self.runs.values().filter(|r| r.session == session);
        Some(SessionLoad {
            running: s.running,
            queued: s.queue.len(),
            workers: own.map(|r| r.granted).sum(),
            backlog_s: s.backlog_s(),
            finished: s.finished,
            rejected: s.rejected,
            expired: s.expired,
            missed: s.missed,
            ratio: s.ratio(),
        })
    }

    /// Sessions, in order.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &SessionPolicy)> {
        self.sessions.iter().map(|(id, s)| (*id, &s.policy))
    }

    /// Whether nothing runs and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.runs.is_empty() && self.sessions.values().all(|s| s.queue.is_empty())
    }

    fn arrive(&mut self, request: Request, out: &mut Vec<Action>) {
        let (id, session) = (request.id, request.session);
        let refused = self.refusal(&request);
        let now = self.now;
        let Some(s) = self.sessions.get_mut(&session) else {
            let why = Refusal::Unknown(session);
            return out.push(Action::Reject { request: id, why });
        };
        if let Some(why) = refused {
            s.rejected += 1;
            out.push(Action::Reject { request: id, why });
            // Time has gone by for what is held back.
            return self.dispatch(out);
        }
        if s.queue.is_empty() {
            // Who did not want workers has no claim to those that others had.
            let v = self.virtual_time.get(&s.policy.priority).copied();
            s.tag = s.tag.max(v.unwrap_or(0.0));
        }
        s.push(now, request);
        let first = out.len();
        self.dispatch(out);
        let Some(s) = self.sessions.get_mut(&session) else {
            return;
        };
        if !s.queue.holds_last(id) {
            return;
        }
        let (running, queued) = (s.running, s.queue.len());
        if queued > s.policy.max_queued {
            s.queue.remove(id);
            s.rejected += 1;
            let queued = queued - 1;
            let why = Refusal::Overloaded { running, queued };
            out.insert(first, Action::Reject { request: id, why });
        } else {
            out.insert(first, Action::Queue(id));
        }
    }

    fn finish(&mut self, id: RunId, out: &mut Vec<Action>) {
        let now = self.now;
        let Some(mut run) = self.runs.remove(&id) else {
            return;
        };
        run.advance(now);
        if let Some(s) = self.sessions.get_mut(&run.session) {
            s.ended(&run, now);
        }
        self.drained(run.session, out);
    }

    fn cancel(&mut self, request: RequestId, out: &mut Vec<Action>) {
        let mut session = None;
        for (id, s) in &mut self.sessions {
            if s.queue.remove(request).is_some() {
                session = Some(*id);
                break;
            }
        }
        if let Some(id) = session {
            return self.drained(id, out);
        }
        for (id, run) in &mut self.runs {
            let Some(at) = run.requests.iter().position(|r| r.0 == request) else {
                continue;
            };
            run.requests.remove(at);
            if run.requests.is_empty() && !run.stopped {
                run.stopped = true;
                out.push(Action::Stop(*id));
            }
            return;
        }
    }

    fn expire(&mut self, out: &mut Vec<Action>) {
        let now = self.now;
        let ids: Vec<SessionId> = self.sessions.keys().copied().collect();
        for id in ids {
            let Some(s) = self.sessions.get_mut(&id) else {
                continue;
            };
            let before = out.len();
            s.expire(now, out);
            if out.len() > before {
                self.drained(id, out);
            }
        }
    }

    fn drained(&mut self, id: SessionId, out: &mut Vec<Action>) {
        if let Some(s) = self.sessions.get_mut(&id)
            && s.draining
            && !s.said_drained
            && s.running == 0
            && s.queue.is_empty()
        {
            s.said_drained = true;
            out.push(Action::Drained(id));
        }
    }

    /// Grants workers until none is free or nothing may start.
    fn dispatch(&mut self, out: &mut Vec<Action>) {
        let now = self.now;
        // Fewer workers than before: the newest runs of the lowest priority give theirs up.
        let mut over = self.granted().saturating_sub(self.total);
        if over > 0 {
            self.take_back(i32::MAX, true, &mut over);
        }
        let mut starts = Vec::new();
        while let Some((what, priority)) = self.next_up() {
            let free = self.total.saturating_sub(self.granted());
            let lower: u32 = self
                .runs
                .values()
                .filter(|r| r.priority < priority)
                .map(|r| r.granted)
                .sum();
            let (wanted, share) = match what {
                Next::Resume(id) => (self.runs.get(&id).map_or(1, |r| r.wanted), u32::MAX),
                Next::Start(id) => self.wanted(id, priority, free + lower),
            };
            let spare: u32 = self
                .wide(priority, share)
                .map(|r| self.runs[&r].granted - share)
                .sum();
            let grant = wanted.min(free + lower + spare);
            if grant == 0 {
                // Whatever comes later has no higher priority.
                break;
            }
            let mut needed = grant.saturating_sub(free);
            self.take_back(priority, false, &mut needed);
            self.even_out(priority, share, needed);
            match what {
                Next::Resume(id) => {
                    if let Some(r) = self.runs.get_mut(&id) {
                        r.priority = priority;
                        r.grant(now, grant);
                    }
                }
                Next::Start(id) => {
                    let run = self.next_run;
                    let Some(s) = self.sessions.get_mut(&id) else {
                        break;
                    };
                    s.expire_head(now, out);
                    let Some(mut made) = s.start(now, grant) else {
                        self.drained(id, out);
                        continue;
                    };
                    made.run.priority = priority;
                    let own = s.policy.priority;
                    let v = self.virtual_time.entry(own).or_insert(0.0);
                    *v = v.max(made.start_tag);
                    starts.push(Action::Start {
                        run,
                        session: id,
                        requests: made.run.requests.iter().map(|r| r.0).collect(),
                        workers: grant,
                    });
                    self.runs.insert(run, made.run);
                    self.next_run += 1;
                }
            }
        }
        self.grow(now);
        for s in &mut starts {
            // It may have been given more, or fewer, than at first.
            if let Action::Start { run, workers, .. } = s
                && let Some(r) = self.runs.get_mut(run)
            {
                *workers = r.granted;
                r.told = r.granted;
            }
        }
        // Who gives up workers hears of it first, who is given some hears of it last.
        let mut more = Vec::new();
        for (id, r) in &mut self.runs {
            if r.granted == r.told {
                continue;
            }
            let action = Action::Resize {
                run: *id,
                workers: r.granted,
            };
            if r.granted < r.told {
                out.push(action);
            } else {
                more.push(action);
            }
            r.told = r.granted;
        }
        out.append(&mut starts);
        out.append(&mut more);
    }

    /// Workers for a run that session `id` starts where there is room for `room`, and how many of its
    /// priority's other runs are to keep.
    fn wanted(&self, id: SessionId, priority: i32, room: u32) -> (u32, u32) {
        let Some(s) = self.sessions.get(&id) else {
            return (1, u32::MAX);
        };
        let all = s.policy.workers.max(1);
        if !s.policy.spread {
            return (all, u32::MAX);
        }
        let runs = |s: &Session| {
            let items = s.policy.batching.max_items.max(1) as usize;
            let most = s.policy.max_running.max(1).saturating_sub(s.running);
            s.queue.len().div_ceil(items).min(most)
        };
        let others = self.sessions.values();
        let peers = others.filter(|o| o.policy.priority == s.policy.priority);
        let waiting = u32::try_from(peers.map(runs).sum::<usize>()).unwrap_or(u32::MAX);
        let (n, theirs) = self
            .runs
            .values()
            .filter(|r| r.priority == priority && r.granted > 0)
            .fold((0u32, 0u32), |(n, w), r| (n + 1, w + r.granted));
        let keep = ((room + theirs) / n.saturating_add(waiting).max(1)).max(1);
        let spare: u32 = self
            .wide(priority, keep)
            .map(|r| self.runs[&r].granted - keep)
            .sum();
        let share = (room + spare).div_ceil(waiting.max(1));
        (all.min(share).max(1), keep)
    }

    /// Runs of `priority` that have more workers than `share` and may be made to share them.
    fn wide(&self, priority: i32, share: u32) -> impl Iterator<Item = RunId> {
        let spreads = |r: &Run| {
            let s = self.sessions.get(&r.session);
            s.is_some_and(|s| s.policy.spread)
        };
        let wide = move |r: &Run| r.priority == priority && r.granted > share && spreads(r);
        self.runs
            .iter()
            .filter(move |(_, r)| wide(r))
            .map(|(id, _)| *id)
    }

    /// Takes `needed` workers from runs of `priority` that have more than `share`, one by one from whoever
    /// has most.
    fn even_out(&mut self, priority: i32, share: u32, needed: u32) {
        let now = self.now;
        for _ in 0..needed {
            let widest = self
                .wide(priority, share)
                .max_by_key(|r| self.runs[r].granted);
            let Some(r) = widest.and_then(|r| self.runs.get_mut(&r)) else {
                return;
            };
            r.grant(now, r.granted - 1);
        }
    }

    /// The highest priority of what runs or waits.
    fn top(&self) -> i32 {
        let runs = self.runs.values().map(|r| r.priority);
        let waiting = self.sessions.values().filter(|s| !s.queue.is_empty());
        let all = runs.chain(waiting.map(|s| s.policy.priority));
        all.max().unwrap_or(i32::MIN)
    }

    /// What is to have workers next, with its priority: of the highest priority a run that stands
    /// still, oldest first, else the session that is furthest behind its share.
    fn next_up(&self) -> Option<(Next, i32)> {
        let mut best: Option<(i32, bool, f64, Next)> = None;
        let better = |new: &(i32, bool, f64, Next), old: &Option<(i32, bool, f64, Next)>| match old
        {
            None => true,
            Some(o) => (new.0, new.1, -new.2) > (o.0, o.1, -o.2),
        };
        let top = self.top();
        for (id, r) in self.runs.iter().filter(|(_, r)| r.granted == 0) {
            let priority = match r.since + RISES_S <= self.now {
                true => top,
                false => r.priority,
            };
            let new = (priority, true, 0.0, Next::Resume(*id));
            if better(&new, &best) {
                best = Some(new);
            }
        }
        for (id, s) in &self.sessions {
            // Nothing is turned away because others are held back.
            let ready = s.queue.len() > s.policy.max_queued
                || s.queue
                    .ready_at(s.stretch())
                    .is_some_and(|at| at <= self.now);
            if s.queue.is_empty() || !ready || s.running >= s.policy.max_running.max(1) {
                continue;
            }
            // What has risen goes before its new peers: they have been served meanwhile.
            let risen = s.policy.priority < top && s.rises_at() <= self.now;
            let new = match risen {
                true => (top, false, f64::NEG_INFINITY, Next::Start(*id)),
                false => (s.policy.priority, false, s.tag, Next::Start(*id)),
            };
            if better(&new, &best) {
                best = Some(new);
            }
        }
        best.map(|b| (b.3, b.0))
    }

    /// Takes `needed` workers from runs below `priority` (or at it, where `too`), lowest priority and
    /// newest first.
    fn take_back(&mut self, priority: i32, too: bool, needed: &mut u32) {
        let now = self.now;
        while *needed > 0 {
            let victim = self
                .runs
                .iter_mut()
                .filter(|(_, r)| {
                    r.granted > 0 && (r.priority < priority || (too && r.priority <= priority))
                })
                .min_by_key(|(id, r)| (r.priority, std::cmp::Reverse(**id)));
            let Some((_, r)) = victim else { return };
            let taken = r.granted.min(*needed);
            r.grant(now, r.granted - taken);
            *needed -= taken;
        }
    }

    /// Workers that nobody waits for go to runs that asked for more, highest priority and oldest first.
    fn grow(&mut self, now: f64) {
        let mut free = self.total.saturating_sub(self.granted());
        while free > 0 {
            let run = self
                .runs
                .iter_mut()
                .filter(|(_, r)| r.granted > 0 && r.granted < r.wanted)
                .min_by_key(|(id, r)| (std::cmp::Reverse(r.priority), **id));
            let Some((_, r)) = run else { return };
            let more = free.min(r.wanted - r.granted);
            r.grant(now, r.granted + more);
            free -= more;
        }
    }
}

/// What is next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A run that stands still goes on.
    Resume(RunId),
    /// A session starts a run.
    Start(SessionId),
}
