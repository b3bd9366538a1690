//! A request that waits at the engine's desk.
use crate::RunError;
use device::place::{Sleeper, wait_after};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use supervisor::admission::{Refusal, RunId};
use tensor::Tensor;

/// What becomes of a request.
pub(crate) enum Fate {
    /// It waits.
    Waiting,
    /// It runs now, on its caller's thread, and takes these others along.
    Lead {
        run: RunId,
        workers: Arc<AtomicU32>,
        mates: Mates,
        aboard: Option<Arc<Aboard>>,
    },
    /// Another caller's thread runs it along with its own.
    Rides,
    /// It is turned away.
    Refused(Refusal),
    /// Another caller's thread ran it.
    Done(Result<Vec<Tensor>, RunError>),
}

/// The inputs of a request that may ride along.
enum Luggage {
    Coming,
    Here(Vec<Tensor>),
    None,
}

/// Those of a run that still want what comes of it.
pub(crate) struct Aboard {
    left: AtomicUsize,
    off: AtomicBool,
}

impl Aboard {
    /// Whether nobody wants the run's results any more.
    pub fn flag(&self) -> &AtomicBool {
        &self.off
    }

    fn leave(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.off.store(true, Ordering::SeqCst);
        }
    }
}

struct Wait {
    fate: Fate,
    /// Its caller gave it up.
    off: bool,
    /// The run that it is part of, with others.
    aboard: Option<Arc<Aboard>>,
    /// Its caller sleeps.
    sleeps: bool,
    /// Its caller, where that sleeps and is to be told where to go on.
    sleeper: Option<Sleeper>,
}

/// One waiting request.
pub(crate) struct Ticket {
    wait: Mutex<Wait>,
    /// Whether its caller is to go on where whoever starts it is.
    follows: bool,
    priority: i32,
    luggage: Mutex<Luggage>,
    called: Condvar,
    brought: Condvar,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ticket {
    /// A new one; `brings`: its inputs will be put down here; `follows`: when it may run, its caller takes
    /// the processor of whoever said so.
    pub fn new(brings: bool, follows: bool, priority: i32) -> Arc<Ticket> {
        Arc::new(Ticket {
            wait: Mutex::new(Wait {
                fate: Fate::Waiting,
                off: false,
                aboard: None,
                sleeps: false,
                sleeper: None,
            }),
            follows,
            priority,
            luggage: Mutex::new(match brings {
                true => Luggage::Coming,
                false => Luggage::None,
            }),
            called: Condvar::new(),
            brought: Condvar::new(),
        })
    }

    /// Its caller gives it up: has the caller look up, if it waits.
    pub fn give_up(&self) {
        let mut w = lock(&self.wait);
        if !w.off {
            w.off = true;
            w.aboard.iter().for_each(|a| a.leave());
        }
        self.called.notify_all();
    }

    /// It runs with others.
    fn board(&self, run: &Arc<Aboard>) {
        let mut w = lock(&self.wait);
        if w.off {
            run.leave();
        }
        w.aboard = Some(run.clone());
    }

    /// Decides what becomes of it; true where its caller sleeps and is to be called.
    #[must_use = "its caller sleeps on until it is called"]
    pub fn decide(&self, fate: Fate) -> bool {
        let mut w = lock(&self.wait);
        w.fate = fate;
        w.sleeps
    }

    /// How long its caller leaves the processor to whoever calls it, of priority `by`.
    pub fn wait_after(&self, by: i32) -> Duration {
        wait_after(self.priority, by)
    }

    /// Has its caller, if it sleeps, look at what was decided, and go on where the calling thread is if it may
    /// run, so long `after` it is called.
    pub fn call(&self, after: Duration) {
        let w = lock(&self.wait);
        if let (Fate::Lead { .. }, Some(s)) = (&w.fate, &w.sleeper) {
            s.follow_me(after);
        }
        self.called.notify_all();
    }

    /// Tells its caller.
    fn tell(&self, fate: Fate) {
        if self.decide(fate) {
            self.call(Duration::ZERO);
        }
    }

    /// What was decided; with `wait`, waits for it until the time is up or `stop`, which is asked each
    /// time the caller is called.
    pub fn fate(&self, wait: Option<Duration>, stop: &dyn Fn() -> bool) -> Option<Fate> {
        let mut w = lock(&self.wait);
        let mut sleeper = None;
        if matches!(w.fate, Fate::Waiting | Fate::Rides) && !stop() {
            w.sleeper = self.follows.then(Sleeper::here).flatten();
            w.sleeps = true;
            w = match wait {
                Some(t) => {
                    let r = self.called.wait_timeout(w, t);
                    r.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let r = self.called.wait(w);
                    r.unwrap_or_else(PoisonError::into_inner)
                }
            };
            w.sleeps = false;
            sleeper = w.sleeper.take();
        }
        let fate = match &w.fate {
            Fate::Waiting | Fate::Rides => None,
            _ => Some(std::mem::replace(&mut w.fate, Fate::Rides)),
        };
        drop(w);
        sleeper.iter().for_each(Sleeper::awake);
        fate
    }

    /// Puts the inputs down, or says that there will be none.
    pub fn bring(&self, inputs: Option<Vec<Tensor>>) {
        *lock(&self.luggage) = inputs.map_or(Luggage::None, Luggage::Here);
        self.brought.notify_all();
    }

    /// The inputs, once their caller has put them down.
    fn luggage(&self) -> Option<Vec<Tensor>> {
        let mut l = lock(&self.luggage);
        while matches!(*l, Luggage::Coming) {
            l = self.brought.wait(l).unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::replace(&mut *l, Luggage::None) {
            Luggage::Here(v) => Some(v),
            _ => None,
        }
    }
}

/// Requests that another one takes along: each of them hears what became of it, whatever happens.
pub(crate) struct Mates(Vec<Arc<Ticket>>);

impl Mates {
    /// Those that `first` takes along, and who of them all still wants what comes of it; `None` where it
    /// goes alone.
    pub fn new(first: &Ticket, tickets: Vec<Arc<Ticket>>) -> (Mates, Option<Arc<Aboard>>) {
        if tickets.is_empty() {
            return (Mates(tickets), None);
        }
        let aboard = Arc::new(Aboard {
            left: AtomicUsize::new(1 + tickets.len()),
            off: AtomicBool::new(false),
        });
        first.board(&aboard);
        for t in &tickets {
            t.board(&aboard);
            lock(&t.wait).fate = Fate::Rides;
        }
        (Mates(tickets), Some(aboard))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The inputs of each that is still there, waiting until they were put down.
    pub fn luggage(&mut self) -> Vec<Vec<Tensor>> {
        let mut all = Vec::new();
        self.0.retain(|t| match t.luggage() {
            Some(l) => {
                all.push(l);
                true
            }
            None => {
                t.tell(Fate::Done(Err(RunError::Cancelled)));
                false
            }
        });
        all
    }

    /// Gives each its outputs, in order.
    pub fn done(self, outputs: Vec<Vec<Tensor>>) {
        self.each(outputs.into_iter().map(Ok));
    }

    /// Tells each what became of it, in order.
    pub fn each(mut self, all: impl Iterator<Item = Result<Vec<Tensor>, RunError>>) {
        // Whoever was not told when one of them panics is told by drop.
        for r in all {
            if self.0.is_empty() {
                return;
            }
            self.0.remove(0).tell(Fate::Done(r));
        }
    }
}

impl Drop for Mates {
    fn drop(&mut self) {
        for t in self.0.drain(..) {
            t.tell(Fate::Done(Err(RunError::Abandoned)));
        }
    }
}
