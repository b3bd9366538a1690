//! Where requests of all sessions come in: [`Scheduler`] decides, this keeps its clock and wakes callers.
//!
//! A request that finds nothing else running is not worth a lock: it takes the whole engine by one
//! exchange. Whoever comes meanwhile tells the scheduler of it first.
use crate::RunError;
use crate::book::Book;
use crate::cancel::Cancel;
use crate::ticket::{Aboard, Fate, Mates, Ticket};
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

/// What is asked of the desk for a request.
pub(crate) struct Ask<'a> {
    pub book: &'a Book,
    pub items: u32,
    pub shape: u64,
    pub deadline_s: Option<f64>,
    pub cancel: Option<&'a Cancel>,
    /// Whether it brings its inputs along, to ride with others.
    pub brings: bool,
}

/// A request's place among those that run; given back when dropped.
pub(crate) struct Turn<'a> {
    desk: &'a Desk,
    session: SessionId,
    priority: i32,
    run: Option<(RunId, Arc<AtomicU32>)>,
    cancel: Option<&'a AtomicBool>,
    aboard: Option<Arc<Aboard>>,
    /// Lives as long as the run, so that its caller can leave it.
    _ticket: Option<Arc<Ticket>>,
}

impl Turn<'_> {
    /// What the request may take of the device.
    pub fn permit(&self) -> Permit<'_> {
        Permit {
            workers: Some(match &self.run {
                Some((_, w)) => w,
                None => &self.desk.alone,
            }),
            priority: self.priority,
            cancel: self.cancel,
        }
    }

    /// As [`Turn::permit`] for a request with others along: it is called off when all of them are.
    pub fn permit_of_all(&self) -> Permit<'_> {
        Permit {
            cancel: self.aboard.as_deref().map(Aboard::flag),
            ..self.permit()
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some((run, _)) = &self.run else {
            let state = ALONE + u64::from(self.session);
            let free = &self.desk.state;
            if (free.compare_exchange(state, IDLE, Ordering::SeqCst, Ordering::SeqCst)).is_err() {
                let mut inner = self.desk.inner();
                inner.calls.by = self.priority;
                let event = match inner.alone.take() {
                    Some(run) => Event::Finish(run),
                    // The scheduler was told and has not let it run yet, or never will.
                    None => Event::Cancel(FIRST),
                };
                self.desk.step(&mut inner, event);
            }
            return;
        };
        let mut inner = self.desk.inner();
        inner.calls.by = self.priority;
        self.desk.step(&mut inner, Event::Finish(*run));
    }
}

/// What became of a request at the desk.
pub(crate) enum Admitted<'a> {
    /// It runs now, with others along or none.
    Runs(Turn<'a>, Mates),
    /// Another caller's thread ran it.
    Ran(Vec<tensor::Tensor>),
}

struct Inner {
    scheduler: Scheduler,
    actions: Vec<Action>,
    waiting: BTreeMap<RequestId, Arc<Ticket>>,
    /// Workers of what runs.
    runs: BTreeMap<RunId, Arc<AtomicU32>>,
    /// The run that the scheduler was told of late.
    alone: Option<RunId>,
    next: RequestId,
    sessions: BTreeMap<SessionId, std::sync::Weak<Book>>,
    next_session: SessionId,
    drained: BTreeSet<SessionId>,
}

/// The desk, locked.
///
/// Those who go on after the calling thread hear of it once the desk is not locked any more, so that nobody has
/// to wait for that thread should it lose the processor. Others hear of it at once: they run on the processor
/// of a thread with an answer to give back, and find the desk locked when they are done; it is not kept from
/// the processor for longer than that.
struct Held<'a> {
    // In this order: fields are dropped in that of their declaration.
    inner: MutexGuard<'a, Inner>,
    calls: Calls,
}

/// Those who are called when this is dropped, and the priority of who calls.
struct Calls {
    tickets: Vec<Arc<Ticket>>,
    by: i32,
}

impl Held<'_> {
    /// Waits until something has changed.
    fn wait(self, changed: &Condvar) -> Self {
        let Held { inner, calls } = self;
        drop(calls);
        let inner = changed.wait(inner);
        Held::of(inner.unwrap_or_else(PoisonError::into_inner))
    }
}

impl<'a> Held<'a> {
    /// Has a caller that sleeps go on.
    fn call(&mut self, t: Arc<Ticket>) {
        match t.wait_after(self.calls.by) {
            Duration::ZERO => t.call(Duration::ZERO),
            _ => self.calls.tickets.push(t),
        }
    }

    fn of(inner: MutexGuard<'a, Inner>) -> Held<'a> {
        let calls = Calls {
            tickets: Vec::new(),
            by: i32::MIN,
        };
        Held { inner, calls }
    }
}

impl Deref for Held<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        for t in &self.tickets {
            t.call(t.wait_after(self.by));
        }
    }
}

/// When a caller that waits is to come by: for itself, since nobody else may be left to, or for all.
fn wake(s: &Scheduler, session: SessionId, request: RequestId) -> Option<f64> {
    let own = s.wake_for(session, request);
    own.into_iter().chain(s.wake_at()).min_by(f64::total_cmp)
}

/// The engine's front desk.
pub(crate) struct Desk {
    state: AtomicU64,
    /// Workers of the request that runs unknown to the scheduler.
    alone: AtomicU32,
    unlike: AtomicU64,
    /// Whether its workers are all the processors there are: a caller that may go on then finds one where
    /// whoever said so is about to leave it.
    follow: bool,
    inner: Mutex<Inner>,
    quiet: Condvar,
    began: Instant,
}

impl Desk {
    /// A desk for `workers` workers; `follow`: they are all the processors there are.
    pub fn new(workers: u32, follow: bool) -> Desk {
        Desk {
            follow,
            state: AtomicU64::new(IDLE),
            alone: AtomicU32::new(workers),
            unlike: AtomicU64::new(0),
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

    fn inner(&self) -> Held<'_> {
        Held::of(self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Seconds of the scheduler's clock.
    pub fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Begins a session.
    pub fn open(&self, make: impl FnOnce(SessionId) -> Book) -> Arc<Book> {
        let mut inner = self.inner();
        let mut id = inner.next_session;
        // Numbers come round after four thousand million sessions.
        while inner.sessions.contains_key(&id) {
            id = id.wrapping_add(1);
        }
        inner.next_session = id.wrapping_add(1);
        let book = Arc::new(make(id));
        inner.sessions.insert(id, Arc::downgrade(&book));
        let policy = Box::new(book.policy().clone());
        self.step(&mut inner, Event::SetPolicy(id, policy));
        book
    }

    /// Changes a session's policy.
    pub fn set_policy(&self, book: &Book, policy: SessionPolicy) {
        // Locked first, so that nobody changes it in between.
        let mut inner = self.inner();
        book.set(policy.clone());
        inner.drained.remove(&book.id);
        self.step(&mut inner, Event::SetPolicy(book.id, Box::new(policy)));
    }

    /// Takes no further requests of a session, and waits until those it has are done.
    pub fn drain(&self, book: &Book) {
        book.close();
        let mut inner = self.inner();
        inner.drained.remove(&book.id);
        self.step(&mut inner, Event::Drain(book.id));
        while !inner.drained.contains(&book.id) {
            inner = inner.wait(&self.quiet);
        }
    }

    /// Ends a session of which nothing runs or waits.
    pub fn close(&self, book: &Book) {
        let mut inner = self.inner();
        self.step(&mut inner, Event::Drain(book.id));
        inner.scheduler.forget(book.id);
        inner.sessions.remove(&book.id);
        inner.drained.remove(&book.id);
    }

    /// There are so many workers now.
    pub fn limit(&self, workers: u32) {
        self.step(&mut self.inner(), Event::WorkersChanged(workers));
    }

    /// A number of shapes that no other request has.
    pub fn unlike(&self) -> u64 {
        self.unlike.fetch_add(1, Ordering::Relaxed)
    }

    /// Sessions that live.
    pub fn books(&self) -> Vec<Arc<Book>> {
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
    pub fn alone<'a>(&'a self, book: &Book) -> Option<Turn<'a>> {
        if !book.is_plain() {
            return None;
        }
        let mine = ALONE + u64::from(book.id);
        if self.state.load(Ordering::Relaxed) != IDLE
            || (self
                .state
                .compare_exchange(IDLE, mine, Ordering::SeqCst, Ordering::SeqCst))
            .is_err()
        {
            return None;
        }
        self.alone
            .store(book.workers.load(Ordering::Relaxed), Ordering::Relaxed);
        let turn = Turn {
            desk: self,
            session: book.id,
            priority: book.priority.load(Ordering::Relaxed),
            run: None,
            cancel: None,
            aboard: None,
            _ticket: None,
        };
        // Who drains the session either sees this request, or is seen.
        book.is_plain().then_some(turn)
    }

    /// Waits until a request may run, or has run along with another.
    pub fn admit<'a>(
        &'a self,
        ask: &Ask<'a>,
        bring: impl FnOnce() -> Vec<tensor::Tensor>,
    ) -> Result<Admitted<'a>, RunError> {
        let came = Instant::now();
        let priority = ask.book.priority.load(Ordering::Relaxed);
        let ticket = Ticket::new(ask.brings, self.follow, priority);
        if let Some(c) = ask.cancel {
            c.follow(&ticket);
        }
        let (id, mut wake) = {
            let mut inner = self.inner();
            let id = inner.next;
            inner.next += 1;
            inner.waiting.insert(id, ticket.clone());
            let request = Request {
                id,
                session: ask.book.id,
                cost_s: ask.book.cost_s() * f64::from(ask.items),
                items: ask.items,
                shape: ask.shape,
                deadline_s: ask.deadline_s,
                // Where many come at once, they wait for the desk.
                since_s: came.elapsed().as_secs_f64(),
            };
            self.step(&mut inner, Event::Arrive(request));
            (id, wake(&inner.scheduler, ask.book.id, id))
        };
        let off = || ask.cancel.is_some_and(Cancel::is_cancelled);
        let mut fate = ticket.fate(Some(Duration::ZERO), &|| true);
        if fate.is_none() {
            if ask.brings {
                let inputs = bring();
                let bytes: u64 = inputs.iter().map(|t| t.bytes().len() as u64).sum();
                ask.book.queue.fetch_add(bytes, Ordering::Relaxed);
                ticket.bring(Some(inputs));
                let r = self.wait(ask, id, &ticket, &mut wake, &off);
                ask.book.queue.fetch_sub(bytes, Ordering::Relaxed);
                fate = Some(r);
            } else {
                fate = Some(self.wait(ask, id, &ticket, &mut wake, &off));
            }
        }
        match fate {
            Some(Fate::Lead {
                run,
                workers,
                mates,
                aboard,
            }) => {
                let turn = Turn {
                    desk: self,
                    session: ask.book.id,
                    priority,
                    run: Some((run, workers)),
                    cancel: ask.cancel.map(Cancel::flag),
                    aboard,
                    _ticket: Some(ticket),
                };
                Ok(Admitted::Runs(turn, mates))
            }
            Some(Fate::Done(Ok(outputs))) => Ok(Admitted::Ran(outputs)),
            Some(Fate::Done(Err(e))) => Err(e),
            Some(Fate::Refused(why)) => {
                ask.book.stats.refuse();
                Err(RunError::from(why))
            }
            _ => Err(RunError::Cancelled),
        }
    }

    fn wait(
        &self,
        ask: &Ask<'_>,
        id: RequestId,
        ticket: &Arc<Ticket>,
        wake: &mut Option<f64>,
        off: &dyn Fn() -> bool,
    ) -> Fate {
        loop {
            // A clock that rounds must not have it spin.
            let left =
                wake.map(|at| Duration::from_secs_f64((at - self.now()).clamp(20e-6, 3600.0)));
            if let Some(fate) = ticket.fate(left, off) {
                return fate;
            }
            let mut inner = self.inner();
            if off() {
                self.step(&mut inner, Event::Cancel(id));
                inner.waiting.remove(&id);
                drop(inner);
                // It may have been started in between; then its run is over here and now.
                let fate = ticket.fate(Some(Duration::ZERO), &|| true);
                ticket.bring(None);
                return fate.unwrap_or(Fate::Rides);
            }
            if wake.is_some_and(|at| at <= self.now()) {
                self.step(&mut inner, Event::Tick);
            }
            *wake = self::wake(&inner.scheduler, ask.book.id, id);
        }
    }

    /// Tells the scheduler of what runs that it does not know of.
    fn settle(&self, inner: &mut Held<'_>) {
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

    fn step(&self, inner: &mut Held<'_>, event: Event) {
        self.settle(inner);
        self.tell(inner, event);
        self.unsettle(inner);
    }

    fn tell(&self, inner: &mut Held<'_>, event: Event) {
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

    fn act(&self, inner: &mut Held<'_>, action: Action) {
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
                let mut tickets: Vec<Arc<Ticket>> = requests
                    .iter()
                    .filter_map(|r| inner.waiting.remove(r))
                    .collect();
                if tickets.is_empty() {
                    return;
                }
                let first = tickets.remove(0);
                let (mates, aboard) = Mates::new(&first, tickets);
                let sleeps = first.decide(Fate::Lead {
                    run,
                    workers,
                    mates,
                    aboard,
                });
                if sleeps {
                    inner.call(first);
                }
            }
            Action::Resize { run, workers } => match inner.runs.get(&run) {
                Some(w) => w.store(workers, Ordering::Relaxed),
                None => self.alone.store(workers, Ordering::Relaxed),
            },
            Action::Reject { request, why } | Action::Expire { request, why } => {
                if let Some(t) = inner.waiting.remove(&request)
                    && t.decide(Fate::Refused(why))
                {
                    inner.call(t);
                }
            }
            Action::Drained(s) => {
                inner.drained.insert(s);
                self.quiet.notify_all();
            }
            // Who waits is told by nothing; a run that nobody wants ends by its callers' flags.
            Action::Queue(_) | Action::Stop(_) => {}
        }
    }
}
