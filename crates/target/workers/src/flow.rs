//! The algorithm by which workers share a request: tickets, done counters, waits, slots and parking.
//!
//! Nothing here knows what a step does. Atomics come from a shim so that loom can run every interleaving.

#[cfg(loom)]
use loom::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(loom))]
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};

use crate::padded::CachePadded;
use crate::prefetch::{prefetch, prefetch_line_for_write};

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
    /// Whether a later step waits for this one: nobody else asks how many of its tasks are done.
    pub awaited: bool,
}

impl StepSpec {
    /// Notes in every step whether a later one waits for it.
    pub fn await_all(specs: &mut [StepSpec]) {
        for i in 0..specs.len() {
            let (earlier, rest) = specs.split_at_mut(i);
            for &w in rest[0].waits.iter().chain(&rest[0].tiles) {
                if let Some(s) = earlier.get_mut(w as usize) {
                    s.awaited = true;
                }
            }
        }
    }
}

/// Shares of a step's tasks at most: further workers begin with a share of somebody else's.
const SHARES: usize = 8;

/// Which of the requests that a slot served one after the other: counters say in which they were written, so
/// that nobody has to set them back, and a worker's own stay in its cache from request to request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Round(u32);

/// A count of one round; in any other it is 0. The round is in the upper half.
struct Counter(CachePadded<AtomicU64>);

impl Counter {
    fn new() -> Counter {
        Counter(CachePadded::new(AtomicU64::new(0)))
    }

    fn of(word: u64, round: Round) -> u32 {
        match (word >> 32) as u32 == round.0 {
            true => word as u32,
            false => 0,
        }
    }

    fn get(&self, round: Round, order: Ordering) -> u32 {
        Counter::of(self.0.load(order), round)
    }

    /// Adds `n` where less than `end` was counted, and says how much was.
    fn add_below(&self, round: Round, n: u32, end: u32, order: Ordering) -> Option<u32> {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let count = Counter::of(word, round);
            if count >= end {
                return None;
            }
            let next = u64::from(round.0) << 32 | u64::from(count.saturating_add(n));
            match (self.0).compare_exchange_weak(word, next, order, Ordering::Relaxed) {
                Ok(_) => return Some(count),
                Err(now) => word = now,
            }
        }
    }
}

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
    /// On a line of its own, which only whoever has the slot looks at: workers are told.
    round: CachePadded<Round>,
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
        let zeros = |n: usize| (0..n).map(|_| Counter::new()).collect();
        Flow {
            tickets: zeros(steps * shares),
            done: zeros(steps),
            flags: vec![],
            flagged: vec![None; steps],
            shares,
            failed: AtomicBool::new(false),
            round: CachePadded::default(),
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

    /// Begins another request: nothing of it is taken or done. The caller has the slot to itself: it is retired,
    /// or was never published.
    pub fn reset(&mut self) {
        if self.round.0 == u32::MAX {
            // What was last written in a round of the same number is long over.
            for c in self.tickets.iter_mut().chain(&mut self.done) {
                *c = Counter::new();
            }
            self.round.0 = 0;
        }
        self.round.0 += 1;
        for f in &self.flags {
            f.store(0, Ordering::Relaxed);
        }
        if self.failed() {
            self.failed.store(false, Ordering::Relaxed);
        }
    }

    /// The request that is walked through now.
    pub fn round(&self) -> Round {
        *self.round
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
    /// `worker` says with which share it begins, and `round` in which request ([`Flow::round`]).
    /// Each task is run exactly once among all callers, and only when all tasks of the steps that its
    /// step waits for are done (their effects are then visible). A step without tasks is passed like
    /// one with a task that does nothing: who waits for it relies on what it waits for.
    ///
    /// Of a step that is waited for by tiles only the tasks `needs(step, wait, first, count)` must be
    /// done, first and end; `wait` counts the step's waits of that kind. Nobody takes a task before all
    /// those of earlier steps are taken, so that whoever waits waits for somebody at work.
    ///
    /// Before every task `should_yield` says whether somebody wants this worker's lease; then `stay` is asked
    /// once everything that this worker did is known to the others: it may park, and where it is false
    /// the walk ends early and gives false.
    #[allow(clippy::too_many_arguments)]
    pub fn walk(
        &self,
        worker: usize,
        round: Round,
        specs: &[StepSpec],
        tasks: &[u32],
        needs: impl Fn(usize, usize, u32, u32) -> (u32, u32),
        should_yield: impl Fn() -> bool,
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
                while tickets[k].get(round, Ordering::Relaxed) < to - from {
                    if should_yield() {
                        // Nobody may wait for what one did who is not at work.
                        self.report_done(s, round, spec, std::mem::take(&mut ran));
                        if !stay() {
                            return false;
                        }
                        continue;
                    }
                    if !std::mem::replace(&mut waited, true) {
                        for &w in &spec.waits {
                            self.wait(w as usize, round, tasks);
                        }
                    }
                    let end = to - from;
                    let Some(taken) =
                        tickets[k].add_below(round, spec.chunk, end, Ordering::Relaxed)
                    else {
                        break;
                    };
                    let count = spec.chunk.min(to - from - taken);
                    let first = from + taken;
                    for (i, &w) in spec.tiles.iter().enumerate() {
                        let w = w as usize;
                        match self.flagged[w] {
                            Some(at) if total > 0 && tasks[w] > 0 => {
                                let (lo, hi) = needs(s, i, first, count);
                                self.wait_some(w, at, (lo, hi), round, specs[w].chunk, tasks);
                            }
                            _ => self.wait(w, round, tasks),
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
            self.report_done(s, round, spec, ran);
        }
        true
    }

    /// Counts `ran` tasks of step `s` as done, where somebody waits for it.
    fn report_done(&self, s: usize, round: Round, spec: &StepSpec, ran: u32) {
        if ran > 0 && spec.awaited {
            // Release: whoever sees the count sees what the tasks wrote.
            self.done[s].add_below(round, ran, u32::MAX, Ordering::Release);
        }
    }

    fn wait(&self, step: usize, round: Round, tasks: &[u32]) {
        let done = &self.done[step];
        spin_until(|| done.get(round, Ordering::Acquire) >= turns(tasks[step]));
    }

    /// Waits until tasks `lo..hi` of a step are done, whose flags begin at `at`. None of its tasks
    /// would say nothing of what that step waits for, so then it is waited for whole.
    fn wait_some(
        &self,
        step: usize,
        at: usize,
        (lo, hi): (u32, u32),
        round: Round,
        chunk: u32,
        tasks: &[u32],
    ) {
        if lo >= hi || hi > tasks[step] {
            return self.wait(step, round, tasks);
        }
        let chunk = chunk.max(1);
        for f in &self.flags[at + (lo / chunk) as usize..=at + ((hi - 1) / chunk) as usize] {
            spin_until(|| f.load(Ordering::Acquire) == 1);
        }
    }
}

/// A place where a caller shows a job to the workers.
///
/// What workers look at is on one cache line, which goes to them once for a job that is shown and comes back
/// once; who waits for them looks at another, and whether the slot is taken only callers ask.
pub struct Slot<T> {
    caller_view: CachePadded<CallerView>,
    worker_view: CachePadded<WorkerView<T>>,
    /// How many workers have left a job, over all jobs: as many as have entered when nobody is in.
    left: CachePadded<AtomicU32>,
}

/// What only callers look at.
struct CallerView {
    taken: AtomicBool,
    /// Of the last job.
    generation: AtomicUsize,
    /// Workers that entered a job, when nobody was in.
    entered: AtomicU32,
}

struct WorkerView<T> {
    /// Who entered and how many more the job takes, as [`HelperCount`] packs them. What else is on the worker view
    /// changes only while nobody is in and nobody may come.
    helpers: AtomicU64,
    job: AtomicPtr<T>,
    /// Which job it is, so that a worker that found nothing left in it does not come back.
    generation: AtomicUsize,
    priority: AtomicI32,
}

/// Workers that entered a job, over all jobs, and how many more it takes: 0 or less once it has them. Both in
/// one word, so that nobody comes into a job that is being taken away.
#[derive(Clone, Copy)]
struct HelperCount {
    entered: u32,
    room: i32,
}

/// The room of a job that is being taken away: who leaves it leaves none behind.
const GONE: i32 = i32::MIN;

impl HelperCount {
    fn of(word: u64) -> HelperCount {
        HelperCount {
            entered: word as u32,
            room: (word >> 32) as u32 as i32,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.entered) | u64::from(self.room as u32) << 32
    }
}

impl<T> WorkerView<T> {
    fn helpers(&self) -> HelperCount {
        HelperCount::of(self.helpers.load(Ordering::SeqCst))
    }

    /// Changes the helper count, unless `to` says that it stays; gives what it was when it changed.
    fn change(&self, to: impl Fn(HelperCount) -> Option<HelperCount>) -> Option<HelperCount> {
        let mut word = self.helpers.load(Ordering::SeqCst);
        loop {
            let next = to(HelperCount::of(word))?.word();
            // Either a worker that leaves room sees who is about to sleep, or that one sees the room.
            match self
                .helpers
                .compare_exchange(word, next, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return Some(HelperCount::of(word)),
                Err(now) => word = now,
            }
        }
    }
}

/// How a worker left a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Nothing is left to take: nobody else need come.
    Empty,
    /// Another one wanted the worker's lease: whoever is free may come.
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
        let none = HelperCount {
            entered: 0,
            room: GONE,
        };
        Slot {
            caller_view: CachePadded::new(CallerView {
                taken: AtomicBool::new(false),
                generation: AtomicUsize::new(0),
                entered: AtomicU32::new(0),
            }),
            worker_view: CachePadded::new(WorkerView {
                helpers: AtomicU64::new(none.word()),
                job: AtomicPtr::new(std::ptr::null_mut()),
                generation: AtomicUsize::new(0),
                priority: AtomicI32::new(0),
            }),
            left: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Takes the slot, if it is free.
    pub fn claim(&self) -> bool {
        let taken = &self.caller_view.taken;
        taken
            .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Whether a caller has it.
    pub fn taken(&self) -> bool {
        self.caller_view.taken.load(Ordering::Relaxed)
    }

    /// Shows `job` of `priority` to the workers, of whom it takes `room`. Only after [`Slot::claim`];
    /// `job` lives until [`Slot::retire`] returns.
    pub fn publish(&self, job: *const T, room: usize, priority: i32) {
        let (o, b) = (&self.caller_view, &self.worker_view);
        // Stores alone: the worker view's line is fetched once, and by no one before all is written.
        let generation = o.generation.load(Ordering::Relaxed).wrapping_add(1);
        o.generation.store(generation, Ordering::Relaxed);
        b.generation.store(generation, Ordering::Relaxed);
        b.priority.store(priority, Ordering::Relaxed);
        b.job.store(job.cast_mut(), Ordering::Relaxed);
        let room = i32::try_from(room).unwrap_or(i32::MAX);
        let entered = o.entered.load(Ordering::Relaxed);
        // Release: who sees the room sees the job. Nobody is in the slot, and nobody could come.
        let helpers = HelperCount { entered, room };
        b.helpers.store(helpers.word(), Ordering::Release);
    }

    /// Makes the job that is shown take `by` workers more, or fewer: who is too many leaves.
    pub fn resize(&self, by: i32) {
        self.worker_view.change(|c| {
            let room = c.room.saturating_add(by).max(GONE + 1);
            Some(HelperCount { room, ..c })
        });
    }

    /// Whether more workers are in the job than it takes.
    #[inline]
    pub fn crowded(&self) -> bool {
        HelperCount::of(self.worker_view.helpers.load(Ordering::Relaxed)).room < 0
    }

    /// The helper count, where nobody is in the job and nobody may come. Looked at in this order: whoever leaves changes
    /// the room first.
    fn over(&self) -> Option<HelperCount> {
        let left = self.left.load(Ordering::SeqCst);
        let helpers = self.worker_view.helpers();
        (helpers.entered == left && helpers.room <= 0).then_some(helpers)
    }

    /// Waits until a worker has come and found nothing left to do.
    pub fn wait_until_done(&self) {
        let before = self.caller_view.entered.load(Ordering::Relaxed);
        // The worker view is left alone until somebody is done.
        spin_until(|| self.left.load(Ordering::Relaxed) != before && self.over().is_some());
    }

    /// Takes the job away and waits until no worker is in it, then frees the slot. What workers did is
    /// visible then.
    pub fn retire(&self) {
        let entered = match self.over() {
            // There is nothing to be said, and whoever looks for work keeps the worker view's line.
            Some(c) => c.entered,
            None => {
                let was = self
                    .worker_view
                    .change(|c| Some(HelperCount { room: GONE, ..c }));
                was.map_or(0, |c| c.entered)
            }
        };
        // Whoever sees that a worker has left sees what it did.
        spin_until(|| self.left.load(Ordering::SeqCst) == entered);
        self.caller_view.entered.store(entered, Ordering::Relaxed);
        self.caller_view.taken.store(false, Ordering::Release);
    }

    /// The priority of the job that is shown, if it is not of generation `seen` and takes more workers.
    pub fn open(&self, seen: usize) -> Option<i32> {
        let b = &self.worker_view;
        let open = b.helpers().room > 0 && b.generation.load(Ordering::Relaxed) != seen;
        open.then(|| b.priority.load(Ordering::Relaxed))
    }

    /// Has the job that is shown, and the worker view to write on it, brought near: whoever is about to enter has
    /// other things to do before.
    pub fn approach(&self) {
        prefetch_line_for_write(std::ptr::from_ref(&self.worker_view.helpers).cast());
        prefetch(self.worker_view.job.load(Ordering::Relaxed).cast_const());
    }

    /// Runs `work` on the job that is shown, if there is one other than that of generation `seen` that
    /// takes more workers; `work` is told whether it takes no more then. Returns the generation worked
    /// on where there is nothing left to do for it.
    pub fn enter(&self, seen: usize, work: impl FnOnce(&T, bool) -> Exit) -> Option<usize> {
        self.open(seen)?;
        let b = &self.worker_view;
        let was = b.change(|c| {
            (c.room > 0).then(|| HelperCount {
                entered: c.entered.wrapping_add(1),
                room: c.room - 1,
            })
        })?;
        let generation = b.generation.load(Ordering::Relaxed);
        // SAFETY: there was room, so the job is shown and `retire` has not begun; from now on it waits for
        // this worker before the caller lets go of the job.
        let job = unsafe { &*b.job.load(Ordering::Relaxed) };
        let left = work(job, was.room == 1);
        // Where it says nothing new, nothing is written.
        b.change(|c| match left {
            _ if c.room == GONE => None,
            Exit::Empty => (c.room > 0).then_some(HelperCount { room: 0, ..c }),
            Exit::Early => Some(HelperCount {
                room: c.room.saturating_add(1),
                ..c
            }),
        });
        self.left.fetch_add(1, Ordering::SeqCst);
        (left == Exit::Empty).then_some(generation)
    }
}

const AWAKE: u32 = 0;
const PARKED: u32 = 1;

/// Whether a worker sleeps.
pub struct Sleep {
    state: AtomicU32,
}

impl Default for Sleep {
    fn default() -> Self {
        Sleep::new()
    }
}

impl Sleep {
    /// An awake worker's.
    pub fn new() -> Sleep {
        Sleep {
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
