//! Threads of an engine for requests that no caller's thread waits for. They are started as such requests come
//! to run at once, one more than run, so that one is free for what is decided about the others and for the
//! clock; they end with the engine.
use crate::RunError;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;

/// A request that a thread here attends to.
pub(crate) trait Attended: Send + Sync {
    /// Does what was decided about it.
    fn attend(self: Arc<Self>);
    /// Lets the clock go on for it: when that is to be done again.
    fn tick(&self) -> Option<Instant>;
}

/// What is to be done.
#[derive(Default)]
struct Work {
    /// Requests about which something was decided; true for those that are to be run.
    ready: VecDeque<(Arc<dyn Attended>, bool)>,
    /// When the clock has to go on, for whom.
    alarms: BTreeMap<(Instant, u64), Weak<dyn Attended>>,
    next_alarm: u64,
    threads: usize,
    /// Requests that run here or are to be.
    runs: usize,
    closed: bool,
}

/// The threads of one engine.
#[derive(Default)]
pub(crate) struct Attendants {
    work: Mutex<Work>,
    changed: Condvar,
}

/// The engine's hold on them: they end when it is dropped.
#[derive(Default)]
pub(crate) struct AttendantsHandle(Arc<Attendants>);

impl Deref for AttendantsHandle {
    type Target = Arc<Attendants>;
    fn deref(&self) -> &Arc<Attendants> {
        &self.0
    }
}

impl Drop for AttendantsHandle {
    fn drop(&mut self) {
        self.0.work().closed = true;
        self.0.changed.notify_all();
    }
}

impl Attendants {
    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Attendants>, work: &mut Work) -> std::io::Result<()> {
        let own = self.clone();
        let thread = std::thread::Builder::new().name("shopfloor-async".into());
        thread.spawn(move || own.serve())?;
        work.threads += 1;
        Ok(())
    }

    /// Sees to it that there is a thread.
    ///
    /// # Errors
    /// None can be started.
    pub fn ready(self: &Arc<Attendants>) -> Result<(), RunError> {
        let mut work = self.work();
        match work.threads {
            0 => self
                .spawn(&mut work)
                .map_err(|e| RunError::Thread { why: e.to_string() }),
            _ => Ok(()),
        }
    }

    /// Has `request` attended to; `runs`: it is to be run.
    pub fn push(self: &Arc<Attendants>, request: Arc<dyn Attended>, runs: bool) {
        let mut work = self.work();
        work.ready.push_back((request, runs));
        work.runs += usize::from(runs);
        if work.threads <= work.runs {
            // Where there are no more threads to be had, those that are there do it one by one.
            let _ = self.spawn(&mut work);
        }
        drop(work);
        self.changed.notify_one();
    }

    /// Lets the clock go on for `request` at `at`.
    pub fn alarm(&self, at: Instant, request: Weak<dyn Attended>) {
        let mut work = self.work();
        let first = work.alarms.first_key_value().is_none_or(|(k, _)| at < k.0);
        let number = work.next_alarm;
        work.next_alarm += 1;
        work.alarms.insert((at, number), request);
        drop(work);
        if first {
            self.changed.notify_one();
        }
    }

    fn serve(self: Arc<Attendants>) {
        let mut work = self.work();
        loop {
            let next = work.alarms.first_key_value().map(|(k, _)| *k);
            let left = next.map(|(at, _)| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|l| l.is_zero()) {
                let rung = work.alarms.pop_first();
                drop(work);
                if let Some((_, weak)) = rung
                    && let Some(request) = weak.upgrade()
                    && let Some(at) = request.tick()
                {
                    self.alarm(at, weak);
                }
                work = self.work();
                continue;
            }
            if let Some((request, runs)) = work.ready.pop_front() {
                drop(work);
                // What a caller's waker does must not take a thread away from the others.
                let _ = catch_unwind(AssertUnwindSafe(|| request.attend()));
                work = self.work();
                work.runs -= usize::from(runs);
                continue;
            }
            if work.closed {
                work.threads -= 1;
                return;
            }
            work = match left {
                Some(t) => {
                    let r = self.changed.wait_timeout(work, t);
                    r.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let r = self.changed.wait(work);
                    r.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}
