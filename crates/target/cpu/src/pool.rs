//! Resident workers: threads that start once per device and serve every request of every session.
use crate::exec::View;
use crate::flow::{Bed, Left, Slot};
use crate::job::Job;
use crate::seats::{Seats, Woken};
use crate::stands::{Stand, Stands};
use crate::track::Tracks;
use crossbeam_utils::CachePadded;
use device::place::{ThreadId, pin, this_cpu, this_thread};
use device::turns::{Hurry, Turn, take_turns};
use device::{AlignedBytes, DeviceError, Permit};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

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
pub(crate) struct Desk {
    pub scratch: AlignedBytes,
    pub views: Vec<View>,
}

// SAFETY: the pointers in views are only used while a task runs, by the thread that has the desk.
unsafe impl Send for Desk {}

impl Desk {
    pub(crate) fn new() -> Result<Desk, DeviceError> {
        Ok(Desk {
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
    bed: CachePadded<Bed>,
    /// Processor that it is pinned to, with the thread's identity, once it runs.
    pinned: Mutex<Option<(ThreadId, usize)>>,
    thread: Mutex<Option<Thread>>,
    desk: CachePadded<Mutex<Desk>>,
    /// Somebody else uses its processor: it leaves work to the others.
    avoided: AtomicBool,
}

struct Shared {
    slots: Vec<Slot<Job<'static>>>,
    /// Slots, from the first on, that were ever taken: nobody looks at the others.
    used: AtomicUsize,
    seats: Seats,
    /// Where there are as many seats as processors.
    stands: Option<Stands>,
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
    tracks: Tracks,
}

/// A caller's seat.
pub(crate) struct Seat<'a> {
    shared: &'a Shared,
    permit: Permit<'a>,
    /// While it has the seat.
    stand: Cell<Option<Stand<'a>>>,
    has: Cell<bool>,
    /// Of a request above others.
    _hurry: Option<Hurry>,
}

impl Seat<'_> {
    pub(crate) fn seats(&self) -> &Seats {
        &self.shared.seats
    }

    /// Lets somebody more urgent work and waits until there is a seat again; false when the request was
    /// called off meanwhile.
    pub(crate) fn give_way(&self) -> bool {
        let gone = || self.permit.called_off();
        let gone: Option<&dyn Fn() -> bool> = self.permit.cancel.is_some().then_some(&gone);
        // Set first: the seat is not this caller's any more even if something in here were to unwind.
        self.has.set(false);
        self.stand.set(None);
        // The seat may be left for a helper of what is more urgent, who found none and sleeps.
        let call = || self.shared.call();
        let has = (self.shared.seats).give_way(self.permit.priority, gone, call);
        self.has.set(has);
        if has {
            self.stand.set(self.shared.stand());
        }
        has
    }

    /// Asked between two tasks: goes to another processor if somebody else with a seat is on the same, and
    /// one is free.
    pub(crate) fn settle(&self) {
        if !self.shared.accompanied() {
            return;
        }
        let stand = self.stand.take();
        let went = stand.as_ref().is_some_and(Stand::settle);
        self.stand.set(stand);
        if went && self.shared.seats.above_others(self.permit.priority) {
            self.shared.make_way();
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.stand.set(None);
        if self.has.get() {
            self.shared.seats.leave(self.permit.priority);
            self.shared.call();
        }
    }
}

impl Shared {
    /// The calling thread has a seat.
    fn stand(&self) -> Option<Stand<'_>> {
        self.stands.as_ref().map(Stands::stand)
    }

    /// Whether two have a seat that could be on one processor. One look at what whoever has a seat wrote last.
    fn accompanied(&self) -> bool {
        let two = |s: &Stands| self.seats.free() + 2 <= s.most();
        self.stands.as_ref().is_some_and(two)
    }

    /// Has resident `me`, who has a seat, take the processor left free for callers if somebody else with a
    /// seat is on its own.
    fn part(&self, me: usize, stand: &Stand<'_>) {
        let free = self.free.load(Ordering::Relaxed);
        stand.settle_on(free, |cpu| {
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
    fn make_way(&self) {
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

    /// Wakes sleeping residents where a job takes more workers than it has, if there is a free seat: who
    /// frees one that a waiting caller was given wakes nobody.
    fn call(&self) {
        // Who is awake looks by itself, and what callers write to is only read where it matters.
        if self.seats.free() > 0
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
            w.bed.wake(|| {
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
            seats: match workers >= cpus.len() {
                true => Seats::on_all_processors(workers.max(1)),
                false => Seats::new(workers),
            },
            stands: (workers == cpus.len()).then(|| Stands::new(cpus)),
            workers: (0..residents)
                .map(|_| {
                    Ok(Worker {
                        bed: CachePadded::new(Bed::new()),
                        pinned: Mutex::new(None),
                        thread: Mutex::new(None),
                        desk: CachePadded::new(Mutex::new(Desk::new()?)),
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
            tracks: Tracks::new(workers),
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
                    take_turns(Turn::Short);
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
            .try_for_each(|w| lock(&w.desk).grow(scratch, views))
    }

    /// What every worker did last.
    pub(crate) fn tracks(&self) -> &Tracks {
        &self.tracks
    }

    /// What is to go wrong.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_deref()
    }

    /// A seat for a caller, which waits parked while all are taken.
    pub(crate) fn sit<'a>(&'a self, permit: Permit<'a>) -> Result<Seat<'a>, DeviceError> {
        let gone = || permit.called_off();
        let gone: Option<&dyn Fn() -> bool> = permit.cancel.is_some().then_some(&gone);
        let hurry = (permit.priority > 0).then(Hurry::on);
        if !self.shared.seats.sit(permit.priority, gone) {
            return Err(DeviceError::Cancelled);
        }
        Ok(Seat {
            shared: &self.shared,
            permit,
            stand: Cell::new(self.shared.stand()),
            has: Cell::new(true),
            _hurry: hurry,
        })
    }

    /// Threads that may work at once from now on, at most as many as were started.
    pub(crate) fn limit(&self, workers: usize) {
        self.shared.seats.resize(workers.clamp(1, self.workers()));
        self.shared.call();
    }

    /// Has the residents of these numbers (workers from 1 on) leave work to the others, and no further ones.
    pub(crate) fn avoid(&self, workers: &[u32]) {
        for (i, w) in self.shared.workers.iter().enumerate() {
            let avoided = workers.contains(&(i as u32 + 1));
            w.avoided.store(avoided, Ordering::SeqCst);
        }
        self.shared.call();
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
    /// worker 0 and brings its seat, its own scratch and views.
    pub(crate) fn run(&self, job: &Job, seat: &Seat<'_>, scratch: *mut u8, views: &mut [View]) {
        let shared = &*self.shared;
        let room = job.permit.helpers(shared.workers.len());
        let slot = match (room, job.permit.workers) {
            // It stays so.
            (0, None) => None,
            _ => shared.claim(),
        };
        let Some(number) = slot else {
            job.lead(seat, scratch, views, &|| {});
            return;
        };
        let slot = &shared.slots[number];
        let priority = job.permit.priority;
        let urgent = shared.seats.above_others(priority);
        // A resident that is to help somebody else may be on the caller's processor; one that is to help this caller
        // would wait there until it is done.
        if urgent || !shared.others_than(number) {
            shared.make_way();
        }
        // The slot forgets the job's lifetime; `retire` returns before it ends.
        slot.publish(std::ptr::from_ref(job).cast(), room, priority);
        // Where nobody may help, a seat kept for a helper would be kept from others.
        if urgent && room > 0 {
            drop(shared.seats.want(number, priority, true));
        }
        if room > 0 {
            shared.wake();
        }
        let has = Cell::new(room);
        job.lead(seat, scratch, views, &|| {
            let room = job.permit.helpers(shared.workers.len());
            let before = has.replace(room);
            if room == before {
                return;
            }
            slot.resize(room as i32 - before as i32);
            if urgent && (room > 0) != (before > 0) {
                drop(shared.seats.want(number, priority, room > 0));
            }
            if room > before {
                shared.wake();
            }
        });
        let woken = urgent.then(|| shared.seats.ended(number, priority));
        // Nothing is left to take, and what helpers took is done when they have left.
        slot.retire();
        drop(woken);
        if urgent {
            shared.call();
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
            let mut desk = lock(&worker.desk);
            if shared.seats.sit_to_help(priority) {
                let Desk { scratch, views } = &mut *desk;
                let scratch = scratch.as_ptr();
                let seated = Cell::new(true);
                // Before the job is entered, whose caller waits for whoever is in it: both may take a while.
                take_turns(shared.seats.turn(priority));
                let stand = shared.stand();
                stand.iter().for_each(|s| shared.part(me, s));
                let stand = Cell::new(stand);
                // The caller waits until this worker has left, who must not lose the processor before.
                let woken = RefCell::new(Woken::default());
                let slot = &shared.slots[s];
                let found = slot.enter(seen[s], |job, full| {
                    let priority = job.permit.priority;
                    // Only what is above others says what it wants.
                    let urgent = shared.seats.above_others(priority);
                    let wake = |w| woken.borrow_mut().and(w);
                    if urgent && full {
                        drop(shared.seats.want_as_helper(s, priority, false));
                    }
                    let own = stand.take();
                    let left = job.help(me + 1, scratch, views, slot);
                    drop(own);
                    if urgent {
                        // Unless it left because nobody is to help any more.
                        let more = job.permit.helpers(shared.workers.len()) > 0;
                        let more = left == Left::Early && more;
                        wake(shared.seats.want_as_helper(s, priority, more));
                    }
                    // Before the job's caller can know that nobody is in it.
                    seated.set(false);
                    wake(shared.seats.hand_on(priority));
                    worked = true;
                    left
                });
                drop(woken.into_inner());
                stand.set(None);
                if seated.get() {
                    shared.seats.release();
                }
                if let Some(g) = found {
                    seen[s] = g;
                }
                drop(desk);
                shared.call();
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
        // Without a seat to be had there is nothing to wait for: a thread that spins takes a processor
        // from one that works.
        if since.elapsed() > SPIN || shared.seats.free() == 0 || avoided {
            let work = || {
                let open = || {
                    !worker.avoided.load(Ordering::SeqCst)
                        && shared
                            .best(me, &seen)
                            .is_some_and(|(_, p)| shared.seats.may_help(p))
                };
                shared.stop.load(Ordering::SeqCst) || open()
            };
            shared.asleep.fetch_add(1, Ordering::SeqCst);
            take_turns(Turn::Short);
            worker.bed.sleep(work, std::thread::park);
            shared.asleep.fetch_sub(1, Ordering::SeqCst);
            idle = None;
        }
    }
}
