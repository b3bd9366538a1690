//! Resident workers: threads that start once per device and serve every request of every session.
use crate::exec::View;
use crate::job::Job;
use crate::placement::{CoreOccupancy, CorePlacement};
use crate::trace::TraceRings;
use device::{AlignedBytes, DeviceError, Permit};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use workers::flow::{Exit, Sleep, Slot};
use workers::lease::{Wakeups, WorkerLeases};
use workers::padded::CachePadded;
use workers::place::{ThreadId, pin, this_cpu, this_thread};
use workers::time_slice::{TimeSlice, UrgentGuard, set_time_slice};

/// Jobs that may be shown at once; further callers work alone.
const SLOTS: usize = 16;
/// How long an idle worker looks for work before it parks.
const SPIN: Duration = Duration::from_micros(150);

/// Bytes that a worker's scratch grows by: plans for sizes that differ by little want little more.
const GRAIN: usize = 1 << 16;

/// What goes wrong on purpose, in tests: called with the step's name before each of its tickets is run,
/// it may give the reason of a failure, or panic.
pub type Fault = dyn Fn(&str) -> Result<(), String> + Send + Sync;

/// Memory that a worker keeps from job to job.
pub(crate) struct Workspace {
    pub scratch: AlignedBytes,
    pub views: Vec<View>,
}

// SAFETY: the pointers in views are only used while a task runs, by the thread that has the workspace.
unsafe impl Send for Workspace {}

impl Workspace {
    pub(crate) fn new() -> Result<Workspace, DeviceError> {
        Ok(Workspace {
            scratch: AlignedBytes::new(0, "scratch")?,
            views: Vec::new(),
        })
    }

    /// Room for `scratch` bytes and `views` tiles.
    pub(crate) fn grow(&mut self, scratch: usize, views: usize) -> Result<(), DeviceError> {
        if self.scratch.len() < scratch {
            let whole = scratch.checked_next_multiple_of(GRAIN).unwrap_or(scratch);
            self.scratch = AlignedBytes::new(whole, "a worker's scratch")?;
        }
        if self.views.len() < views {
            self.views.resize(views, View::EMPTY);
        }
        Ok(())
    }
}

struct Worker {
    /// Callers look at it whenever they show a job: not on a line that its own work is on.
    sleep: CachePadded<Sleep>,
    /// Processor that it is pinned to, with the thread's identity, once it runs.
    pinned: Mutex<Option<(ThreadId, usize)>>,
    thread: Mutex<Option<Thread>>,
    workspace: CachePadded<Mutex<Workspace>>,
    /// Somebody else uses its processor: it leaves work to the others.
    avoided: AtomicBool,
}

struct Shared {
    slots: Vec<Slot<Job<'static>>>,
    /// Slots, from the first on, that were ever taken: nobody looks at the others.
    used: AtomicUsize,
    leases: WorkerLeases,
    /// Where there are as many leases as processors.
    occupancy: Option<CoreOccupancy>,
    workers: Vec<Worker>,
    stop: AtomicBool,
    /// Residents that sleep, or are about to.
    asleep: CachePadded<AtomicUsize>,
    /// The processor left for the caller, where workers are pinned.
    free: AtomicUsize,
}

/// No processor in particular.
const ANY: usize = usize::MAX;

/// The resident workers of a device.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    fault: Option<Arc<Fault>>,
    traces: TraceRings,
}

/// A caller's lease.
pub(crate) struct CallerLease<'a> {
    shared: &'a Shared,
    permit: Permit<'a>,
    /// While it has the lease.
    placement: Cell<Option<CorePlacement<'a>>>,
    has: Cell<bool>,
    /// Of a request above others.
    _urgent: Option<UrgentGuard>,
}

impl CallerLease<'_> {
    pub(crate) fn leases(&self) -> &WorkerLeases {
        &self.shared.leases
    }

    /// Lets somebody more urgent work and waits until there is a lease again; false when the request was
    /// called off meanwhile.
    pub(crate) fn yield_lease(&self) -> bool {
        let gone = || self.permit.called_off();
        let gone: Option<&dyn Fn() -> bool> = self.permit.cancel.is_some().then_some(&gone);
        // Set first: the lease is not this caller's any more even if something in here were to unwind.
        self.has.set(false);
        self.placement.set(None);
        // The lease may be left for a helper of what is more urgent, who found none and sleeps.
        let call = || self.shared.wake_helpers();
        let has = (self.shared.leases).yield_lease(self.permit.priority, gone, call);
        self.has.set(has);
        if has {
            self.placement.set(self.shared.place());
        }
        has
    }

    /// Asked between two tasks: goes to another processor if somebody else with a lease is on the same, and
    /// one is free.
    pub(crate) fn leave_shared_core(&self) {
        if !self.shared.cores_may_be_shared() {
            return;
        }
        let placement = self.placement.take();
        let went = placement
            .as_ref()
            .is_some_and(CorePlacement::leave_shared_core);
        self.placement.set(placement);
        if went && self.shared.leases.above_others(self.permit.priority) {
            self.shared.vacate_caller_core();
        }
    }
}

impl Drop for CallerLease<'_> {
    fn drop(&mut self) {
        self.placement.set(None);
        if self.has.get() {
            self.shared.leases.leave(self.permit.priority);
            self.shared.wake_helpers();
        }
    }
}

impl Shared {
    /// The calling thread has a lease.
    fn place(&self) -> Option<CorePlacement<'_>> {
        self.occupancy.as_ref().map(CoreOccupancy::place)
    }

    /// Whether two have a lease that could be on one processor. One look at what whoever has a lease wrote last.
    fn cores_may_be_shared(&self) -> bool {
        let two = |s: &CoreOccupancy| self.leases.free() + 2 <= s.most();
        self.occupancy.as_ref().is_some_and(two)
    }

    /// Has resident `me`, who has a lease, take the processor left free for callers if somebody else with a
    /// lease is on its own.
    fn move_to_free_core(&self, me: usize, placement: &CorePlacement<'_>) {
        let free = self.free.load(Ordering::Relaxed);
        placement.leave_shared_core_for(free, |cpu| {
            let Ok(mut p) = self.workers[me].pinned.try_lock() else {
                return false;
            };
            p.as_mut().is_some_and(|p| self.swap(p, cpu))
        });
    }

    /// Has a worker that is pinned take the free processor, and leave its own free.
    fn swap(&self, pinned: &mut (ThreadId, usize), free: usize) -> bool {
        let (t, own) = *pinned;
        let went = pin(t, free);
        if went {
            *pinned = (t, free);
            self.free.store(own, Ordering::Relaxed);
        }
        went
    }

    /// Moves a worker off the caller's processor, should the system have put the caller on one: the
    /// worker takes the processor that was left free for callers.
    fn vacate_caller_core(&self) {
        let free = self.free.load(Ordering::Relaxed);
        if free == ANY {
            return;
        }
        let Some(here) = this_cpu().filter(|&c| c != free) else {
            return;
        };
        for w in &self.workers {
            let Ok(mut p) = w.pinned.try_lock() else {
                return;
            };
            if let Some(p) = p.as_mut().filter(|p| p.1 == here) {
                self.swap(p, free);
                return;
            }
        }
    }

    /// Wakes sleeping residents where a job takes more workers than it has, if there is a free lease: who
    /// frees one that a waiting caller was given wakes nobody.
    fn wake_helpers(&self) {
        // Who is awake looks by itself, and what callers write to is only read where it matters.
        if self.leases.free() > 0
            && self.asleep.load(Ordering::SeqCst) > 0
            && self.in_use().iter().any(|s| s.open(0).is_some())
        {
            self.wake();
        }
    }

    fn in_use(&self) -> &[Slot<Job<'static>>] {
        &self.slots[..self.used.load(Ordering::SeqCst)]
    }

    /// Takes a slot, the first that is free.
    fn claim(&self) -> Option<usize> {
        let number = self.slots.iter().position(Slot::claim)?;
        if number >= self.used.load(Ordering::SeqCst) {
            self.used.fetch_max(number + 1, Ordering::SeqCst);
        }
        Some(number)
    }

    /// Whether another caller has a slot. Nobody counts them: that would be a line which every request writes to.
    fn others_than(&self, number: usize) -> bool {
        let mut all = self.in_use().iter().enumerate();
        all.any(|(i, s)| i != number && s.taken())
    }

    fn wake(&self) {
        for w in &self.workers {
            w.sleep.wake(|| {
                // Not with the lock: who was woken may take the processor at once.
                let thread = lock(&w.thread).clone();
                thread.iter().for_each(Thread::unpark);
            });
        }
    }

    /// The most urgent job that takes more workers, seen from resident `me`: its slot and priority.
    /// Residents start at different slots, so that several jobs are shared out.
    fn best(&self, me: usize, seen: &[usize; SLOTS]) -> Option<(usize, i32)> {
        let mut best: Option<(usize, i32)> = None;
        let slots = self.in_use();
        for j in 0..slots.len() {
            let s = (me + j) % slots.len();
            if let Some(p) = slots[s].open(seen[s])
                && best.is_none_or(|b| p > b.1)
            {
                best = Some((s, p));
            }
        }
        best
    }
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Starts `workers - 1` threads (the caller of a request is the remaining worker), pinned to
    /// `cpus[1..]` where there are enough of them.
    pub(crate) fn new(
        workers: usize,
        cpus: &[usize],
        fault: Option<Arc<Fault>>,
    ) -> Result<Pool, DeviceError> {
        let residents = workers.saturating_sub(1);
        let shared = Arc::new(Shared {
            slots: (0..SLOTS).map(|_| Slot::new()).collect(),
            used: AtomicUsize::new(0),
            leases: match workers >= cpus.len() {
                true => WorkerLeases::on_all_processors(workers.max(1)),
                false => WorkerLeases::new(workers),
            },
            occupancy: (workers == cpus.len()).then(|| CoreOccupancy::new(cpus)),
            workers: (0..residents)
                .map(|_| {
                    Ok(Worker {
                        sleep: CachePadded::new(Sleep::new()),
                        pinned: Mutex::new(None),
                        thread: Mutex::new(None),
                        workspace: CachePadded::new(Mutex::new(Workspace::new()?)),
                        avoided: AtomicBool::new(false),
                    })
                })
                .collect::<Result<_, DeviceError>>()?,
            stop: AtomicBool::new(false),
            asleep: CachePadded::default(),
            free: AtomicUsize::new(if workers <= cpus.len() { cpus[0] } else { ANY }),
        });
        let mut pool = Pool {
            shared,
            threads: Vec::new(),
            fault,
            traces: TraceRings::new(workers),
        };
        for i in 0..residents {
            let shared = pool.shared.clone();
            let cpu = if workers <= cpus.len() {
                cpus.get(i + 1).copied()
            } else {
                None
            };
            let t = std::thread::Builder::new()
                .name(format!("shopfloor-{}", i + 1))
                .spawn(move || {
                    // It may be woken to help an urgent request.
                    set_time_slice(TimeSlice::Short);
                    reside(&shared, i, cpu);
                })
                .map_err(|_| DeviceError::Memory {
                    what: "a worker thread's stack".into(),
                    bytes: 2 << 20,
                })?;
            *lock(&pool.shared.workers[i].thread) = Some(t.thread().clone());
            pool.threads.push(t);
        }
        Ok(pool)
    }

    /// Workers, the caller included.
    pub(crate) fn workers(&self) -> usize {
        self.shared.workers.len() + 1
    }

    /// Gives every resident worker room for a plan.
    pub(crate) fn reserve(&self, scratch: usize, views: usize) -> Result<(), DeviceError> {
        self.shared
            .workers
            .iter()
            .try_for_each(|w| lock(&w.workspace).grow(scratch, views))
    }

    /// What every worker did last.
    pub(crate) fn traces(&self) -> &TraceRings {
        &self.traces
    }

    /// What is to go wrong.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// A lease for a caller, which waits parked while all are taken.
    pub(crate) fn acquire<'a>(
        &'a self,
        permit: Permit<'a>,
    ) -> Result<CallerLease<'a>, DeviceError> {
        let gone = || permit.called_off();
        let gone: Option<&dyn Fn() -> bool> = permit.cancel.is_some().then_some(&gone);
        let urgent = (permit.priority > 0).then(UrgentGuard::on);
        if !self.shared.leases.acquire(permit.priority, gone) {
            return Err(DeviceError::Cancelled);
        }
        Ok(CallerLease {
            shared: &self.shared,
            permit,
            placement: Cell::new(self.shared.place()),
            has: Cell::new(true),
            _urgent: urgent,
        })
    }

    /// Threads that may work at once from now on, at most as many as were started.
    pub(crate) fn limit(&self, workers: usize) {
        self.shared.leases.resize(workers.clamp(1, self.workers()));
        self.shared.wake_helpers();
    }

    /// Has the residents of these numbers (workers from 1 on) leave work to the others, and no further ones.
    pub(crate) fn avoid(&self, workers: &[u32]) {
        for (i, w) in self.shared.workers.iter().enumerate() {
            let avoided = workers.contains(&(i as u32 + 1));
            w.avoided.store(avoided, Ordering::SeqCst);
        }
        self.shared.wake_helpers();
    }

    /// The processor that each resident is pinned to; `None` where workers are not pinned.
    pub(crate) fn places(&self) -> Option<Vec<usize>> {
        if self.shared.free.load(Ordering::Relaxed) == ANY {
            return None;
        }
        let each = self.shared.workers.iter();
        each.map(|w| Some((*lock(&w.pinned))?.1)).collect()
    }

    /// Runs `job` to its end with the help of as many residents as its permit allows. The caller is
    /// worker 0 and brings its lease, its own scratch and views.
    pub(crate) fn run(
        &self,
        job: &Job,
        lease: &CallerLease<'_>,
        scratch: *mut u8,
        views: &mut [View],
    ) {
        let shared = &*self.shared;
        let room = job.permit.helpers(shared.workers.len());
        let slot = match (room, job.permit.workers) {
            // It stays so.
            (0, None) => None,
            _ => shared.claim(),
        };
        let Some(number) = slot else {
            job.lead(lease, scratch, views, &|| {});
            return;
        };
        let slot = &shared.slots[number];
        let priority = job.permit.priority;
        let urgent = shared.leases.above_others(priority);
        // A resident that is to help somebody else may be on the caller's processor; one that is to help this caller
        // would wait there until it is done.
        if urgent || !shared.others_than(number) {
            shared.vacate_caller_core();
        }
        // The slot forgets the job's lifetime; `retire` returns before it ends.
        slot.publish(std::ptr::from_ref(job).cast(), room, priority);
        // Where nobody may help, a lease kept for a helper would be kept from others.
        if urgent && room > 0 {
            drop(shared.leases.want(number, priority, true));
        }
        if room > 0 {
            shared.wake();
        }
        let has = Cell::new(room);
        job.lead(lease, scratch, views, &|| {
            let room = job.permit.helpers(shared.workers.len());
            let before = has.replace(room);
            if room == before {
                return;
            }
            slot.resize(room as i32 - before as i32);
            if urgent && (room > 0) != (before > 0) {
                drop(shared.leases.want(number, priority, room > 0));
            }
            if room > before {
                shared.wake();
            }
        });
        let wakeups = urgent.then(|| shared.leases.ended(number, priority));
        // Nothing is left to take, and what helpers took is done when they have left.
        slot.retire();
        drop(wakeups);
        if urgent {
            shared.wake_helpers();
        }
    }
}

impl Pool {
    /// Has a resident run `job`, whose caller does nothing but wait for it.
    pub(crate) fn hand(&self, job: &Job) -> Result<(), DeviceError> {
        let shared = &*self.shared;
        let number = shared.claim();
        let (Some(number), true) = (number, !shared.workers.is_empty()) else {
            return Err(DeviceError::Unsupported {
                device: "cpu".into(),
                step: "hand-off".into(),
                why: "no resident worker is free to take it".into(),
            });
        };
        let slot = &shared.slots[number];
        slot.publish(std::ptr::from_ref(job).cast(), 1, job.permit.priority);
        shared.wake();
        slot.wait_until_done();
        slot.retire();
        Ok(())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake();
        for t in self.threads.drain(..) {
            let _ = t.join();
        }
    }
}

/// A worker's life: look for jobs, work, and after a while without any, sleep.
fn reside(shared: &Shared, me: usize, cpu: Option<usize>) {
    let worker = &shared.workers[me];
    if let Some(c) = cpu {
        let t = this_thread();
        if pin(t, c) {
            *lock(&worker.pinned) = Some((t, c));
        }
    }
    let mut seen = [0usize; SLOTS];
    let mut idle: Option<Instant> = None;
    let mut rounds = 0u32;
    while !shared.stop.load(Ordering::SeqCst) {
        let mut worked = false;
        let avoided = worker.avoided.load(Ordering::Relaxed);
        if let Some((s, priority)) = shared.best(me, &seen).filter(|_| !avoided) {
            shared.slots[s].approach();
            // Taken before the job is entered: room is made under this lock before a job is shown.
            let mut workspace = lock(&worker.workspace);
            if shared.leases.try_acquire_for_helper(priority) {
                let Workspace { scratch, views } = &mut *workspace;
                let scratch = scratch.as_ptr();
                let held = Cell::new(true);
                // Before the job is entered, whose caller waits for whoever is in it: both may take a while.
                set_time_slice(shared.leases.turn(priority));
                let placement = shared.place();
                placement
                    .iter()
                    .for_each(|s| shared.move_to_free_core(me, s));
                let placement = Cell::new(placement);
                // The caller waits until this worker has left, who must not lose the processor before.
                let wakeups = RefCell::new(Wakeups::default());
                let slot = &shared.slots[s];
                let found = slot.enter(seen[s], |job, full| {
                    let priority = job.permit.priority;
                    // Only what is above others says what it wants.
                    let urgent = shared.leases.above_others(priority);
                    let wake = |w| wakeups.borrow_mut().and(w);
                    if urgent && full {
                        drop(shared.leases.want_as_helper(s, priority, false));
                    }
                    let own = placement.take();
                    let left = job.help(me + 1, scratch, views, slot);
                    drop(own);
                    if urgent {
                        // Unless it left because nobody is to help any more.
                        let more = job.permit.helpers(shared.workers.len()) > 0;
                        let more = left == Exit::Early && more;
                        wake(shared.leases.want_as_helper(s, priority, more));
                    }
                    // Before the job's caller can know that nobody is in it.
                    held.set(false);
                    wake(shared.leases.release_from(priority));
                    worked = true;
                    left
                });
                drop(wakeups.into_inner());
                placement.set(None);
                if held.get() {
                    shared.leases.release();
                }
                if let Some(g) = found {
                    seen[s] = g;
                }
                drop(workspace);
                shared.wake_helpers();
            }
        }
        if worked {
            idle = None;
            continue;
        }
        std::hint::spin_loop();
        rounds = rounds.wrapping_add(1);
        if !rounds.is_multiple_of(32) {
            continue;
        }
        let since = *idle.get_or_insert_with(Instant::now);
        // Without a lease to be had there is nothing to wait for: a thread that spins takes a processor
        // from one that works.
        if since.elapsed() > SPIN || shared.leases.free() == 0 || avoided {
            let work = || {
                let open = || {
                    !worker.avoided.load(Ordering::SeqCst)
                        && shared
                            .best(me, &seen)
                            .is_some_and(|(_, p)| shared.leases.helper_may_acquire(p))
                };
                shared.stop.load(Ordering::SeqCst) || open()
            };
            shared.asleep.fetch_add(1, Ordering::SeqCst);
            set_time_slice(TimeSlice::Short);
            worker.sleep.sleep(work, std::thread::park);
            shared.asleep.fetch_sub(1, Ordering::SeqCst);
            idle = None;
        }
    }
}
