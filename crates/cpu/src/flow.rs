//! The algorithm by which workers share a request: tickets, done counters, waits, slots and parking.
//!
//! Nothing here knows what a step does. Atomics come from a shim so that loom can run every interleaving.

#[cfg(loom)]
use loom::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize, Ordering, fence,
};

use crossbeam_utils::CachePadded;

/// Rounds of a spin loop before the processor is offered to another thread: only where threads
/// outnumber processors does that ever matter.
#[cfg(not(loom))]
const ROUNDS: u32 = 4096;

/// Waits until `ready`; never parks.
pub fn spin_until(ready: impl Fn() -> bool) {
    #[cfg(loom)]
    while !ready() {
        loom::thread::yield_now();
    }
    #[cfg(not(loom))]
    {
        let mut n = 0;
        while !ready() {
            if n < ROUNDS {
                n += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }
}

/// What a walk must know of a step.
#[derive(Debug)]
pub struct StepSpec {
    /// Tasks that one ticket takes.
    pub chunk: u32,
    /// Earlier steps of which every task must be done.
    pub waits: Vec<u32>,
    /// Earlier steps of which only some tasks must be done, others for every task.
    pub tiles: Vec<u32>,
}

/// Shares of a step's tasks at most: further workers begin with a share of somebody else's.
const SHARES: usize = 8;

type Counter = CachePadded<AtomicU32>;

/// Counters of one request slot. They only grow while anybody is in the slot.
///
/// The tasks of a step are cut into as many contiguous shares as there are workers, and every worker
/// begins with its own: neighbouring steps that are cut alike then find their inputs in the cache of
/// the worker that made them. Who is done with its own helps with the others'.
pub struct Flow {
    /// Tasks taken of every step, share by share.
    tickets: Vec<Counter>,
    /// Tasks done of every step.
    done: Vec<Counter>,
    /// One for every ticket of the steps that others wait for by tiles: 1 when it is done.
    flags: Vec<AtomicU8>,
    /// Where the flags of every step begin; `None` where there are none.
    flagged: Vec<Option<usize>>,
    shares: usize,
    failed: AtomicBool,
}

/// The tasks of share `k` of `shares`: whole tickets, the first shares have one more.
fn share(total: u32, chunk: u32, shares: usize, k: usize) -> (u32, u32) {
    let tickets = u64::from(total.div_ceil(chunk.max(1)));
    let from = |k: usize| {
        let tickets = (tickets * k as u64).div_ceil(shares as u64);
        (tickets * u64::from(chunk)).min(u64::from(total)) as u32
    };
    (from(k), from(k + 1))
}

/// Turns that a step of `total` tasks takes: one even where there is nothing to do, so that the step
/// is over only when those that it waits for are.
fn turns(total: u32) -> u32 {
    total.max(1)
}

impl Flow {
    /// Counters for `steps` steps that `workers` workers share.
    pub fn new(steps: usize, workers: usize) -> Flow {
        let shares = workers.clamp(1, SHARES);
        let zeros = |n: usize| {
            (0..n)
                .map(|_| CachePadded::new(AtomicU32::new(0)))
                .collect()
        };
        Flow {
            tickets: zeros(steps * shares),
            done: zeros(steps),
            flags: vec![],
            flagged: vec![None; steps],
            shares,
            failed: AtomicBool::new(false),
        }
    }

    /// Makes flags for the steps that `specs` wait for by tiles, when steps have `tasks`. The caller
    /// has the slot to itself. Without this, a wait for tiles is one for the whole step.
    pub fn lay(&mut self, specs: &[StepSpec], tasks: &[u32]) {
        let mut end = 0;
        self.flagged.fill(None);
        for &w in specs.iter().flat_map(|s| &s.tiles) {
            let w = w as usize;
            if self.flagged[w].is_none() {
                self.flagged[w] = Some(end);
                end += tasks[w].div_ceil(specs[w].chunk.max(1)) as usize;
            }
        }
        self.flags.resize_with(end, || AtomicU8::new(0));
    }

    /// Back to the start. The caller has the slot to itself: it is retired, or was never published.
    pub fn reset(&mut self) {
        for c in self.tickets.iter().chain(&self.done) {
            c.store(0, Ordering::Relaxed);
        }
        for f in &self.flags {
            f.store(0, Ordering::Relaxed);
        }
        self.failed.store(false, Ordering::Relaxed);
    }

    /// Marks the request as failed: what is left of it is passed over.
    pub fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// True once [`Flow::fail`] was called.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes tasks of every step in plan order until there are none left: `run(step, first, count)`;
    /// `worker` says with which share it begins.
    /// Each task is run exactly once among all callers, and only when all tasks of the steps that its
    /// step waits for are done (their effects are then visible). A step without tasks is passed like
    /// one with a task that does nothing: who waits for it relies on what it waits for.
    ///
    /// Of a step that is waited for by tiles only the tasks `needs(step, wait, first, count)` must be
    /// done, first and end; `wait` counts the step's waits of that kind. Nobody takes a task before all
    /// those of earlier steps are taken, so that whoever waits waits for somebody at work.
    ///
    /// Before every task `pressed` says whether somebody wants this worker's seat; then `stay` is asked
    /// once everything that this worker did is known to the others: it may park, and where it is false
    /// the walk ends early and gives false.
    #[allow(clippy::too_many_arguments)]
    pub fn walk(
        &self,
        worker: usize,
        specs: &[StepSpec],
        tasks: &[u32],
        needs: impl Fn(usize, usize, u32, u32) -> (u32, u32),
        pressed: impl Fn() -> bool,
        mut stay: impl FnMut() -> bool,
        mut run: impl FnMut(usize, u32, u32),
    ) -> bool {
        let n = self.shares;
        for (s, (spec, &total)) in specs.iter().zip(tasks).enumerate() {
            let tickets = &self.tickets[s * n..][..n];
            let turns = turns(total);
            let mut waited = false;
            let mut ran = 0;
            for i in 0..n {
                let k = (worker + i) % n;
                let (from, to) = share(turns, spec.chunk, n, k);
                // Looked at before it is written to: the line of a share that somebody else is done
                // with stays where it is.
                while tickets[k].load(Ordering::Relaxed) < to - from {
                    if pressed() {
                        // Nobody may wait for what one did who is not at work.
                        self.tell(s, std::mem::take(&mut ran));
                        if !stay() {
                            return false;
                        }
                        continue;
                    }
                    if !std::mem::replace(&mut waited, true) {
                        for &w in &spec.waits {
                            self.wait(w as usize, tasks);
                        }
                    }
                    let taken = tickets[k].fetch_add(spec.chunk, Ordering::Relaxed);
                    if taken >= to - from {
                        break;
                    }
                    let count = spec.chunk.min(to - from - taken);
                    let first = from + taken;
                    for (i, &w) in spec.tiles.iter().enumerate() {
                        let w = w as usize;
                        match self.flagged[w] {
                            Some(at) if total > 0 && tasks[w] > 0 => {
                                let (lo, hi) = needs(s, i, first, count);
                                self.wait_some(w, at, (lo, hi), specs[w].chunk, tasks);
                            }
                            _ => self.wait(w, tasks),
                        }
                    }
                    if total > 0 && !self.failed() {
                        run(s, first, count);
                    }
                    if let Some(at) = self.flagged[s]
                        && total > 0
                    {
                        // Release: as below.
                        self.flags[at + (first / spec.chunk.max(1)) as usize]
                            .store(1, Ordering::Release);
                    }
                    ran += count;
                }
            }
            self.tell(s, ran);
        }
        true
    }

    /// Counts `ran` tasks of step `s` as done.
    fn tell(&self, s: usize, ran: u32) {
        if ran > 0 {
            // Release: whoever sees the count sees what the tasks wrote.
            self.done[s].fetch_add(ran, Ordering::Release);
        }
    }

    fn wait(&self, step: usize, tasks: &[u32]) {
        let done = &self.done[step];
        spin_until(|| done.load(Ordering::Acquire) >= turns(tasks[step]));
    }

    /// Waits until tasks `lo..hi` of a step are done, whose flags begin at `at`. None of its tasks
    /// would say nothing of what that step waits for, so then it is waited for whole.
    fn wait_some(&self, step: usize, at: usize, (lo, hi): (u32, u32), chunk: u32, tasks: &[u32]) {
        if lo >= hi || hi > tasks[step] {
            return self.wait(step, tasks);
        }
        let chunk = chunk.max(1);
        for f in &self.flags[at + (lo / chunk) as usize..=at + ((hi - 1) / chunk) as usize] {
            spin_until(|| f.load(Ordering::Acquire) == 1);
        }
    }

    /// Waits until every task of every step is done.
    pub fn finish(&self, tasks: &[u32]) {
        for s in (0..tasks.len()).rev() {
            self.wait(s, tasks);
        }
    }
}

/// A place where a caller shows a job to the workers.
pub struct Slot<T> {
    taken: AtomicBool,
    job: AtomicPtr<T>,
    /// Which job it is, so that a worker that found nothing left in it does not come back.
    generation: AtomicUsize,
    /// Workers that the job takes beside its caller; 0 or less once it has them.
    room: AtomicI32,
    priority: AtomicI32,
    users: CachePadded<AtomicUsize>,
}

/// How a worker left a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing is left to take: nobody else need come.
    Empty,
    /// Another one wanted the worker's seat: whoever is free may come.
    Early,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot::new()
    }
}

impl<T> Slot<T> {
    /// An empty slot.
    pub fn new() -> Slot<T> {
        Slot {
            taken: AtomicBool::new(false),
            job: AtomicPtr::new(std::ptr::null_mut()),
            generation: AtomicUsize::new(0),
            room: AtomicI32::new(0),
            priority: AtomicI32::new(0),
            users: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Takes the slot, if it is free.
    pub fn claim(&self) -> bool {
        self.taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Shows `job` of `priority` to the workers, of whom it takes `room`. Only after [`Slot::claim`];
    /// `job` lives until [`Slot::retire`] returns.
    pub fn publish(&self, job: *const T, room: usize, priority: i32) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.room
            .store(i32::try_from(room).unwrap_or(i32::MAX), Ordering::Relaxed);
        self.priority.store(priority, Ordering::Relaxed);
        self.job.store(job.cast_mut(), Ordering::SeqCst);
    }

    /// Makes the job that is shown take `by` workers more, or fewer: who is too many leaves.
    pub fn resize(&self, by: i32) {
        self.room.fetch_add(by, Ordering::SeqCst);
    }

    /// Whether more workers are in the job than it takes.
    #[inline]
    pub fn crowded(&self) -> bool {
        self.room.load(Ordering::Relaxed) < 0
    }

    /// Takes no more workers for the job that is shown.
    pub fn close(&self) {
        self.room.store(0, Ordering::SeqCst);
    }

    /// Takes the job away and waits until no worker is in it, then frees the slot.
    pub fn retire(&self) {
        self.job.store(std::ptr::null_mut(), Ordering::SeqCst);
        fence(Ordering::SeqCst);
        spin_until(|| self.users.load(Ordering::SeqCst) == 0);
        self.taken.store(false, Ordering::Release);
    }

    /// The priority of the job that is shown, if it is not of generation `seen` and takes more workers.
    pub fn open(&self, seen: usize) -> Option<i32> {
        let open = !self.job.load(Ordering::SeqCst).is_null()
            && self.room.load(Ordering::SeqCst) > 0
            && self.generation.load(Ordering::Relaxed) != seen;
        open.then(|| self.priority.load(Ordering::Relaxed))
    }

    /// Runs `work` on the job that is shown, if there is one other than that of generation `seen` that
    /// takes more workers; `work` is told whether it takes no more then. Returns the generation worked
    /// on where there is nothing left to do for it.
    pub fn enter(&self, seen: usize, work: impl FnOnce(&T, bool) -> Left) -> Option<usize> {
        self.open(seen)?;
        self.users.fetch_add(1, Ordering::SeqCst);
        // A caller that retires either sees this user, or is seen to have taken the job away.
        fence(Ordering::SeqCst);
        let job = self.job.load(Ordering::SeqCst);
        let generation = self.generation.load(Ordering::Relaxed);
        let mut empty = false;
        if !job.is_null() {
            // Room is only taken where the job cannot change.
            let room = self.room.fetch_sub(1, Ordering::SeqCst);
            if room > 0 {
                // SAFETY: the job was shown after `users` was raised, so `retire` waits for it to fall
                // before the caller lets go of the job.
                match work(unsafe { &*job }, room == 1) {
                    Left::Empty => {
                        self.room.store(0, Ordering::SeqCst);
                        empty = true;
                    }
                    Left::Early => {
                        self.room.fetch_add(1, Ordering::SeqCst);
                    }
                }
            } else {
                self.room.fetch_add(1, Ordering::SeqCst);
            }
        }
        self.users.fetch_sub(1, Ordering::SeqCst);
        empty.then_some(generation)
    }
}

const AWAKE: u32 = 0;
const PARKED: u32 = 1;

/// Whether a worker sleeps.
pub struct Bed {
    state: AtomicU32,
}

impl Default for Bed {
    fn default() -> Self {
        Bed::new()
    }
}

impl Bed {
    /// An awake worker's.
    pub fn new() -> Bed {
        Bed {
            state: AtomicU32::new(AWAKE),
        }
    }

    /// Sleeps by `park` until woken, unless `work` tells that there is something to do. Looking for
    /// work after having said that one sleeps is what makes a wake-up impossible to miss.
    pub fn sleep(&self, work: impl Fn() -> bool, park: impl Fn()) {
        self.state.store(PARKED, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if work() {
            self.state.store(AWAKE, Ordering::SeqCst);
            return;
        }
        while self.state.load(Ordering::SeqCst) == PARKED {
            park();
        }
    }

    /// Wakes the worker by `unpark`, if it sleeps; called after the work was published.
    pub fn wake(&self, unpark: impl FnOnce()) {
        fence(Ordering::SeqCst);
        if self.state.load(Ordering::SeqCst) == PARKED
            && self.state.swap(AWAKE, Ordering::SeqCst) == PARKED
        {
            unpark();
        }
    }
}
