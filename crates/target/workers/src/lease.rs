//! Leases on workers: a thread works only while it holds one, and there are as many as workers. Callers wait
//! for one parked, by priority; a working thread yields its lease between two tasks to a more urgent caller.
//! `pool` uses it. It knows no jobs and no processors (`placement` does).
//!
//! Atomics and locks come from a shim so that loom can run every interleaving.

#[cfg(loom)]
use loom::{
    sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence},
    sync::{Arc, Mutex, MutexGuard},
    thread::{self, Thread},
};
#[cfg(not(loom))]
use std::{
    sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
};

use crate::padded::CachePadded;
#[cfg(not(loom))]
use crate::place::Sleeper;
use crate::place::wait_after;
#[cfg(not(loom))]
use crate::time_slice::set_time_slice;
use crate::time_slice::{LastUrgent, TimeSlice, yield_to_equals};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Priorities beyond this are taken for this one, on either side of 0.
const PRIORITY_LIMIT: i32 = 1 << 28;
/// Nobody wants a lease that another one has.
const NONE_WANTED: i32 = i32::MIN;
/// How often a caller that may be called off looks whether it was.
#[cfg(not(loom))]
const CANCEL_POLL: std::time::Duration = std::time::Duration::from_millis(2);

/// A caller that waits for a lease.
struct Waiter {
    level: i32,
    has: AtomicBool,
    thread: Thread,
    /// Where it continues on the processor of the thread that gives it the lease.
    #[cfg(not(loom))]
    sleeper: Option<Sleeper>,
}

struct Table {
    /// In the order in which they came.
    waiters: Vec<Arc<Waiter>>,
    /// Jobs with places for helpers, by number, and the level that they want them from.
    demands: Vec<HelperDemand>,
    /// Jobs of less than no priority.
    low: Vec<i32>,
    /// Leases to be taken out as soon as they are free.
    debt: usize,
    leases: usize,
}

/// A job that may have places for helpers.
struct HelperDemand {
    key: usize,
    level: i32,
    /// It has some.
    now: bool,
}

/// The table, locked. Threads that were given a lease are woken once it is unlocked: a woken thread may take the
/// processor at once, and others want the lock.
struct LockedTable<'a> {
    // In this order: fields are dropped in that of their declaration.
    table: MutexGuard<'a, Table>,
    wakeups: Wakeups,
}

/// Threads that were given a lease, each with a delay; they are woken when this is dropped.
#[derive(Default)]
pub struct Wakeups(Vec<(Arc<Waiter>, Duration)>);

impl Wakeups {
    /// Has these woken with the others.
    pub fn and(&mut self, mut more: Wakeups) {
        self.0.append(&mut more.0);
    }

    /// As told by one of `priority`, after whom those go on that are less urgent, or as urgent.
    fn by(mut self, priority: i32) -> Wakeups {
        for (w, after) in &mut self.0 {
            *after = wait_after(w.level, level(priority));
        }
        self
    }
}

impl Drop for Wakeups {
    fn drop(&mut self) {
        #[cfg_attr(loom, allow(unused_variables))]
        for (w, after) in &self.0 {
            // Placed before it is woken.
            #[cfg(not(loom))]
            w.sleeper.iter().for_each(|s| s.follow_me(*after));
            w.has.store(true, Ordering::Release);
            w.thread.unpark();
        }
    }
}

impl Deref for LockedTable<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for LockedTable<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

/// Who has a lease when it looks whether it must give it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// The thread that brought the request: it gives way to more urgent ones.
    Caller,
    /// A resident: it also gives way to a caller of its job's priority that has no lease at all.
    Helper,
}

/// The leases of a device's workers.
///
/// A level is twice a priority, plus one where a caller waits for its only lease: whoever works looks at
/// one number, the highest level there is, between two tasks.
pub struct WorkerLeases {
    free: CachePadded<AtomicUsize>,
    /// Callers that wait, and leases to be taken out: whoever frees a lease looks here.
    attention: CachePadded<AtomicUsize>,
    wanted: CachePadded<AtomicI32>,
    /// The least priority of those that work, at most 0.
    floor: AtomicI32,
    /// There are no more processors than leases: a caller that is given one finds a processor where whoever
    /// gives it is about to leave it.
    #[cfg_attr(loom, allow(dead_code))]
    follow: bool,
    /// There were callers above others.
    urgent: LastUrgent,
    table: Mutex<Table>,
}

fn level(priority: i32) -> i32 {
    2 * priority.clamp(-PRIORITY_LIMIT, PRIORITY_LIMIT)
}

impl WorkerLeases {
    /// `leases` of them, all free.
    pub fn new(leases: usize) -> WorkerLeases {
        WorkerLeases::made(leases, false)
    }

    /// As [`WorkerLeases::new`], where there are no more processors than leases.
    pub fn on_all_processors(leases: usize) -> WorkerLeases {
        WorkerLeases::made(leases, true)
    }

    fn made(leases: usize, follow: bool) -> WorkerLeases {
        WorkerLeases {
            follow,
            urgent: LastUrgent::default(),
            free: CachePadded::new(AtomicUsize::new(leases)),
            attention: CachePadded::new(AtomicUsize::new(0)),
            wanted: CachePadded::new(AtomicI32::new(NONE_WANTED)),
            floor: AtomicI32::new(0),
            table: Mutex::new(Table {
                waiters: Vec::new(),
                demands: Vec::new(),
                low: Vec::new(),
                debt: 0,
                leases,
            }),
        }
    }

    fn table(&self) -> LockedTable<'_> {
        #[cfg(loom)]
        let table = self.table.lock().unwrap();
        #[cfg(not(loom))]
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let wakeups = Wakeups::default();
        LockedTable { table, wakeups }
    }

    /// Leases that nobody has.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::SeqCst)
    }

    /// Leases there are, those to be taken out not counted.
    pub fn leases(&self) -> usize {
        self.table().leases
    }

    /// Callers that wait.
    pub fn waiting(&self) -> usize {
        self.table().waiters.len()
    }

    /// Takes a free lease, if there is one.
    fn try_take(&self) -> bool {
        let mut n = self.free.load(Ordering::SeqCst);
        while n > 0 {
            match self
                .free
                .compare_exchange(n, n - 1, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return true,
                Err(now) => n = now,
            }
        }
        false
    }

    /// Whether somebody wants the lease of one who works for a job of `priority`: asked between two tasks.
    #[inline]
    pub fn should_yield(&self, priority: i32, who: LeaseHolder) -> bool {
        self.wanted.load(Ordering::Relaxed)
            > level(priority) + i32::from(who == LeaseHolder::Caller)
    }

    /// The time slices that whoever works for a job of `priority` takes on its processor: where there were callers
    /// above it, they are to go before it.
    pub fn turn(&self, priority: i32) -> TimeSlice {
        match priority <= 0 && self.urgent.ever() {
            true => TimeSlice::Long,
            false => TimeSlice::Short,
        }
    }

    /// Asked between two tasks of a job of `priority`: now and then lets those go first that want the calling
    /// thread's processor, where there were callers above that job of late, or may be more of them beside it.
    #[inline]
    pub fn yield_if_urgent(&self, priority: i32) {
        if priority <= 0 {
            self.urgent.yield_if_urgent();
        } else {
            yield_to_equals();
        }
    }

    /// Whether a job of `priority` has others below it, so that helpers are to leave those for it.
    pub fn above_others(&self, priority: i32) -> bool {
        priority > self.floor.load(Ordering::SeqCst)
    }

    /// Takes a lease for a caller, waiting for one parked; `gone` tells when the caller is called off, and
    /// then nothing is taken and this is false.
    ///
    /// Who is more urgent than others also takes short time slices on its processor from now on, so that it finds
    /// one at once when it wakes for its next request; who had to give way for it, long ones.
    pub fn acquire(&self, priority: i32, gone: Option<&dyn Fn() -> bool>) -> bool {
        #[cfg(not(loom))]
        if priority > 0 {
            set_time_slice(TimeSlice::Short);
            self.urgent.now();
        }
        if priority < 0 {
            let mut t = self.table();
            t.low.push(priority);
            self.low(&t);
        }
        let has = (!self.should_yield(priority, LeaseHolder::Caller) && self.try_take())
            || self.wait(priority, gone);
        if !has {
            self.forget_low(priority);
        }
        has
    }

    /// Gives a caller's lease back for good.
    pub fn leave(&self, priority: i32) {
        self.forget_low(priority);
        drop(self.release_from(priority));
    }

    fn forget_low(&self, priority: i32) {
        if priority < 0 {
            let mut t = self.table();
            if let Some(i) = t.low.iter().position(|&p| p == priority) {
                t.low.swap_remove(i);
            }
            self.low(&t);
        }
    }

    fn low(&self, t: &Table) {
        let least = t.low.iter().copied().min().unwrap_or(0);
        self.floor.store(least.min(0), Ordering::SeqCst);
    }

    /// Whether a resident that wants to help a job of `priority` would find a lease.
    pub fn helper_may_acquire(&self, priority: i32) -> bool {
        self.free() > 0 && !self.should_yield(priority, LeaseHolder::Helper)
    }

    /// Takes a lease for a resident that wants to help a job of `priority`, if one is free that nobody
    /// else is to have.
    pub fn try_acquire_for_helper(&self, priority: i32) -> bool {
        !self.should_yield(priority, LeaseHolder::Helper) && self.try_take()
    }

    /// Gives a lease back.
    pub fn release(&self) {
        drop(self.release_one());
    }

    /// Gives back a lease of one who worked for a job of `priority`; those who get it are woken when the result is
    /// dropped: they may take the processor at once from whoever has something left to do.
    #[must_use = "those who get the seat are woken when this is dropped"]
    pub fn release_from(&self, priority: i32) -> Wakeups {
        self.release_one().by(priority)
    }

    fn release_one(&self) -> Wakeups {
        self.free.fetch_add(1, Ordering::SeqCst);
        // Either this sees who waits, or that one sees the free lease. (Loom orders only fences so.)
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        if self.attention.load(Ordering::SeqCst) == 0 {
            return Wakeups::default();
        }
        self.serve_and_unlock(self.table())
    }

    /// As [`WorkerLeases::serve`], for the last thing that is done with the table.
    fn serve_and_unlock(&self, mut t: LockedTable<'_>) -> Wakeups {
        self.serve(&mut t);
        let LockedTable { table, wakeups } = t;
        drop(table);
        wakeups
    }

    /// Gives a caller's lease to somebody more urgent and waits until there is one again; `meanwhile` is
    /// called before it waits. False where it was called off meanwhile: it then has none.
    pub fn yield_lease(
        &self,
        priority: i32,
        gone: Option<&dyn Fn() -> bool>,
        meanwhile: impl FnOnce(),
    ) -> bool {
        #[cfg(not(loom))]
        if priority <= 0 {
            set_time_slice(TimeSlice::Long);
        }
        let me = self.waiter(priority);
        {
            let mut t = self.table();
            self.queue(&mut t, &me);
            // Queued already: should whoever gets the lease take the processor at once, nothing is left to this
            // thread but to sleep.
            self.free.fetch_add(1, Ordering::SeqCst);
            self.serve(&mut t);
        }
        meanwhile();
        let has = self.wait_for(&me, gone);
        if !has {
            self.forget_low(priority);
        }
        has
    }

    fn wait(&self, priority: i32, gone: Option<&dyn Fn() -> bool>) -> bool {
        let me = self.waiter(priority);
        {
            let mut t = self.table();
            self.queue(&mut t, &me);
            self.serve(&mut t);
        }
        self.wait_for(&me, gone)
    }

    fn queue(&self, t: &mut LockedTable<'_>, me: &Arc<Waiter>) {
        t.waiters.push(me.clone());
        self.attention
            .store(t.waiters.len() + t.debt, Ordering::SeqCst);
        #[cfg(loom)]
        fence(Ordering::SeqCst);
    }

    fn waiter(&self, priority: i32) -> Arc<Waiter> {
        Arc::new(Waiter {
            level: level(priority),
            has: AtomicBool::new(false),
            thread: thread::current(),
            #[cfg(not(loom))]
            sleeper: self.follow.then(Sleeper::here).flatten(),
        })
    }

    fn wait_for(&self, me: &Arc<Waiter>, mut gone: Option<&dyn Fn() -> bool>) -> bool {
        while !me.has.load(Ordering::Acquire) {
            let Some(off) = gone else {
                thread::park();
                continue;
            };
            if off() {
                let mut t = self.table();
                let at = t.waiters.iter().position(|w| Arc::ptr_eq(w, me));
                if let Some(at) = at {
                    t.waiters.remove(at);
                    self.serve(&mut t);
                    return false;
                }
                // A lease was given meanwhile, and whoever did is about to say so.
                gone = None;
                continue;
            }
            #[cfg(loom)]
            thread::park();
            #[cfg(not(loom))]
            thread::park_timeout(CANCEL_POLL);
        }
        #[cfg(not(loom))]
        me.sleeper.iter().for_each(Sleeper::awake);
        true
    }

    /// Job number `key` of `priority` has places for helpers and wants them, or does not for now: told by its caller,
    /// until it says that the job [has ended](WorkerLeases::ended). Those who get a lease by it are woken as by
    /// [`WorkerLeases::release_from`].
    #[must_use = "those who get a seat are woken when this is dropped"]
    pub fn want(&self, key: usize, priority: i32, now: bool) -> Wakeups {
        let mut t = self.table();
        let level = level(priority);
        t.demands.retain(|w| w.key != key);
        t.demands.push(HelperDemand { key, level, now });
        self.serve_and_unlock(t).by(priority)
    }

    /// As [`WorkerLeases::want`], told by a helper: nothing where the job's caller told of none, or of its end. A place that
    /// stayed wanted after that would be kept from all others for ever.
    #[must_use = "those who get a seat are woken when this is dropped"]
    pub fn want_as_helper(&self, key: usize, priority: i32, now: bool) -> Wakeups {
        let mut t = self.table();
        match t.demands.iter_mut().find(|w| w.key == key) {
            Some(w) => w.now = now,
            None => return Wakeups::default(),
        }
        self.serve_and_unlock(t).by(priority)
    }

    /// Job number `key` of `priority` wants no helpers any more, whatever those say who are about to leave it.
    #[must_use = "those who get a seat are woken when this is dropped"]
    pub fn ended(&self, key: usize, priority: i32) -> Wakeups {
        let mut t = self.table();
        t.demands.retain(|w| w.key != key);
        self.serve_and_unlock(t).by(priority)
    }

    /// Makes it `leases` leases: new ones are free at once, those that are too many go when they are free.
    pub fn resize(&self, leases: usize) {
        let mut t = self.table();
        let (old, debt) = (t.leases, t.debt);
        t.leases = leases;
        // What there is in truth, with those still to be taken out.
        let held = old + debt;
        if leases >= held {
            t.debt = 0;
            self.free.fetch_add(leases - held, Ordering::SeqCst);
        } else {
            t.debt = held - leases;
        }
        self.attention
            .store(t.waiters.len() + t.debt, Ordering::SeqCst);
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        self.serve(&mut t);
    }

    /// Gives free leases to those that wait, the most urgent first and then the one that came first, but
    /// none that helpers of a more urgent job are to have; then says anew what is wanted.
    fn serve(&self, t: &mut LockedTable<'_>) {
        while t.debt > 0 && self.try_take() {
            t.debt -= 1;
        }
        let helpers = t.demands.iter().filter(|w| w.now).map(|w| w.level).max();
        loop {
            let best = t.waiters.iter().map(|w| w.level).max();
            let Some(best) = best.filter(|b| helpers.is_none_or(|h| *b >= h)) else {
                break;
            };
            let Some(at) = t.waiters.iter().position(|w| w.level == best) else {
                break;
            };
            if !self.try_take() {
                break;
            }
            let w = t.waiters.remove(at);
            t.wakeups.0.push((w, Duration::ZERO));
        }
        self.attention
            .store(t.waiters.len() + t.debt, Ordering::SeqCst);
        let callers = t.waiters.iter().map(|w| w.level + 1).max();
        self.wanted.store(
            callers.max(helpers).unwrap_or(NONE_WANTED),
            Ordering::SeqCst,
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{LeaseHolder, TimeSlice, WorkerLeases};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    /// Waits until `n` callers wait.
    fn queued(s: &WorkerLeases, n: usize) {
        while s.waiting() < n {
            std::thread::yield_now();
        }
    }

    #[test]
    fn no_more_at_work_than_seats_and_everybody_is_served() {
        let leases = WorkerLeases::new(3);
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for k in 0..8 {
                let (leases, at_work, most) = (&leases, &at_work, &most);
                s.spawn(move || {
                    for i in 0..2000 {
                        let p = (k + i) % 3 - 1;
                        assert!(leases.acquire(p, None));
                        let n = at_work.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(n, Ordering::SeqCst);
                        at_work.fetch_sub(1, Ordering::SeqCst);
                        if i % 5 == 0 && leases.should_yield(p, LeaseHolder::Caller) {
                            assert!(leases.yield_lease(p, None, || {}));
                        }
                        leases.leave(p);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert_eq!((leases.free(), leases.waiting()), (3, 0));
        assert!(!leases.should_yield(-5, LeaseHolder::Helper) && !leases.above_others(0));
    }

    #[test]
    fn the_most_urgent_is_served_first_and_then_the_first_to_come() {
        let leases = WorkerLeases::new(1);
        assert!(leases.acquire(0, None));
        let order = std::sync::Mutex::new(vec![]);
        std::thread::scope(|s| {
            for (i, p) in [0, -1, 3, 0, 3].into_iter().enumerate() {
                let (leases, order) = (&leases, &order);
                s.spawn(move || {
                    assert!(leases.acquire(p, None));
                    order.lock().unwrap().push(i);
                    leases.leave(p);
                });
                queued(leases, i + 1);
            }
            assert!(
                leases.should_yield(2, LeaseHolder::Caller)
                    && !leases.should_yield(3, LeaseHolder::Caller)
            );
            assert!(
                leases.should_yield(3, LeaseHolder::Helper)
                    && !leases.should_yield(4, LeaseHolder::Helper)
            );
            leases.leave(0);
        });
        assert_eq!(*order.lock().unwrap(), [2, 4, 0, 3, 1]);
    }

    #[test]
    fn who_gives_way_comes_back_when_the_urgent_is_done() {
        let leases = WorkerLeases::new(1);
        assert!(leases.acquire(0, None));
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(leases.acquire(1, None));
                done.store(true, Ordering::SeqCst);
                leases.leave(1);
            });
            queued(&leases, 1);
            assert!(leases.should_yield(0, LeaseHolder::Caller));
            assert!(leases.yield_lease(0, None, || {}));
            assert!(done.load(Ordering::SeqCst));
        });
        leases.leave(0);
        assert_eq!(leases.free(), 1);
    }

    #[test]
    fn who_follows_a_helper_of_an_urgent_job_leaves_it_the_processor_for_a_while() {
        let leases = WorkerLeases::new(1);
        for (helped, waits) in [(1, true), (0, false)] {
            assert!(leases.try_acquire_for_helper(helped));
            std::thread::scope(|s| {
                let t = s.spawn(|| leases.acquire(0, None));
                queued(&leases, 1);
                let wakeups = leases.release_from(helped);
                assert_eq!(wakeups.0.len(), 1);
                assert_eq!(wakeups.0[0].1 > Duration::ZERO, waits);
                drop(wakeups);
                assert!(t.join().unwrap());
            });
            leases.leave(0);
        }
    }

    #[test]
    fn helpers_of_an_urgent_job_come_before_callers_that_wait() {
        let leases = WorkerLeases::new(2);
        assert!(leases.acquire(1, None) && leases.acquire(0, None));
        drop(leases.want(7, 1, true));
        assert!(
            leases.should_yield(0, LeaseHolder::Caller)
                && !leases.should_yield(1, LeaseHolder::Helper)
        );
        std::thread::scope(|s| {
            let t = s.spawn(|| leases.yield_lease(0, None, || {}));
            queued(&leases, 1);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!t.is_finished() && leases.free() == 1);
            assert!(!leases.try_acquire_for_helper(0));
            assert!(leases.try_acquire_for_helper(1));
            drop(leases.ended(7, 1));
            assert!(!t.is_finished() && leases.free() == 0);
            leases.release();
            assert!(t.join().unwrap());
        });
        assert_eq!(leases.free(), 0);
    }

    #[test]
    fn a_helper_that_leaves_after_the_end_wants_nobody_in_its_place() {
        let leases = WorkerLeases::new(2);
        assert!(leases.acquire(1, None) && leases.try_acquire_for_helper(1));
        drop(leases.want(7, 1, true));
        drop(leases.want_as_helper(7, 1, false));
        drop(leases.want_as_helper(7, 1, true));
        assert!(leases.should_yield(0, LeaseHolder::Helper));
        drop(leases.ended(7, 1));
        // It left early, and says so late.
        drop(leases.want_as_helper(7, 1, true));
        leases.release();
        leases.leave(1);
        assert!(!leases.should_yield(0, LeaseHolder::Helper));
        assert!(leases.acquire(0, None) && leases.acquire(0, None));
    }

    #[test]
    fn only_where_urgent_callers_were_do_others_work_below_them() {
        let leases = WorkerLeases::new(1);
        let turns = || (leases.turn(0), leases.turn(1));
        assert_eq!(turns(), (TimeSlice::Short, TimeSlice::Short));
        assert!(leases.acquire(1, None));
        leases.leave(1);
        assert_eq!(turns(), (TimeSlice::Long, TimeSlice::Short));
    }

    #[test]
    fn who_is_called_off_waits_no_longer() {
        let leases = WorkerLeases::new(1);
        assert!(leases.acquire(0, None));
        let off = AtomicBool::new(false);
        std::thread::scope(|s| {
            let t = s.spawn(|| leases.acquire(-3, Some(&|| off.load(Ordering::SeqCst))));
            queued(&leases, 1);
            off.store(true, Ordering::SeqCst);
            assert!(!t.join().unwrap());
        });
        assert_eq!(leases.waiting(), 0);
        assert!(!leases.above_others(0));
        leases.leave(0);
        assert_eq!(leases.free(), 1);
    }

    #[test]
    fn seats_come_and_go() {
        let leases = WorkerLeases::new(3);
        assert!(leases.acquire(0, None) && leases.acquire(0, None));
        leases.resize(1);
        assert_eq!((leases.free(), leases.leases()), (0, 1));
        leases.leave(0);
        assert_eq!(leases.free(), 0);
        leases.resize(2);
        assert_eq!(leases.free(), 1);
        leases.leave(0);
        assert_eq!(leases.free(), 2);
        leases.resize(4);
        assert_eq!(leases.free(), 4);
    }
}
