//! The supervisor on a running engine: a loop of a tenth of a second that looks at what really happens, tells
//! [`supervisor::supervise::Supervisor`], and does what it says.
//!
//! Two threads per supervised engine: the loop, which only counts and decides, and one that stands back for
//! others and does what takes time (planning, proving, compiling, comparing outputs).
mod live;
mod options;
mod planning;
mod window;

use crate::{Engine, Error};
use live::LiveSupervision;
use options::{Counters, threads};
pub use options::{DecisionListener, SuperviseOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use supervisor::supervise::LogError;

/// What supervising has taken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SupervisionCost {
    /// Windows.
    pub windows: u64,
    /// Seconds of a processor that the loop took.
    pub loop_s: f64,
    /// Seconds of a processor that planning, compiling and comparing took.
    pub planning_s: f64,
    /// Seconds since it began.
    pub seconds: f64,
}

/// When it is to end.
#[derive(Default)]
struct Stop {
    stop: Mutex<bool>,
    called: Condvar,
}

impl Stop {
    /// Waits for a while; true when it is to end.
    fn wait(&self, time: Duration) -> bool {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let r = self.called.wait_timeout_while(stop, time, |s| !*s);
        *r.unwrap_or_else(PoisonError::into_inner).0
    }

    fn call(&self) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.called.notify_all();
    }
}

/// A supervised engine; it is let go of when this is dropped, with the plans that it has then and all workers.
pub struct Supervision {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<Result<(), LogError>>>,
    counters: Arc<Counters>,
    began: Instant,
}

impl Supervision {
    /// Supervises `engine` from now on.
    ///
    /// # Errors
    /// It is supervised already; the log cannot be written; no thread can be started.
    pub fn start(engine: &Arc<Engine>, options: SuperviseOptions) -> Result<Supervision, Error> {
        let mode = options.decide.mode;
        if !engine.set_supervision(Some(mode)) {
            return Err(Error::Usage(
                "the engine is supervised already: end that supervision first".into(),
            ));
        }
        let s = Self::run(engine, options);
        if s.is_err() {
            engine.set_supervision(None);
        }
        s
    }

    fn run(engine: &Arc<Engine>, options: SuperviseOptions) -> Result<Supervision, Error> {
        let (stop, counters) = (Arc::new(Stop::default()), Arc::new(Counters::default()));
        let window = options.window.max(Duration::from_millis(1));
        let mut live = LiveSupervision::new(engine, options, counters.clone())?;
        let (stops, own) = (stop.clone(), counters.clone());
        let weak = Arc::downgrade(engine);
        let thread = std::thread::Builder::new()
            .name("shopfloor-super".into())
            .spawn(move || {
                let mut next = Instant::now() + window;
                let out = loop {
                    let left = next.saturating_duration_since(Instant::now());
                    if stops.wait(left) {
                        break Ok(());
                    }
                    // A loop that was held up does not hurry to make up for it.
                    next = (next + window).max(Instant::now());
                    let Some(engine) = weak.upgrade() else {
                        break Ok(());
                    };
                    // It looks and prices for parts of a millisecond: urgent requests come first when it begins
                    // and after every piece of it.
                    let window = || live.window(&engine);
                    if let Err(e) = plan::with_pauses(cpu::let_others_first, window) {
                        break Err(e);
                    }
                    own.windows.fetch_add(1, Ordering::Relaxed);
                    own.loop_ns.store(cpu::thread_time_ns(), Ordering::Relaxed);
                };
                let engine = weak.upgrade();
                let end = live.end(engine.as_deref());
                if let Some(e) = engine {
                    e.set_supervision(None);
                }
                out.and(end)
            })
            .map_err(threads)?;
        Ok(Supervision {
            stop,
            thread: Some(thread),
            counters,
            began: Instant::now(),
        })
    }

    /// What it has taken so far.
    pub fn spent(&self) -> SupervisionCost {
        let s = |a: &AtomicU64| a.load(Ordering::Relaxed) as f64 * 1e-9;
        SupervisionCost {
            windows: self.counters.windows.load(Ordering::Relaxed),
            loop_s: s(&self.counters.loop_ns),
            planning_s: s(&self.counters.planning_ns),
            seconds: self.began.elapsed().as_secs_f64(),
        }
    }

    /// Lets go of the engine once the log is written.
    ///
    /// # Errors
    /// The log could not be written.
    pub fn finish(mut self) -> Result<SupervisionCost, Error> {
        self.stop.call();
        let out = match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Err(e))) => Err(Error::other(e)),
            Some(Err(_)) => Err(Error::Internal("the supervisor panicked".into())),
            _ => Ok(()),
        };
        out.map(|()| self.spent())
    }

    /// Leaves it to itself: it ends with the engine.
    pub(crate) fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for Supervision {
    fn drop(&mut self) {
        let Some(t) = self.thread.take() else {
            return;
        };
        self.stop.call();
        // Whoever wants to know about the log calls `finish`.
        let _ = t.join();
    }
}
