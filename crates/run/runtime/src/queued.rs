//! A request in the engine's admission queue, and the batch that it becomes part of: one caller's thread runs
//! the batch (the leader) and hands each follower its outputs. `admission` decides; this only waits and wakes.
use crate::RunError;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use supervisor::admission::{Refusal, RunId};
use tensor::Tensor;
use workers::place::{Sleeper, wait_after};

/// What becomes of a request.
pub(crate) enum Outcome {
    /// It waits.
    Waiting,
    /// It runs now, on its caller's thread, with these followers.
    Run {
        run: RunId,
        workers: Arc<AtomicU32>,
        followers: BatchFollowers,
        batch_cancel: Option<Arc<BatchCancel>>,
    },
    /// Another caller's thread runs it as part of a batch.
    InBatch,
    /// It is refused.
    Refused(Refusal),
    /// Another caller's thread ran it.
    Done(Result<Vec<Tensor>, RunError>),
}

/// Whoever is told of a request that no caller's thread waits for. It is called while the admission queue is
/// locked.
pub(crate) trait Notified: Send + Sync {
    /// Its outcome is there, or it was given up; `runs`: it is to be run.
    fn notified(&self, runs: bool);
}

/// The inputs of a request that may become part of a batch.
enum BatchInputs {
    Coming,
    Here(Vec<Arc<Tensor>>),
    None,
}

/// Cancels a batch once every caller has given its request up.
pub(crate) struct BatchCancel {
    left: AtomicUsize,
    off: AtomicBool,
}

impl BatchCancel {
    /// Set once all callers have given up.
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
    outcome: Outcome,
    /// Its caller has cancelled it.
    off: bool,
    /// That of the batch that it is part of.
    batch_cancel: Option<Arc<BatchCancel>>,
    /// Its caller sleeps.
    sleeps: bool,
    /// Its sleeping caller, where that is to continue on the waker's processor.
    sleeper: Option<Sleeper>,
}

/// One waiting request.
pub(crate) struct QueuedRequest {
    wait: Mutex<Wait>,
    /// It was given up; for who runs it.
    off: AtomicBool,
    notified: Option<Weak<dyn Notified>>,
    /// Whether its caller continues on the processor of the thread that wakes it.
    follows: bool,
    priority: i32,
    batch_inputs: Mutex<BatchInputs>,
    wakeup: Condvar,
    inputs_ready: Condvar,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl QueuedRequest {
    /// A new one; `batchable`: its caller will hand over its inputs; `follows`: its caller continues on the
    /// processor of the thread that lets it run.
    pub fn new(batchable: bool, follows: bool, priority: i32) -> Arc<QueuedRequest> {
        let inputs = match batchable {
            true => BatchInputs::Coming,
            false => BatchInputs::None,
        };
        Arc::new(QueuedRequest::of(inputs, follows, priority, None))
    }

    /// One that no caller's thread waits for: `notified` is told of it; `inputs`: where it may be batched.
    pub fn unattended(
        inputs: Option<Vec<Arc<Tensor>>>,
        priority: i32,
        notified: Weak<dyn Notified>,
    ) -> Arc<QueuedRequest> {
        let inputs = inputs.map_or(BatchInputs::None, BatchInputs::Here);
        Arc::new(QueuedRequest::of(inputs, false, priority, Some(notified)))
    }

    fn of(
        inputs: BatchInputs,
        follows: bool,
        priority: i32,
        notified: Option<Weak<dyn Notified>>,
    ) -> QueuedRequest {
        QueuedRequest {
            off: AtomicBool::new(false),
            notified,
            wait: Mutex::new(Wait {
                outcome: Outcome::Waiting,
                off: false,
                batch_cancel: None,
                sleeps: false,
                sleeper: None,
            }),
            follows,
            priority,
            batch_inputs: Mutex::new(inputs),
            wakeup: Condvar::new(),
            inputs_ready: Condvar::new(),
        }
    }

    fn notify(&self, runs: bool) {
        if let Some(n) = self.notified.as_ref().and_then(Weak::upgrade) {
            n.notified(runs);
        }
    }

    /// Set once it was given up.
    pub fn flag(&self) -> &AtomicBool {
        &self.off
    }

    /// Cancels it, and wakes its caller.
    pub fn give_up(&self) {
        self.off.store(true, Ordering::SeqCst);
        let mut w = lock(&self.wait);
        if !w.off {
            w.off = true;
            w.batch_cancel.iter().for_each(|a| a.leave());
        }
        self.wakeup.notify_all();
        drop(w);
        self.notify(false);
    }

    /// It becomes part of a batch.
    fn enter_batch(&self, run: &Arc<BatchCancel>) {
        let mut w = lock(&self.wait);
        if w.off {
            run.leave();
        }
        w.batch_cancel = Some(run.clone());
    }

    /// Sets its outcome; true where its caller sleeps and has to be woken.
    #[must_use = "its caller sleeps until it is woken"]
    pub fn decide(&self, outcome: Outcome) -> bool {
        let runs = matches!(outcome, Outcome::Run { .. });
        let mut w = lock(&self.wait);
        w.outcome = outcome;
        let sleeps = w.sleeps;
        drop(w);
        self.notify(runs);
        sleeps
    }

    /// How long its caller leaves the processor to the thread that wakes it, of priority `by`.
    pub fn wait_after(&self, by: i32) -> Duration {
        wait_after(self.priority, by)
    }

    /// Wakes its caller if it sleeps. One that may run continues on this thread's processor, `after` this long.
    pub fn wake(&self, after: Duration) {
        let w = lock(&self.wait);
        if let (Outcome::Run { .. }, Some(s)) = (&w.outcome, &w.sleeper) {
            s.follow_me(after);
        }
        self.wakeup.notify_all();
    }

    /// Sets its outcome and wakes its caller.
    fn tell(&self, outcome: Outcome) {
        if self.decide(outcome) {
            self.wake(Duration::ZERO);
        }
    }

    /// Its outcome; waits for it for at most `wait`, or until `stop` holds, which is checked at each wake-up.
    pub fn outcome(&self, wait: Option<Duration>, stop: &dyn Fn() -> bool) -> Option<Outcome> {
        let mut w = lock(&self.wait);
        let mut sleeper = None;
        if matches!(w.outcome, Outcome::Waiting | Outcome::InBatch) && !stop() {
            w.sleeper = self.follows.then(Sleeper::here).flatten();
            w.sleeps = true;
            w = match wait {
                Some(t) => {
                    let r = self.wakeup.wait_timeout(w, t);
                    r.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let r = self.wakeup.wait(w);
                    r.unwrap_or_else(PoisonError::into_inner)
                }
            };
            w.sleeps = false;
            sleeper = w.sleeper.take();
        }
        let outcome = match &w.outcome {
            Outcome::Waiting | Outcome::InBatch => None,
            _ => Some(std::mem::replace(&mut w.outcome, Outcome::InBatch)),
        };
        drop(w);
        if let Some(s) = &sleeper {
            s.awake();
            // Who woke it has an answer to give back, and would else not have the processor before the system's next
            // tick.
            std::thread::yield_now();
        }
        outcome
    }

    /// Hands the inputs over, or says that there will be none.
    pub fn put_inputs(&self, inputs: Option<Vec<Arc<Tensor>>>) {
        *lock(&self.batch_inputs) = inputs.map_or(BatchInputs::None, BatchInputs::Here);
        self.inputs_ready.notify_all();
    }

    /// Waits for the inputs.
    fn batch_inputs(&self) -> Option<Vec<Arc<Tensor>>> {
        let mut l = lock(&self.batch_inputs);
        while matches!(*l, BatchInputs::Coming) {
            l = self
                .inputs_ready
                .wait(l)
                .unwrap_or_else(PoisonError::into_inner);
        }
        match std::mem::replace(&mut *l, BatchInputs::None) {
            BatchInputs::Here(v) => Some(v),
            _ => None,
        }
    }
}

/// The requests of a batch besides its leader: each gets an outcome, whatever happens.
pub(crate) struct BatchFollowers(Vec<Arc<QueuedRequest>>);

impl BatchFollowers {
    /// The followers of `first`, with the batch's cancel flag; `None` where `first` runs alone.
    pub fn new(
        first: &QueuedRequest,
        requests: Vec<Arc<QueuedRequest>>,
    ) -> (BatchFollowers, Option<Arc<BatchCancel>>) {
        if requests.is_empty() {
            return (BatchFollowers(requests), None);
        }
        let batch_cancel = Arc::new(BatchCancel {
            left: AtomicUsize::new(1 + requests.len()),
            off: AtomicBool::new(false),
        });
        first.enter_batch(&batch_cancel);
        for t in &requests {
            t.enter_batch(&batch_cancel);
            lock(&t.wait).outcome = Outcome::InBatch;
        }
        (BatchFollowers(requests), Some(batch_cancel))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Waits for the inputs of each follower; those without are cancelled and leave the batch.
    pub fn batch_inputs(&mut self) -> Vec<Vec<Arc<Tensor>>> {
        let mut all = Vec::new();
        self.0.retain(|t| match t.batch_inputs() {
            Some(l) => {
                all.push(l);
                true
            }
            None => {
                t.tell(Outcome::Done(Err(RunError::Cancelled)));
                false
            }
        });
        all
    }

    /// Gives each its outputs, in order.
    pub fn done(self, outputs: Vec<Vec<Tensor>>) {
        self.each(outputs.into_iter().map(Ok));
    }

    /// Gives each its outcome, in order.
    pub fn each(mut self, all: impl Iterator<Item = Result<Vec<Tensor>, RunError>>) {
        // After a panic, drop gives the rest their outcome.
        for r in all {
            if self.0.is_empty() {
                return;
            }
            self.0.remove(0).tell(Outcome::Done(r));
        }
    }
}

impl Drop for BatchFollowers {
    fn drop(&mut self) {
        for t in self.0.drain(..) {
            t.tell(Outcome::Done(Err(RunError::Abandoned)));
        }
    }
}
