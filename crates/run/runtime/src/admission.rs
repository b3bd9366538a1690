//! The engine's admission queue: requests of all sessions wait here until they may run. [`Scheduler`] decides;
//! this keeps its clock and wakes callers. It runs nothing itself.
//!
//! A request that finds the engine idle takes no lock: it claims the whole engine by one compare-exchange. The
//! next request to arrive tells the scheduler of that one first.
use crate::RunError;
use crate::cancel::Cancel;
use crate::queued::{BatchCancel, BatchFollowers, Outcome, QueuedRequest};
use crate::record::SessionRecord;
use device::Permit;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use supervisor::admission::{
    Action, Event, Request, RequestId, RunId, Scheduler, SessionId, SessionLoad, SessionPolicy,
};

/// Nothing runs.
const IDLE: u64 = 0;
/// The scheduler knows everything that runs.
const KNOWN: u64 = 1;
/// With the session's number added: one request of it runs that the scheduler does not know of.
const ALONE: u64 = 2;
/// The number of that request.
const FIRST: RequestId = 0;

/// A request for admission.
pub(crate) struct AdmissionRequest<'a> {
    pub record: &'a SessionRecord,
    pub items: u32,
    pub shape: u64,
    pub deadline_s: Option<f64>,
    pub cancel: Option<&'a Cancel>,
    /// Whether it may be batched: it then hands its inputs over while it waits.
    pub batchable: bool,
}

/// A running request's admission; the run ends when this is dropped.
pub(crate) struct AdmissionGuard<'a> {
    admission: &'a AdmissionQueue,
    session: SessionId,
    priority: i32,
    run: Option<(RunId, Arc<AtomicU32>)>,
    cancel: Option<&'a AtomicBool>,
    batch_cancel: Option<Arc<BatchCancel>>,
    /// Lives as long as the run, so that its caller can leave it.
    _queued: Option<Arc<QueuedRequest>>,
}

impl AdmissionGuard<'_> {
    /// What the request may take of the device.
    pub fn permit(&self) -> Permit<'_> {
        Permit {
            workers: Some(match &self.run {
                Some((_, w)) => w,
                None => &self.admission.alone,
            }),
            priority: self.priority,
            cancel: self.cancel,
        }
    }

    /// As [`AdmissionGuard::permit`] for a request in a batch: it is called off when all of them are.
    pub fn permit_of_all(&self) -> Permit<'_> {
        Permit {
            cancel: self.batch_cancel.as_deref().map(BatchCancel::flag),
            ..self.permit()
        }
    }
}

impl Drop for AdmissionGuard<'_> {
    fn drop(&mut self) {
        let Some((run, _)) = &self.run else {
            let state = ALONE + u64::from(self.session);
            let free = &self.admission.state;
            if (free.compare_exchange(state, IDLE, Ordering::SeqCst, Ordering::SeqCst)).is_err() {
                let mut inner = self.admission.inner();
                inner.wakeups.by = self.priority;
                let event = match inner.alone.take() {
                    Some(run) => Event::Finish(run),
                    // The scheduler was told and has not let it run yet, or never will.
                    None => Event::Cancel(FIRST),
                };
                self.admission.step(&mut inner, event);
            }
            return;
        };
        let mut inner = self.admission.inner();
        inner.wakeups.by = self.priority;
        self.admission.step(&mut inner, Event::Finish(*run));
    }
}

/// What became of a request at the admission queue.
pub(crate) enum Admitted<'a> {
    /// It runs now, in a batch or none.
    Runs(AdmissionGuard<'a>, BatchFollowers),
    /// Another caller's thread ran it.
    Ran(Vec<tensor::Tensor>),
}

struct Inner {
    scheduler: Scheduler,
    actions: Vec<Action>,
    waiting: BTreeMap<RequestId, Arc<QueuedRequest>>,
    /// Workers of what runs.
    runs: BTreeMap<RunId, Arc<AtomicU32>>,
    /// The run that was claimed without the scheduler and reported to it later.
    alone: Option<RunId>,
    next: RequestId,
    sessions: BTreeMap<SessionId, std::sync::Weak<SessionRecord>>,
    next_session: SessionId,
    drained: BTreeSet<SessionId>,
}

/// The queue, locked.
///
/// Callers are woken once the queue is unlocked: one that is woken may take the processor from the calling thread at
/// once, and nobody is to wait for a lock that this thread holds meanwhile.
struct LockedInner<'a> {
    // In this order: fields are dropped in that of their declaration.
    inner: MutexGuard<'a, Inner>,
    wakeups: Wakeups,
}

/// Callers that are woken when this is dropped, and the priority of the thread that wakes them.
struct Wakeups {
    requests: Vec<Arc<QueuedRequest>>,
    by: i32,
}

impl LockedInner<'_> {
    /// Waits until something has changed.
    fn wait(self, changed: &Condvar) -> Self {
        let LockedInner { inner, wakeups } = self;
        drop(wakeups);
        let inner = changed.wait(inner);
        LockedInner::of(inner.unwrap_or_else(PoisonError::into_inner))
    }
}

impl<'a> LockedInner<'a> {
    /// Wakes a sleeping caller when the queue is unlocked.
    fn wake(&mut self, t: Arc<QueuedRequest>) {
        self.wakeups.requests.push(t);
    }

    fn of(inner: MutexGuard<'a, Inner>) -> LockedInner<'a> {
        let wakeups = Wakeups {
            requests: Vec::new(),
            by: i32::MIN,
        };
        LockedInner { inner, wakeups }
    }
}

impl Deref for LockedInner<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for LockedInner<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        for t in &self.requests {
            t.wake(t.wait_after(self.by));
        }
    }
}

/// When a waiting caller has to drive the scheduler's clock, for itself or for all.
fn wake(s: &Scheduler, session: SessionId, request: RequestId) -> Option<f64> {
    let own = s.wake_for(session, request);
    own.into_iter().chain(s.wake_at()).min_by(f64::total_cmp)
}

/// The engine's admission queue.
pub(crate) struct AdmissionQueue {
    state: AtomicU64,
    /// Workers of the request that runs unknown to the scheduler.
    alone: AtomicU32,
    unique_shapes: AtomicU64,
    /// Whether its workers are all the processors there are: a caller that may run then continues on the
    /// processor of the thread that wakes it, which is about to be free.
    follow: bool,
    inner: Mutex<Inner>,
    quiet: Condvar,
    began: Instant,
}

impl AdmissionQueue {
    /// A queue for `workers` workers; `follow`: they are all the processors there are.
    pub fn new(workers: u32, follow: bool) -> AdmissionQueue {
        AdmissionQueue {
            follow,
            state: AtomicU64::new(IDLE),
            alone: AtomicU32::new(workers),
            unique_shapes: AtomicU64::new(0),
            inner: Mutex::new(Inner {
                scheduler: Scheduler::new(workers),
                actions: Vec::new(),
                waiting: BTreeMap::new(),
                runs: BTreeMap::new(),
                alone: None,
                next: FIRST + 1,
                sessions: BTreeMap::new(),
                next_session: 0,
                drained: BTreeSet::new(),
            }),
            quiet: Condvar::new(),
            began: Instant::now(),
        }
    }

    fn inner(&self) -> LockedInner<'_> {
        LockedInner::of(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Seconds of the scheduler's clock.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Begins a session.
    pub fn open(&self, make: impl FnOnce(SessionId) -> SessionRecord) -> Arc<SessionRecord> {
        let mut inner = self.inner();
        let mut id = inner.next_session;
        // Numbers come round after four thousand million sessions.
        while inner.sessions.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        inner.next_session = id.wrapping_add(1);
        let record = Arc::new(make(id));
        inner.sessions.insert(id, Arc::downgrade(&record));
        let policy = Box::new(record.policy().clone());
        self.step(&mut inner, Event::SetPolicy(id, policy));
        record
    }

    /// Changes a session's policy.
    pub fn set_policy(&self, record: &SessionRecord, policy: SessionPolicy) {
        // Locked first, so that nobody changes it in between.
        let mut inner = self.inner();
        record.set(policy.clone());
        inner.drained.remove(&record.id);
        self.step(&mut inner, Event::SetPolicy(record.id, Box::new(policy)));
    }

    /// Takes no further requests of a session, and waits until those it has are done.
    pub fn drain(&self, record: &SessionRecord) {
        record.close();
        let mut inner = self.inner();
        inner.drained.remove(&record.id);
        self.step(&mut inner, Event::Drain(record.id));
        while !inner.drained.contains(&record.id) {
            inner = inner.wait(&self.quiet);
        }
    }

    /// Ends a session of which nothing runs or waits.
    pub fn close(&self, record: &SessionRecord) {
        let mut inner = self.inner();
        self.step(&mut inner, Event::Drain(record.id));
        inner.scheduler.forget(record.id);
        inner.sessions.remove(&record.id);
        inner.drained.remove(&record.id);
    }

    /// There are so many workers now.
    pub fn limit(&self, workers: u32) {
        self.step(&mut self.inner(), Event::WorkersChanged(workers));
    }

    /// A number of shapes that no other request has.
    pub fn unique_shape(&self) -> u64 {
        self.unique_shapes.fetch_add(1, Ordering::Relaxed)
    }

    /// Sessions that live.
    pub fn records(&self) -> Vec<Arc<SessionRecord>> {
        let inner = self.inner();
        inner
            .sessions
            .values()
            .filter_map(|b| b.upgrade())
            .collect()
    }

    /// What a session is at.
    pub fn load(&self, session: SessionId) -> SessionLoad {
        let mut inner = self.inner();
        self.settle(&mut inner);
        let load = inner.scheduler.load(session).unwrap_or_default();
        self.unsettle(&inner);
        load
    }

    /// Lets a request run at once, where nothing else runs and its session asks nothing special.
    #[inline]
    pub fn alone<'a>(&'a self, record: &SessionRecord) -> Option<AdmissionGuard<'a>> {
        if !record.is_plain() {
            return None;
        }
        let mine = ALONE + u64::from(record.id);
        if self.state.load(Ordering::Relaxed) != IDLE
            || (self
                .state
                .compare_exchange(IDLE, mine, Ordering::SeqCst, Ordering::SeqCst))
            .is_err()
        {
            return None;
        }
        self.alone
            .store(record.workers.load(Ordering::Relaxed), Ordering::Relaxed);
        let guard = AdmissionGuard {
            admission: self,
            session: record.id,
            priority: record.priority.load(Ordering::Relaxed),
            run: None,
            cancel: None,
            batch_cancel: None,
            _queued: None,
        };
        // Who drains the session either sees this request, or is seen.
        record.is_plain().then_some(guard)
    }

    /// Waits until a request may run, or has run in another one's batch.
    pub fn admit<'a>(
        &'a self,
        ask: &AdmissionRequest<'a>,
        put_inputs: impl FnOnce() -> Vec<Arc<tensor::Tensor>>,
    ) -> Result<Admitted<'a>, RunError> {
        if tensor::in_native_code() {
            return Err(RunError::Refused("an operator's own code must not wait for workers, among which is the one that it runs on; run what it needs before".into()));
        }
        let came = Instant::now();
        let priority = ask.record.priority.load(Ordering::Relaxed);
        let queued = QueuedRequest::new(ask.batchable, self.follow, priority);
        if let Some(c) = ask.cancel {
            c.follow(&queued);
        }
        let (id, mut wake) = self.enqueue(ask, &queued, came);
        let off = || ask.cancel.is_some_and(Cancel::is_cancelled);
        let mut outcome = queued.outcome(Some(Duration::ZERO), &|| true);
        if outcome.is_none() {
            if ask.batchable {
                let inputs = put_inputs();
                let bytes: u64 = inputs.iter().map(|t| t.bytes().len() as u64).sum();
                ask.record.queue.fetch_add(bytes, Ordering::Relaxed);
                queued.put_inputs(Some(inputs));
                let r = self.wait(ask, id, &queued, &mut wake, &off);
                ask.record.queue.fetch_sub(bytes, Ordering::Relaxed);
                outcome = Some(r);
            } else {
                outcome = Some(self.wait(ask, id, &queued, &mut wake, &off));
            }
        }
        let cancel = ask.cancel.map(Cancel::flag);
        self.conclude(ask.record, queued, cancel, outcome)
    }

    /// Puts a request into the queue, which came at `came`: its number, and when the clock is to go on for it.
    pub fn enqueue(
        &self,
        ask: &AdmissionRequest<'_>,
        queued: &Arc<QueuedRequest>,
        came: Instant,
    ) -> (RequestId, Option<f64>) {
        let mut inner = self.inner();
        let id = inner.next;
        inner.next += 1;
        inner.waiting.insert(id, queued.clone());
        let request = Request {
            id,
            session: ask.record.id,
            cost_s: ask.record.cost_s() * f64::from(ask.items),
            items: ask.items,
            shape: ask.shape,
            deadline_s: ask.deadline_s,
            // Where many come at once, they wait for the admission queue.
            since_s: came.elapsed().as_secs_f64(),
        };
        self.step(&mut inner, Event::Arrive(request));
        (id, wake(&inner.scheduler, ask.record.id, id))
    }

    /// What follows from a request's outcome; `None`: it was given up. `cancel`: by this its run is called off.
    pub fn conclude<'a>(
        &'a self,
        record: &SessionRecord,
        queued: Arc<QueuedRequest>,
        cancel: Option<&'a AtomicBool>,
        outcome: Option<Outcome>,
    ) -> Result<Admitted<'a>, RunError> {
        match outcome {
            Some(Outcome::Run {
                run,
                workers,
                followers,
                batch_cancel,
            }) => {
                let guard = AdmissionGuard {
                    admission: self,
                    session: record.id,
                    priority: record.priority.load(Ordering::Relaxed),
                    run: Some((run, workers)),
                    cancel,
                    batch_cancel,
                    _queued: Some(queued),
                };
                Ok(Admitted::Runs(guard, followers))
            }
            Some(Outcome::Done(Ok(outputs))) => Ok(Admitted::Ran(outputs)),
            Some(Outcome::Done(Err(e))) => Err(e),
            Some(Outcome::Refused(why)) => {
                record.stats.refuse();
                Err(RunError::from(why))
            }
            _ => Err(RunError::Cancelled),
        }
    }

    /// Lets the clock go on for a request that no thread waits for: when that is to be done again, as long as
    /// it waits.
    pub fn tick(&self, session: SessionId, id: RequestId) -> Option<Instant> {
        let mut inner = self.inner();
        self.step(&mut inner, Event::Tick);
        let waits = inner.waiting.contains_key(&id);
        let at = waits
            .then(|| wake(&inner.scheduler, session, id))
            .flatten()?;
        // A clock that rounds must not have it spin.
        Some(self.instant(at.max(self.now() + 20e-6)))
    }

    /// The instant of a time of the scheduler's clock; far ones are cut to an hour from now.
    pub fn instant(&self, at: f64) -> Instant {
        let most = self.now() + 3600.0;
        self.began + Duration::from_secs_f64(at.clamp(0.0, most))
    }

    /// Takes a request that was given up out of the queue; its outcome, where it has one already.
    pub fn leave(&self, id: RequestId, queued: &QueuedRequest) -> Option<Outcome> {
        let mut inner = self.inner();
        self.step(&mut inner, Event::Cancel(id));
        inner.waiting.remove(&id);
        drop(inner);
        // It may have been started in between; then its run is over here and now.
        let outcome = queued.outcome(Some(Duration::ZERO), &|| true);
        queued.put_inputs(None);
        outcome
    }

    fn wait(
        &self,
        ask: &AdmissionRequest<'_>,
        id: RequestId,
        queued: &Arc<QueuedRequest>,
        wake: &mut Option<f64>,
        off: &dyn Fn() -> bool,
    ) -> Outcome {
        loop {
            // A clock that rounds must not have it spin.
            let left =
                wake.map(|at| Duration::from_secs_f64((at - self.now()).clamp(20e-6, 3600.0)));
            if let Some(outcome) = queued.outcome(left, off) {
                return outcome;
            }
            if off() {
                return self.leave(id, queued).unwrap_or(Outcome::InBatch);
            }
            let mut inner = self.inner();
            if wake.is_some_and(|at| at <= self.now()) {
                self.step(&mut inner, Event::Tick);
            }
            *wake = self::wake(&inner.scheduler, ask.record.id, id);
        }
    }

    /// Tells the scheduler of what runs that it does not know of.
    fn settle(&self, inner: &mut LockedInner<'_>) {
        loop {
            let s = self.state.load(Ordering::SeqCst);
            if s == KNOWN {
                return;
            }
            let won = self
                .state
                .compare_exchange(s, KNOWN, Ordering::SeqCst, Ordering::SeqCst);
            if won.is_err() {
                continue;
            }
            if s == IDLE {
                return;
            }
            let session = (s - ALONE) as SessionId;
            let cost_s = inner.sessions.get(&session).and_then(|b| b.upgrade());
            let request = Request {
                id: FIRST,
                session,
                cost_s: cost_s.map_or(0.0, |b| b.cost_s()),
                items: 1,
                shape: 0,
                deadline_s: None,
                since_s: 0.0,
            };
            self.tell(inner, Event::Arrive(request));
            return;
        }
    }

    /// Lets requests run without the scheduler again, where nothing runs.
    fn unsettle(&self, inner: &Inner) {
        if inner.scheduler.is_idle() {
            self.state.store(IDLE, Ordering::SeqCst);
        }
    }

    fn step(&self, inner: &mut LockedInner<'_>, event: Event) {
        self.settle(inner);
        self.tell(inner, event);
        self.unsettle(inner);
    }

    fn tell(&self, inner: &mut LockedInner<'_>, event: Event) {
        if let Event::Finish(run) = event {
            inner.runs.remove(&run);
        }
        let mut actions = std::mem::take(&mut inner.actions);
        inner.scheduler.step_into(self.now(), event, &mut actions);
        for a in actions.drain(..) {
            self.act(inner, a);
        }
        inner.actions = actions;
    }

    fn act(&self, inner: &mut LockedInner<'_>, action: Action) {
        match action {
            Action::Start {
                run,
                requests,
                workers,
                ..
            } => {
                if requests.first() == Some(&FIRST) {
                    inner.alone = Some(run);
                    return;
                }
                let workers = Arc::new(AtomicU32::new(workers));
                inner.runs.insert(run, workers.clone());
                let mut requests: Vec<Arc<QueuedRequest>> = requests
                    .iter()
                    .filter_map(|r| inner.waiting.remove(r))
                    .collect();
                if requests.is_empty() {
                    return;
                }
                let first = requests.remove(0);
                let (followers, batch_cancel) = BatchFollowers::new(&first, requests);
                let sleeps = first.decide(Outcome::Run {
                    run,
                    workers,
                    followers,
                    batch_cancel,
                });
                if sleeps {
                    inner.wake(first);
                }
            }
            Action::Resize { run, workers } => match inner.runs.get(&run) {
                Some(w) => w.store(workers, Ordering::Relaxed),
                None => self.alone.store(workers, Ordering::Relaxed),
            },
            Action::Reject { request, why } | Action::Expire { request, why } => {
                if let Some(t) = inner.waiting.remove(&request)
                    && t.decide(Outcome::Refused(why))
                {
                    inner.wake(t);
                }
            }
            Action::Drained(s) => {
                inner.drained.insert(s);
                self.quiet.notify_all();
            }
            // A queued caller already sleeps; a stopped run ends by its callers' cancel flags.
            Action::Queue(_) | Action::Stop(_) => {}
        }
    }
}
