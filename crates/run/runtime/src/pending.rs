//! Requests that no caller's thread waits for: a future gives the answer. They wait in the same admission queue
//! as all others, and are run by a thread of the engine's attendants.
use crate::attendants::Attended;
use crate::queued::{Notified, Outcome, QueuedRequest};
use crate::{Call, RunError, Session};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;
use tensor::Tensor;

/// What a request came to.
type Answer = Result<Vec<Tensor>, RunError>;

/// An answer, and who waits for it.
#[derive(Default)]
struct Asked {
    answer: Option<Answer>,
    /// There was an answer.
    done: bool,
    waker: Option<Waker>,
}

/// A request under way.
struct Pending {
    session: Arc<Session>,
    /// In the program's order; let go once it has run.
    inputs: Mutex<Vec<Arc<Tensor>>>,
    /// Of all inputs.
    bytes: u64,
    queued: Arc<QueuedRequest>,
    /// Its number in the admission queue, once it is there.
    id: OnceLock<u64>,
    /// It was taken out of the queue to be run, or to be told its outcome.
    taken: AtomicBool,
    began: Option<Instant>,
    asked: Mutex<Asked>,
    me: Weak<Pending>,
}

impl Notified for Pending {
    fn notified(&self, runs: bool) {
        if let Some(me) = self.me.upgrade() {
            self.session.engine().attendants.push(me, runs);
        }
    }
}

impl Attended for Pending {
    fn attend(self: Arc<Self>) {
        let now = std::time::Duration::ZERO;
        let outcome = match self.queued.outcome(Some(now), &|| true) {
            Some(outcome) => Some(outcome),
            None if self.taken.load(Ordering::SeqCst) => return,
            None if self.queued.flag().load(Ordering::SeqCst) => match self.id.get() {
                Some(&id) => self.session.engine().admission.leave(id, &self.queued),
                // It is about to be put into the queue, and is looked at again then.
                None => return,
            },
            None => return,
        };
        self.taken.store(true, Ordering::SeqCst);
        let answer = catch_unwind(AssertUnwindSafe(|| self.run(outcome)));
        self.answer(answer.unwrap_or(Err(RunError::Abandoned)));
    }

    fn tick(&self) -> Option<Instant> {
        let admission = &self.session.engine().admission;
        admission.tick(self.session.record.id, *self.id.get()?)
    }
}

impl Pending {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, outcome: Option<Outcome>) -> Answer {
        let session = &self.session;
        let admission = &session.engine().admission;
        let cancel = Some(self.queued.flag());
        let admitted = admission.conclude(&session.record, self.queued.clone(), cancel, outcome)?;
        let inputs = self.inputs.lock().map(|mut i| std::mem::take(&mut *i));
        let inputs = inputs.unwrap_or_default();
        let list: Vec<Option<&Tensor>> = inputs.iter().map(|t| Some(&**t)).collect();
        let mut slot = None;
        let out = session.run_as_admitted(&list, &mut slot, Vec::new(), admitted);
        if let Some(slot) = slot {
            session.give_back(slot);
        }
        out
    }

    /// Gives the answer; the first counts.
    fn answer(&self, answer: Answer) {
        let mut asked = self.asked();
        if asked.done {
            return;
        }
        asked.done = true;
        if let Ok(mut inputs) = self.inputs.lock() {
            inputs.clear();
        }
        let record = &self.session.record;
        record.queue.fetch_sub(self.bytes, Ordering::Relaxed);
        asked.answer = Some(self.session.account(self.began, answer));
        let waker = asked.waker.take();
        drop(asked);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The answer to a request by [`Session::run_async`], to be polled by any executor: outputs in the model's order.
/// The request is given up when this is dropped.
#[must_use = "the request is given up when this is dropped"]
pub struct RunFuture(Result<Arc<Pending>, Option<RunError>>);

impl Future for RunFuture {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Answer> {
        let pending = match &mut self.0 {
            Ok(pending) => pending,
            Err(e) => return Poll::Ready(Err(e.take().unwrap_or(RunError::Abandoned))),
        };
        let mut asked = pending.asked();
        if asked.done {
            let answer = asked.answer.take();
            return Poll::Ready(answer.unwrap_or(Err(RunError::Abandoned)));
        }
        let same = asked
            .waker
            .as_ref()
            .is_some_and(|w| w.will_wake(cx.waker()));
        // What a caller's waker does when it is dropped is done without the lock.
        let old = match same {
            true => None,
            false => asked.waker.replace(cx.waker().clone()),
        };
        drop(asked);
        drop(old);
        Poll::Pending
    }
}

impl Drop for RunFuture {
    fn drop(&mut self) {
        if let Ok(pending) = &self.0
            && !pending.asked().done
        {
            pending.queued.give_up();
        }
    }
}

impl Session {
    /// Sends a request whose answer a future gives. It is under way when this returns, whether or not the
    /// future is polled: it waits for its turn as others do, and a thread of the engine runs it, plans
    /// included. Inputs are kept until then, not copied.
    ///
    /// The future's errors are those of [`Session::run_call`]; [`RunError::Thread`].
    pub fn run_async(
        self: &Arc<Session>,
        inputs: &[(&str, Arc<Tensor>)],
        call: Call<'_>,
    ) -> RunFuture {
        RunFuture(self.send(inputs, call).map_err(Some))
    }

    fn send(
        self: &Arc<Session>,
        inputs: &[(&str, Arc<Tensor>)],
        call: Call<'_>,
    ) -> Result<Arc<Pending>, RunError> {
        let came = Instant::now();
        let mut given = vec![None; self.program().inputs.len()];
        let named: Vec<(&str, &Arc<Tensor>)> = inputs.iter().map(|(n, t)| (*n, t)).collect();
        self.resolve(&named, &mut given)?;
        let list: Vec<Option<&Tensor>> = given.iter().map(|t| t.map(|t| &**t)).collect();
        self.types(&list)?;
        let ask = self.ask(&list, call)?;
        let engine = self.engine();
        engine.attendants.ready()?;
        self.watch.arrive(&list, true);
        let kept: Vec<Arc<Tensor>> = given.into_iter().flatten().cloned().collect();
        let bytes = kept.iter().map(|t| t.bytes().len() as u64).sum();
        self.record.queue.fetch_add(bytes, Ordering::Relaxed);
        let priority = self.record.priority.load(Ordering::Relaxed);
        let pending = Arc::new_cyclic(|me: &Weak<Pending>| Pending {
            session: self.clone(),
            queued: QueuedRequest::unattended(
                ask.batchable.then(|| kept.clone()),
                priority,
                me.clone() as Weak<dyn Notified>,
            ),
            inputs: Mutex::new(kept),
            bytes,
            id: OnceLock::new(),
            taken: AtomicBool::new(false),
            began: self.record.stats.begin(),
            asked: Mutex::default(),
            me: me.clone(),
        });
        if let Some(cancel) = call.cancel {
            cancel.follow(&pending.queued);
        }
        let (id, wake) = engine.admission.enqueue(&ask, &pending.queued, came);
        let _ = pending.id.set(id);
        if pending.queued.flag().load(Ordering::SeqCst) {
            pending.notified(false);
        }
        if let Some(at) = wake {
            let weak = pending.me.clone() as Weak<dyn Attended>;
            engine.attendants.alarm(engine.admission.instant(at), weak);
        }
        Ok(pending)
    }
}
