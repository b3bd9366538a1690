//! What a supervisor observes of a session's requests, within bounds. Costs next to nothing while nobody
//! observes.
use crate::batching;
use device::Permit;
use plan::{Timeline, VerifiedPlan};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tensor::Tensor;

/// Runs that are kept between two looks.
const RUNS: usize = 2048;
/// Shapes that are told apart between two looks.
const SHAPES: usize = 64;
/// Runs shorter than this are looked at one in [`SELDOM`]: a prime, so that no trial that takes turns is
/// seen from one side only.
const SHORT_NS: u64 = 20_000;
const SELDOM: u32 = 31;

/// A run that was watched.
#[derive(Clone, Debug)]
pub struct ObservedRun {
    /// Its plan.
    pub plan: Arc<VerifiedPlan>,
    /// Whether it used the plan under trial; `None` where that had nothing to do with it.
    pub with: Option<bool>,
    /// Seconds from its start to its end.
    pub seconds: f64,
    /// Workers granted.
    pub workers: u32,
    /// Items that it was made of.
    pub items: u32,
    /// Whether it had these workers all the time, and the sizes that its plan's prediction is for.
    pub steady: bool,
}

/// A run of which every step was timed.
#[derive(Clone, Debug)]
pub struct TimedRun {
    /// Its plan.
    pub plan: Arc<VerifiedPlan>,
    /// Workers granted, all the time.
    pub workers: u32,
    /// What its steps took.
    pub timeline: Timeline,
}

/// A request that was kept with what came of it.
#[derive(Clone, Debug)]
pub struct CapturedRequest {
    /// Inputs in the program's order.
    pub inputs: Vec<Tensor>,
    /// Outputs in the program's order.
    pub outputs: Vec<Tensor>,
    /// Whether the plan under trial gave them.
    pub with: bool,
}

/// Which request is to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// None.
    Nothing,
    /// The next one.
    Any,
    /// The next one that the plan gives that is tried.
    Tried,
}

/// What happened since the last look.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// Requests that came.
    pub arrivals: u64,
    /// Shapes of those that came, by a number of each, with about how many.
    pub shapes: Vec<(u64, u64)>,
    /// Runs, or a sample of them where they are short.
    pub runs: Vec<ObservedRun>,
    /// Steady runs of which every step was timed.
    pub timed: Vec<TimedRun>,
    /// A request that was asked for.
    pub kept: Option<CapturedRequest>,
    /// Requests that failed with the plan under trial, and not with the one in use.
    pub failed: u64,
}

/// Eyes on a session.
pub(crate) struct Watch {
    on: AtomicBool,
    arrivals: AtomicU64,
    /// Runs that are still to be timed step by step.
    steps: AtomicU32,
    keep: AtomicU8,
    turn: AtomicU32,
    stride: AtomicU32,
    seen: Mutex<(Observed, BTreeMap<u64, u64>)>,
}

/// A run that is watched.
pub(crate) struct Watched {
    began: Instant,
    workers: u32,
    /// Where its steps are recorded, if they are.
    pub timeline: Option<Timeline>,
}

fn granted(permit: &Permit<'_>) -> u32 {
    permit.workers.map_or(1, |w| w.load(Ordering::Relaxed))
}

impl Watch {
    pub fn new() -> Watch {
        Watch {
            on: AtomicBool::new(false),
            arrivals: AtomicU64::new(0),
            steps: AtomicU32::new(0),
            keep: AtomicU8::new(0),
            turn: AtomicU32::new(0),
            stride: AtomicU32::new(1),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, (Observed, BTreeMap<u64, u64>)> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
        if !on {
            self.steps.store(0, Ordering::Relaxed);
            self.keep.store(0, Ordering::Relaxed);
            *self.seen() = Default::default();
        }
    }

    /// So many runs are to be timed step by step.
    pub fn time(&self, runs: u32) {
        self.steps.store(runs, Ordering::Relaxed);
    }

    pub fn keep(&self, what: Capture) {
        self.keep.store(what as u8, Ordering::Relaxed);
    }

    /// What there was since the last time.
    pub fn look(&self) -> Observed {
        let (mut seen, shapes) = std::mem::take(&mut *self.seen());
        seen.arrivals = self.arrivals.swap(0, Ordering::Relaxed);
        seen.shapes = shapes.into_iter().collect();
        seen
    }

    /// A request came; `joins`: it may run in a batch with others that differ in nothing but their items.
    #[inline]
    pub fn arrive(&self, inputs: &[Option<&Tensor>], joins: bool) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let n = self.arrivals.fetch_add(1, Ordering::Relaxed);
        let stride = u64::from(self.stride.load(Ordering::Relaxed));
        if !n.is_multiple_of(stride) {
            return;
        }
        let shape = batching::shape_of(inputs, usize::from(joins));
        let shapes = &mut self.seen().1;
        if shapes.len() < SHAPES || shapes.contains_key(&shape) {
            *shapes.entry(shape).or_default() += stride;
        }
    }

    /// A run begins; `always`: it is looked at however short runs are.
    #[inline]
    pub fn begin(&self, permit: &Permit<'_>, timed: bool) -> Option<Watched> {
        if !self.on.load(Ordering::Relaxed) {
            return None;
        }
        let stride = self.stride.load(Ordering::Relaxed);
        if stride > 1
            && !self
                .turn
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(stride)
        {
            return None;
        }
        let less = |n: u32| n.checked_sub(1);
        let timeline = (!timed
            && self
                .steps
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok())
        .then(Timeline::default);
        Some(Watched {
            workers: granted(permit),
            timeline,
            began: Instant::now(),
        })
    }

    /// It has ended; `steady`: nothing but its grant says how many workers it may have, and it had the
    /// sizes that its plan's prediction is for.
    pub fn end(
        &self,
        run: Watched,
        permit: &Permit<'_>,
        plan: &Arc<VerifiedPlan>,
        with: Option<bool>,
        (steady, items): (bool, u32),
    ) {
        let took = run.began.elapsed();
        let short = took.as_nanos() < u128::from(SHORT_NS);
        let stride = if short { SELDOM } else { 1 };
        if self.stride.load(Ordering::Relaxed) != stride {
            self.stride.store(stride, Ordering::Relaxed);
        }
        let workers = run.workers.max(1);
        let steady = steady && granted(permit).max(1) == workers;
        let plan = plan.clone();
        let mut seen = self.seen();
        match run.timeline {
            // Recording every step takes its own time.
            Some(timeline) if steady => seen.0.timed.push(TimedRun {
                plan,
                workers,
                timeline,
            }),
            Some(_) => {}
            None if seen.0.runs.len() < RUNS => seen.0.runs.push(ObservedRun {
                plan,
                with,
                seconds: took.as_secs_f64(),
                workers,
                items,
                steady,
            }),
            None => {}
        }
    }

    /// Keeps a request that is wanted.
    #[inline]
    pub fn offer(&self, inputs: &[Option<&Tensor>], outputs: &[Tensor], with: bool) {
        let wanted = match self.keep.load(Ordering::Relaxed) {
            0 => return,
            n => n == Capture::Any as u8 || with,
        };
        if wanted && self.keep.swap(0, Ordering::Relaxed) != 0 {
            self.seen().0.kept = Some(CapturedRequest {
                inputs: inputs.iter().flatten().map(|&t| t.clone()).collect(),
                outputs: outputs.to_vec(),
                with,
            });
        }
    }

    /// A request failed with the plan under trial and not with the one in use.
    pub fn fail(&self) {
        self.seen().0.failed += 1;
    }
}
