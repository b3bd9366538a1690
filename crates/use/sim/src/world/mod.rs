//! The event loop.
mod faults;
mod run;
mod watch;

use crate::arrivals::Arrivals;
use crate::backend::{Backend, Offer, Request, Way};
use crate::cost::StepTime;
use crate::device::{Device, Run, Seen, Slot, Worker};
use crate::outcome::{DeviceDecision, DeviceOutcome, Done, Outcome, SessionOutcome, Unfinished};
use crate::scenario::Scenario;
use crate::{Rng, SimError};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use supervisor::admission::{self, Action, Event, RequestId, RunId, Scheduler, SessionPolicy};
use supervisor::batching::Batching;
use supervisor::supervise::{Log, Observation, ProposalId, Supervisor};

/// Virtual seconds after the last arrival after which what is still in flight counts as lost.
const GRACE_S: f64 = 600.0;
/// Events at most; a scenario that needs more is refused rather than run for hours.
const MOST_EVENTS: u64 = 2_000_000_000;

/// How a scenario is run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Setup {
    /// Whether granting knows from the start which workers others use: the oracle does.
    pub informed: bool,
    /// Whether what the supervisors are told is recorded.
    pub log: bool,
    /// Variants of sessions at the start.
    pub variants: Vec<(usize, u32)>,
}

/// Runs `scenario`; the same scenario and backend give the same outcome, digest and all. With `log`
/// what each device's supervisor was told and said is recorded, one log for each device.
///
/// # Errors
/// A machine or model that is not there, or work that nothing can be predicted of.
pub fn simulate(
    scenario: &Arc<Scenario>,
    backend: &mut dyn Backend,
    log: bool,
) -> Result<(Outcome, Vec<Vec<u8>>), SimError> {
    let setup = Setup {
        log,
        ..Setup::default()
    };
    run(scenario, backend, &setup)
}

/// As [`simulate`], in a given setup.
pub(crate) fn run(
    scenario: &Arc<Scenario>,
    backend: &mut dyn Backend,
    setup: &Setup,
) -> Result<(Outcome, Vec<Vec<u8>>), SimError> {
    let mut w = World::new(scenario.clone(), backend, setup)?;
    w.go()?;
    Ok(w.end())
}

#[derive(Debug)]
enum Ev {
    /// The next request of a stream comes.
    Arrive(usize),
    /// A request reaches its device.
    Reach(usize, RequestId),
    /// A step ends.
    StepEnd(usize, RunId, u64),
    /// A window ends.
    Tick(usize),
    /// The scheduler wants to be woken.
    Wake(usize),
    /// A fault begins or ends.
    Fault(usize, usize, bool),
    /// A worker is there again.
    Heal(usize, usize),
    /// An answer reaches the supervisor.
    Answer(usize, Box<Observation>),
    /// The planner's answer is due.
    Plan(usize, Box<plan::Observations>),
}

/// Events by time, and in the order in which they were made where times are equal.
#[derive(Debug)]
struct Timed(f64, u64, Ev);

impl PartialEq for Timed {
    fn eq(&self, o: &Timed) -> bool {
        self.cmp(o).is_eq()
    }
}
impl Eq for Timed {}
impl PartialOrd for Timed {
    fn partial_cmp(&self, o: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(o))
    }
}
impl Ord for Timed {
    fn cmp(&self, o: &Timed) -> std::cmp::Ordering {
        self.0.total_cmp(&o.0).then(self.1.cmp(&o.1))
    }
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Live {
    session: usize,
    stream: usize,
    size: u32,
    items: u32,
    arrived: f64,
}

struct World<'a> {
    scenario: Arc<Scenario>,
    backend: &'a mut dyn Backend,
    informed: bool,
    now: f64,
    order: u64,
    events: BinaryHeap<Reverse<Timed>>,
    devices: Vec<Device>,
    /// Session, stream.
    streams: Vec<(usize, Arrivals)>,
    /// Model of each session.
    models: Vec<usize>,
    live: BTreeMap<RequestId, Live>,
    next: RequestId,
    steps: BTreeMap<(Request, Way), Arc<[StepTime]>>,
    /// Predicted seconds of one item, by the same key.
    costs: BTreeMap<(Request, Way), f64>,
    offers: BTreeMap<ProposalId, (usize, Offer)>,
    next_offer: ProposalId,
    rng: Rng,
    luck: Rng,
    sessions: Vec<SessionOutcome>,
    done: Vec<Done>,
    undone: Vec<(u32, f64, Unfinished)>,
    decisions: Vec<DeviceDecision>,
    promotions: u64,
    swaps: u64,
    digest: u64,
    actions: Vec<Action>,
}

impl<'a> World<'a> {
    fn new(
        scenario: Arc<Scenario>,
        backend: &'a mut dyn Backend,
        setup: &Setup,
    ) -> Result<World<'a>, SimError> {
        let models = scenario
            .sessions
            .iter()
            .map(|s| {
                scenario
                    .models
                    .iter()
                    .position(|m| m.name == s.model)
                    .unwrap_or(0)
            })
            .collect();
        let mut w = World {
            informed: setup.informed,
            now: 0.0,
            order: 0,
            events: BinaryHeap::new(),
            devices: Vec::new(),
            streams: Vec::new(),
            models,
            live: BTreeMap::new(),
            next: 0,
            steps: BTreeMap::new(),
            costs: BTreeMap::new(),
            offers: BTreeMap::new(),
            next_offer: 0,
            rng: Rng::new(scenario.seed, 1),
            luck: Rng::new(scenario.seed, 2),
            sessions: scenario
                .sessions
                .iter()
                .map(|s| SessionOutcome {
                    name: s.name.clone(),
                    ..SessionOutcome::default()
                })
                .collect(),
            done: Vec::new(),
            undone: Vec::new(),
            decisions: Vec::new(),
            promotions: 0,
            swaps: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            actions: Vec::new(),
            scenario,
            backend,
        };
        for d in 0..w.scenario.devices.len() {
            w.add_device(d, setup)?;
        }
        let scenario = w.scenario.clone();
        for (i, s) in scenario.sessions.iter().enumerate() {
            for t in &s.traffic {
                let n = w.streams.len();
                let rng = Rng::new(scenario.seed, 1000 + n as u64);
                w.streams.push((i, Arrivals::new(t, scenario.seconds, rng)));
                w.next_arrival(n);
            }
        }
        Ok(w)
    }

    fn add_device(&mut self, d: usize, setup: &Setup) -> Result<(), SimError> {
        let scenario = self.scenario.clone();
        let n = scenario.workers(d)?;
        let worker = Worker {
            run: None,
            free_at: 0.0,
            share: 1.0,
            avoid: false,
            dead: false,
        };
        let log = match setup.log {
            true => Some(Log::new(Vec::new(), &self.options())?),
            false => None,
        };
        let mut device = Device {
            scheduler: Scheduler::new(n),
            supervisor: Supervisor::new(self.options()),
            workers: vec![worker; n as usize],
            usable: n,
            runs: BTreeMap::new(),
            slots: Vec::new(),
            seen: vec![Seen::default(); scenario.sessions.len()],
            trial: None,
            clock: 1.0,
            memory: 1.0,
            panic_rate: 0.0,
            heal_s: 0.0,
            gone: false,
            wake: f64::INFINITY,
            busy: 0.0,
            log,
        };
        for (i, s) in scenario.sessions.iter().enumerate() {
            if !s.devices.is_empty() && !s.devices.contains(&scenario.devices[d].name) {
                device.slots.push(None);
                continue;
            }
            let slot = self.first_slot(d, i, n, setup)?;
            device.slots.push(Some(slot));
        }
        self.devices.push(device);
        for i in 0..scenario.sessions.len() {
            self.set_policy(d, i, None)?;
        }
        for (i, f) in scenario.devices[d].faults.iter().enumerate() {
            self.at(f.at, Ev::Fault(d, i, true));
        }
        self.at(scenario.tick_s, Ev::Tick(d));
        Ok(())
    }

    fn options(&self) -> supervisor::supervise::Options {
        supervisor::supervise::Options {
            mode: self.scenario.supervise,
            ..self.scenario.options.clone()
        }
    }

    /// How a session is served at the start: as the scenario says, else as predictions choose.
    fn first_slot(&mut self, d: usize, i: usize, n: u32, setup: &Setup) -> Result<Slot, SimError> {
        let scenario = self.scenario.clone();
        let s = &scenario.sessions[i];
        let (mut way, division) = self.backend.first(d, i)?;
        let mut slot = Slot {
            instances: division.instances,
            max_delay_s: division.max_delay_s,
            marginal: division.marginal,
            size: way.size,
            way,
            runs: 0,
        };
        way.workers = s.workers.unwrap_or(way.workers).clamp(1, n);
        way.items = s.items.unwrap_or(way.items);
        way.size = s.size.unwrap_or(way.size);
        let named = s.variant.as_ref().and_then(|v| {
            let all = &scenario.models[self.models[i]].variants;
            all.iter().position(|x| x.name == *v)
        });
        if let Some(v) = named {
            way.variant = v as u32;
        }
        if let Some((_, v)) = setup.variants.iter().find(|v| v.0 == i) {
            way.variant = *v;
        }
        if s.workers.is_some() {
            slot.instances = (n / way.workers).max(1);
        }
        if s.items.is_some() {
            slot.max_delay_s = 0.0;
        }
        slot.way = way;
        Ok(slot)
    }

    fn at(&mut self, t: f64, ev: Ev) {
        self.order += 1;
        self.events
            .push(Reverse(Timed(t.max(self.now), self.order, ev)));
    }

    /// Everything that happens goes into the digest.
    fn mark(&mut self, v: u64) {
        self.digest = (self.digest ^ v).wrapping_mul(0x0000_0100_0000_01b3);
    }

    fn go(&mut self) -> Result<(), SimError> {
        let end = self.scenario.seconds + GRACE_S;
        let mut count = 0u64;
        while let Some(Reverse(Timed(t, _, ev))) = self.events.pop() {
            count += 1;
            if t > end || count > MOST_EVENTS {
                break;
            }
            self.now = t;
            match ev {
                Ev::Arrive(stream) => self.arrive(stream)?,
                Ev::Reach(d, id) => self.reach(d, id)?,
                Ev::StepEnd(d, run, version) => self.step_end(d, run, version)?,
                Ev::Tick(d) => {
                    self.tick(d)?;
                    let all = self.scenario.requests.is_some_and(|most| self.next >= most);
                    if (self.now < self.scenario.seconds && !all) || !self.live.is_empty() {
                        self.at(self.now + self.scenario.tick_s, Ev::Tick(d));
                    }
                }
                Ev::Wake(d) => {
                    self.devices[d].wake = f64::INFINITY;
                    self.schedule(d, Event::Tick)?;
                }
                Ev::Fault(d, i, begins) => self.fault(d, i, begins)?,
                Ev::Heal(d, worker) => {
                    self.devices[d].workers[worker].dead = false;
                    self.workers_changed(d)?;
                }
                Ev::Answer(d, o) => self.tell(d, *o)?,
                Ev::Plan(d, seen) => self.plan(d, &seen)?,
            }
        }
        Ok(())
    }

    /// Puts the next request of a stream on the way.
    fn next_arrival(&mut self, stream: usize) {
        if self.scenario.requests.is_some_and(|most| self.next >= most) {
            return;
        }
        if let Some(t) = self.streams[stream].1.next() {
            self.at(t, Ev::Arrive(stream));
        }
    }

    fn arrive(&mut self, stream: usize) -> Result<(), SimError> {
        if self.scenario.requests.is_some_and(|most| self.next >= most) {
            return Ok(());
        }
        self.next_arrival(stream);
        let (session, n) = (self.streams[stream].0, self.streams.iter());
        // Which of the session's streams it is.
        let own = n.take(stream).filter(|s| s.0 == session).count();
        let scenario = self.scenario.clone();
        let t = &scenario.sessions[session].traffic[own];
        let live = Live {
            session,
            stream,
            size: t.size.unwrap_or(scenario.models[self.models[session]].size),
            items: t.items,
            arrived: self.now,
        };
        let id = self.next;
        self.next += 1;
        self.sessions[session].arrived += 1;
        self.mark(self.now.to_bits() ^ session as u64);
        self.live.insert(id, live);
        let Some(d) = self.nearest(&live, id)? else {
            self.end_request(id, Some(Unfinished::Failed));
            return Ok(());
        };
        let away = scenario.devices[d].away_s / 2.0;
        match away > 0.0 {
            true => self.at(self.now + away, Ev::Reach(d, id)),
            false => self.reach(d, id)?,
        }
        Ok(())
    }

    /// The device that is predicted to have a request done first.
    fn nearest(&mut self, live: &Live, id: RequestId) -> Result<Option<usize>, SimError> {
        let able: Vec<usize> = (0..self.devices.len())
            .filter(|&d| self.devices[d].slots[live.session].is_some())
            .collect();
        let there: Vec<usize> = able
            .iter()
            .copied()
            .filter(|&d| !self.devices[d].gone)
            .collect();
        let list = if there.is_empty() { able } else { there };
        if list.len() < 2 {
            return Ok(list.first().copied());
        }
        let mut best: Option<(f64, usize)> = None;
        for d in list {
            let r = self.request(d, live, id)?;
            let at = self.devices[d]
                .scheduler
                .predicted(&r)
                .unwrap_or(f64::INFINITY)
                + self.scenario.devices[d].away_s;
            if best.is_none_or(|b| at < b.0) {
                best = Some((at, d));
            }
        }
        Ok(best.map(|b| b.1))
    }

    /// A request as the scheduler of a device sees it.
    fn request(
        &mut self,
        d: usize,
        live: &Live,
        id: RequestId,
    ) -> Result<admission::Request, SimError> {
        let way = self.devices[d].slots[live.session].as_ref().map(|s| s.way);
        let cost_s = match way {
            Some(way) => self.cost(d, live.session, live.size, live.items, way)?,
            None => 0.0,
        };
        Ok(admission::Request {
            id,
            session: live.session as u32,
            cost_s,
            items: live.items,
            shape: u64::from(live.size),
            deadline_s: None,
            since_s: 0.0,
        })
    }

    /// Predicted seconds of a run.
    fn cost(
        &mut self,
        d: usize,
        session: usize,
        size: u32,
        items: u32,
        way: Way,
    ) -> Result<f64, SimError> {
        let r = Request {
            device: d,
            model: self.models[session],
            size,
            items,
        };
        if let Some(c) = self.costs.get(&(r, way)) {
            return Ok(*c);
        }
        let c = self.steps_of(r, way)?.iter().map(|s| s.predicted_s).sum();
        self.costs.insert((r, way), c);
        Ok(c)
    }

    fn steps_of(&mut self, r: Request, way: Way) -> Result<Arc<[StepTime]>, SimError> {
        if let Some(s) = self.steps.get(&(r, way)) {
            return Ok(s.clone());
        }
        let s: Arc<[StepTime]> = self.backend.steps(r, way)?.into();
        self.steps.insert((r, way), s.clone());
        Ok(s)
    }

    fn reach(&mut self, d: usize, id: RequestId) -> Result<(), SimError> {
        let Some(live) = self.live.get(&id).copied() else {
            return Ok(());
        };
        let request = self.request(d, &live, id)?;
        let planned = self.devices[d].slots[live.session]
            .as_ref()
            .map(|s| s.way.size);
        let seen = &mut self.devices[d].seen[live.session];
        seen.arrivals += 1;
        seen.outside += u64::from(planned != Some(live.size));
        *seen.sizes.entry(live.size).or_insert(0) += 1;
        self.schedule(d, Event::Arrive(request))
    }

    /// Tells the scheduler of a device, and does what it says.
    fn schedule(&mut self, d: usize, event: Event) -> Result<(), SimError> {
        let mut actions = std::mem::take(&mut self.actions);
        actions.clear();
        self.devices[d]
            .scheduler
            .step_into(self.now, event, &mut actions);
        let list: Vec<Action> = std::mem::take(&mut actions);
        self.actions = actions;
        for a in list {
            match a {
                Action::Start {
                    run,
                    session,
                    requests,
                    workers,
                } => {
                    self.begin(d, run, session as usize, requests, workers)?;
                }
                Action::Resize { run, workers } => self.resize(d, run, workers),
                Action::Reject { request, .. } => {
                    self.end_request(request, Some(Unfinished::Rejected))
                }
                Action::Expire { request, .. } => {
                    self.end_request(request, Some(Unfinished::Expired))
                }
                Action::Stop(_) | Action::Queue(_) | Action::Drained(_) => {}
            }
        }
        if let Some(t) = self.devices[d].scheduler.wake_at() {
            let t = t.max(self.now + 1e-6);
            if t < self.devices[d].wake {
                self.devices[d].wake = t;
                self.at(t, Ev::Wake(d));
            }
        }
        Ok(())
    }

    /// A request leaves: done, or why not.
    fn end_request(&mut self, id: RequestId, undone: Option<Unfinished>) {
        let Some(live) = self.live.remove(&id) else {
            return;
        };
        let s = &mut self.sessions[live.session];
        match undone {
            None => s.finished += 1,
            Some(Unfinished::Rejected) => s.rejected += 1,
            Some(Unfinished::Expired) => s.expired += 1,
            Some(Unfinished::Failed) => s.failed += 1,
        }
        if let Some(u) = undone {
            self.undone.push((live.session as u32, live.arrived, u));
        }
        self.mark(id ^ (undone.map_or(0, |u| u as u64 + 1) << 60));
        // A caller that was refused thinks for a millisecond at least.
        let from = self.now + if undone.is_some() { 1e-3 } else { 0.0 };
        if let Some(t) = self.streams[live.stream].1.next_of_caller(from)
            && self.scenario.requests.is_none_or(|most| self.next < most)
        {
            self.at(t, Ev::Arrive(live.stream));
        }
    }

    /// The policy of a session on a device, or of the way that is tried.
    fn set_policy(
        &mut self,
        d: usize,
        session: usize,
        tried: Option<&Offer>,
    ) -> Result<(), SimError> {
        let spec = &self.scenario.sessions[session];
        let Some(slot) = &self.devices[d].slots[session] else {
            return Ok(());
        };
        let (way, instances, delay, marginal) = match tried {
            Some(o) => (o.way, o.instances, o.max_delay_s, o.marginal),
            None => (slot.way, slot.instances, slot.max_delay_s, slot.marginal),
        };
        let policy = SessionPolicy {
            weight: spec.weight,
            priority: spec.priority,
            deadline: spec.deadline_ms.map(|d| 1e-3 * d),
            max_queued: spec.max_queued,
            max_running: instances.max(1) as usize,
            workers: way.workers,
            spread: false,
            batching: Batching {
                max_items: way.items,
                max_delay_s: delay,
                marginal,
            },
        };
        let event = Event::SetPolicy(session as u32, Box::new(policy));
        self.schedule(d, event)
    }

    fn end(self) -> (Outcome, Vec<Vec<u8>>) {
        let mut sessions = self.sessions;
        for l in self.live.values() {
            sessions[l.session].lost += 1;
        }
        let scenario = &self.scenario;
        let all = scenario.requests.is_some_and(|most| self.next >= most);
        let seconds = self
            .done
            .iter()
            .map(|d| d.arrived + f64::from(d.latency))
            .fold(if all { 0.0 } else { scenario.seconds }, f64::max);
        let mut devices = Vec::new();
        let mut logs = Vec::new();
        for (i, d) in self.devices.into_iter().enumerate() {
            let ways = d.slots.iter().enumerate().filter_map(|(k, s)| {
                let s = s.as_ref()?;
                sessions[k].runs += s.runs;
                let all = &scenario.models[self.models[k]].variants;
                let variant = all
                    .get(s.way.variant as usize)
                    .map_or(format!("plan {}", s.way.variant), |v| v.name.clone());
                Some(format!(
                    "{}: {variant}, size {}, batch {}, {} x {} workers",
                    scenario.sessions[k].name, s.way.size, s.way.items, s.instances, s.way.workers
                ))
            });
            devices.push(DeviceOutcome {
                name: scenario.devices[i].name.clone(),
                machine: scenario.devices[i].machine.clone(),
                workers: d.workers.len() as u32,
                ways: ways.collect(),
                utilisation: d.busy / (d.workers.len() as f64 * seconds.max(1e-9)),
            });
            logs.extend(d.log.map(Log::into_inner));
        }
        let mut out = Outcome {
            scenario: scenario.name.clone(),
            about: scenario.about.clone(),
            seed: scenario.seed,
            seconds,
            sessions,
            devices,
            decisions: self.decisions,
            promotions: self.promotions,
            swaps: self.swaps,
            digest: format!("{:016x}", self.digest),
            done: self.done,
            undone: self.undone,
        };
        out.fill(seconds);
        (out, logs)
    }
}
