//! A request at work: how its tasks are run by whoever works on it.
use crate::exec::calls::{Known, Trace};
use crate::exec::{View, run as tasks};
use crate::pool::{CallerLease, Fault};
use crate::steps::{CWork, CompiledSteps};
use crate::trace::TraceRings;
use device::Permit;
use plan::{Span, TileNeeds};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use workers::flow::{Exit, Flow, Round, Slot};
use workers::lease::{LeaseHolder, WorkerLeases};

/// A request at work, as every worker sees it. It lies on its caller's stack, and on lines of its own: callers write
/// to their stack all the time, and workers look here for every task.
#[repr(align(128))]
pub(crate) struct Job<'a> {
    pub steps: &'a CompiledSteps,
    pub flow: &'a Flow,
    pub round: Round,
    pub tasks: &'a [u32],
    /// Every step's waits for tiles.
    pub needs: &'a [Vec<Option<TileNeeds>>],
    pub p: &'a [i64],
    pub bufs: &'a [*mut u8],
    pub error: &'a Mutex<Option<(usize, String)>>,
    /// Where each worker records what it ran, and since when.
    pub spans: Option<(&'a [Mutex<Vec<Span>>], Instant)>,
    pub leases: &'a WorkerLeases,
    pub permit: Permit<'a>,
    /// The executable, and where to record what is done for it.
    pub traces: Option<(u64, &'a TraceRings)>,
    /// What is to go wrong, in tests.
    pub fault: Option<&'a Fault>,
}

// SAFETY: buffers are shared as the verified plan orders it: no task writes what another one uses
// without a wait between them.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// Works as the caller until no task is left to take; `scratch` is as large as the steps need.
    /// `resized` is asked before every task and takes note of how many workers may help.
    pub(crate) fn lead(
        &self,
        lease: &CallerLease<'_>,
        scratch: *mut u8,
        views: &mut [View],
        resized: &dyn Fn(),
    ) {
        let should_yield = || {
            if self.permit.workers.is_some() {
                resized();
            }
            lease.leave_shared_core();
            self.should_yield(LeaseHolder::Caller)
        };
        self.work(0, scratch, views, should_yield, || {
            // What is left of a request that was called off is passed over.
            if self.permit.called_off() || !lease.yield_lease() {
                self.flow.fail();
            }
            true
        });
    }

    /// Works as resident number `worker`.
    pub(crate) fn help<T>(
        &self,
        worker: usize,
        scratch: *mut u8,
        views: &mut [View],
        slot: &Slot<T>,
    ) -> Exit {
        let should_yield = || self.should_yield(LeaseHolder::Helper) || slot.crowded();
        let done = self.work(worker, scratch, views, should_yield, || {
            let off = self.permit.called_off();
            if off {
                self.flow.fail();
            }
            off && !slot.crowded()
        });
        if done { Exit::Empty } else { Exit::Early }
    }

    /// Asked between two tasks. Whether this worker has to look up from its work: somebody wants its lease, or
    /// the request was called off.
    #[inline]
    fn should_yield(&self, who: LeaseHolder) -> bool {
        self.leases.yield_if_urgent(self.permit.priority);
        (self.leases.should_yield(self.permit.priority, who) || self.permit.called_off())
            && !self.flow.failed()
    }

    fn work(
        &self,
        worker: usize,
        scratch: *mut u8,
        views: &mut [View],
        should_yield: impl Fn() -> bool,
        stay: impl FnMut() -> bool,
    ) -> bool {
        let needs = |s: usize, i: usize, first: u32, count: u32| {
            let found = self.needs.get(s).and_then(|n| n.get(i).copied().flatten());
            let earlier = self.tasks[self.steps.specs[s].tiles[i] as usize].into();
            let last = i64::from(first) + i64::from(count) - 1;
            let range =
                found.and_then(|n| Some((n.of(first.into(), earlier)?.0, n.of(last, earlier)?.1)));
            // Nothing sensible stands for all.
            range.map_or((0, 0), |(lo, hi)| (lo as u32, hi as u32))
        };
        self.flow.walk(
            worker,
            self.round,
            &self.steps.specs,
            self.tasks,
            needs,
            should_yield,
            stay,
            |s, first, count| {
                let start = self.spans.map(|(_, t)| t.elapsed().as_nanos() as u64);
                let traces = self.traces.filter(|_| self.steps.timed[s]);
                let since = traces.map(|(_, t)| t.now());
                let r = catch_unwind(AssertUnwindSafe(|| {
                    if let Some(f) = self.fault {
                        f(&self.steps.names[s])?;
                    }
                    self.run(s, first, count, scratch, views, None)
                }));
                let r = r.unwrap_or_else(|_| {
                    Err("a task panicked, which is a bug of this program; please report it".into())
                });
                if let Err(why) = r {
                    self.complain(s, why);
                    self.flow.fail();
                }
                if let (Some((id, t)), Some(since)) = (traces, since) {
                    t.record(worker, id, s, since);
                }
                self.record(s, worker, first, count, start);
            },
        )
    }

    /// Runs every step without anybody's help: nothing to take, nothing to wait for. `known` is what
    /// earlier requests of these dims learned of each step.
    pub(crate) fn alone(
        &self,
        lease: &CallerLease<'_>,
        scratch: *mut u8,
        views: &mut [View],
        known: &mut [Known],
    ) {
        let mut at = 0;
        let goes_on = || {
            lease.leave_shared_core();
            !self.should_yield(LeaseHolder::Caller)
                || (!self.permit.called_off() && lease.yield_lease())
        };
        let r = catch_unwind(AssertUnwindSafe(|| {
            for (s, (&count, known)) in self.tasks.iter().zip(known).enumerate() {
                at = s;
                if !goes_on() {
                    break;
                }
                if let Some(f) = self.fault {
                    f(&self.steps.names[s])?;
                }
                let start = self.spans.map(|(_, t)| t.elapsed().as_nanos() as u64);
                let chunk = self.steps.specs[s].chunk;
                let traces = self.traces.filter(|_| self.steps.timed[s]);
                let since = traces.map(|(_, t)| t.now());
                match known {
                    // SAFETY: the frame forgets what it knows when its dims change, and buffers keep
                    // their sizes; steps run in the plan's order.
                    Known::Call(c) => unsafe { c.run(self.bufs) },
                    Known::New if count <= 1 => *known = self.watch(s, count, scratch, views)?,
                    _ => {
                        let mut first = 0;
                        while first < count {
                            let n = chunk.clamp(1, count - first);
                            self.run(s, first, n, scratch, views, None)?;
                            first += n;
                            if first < count {
                                if !goes_on() {
                                    return Ok(());
                                }
                                if let Some(f) = self.fault {
                                    f(&self.steps.names[s])?;
                                }
                            }
                        }
                    }
                }
                if let (Some((id, t)), Some(since)) = (traces, since) {
                    t.record(0, id, s, since);
                }
                self.record(s, 0, 0, count, start);
            }
            Ok(())
        }));
        let r = r.unwrap_or_else(|_| {
            Err("a task panicked, which is a bug of this program; please report it".into())
        });
        if let Err(why) = r {
            self.complain(at, why);
        }
    }

    /// Runs step `s` and finds out what it comes down to.
    fn watch(
        &self,
        s: usize,
        count: u32,
        scratch: *mut u8,
        views: &mut [View],
    ) -> Result<Known, String> {
        let trace = Trace::default();
        self.run(s, 0, count, scratch, views, Some(&trace))?;
        let call = trace.found().filter(|_| count == 1);
        Ok(call.map_or(Known::Other, Known::Call))
    }

    fn complain(&self, step: usize, why: String) {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert((step, why));
    }

    fn record(&self, s: usize, worker: usize, first: u32, count: u32, start: Option<u64>) {
        if let (Some((spans, t)), Some(start_ns)) = (self.spans, start)
            && let Some(m) = spans.get(worker)
        {
            let end_ns = t.elapsed().as_nanos() as u64;
            let span = Span {
                step: s as u32,
                worker: worker as u32,
                first_task: first,
                tasks: count,
                start_ns,
                end_ns,
            };
            m.lock().unwrap_or_else(PoisonError::into_inner).push(span);
        }
    }

    fn run(
        &self,
        s: usize,
        first: u32,
        count: u32,
        scratch: *mut u8,
        views: &mut [View],
        trace: Option<&Trace>,
    ) -> Result<(), String> {
        match &self.steps.work[s] {
            CWork::Host(h) => h.run(self.p, self.bufs),
            CWork::Kernel(k) => {
                let zeros = self.steps.zeros.as_ptr();
                let mut ctx = tasks::context(k, self.p, self.bufs, scratch, views, zeros);
                ctx.trace = trace;
                (first..first + count)
                    .try_for_each(|t| tasks::task(&mut ctx, t))
                    .map_err(|f| f.text())
            }
        }
    }
}
