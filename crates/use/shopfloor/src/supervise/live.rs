//! One supervised engine: its windows, and what the supervisor says done.
use super::planning::{self, Answer, SessionQuery, Task};
use super::window::{self, Known};
use super::{Counters, DecisionListener, SuperviseOptions};
use crate::{Engine, Error};
use plan::{Candidate, Change, Goal, Observations, Why};
use runtime::{Capture, CapturedRequest, Prepared, SessionHandle, SessionPolicy, TrialShare};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Weak};
use std::time::Instant;
use supervisor::admission::SessionId;
use supervisor::supervise::{
    Action, Compare, Log, LogError, Observation, Proposal, ProposalId, Record, Supervisor,
    TrialSeen, Window,
};

/// Seconds for which a live request is waited for to compare outputs on, before a plan is tried.
const SAMPLE_S: f64 = 2.0;
/// Windows between two comparisons of outputs while a plan is tried.
const COMPARE_EVERY: u64 = 5;

/// A proposal with what has become of it.
struct PendingProposal {
    served: Weak<SessionHandle>,
    change: Change,
    goal: Goal,
    prepared: Option<Prepared>,
}

/// A proposal that is being made ready.
struct PreparedProposal {
    proposal: ProposalId,
    since: f64,
    sample: Option<CapturedRequest>,
    /// Outputs are being compared.
    comparing: bool,
}

struct Trial {
    proposal: ProposalId,
    served: Weak<SessionHandle>,
    session: SessionId,
    prepared: Prepared,
    /// The policies without and with the change, where they take turns by windows.
    policies: Option<(SessionPolicy, SessionPolicy)>,
    on: bool,
    compare: Compare,
    seen: TrialSeen,
    windows: u64,
    comparing: bool,
}

pub(super) struct LiveSupervision {
    supervisor: Supervisor,
    log: Option<Log<Box<dyn Write + Send>>>,
    hear: Option<DecisionListener>,
    began: Instant,
    last: Instant,
    tasks: Sender<Task>,
    answers: Receiver<Answer>,
    known: BTreeMap<SessionId, Known>,
    offers: BTreeMap<ProposalId, PendingProposal>,
    preparing: Option<PreparedProposal>,
    trial: Option<Trial>,
    next: ProposalId,
    /// Whether workers are granted otherwise than without a supervisor.
    limits: bool,
}

impl LiveSupervision {
    pub fn new(
        engine: &Arc<Engine>,
        options: SuperviseOptions,
        counters: Arc<Counters>,
    ) -> Result<LiveSupervision, Error> {
        let log = options.log.map(|to| Log::new(to, &options.decide));
        let (tasks, answers) = planning::start(engine, counters).map_err(super::threads)?;
        // What shares are measured against.
        engine.device().shares();
        engine.session_handles().iter().for_each(|s| s.watch(true));
        Ok(LiveSupervision {
            supervisor: Supervisor::new(options.decide),
            log: log.transpose().map_err(Error::other)?,
            hear: options.hear,
            began: Instant::now(),
            last: Instant::now(),
            tasks,
            answers,
            known: BTreeMap::new(),
            offers: BTreeMap::new(),
            preparing: None,
            trial: None,
            next: 0,
            limits: false,
        })
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// A window has ended.
    pub fn window(&mut self, engine: &Arc<Engine>) -> Result<(), LogError> {
        plan::pause();
        while let Ok(a) = self.answers.try_recv() {
            self.answered(engine, a)?;
        }
        let seconds = self.last.elapsed().as_secs_f64();
        self.last = Instant::now();
        let mut w = Window {
            workers: engine.device().shares(),
            ..Window::default()
        };
        let all = engine.session_handles();
        self.known.retain(|id, _| all.iter().any(|s| s.id() == *id));
        for s in &all {
            plan::pause();
            let trying = self.trial.as_ref().is_some_and(|t| t.session == s.id());
            let new = !self.known.contains_key(&s.id());
            let known = self.known.entry(s.id()).or_default();
            if new {
                s.watch(true);
            }
            let mut seen = s.look();
            let called = (&**s, window::called(s, &all));
            let (session, steps) =
                window::session(called, &seen, known, &**engine.device(), seconds, trying);
            w.sessions.push(session);
            w.steps.extend(steps);
            let kept = seen.kept.take();
            if let Some(t) = self.trial.as_mut().filter(|_| trying) {
                t.add(&seen);
                if let Some(kept) = kept {
                    t.comparing = true;
                    let (served, prepared) = (t.served.clone(), t.prepared.clone());
                    let task = Task::Compare(t.proposal, served, prepared, Box::new(kept));
                    // A thread that is gone compares nothing; the trial goes on by its times.
                    let _ = self.tasks.send(task);
                }
            } else if let Some(p) = &mut self.preparing
                && kept.is_some()
                && self
                    .offers
                    .get(&p.proposal)
                    .is_some_and(|o| o.change.session == s.id())
            {
                p.sample = kept;
            }
        }
        if let Some(t) = &mut self.trial {
            w.trial = Some(t.turn());
        }
        plan::pause();
        self.tell(engine, Observation::Window(Box::new(w)))?;
        self.ready(engine)
    }

    /// The end: what is tried is not any more, and nobody would see a core that comes back.
    pub fn end(mut self, engine: Option<&Engine>) -> Result<(), LogError> {
        if let Some(t) = self.trial.take() {
            t.end();
        }
        for s in engine.map(Engine::session_handles).unwrap_or_default() {
            s.watch(false);
        }
        if let Some(e) = engine.filter(|_| self.limits) {
            e.avoid_workers(&[]);
            e.limit_workers(e.workers());
        }
        if let Some(log) = self.log {
            log.into_inner().flush()?;
        }
        Ok(())
    }

    fn answered(&mut self, engine: &Arc<Engine>, a: Answer) -> Result<(), LogError> {
        match a {
            Answer::Proposed(list) => {
                let list = self.proposals(engine, list);
                self.tell(engine, Observation::Proposed(list))
            }
            Answer::Prepared(id, Ok(prepared)) => {
                if let Some(o) = self.offers.get_mut(&id) {
                    o.prepared = Some(prepared);
                }
                self.ready(engine)
            }
            Answer::Prepared(id, Err(why)) => self.failed(engine, id, why),
            Answer::Compared(id, out) => {
                if let Some(t) = self.trial.as_mut().filter(|t| t.proposal == id) {
                    t.comparing = false;
                    // What could not be compared says nothing.
                    if let Ok(differs) = out {
                        t.seen.compared += 1;
                        t.seen.differed += u64::from(differs.is_some());
                    }
                    return Ok(());
                }
                let Some(p) = self.preparing.as_mut().filter(|p| p.proposal == id) else {
                    return Ok(());
                };
                match out {
                    Ok(Some(complaint)) => self.failed(engine, id, complaint),
                    Ok(None) => self.begin(engine, id),
                    Err(_) => {
                        // A request that it does not cover: another one may do.
                        p.comparing = false;
                        self.want(id);
                        Ok(())
                    }
                }
            }
        }
    }

    /// Has a live request kept for comparing.
    fn want(&self, id: ProposalId) {
        if let Some(s) = self.offers.get(&id).and_then(|o| o.served.upgrade()) {
            s.keep(Capture::Any);
        }
    }

    /// Compares outputs once a plan and a request are there; without a request it goes on after a while.
    fn ready(&mut self, engine: &Arc<Engine>) -> Result<(), LogError> {
        let now = self.now();
        let Some(p) = self.preparing.as_mut().filter(|p| !p.comparing) else {
            return Ok(());
        };
        let id = p.proposal;
        let Some(o) = self.offers.get(&id) else {
            return Ok(());
        };
        let Some(prepared) = o.prepared.clone() else {
            return Ok(());
        };
        match p.sample.take() {
            Some(kept) => {
                p.comparing = true;
                let task = Task::Compare(id, o.served.clone(), prepared, Box::new(kept));
                let _ = self.tasks.send(task);
                Ok(())
            }
            None if now - p.since > SAMPLE_S => self.begin(engine, id),
            None => Ok(()),
        }
    }

    /// A plan may be tried.
    fn begin(&mut self, engine: &Arc<Engine>, proposal: ProposalId) -> Result<(), LogError> {
        self.preparing = None;
        let failed = None;
        self.tell(engine, Observation::Ready { proposal, failed })
    }

    fn failed(
        &mut self,
        engine: &Arc<Engine>,
        proposal: ProposalId,
        why: String,
    ) -> Result<(), LogError> {
        self.preparing = None;
        let failed = Some(why);
        self.tell(engine, Observation::Ready { proposal, failed })
    }

    /// Tells the supervisor, and does what it says.
    fn tell(&mut self, engine: &Arc<Engine>, told: Observation) -> Result<(), LogError> {
        let at = self.now();
        let copy = self.log.is_some().then(|| told.clone());
        let did = self.supervisor.step(at, told);
        if let (Some(log), Some(told)) = (&mut self.log, copy) {
            log.write(&Record {
                at,
                told,
                did: did.clone(),
            })?;
        }
        for a in did {
            self.act(engine, a);
        }
        Ok(())
    }

    fn act(&mut self, engine: &Arc<Engine>, a: Action) {
        match a {
            Action::Workers { usable, avoid } => {
                self.limits = true;
                engine.avoid_workers(&avoid);
                engine.limit_workers(usable);
            }
            Action::Propose(seen) => self.propose(engine, seen),
            Action::Prepare(id) => {
                let Some(o) = self.offers.get(&id) else {
                    return;
                };
                let plan = Box::new(o.change.plan.clone());
                let _ = self.tasks.send(Task::Prepare(id, o.served.clone(), plan));
                self.preparing = Some(PreparedProposal {
                    proposal: id,
                    since: self.now(),
                    sample: None,
                    comparing: false,
                });
                self.want(id);
            }
            Action::Try { proposal, every } => self.start(engine, proposal, every),
            Action::Promote(id) => {
                if let Some(t) = self.trial.take() {
                    t.end();
                }
                self.promote(engine, id);
            }
            Action::RollBack(id) => {
                if let Some(t) = self.trial.take() {
                    t.end();
                }
                self.preparing = None;
                self.offers.remove(&id);
            }
            Action::Note(d) => {
                if let Some(h) = &mut self.hear {
                    h(&d);
                }
                engine.note(d);
            }
        }
    }

    fn propose(&mut self, engine: &Engine, seen: Box<Observations>) {
        let served = engine.session_handles().into_iter();
        let asked = served.filter_map(|s| {
            let plan = self.known.get(&s.id())?.plan.clone()?;
            let free = window::may_change(s.program()) && !s.options().pinned;
            free.then_some(SessionQuery { served: s, plan })
        });
        let _ = self.tasks.send(Task::Propose(seen, asked.collect()));
    }

    /// What the planner proposed, for the supervisor.
    fn proposals(&mut self, engine: &Engine, list: Vec<Candidate>) -> Vec<Proposal> {
        // What was offered before and not taken up is gone.
        self.offers.clear();
        let served = engine.session_handles();
        let mut out = Vec::new();
        for c in list {
            let gain = c.now_s / (c.now_s - c.gain_s).max(1e-12) - 1.0;
            // Each of ours is about one session.
            let Ok([change]) = <[Change; 1]>::try_from(c.changes) else {
                continue;
            };
            let Some(s) = served.iter().find(|s| s.id() == change.session) else {
                continue;
            };
            let workers = change.allotment.workers.first().copied().unwrap_or(1);
            if workers > engine.workers() || !gain.is_finite() {
                continue;
            }
            self.next += 1;
            let subject = window::called(s, &served);
            let goal = change.allotment.goal;
            out.push(Proposal {
                id: self.next,
                sessions: vec![s.id()],
                gain,
                compare: match goal {
                    Goal::Latency => Compare::RunSeconds,
                    Goal::Throughput { .. } => Compare::WorkerSecondsPerItem,
                },
                why: Why {
                    subject: subject.clone(),
                    ..c.why
                },
                subject,
            });
            let offer = PendingProposal {
                served: Arc::downgrade(s),
                change,
                goal,
                prepared: None,
            };
            self.offers.insert(self.next, offer);
        }
        out
    }

    /// Lets live requests run with a proposal.
    fn start(&mut self, engine: &Engine, proposal: ProposalId, every: u32) {
        let Some(o) = self.offers.get(&proposal) else {
            return;
        };
        let (Some(s), Some(prepared)) = (o.served.upgrade(), o.prepared.clone()) else {
            return;
        };
        let was = s.policy();
        let then = policy(engine, &o.change, o.goal, &was);
        let by_windows = was != then;
        s.try_plan(
            &prepared,
            match by_windows {
                true => TrialShare::Windows,
                false => TrialShare::Every(every),
            },
        );
        let trial = Trial {
            proposal,
            served: o.served.clone(),
            session: s.id(),
            prepared,
            policies: by_windows.then_some((was, then)),
            on: false,
            compare: match o.goal {
                Goal::Latency => Compare::RunSeconds,
                Goal::Throughput { .. } => Compare::WorkerSecondsPerItem,
            },
            seen: TrialSeen {
                proposal,
                ..TrialSeen::default()
            },
            windows: 0,
            comparing: false,
        };
        s.keep(Capture::Nothing);
        trial.set(true);
        self.trial = Some(Trial { on: true, ..trial });
    }

    /// Everything runs with a proposal from now on.
    fn promote(&mut self, engine: &Engine, id: ProposalId) {
        let Some(o) = self.offers.remove(&id) else {
            return;
        };
        let (Some(s), Some(prepared)) = (o.served.upgrade(), o.prepared) else {
            return;
        };
        let then = policy(engine, &o.change, o.goal, &s.policy());
        s.promote(prepared);
        s.set_allotment(o.change.allotment);
        if then != s.policy() {
            s.set_policy(then);
        }
    }
}

/// A session's policy with a change made.
fn policy(engine: &Engine, change: &Change, goal: Goal, was: &SessionPolicy) -> SessionPolicy {
    let mut p = was.clone();
    // Where a GPU has a part, everybody has all workers and the allotment names none.
    if let Some(workers) = change.allotment.workers.first() {
        p.workers = (*workers).clamp(1, engine.workers());
    }
    if let Goal::Throughput { .. } = goal {
        p.max_running = change.instances.max(1) as usize;
        if was.batching.max_items > 1 {
            p.batching.max_items = change.items.max(1);
        }
    }
    p
}

impl Trial {
    /// Samples of a window.
    fn add(&mut self, seen: &runtime::Observed) {
        for r in &seen.runs {
            let v = match self.compare {
                Compare::RunSeconds => r.seconds,
                Compare::WorkerSecondsPerItem => {
                    r.seconds * f64::from(r.workers) / f64::from(r.items.max(1))
                }
            };
            match r.with {
                Some(true) => self.seen.with.push(v),
                Some(false) => self.seen.without.push(v),
                None => {}
            }
        }
        self.seen.failed += seen.failed;
    }

    /// What there is to tell, and whose turn it is next.
    fn turn(&mut self) -> TrialSeen {
        self.windows += 1;
        if let Some(s) = self.served.upgrade()
            && !self.comparing
            && self.windows % COMPARE_EVERY == 1
        {
            s.keep(Capture::Tried);
        }
        if self.policies.is_some() {
            self.on = !self.on;
            self.set(self.on);
        }
        let fresh = TrialSeen {
            proposal: self.proposal,
            ..TrialSeen::default()
        };
        std::mem::replace(&mut self.seen, fresh)
    }

    /// Whether the change holds for the window that begins, where windows take turns.
    fn set(&self, on: bool) {
        let (Some((was, then)), Some(s)) = (&self.policies, self.served.upgrade()) else {
            return;
        };
        s.turn(on);
        // What the session's owner has set meanwhile stays.
        let now = s.policy();
        if now == *was || now == *then {
            s.set_policy(if on { then.clone() } else { was.clone() });
        }
    }

    fn end(&self) {
        if let Some(s) = self.served.upgrade() {
            s.keep(Capture::Nothing);
            s.end_trial();
        }
        self.set(false);
    }
}
