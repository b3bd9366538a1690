//! Seats: a thread works only while it has one, and there are as many as workers. Callers wait for one
//! parked, by priority; who works gives its seat up between two tasks when somebody more urgent wants it.
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

#[cfg(not(loom))]
use ::device::place::Sleeper;
use ::device::place::wait_after;
#[cfg(not(loom))]
use ::device::turns::take_turns;
use ::device::turns::{Lately, Turn, yield_to_others_like_it};
use crossbeam_utils::CachePadded;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// Priorities beyond this are taken for this one, on either side of 0.
const FAR: i32 = 1 << 28;
/// Nobody wants a seat that another one has.
const NOBODY: i32 = i32::MIN;
/// How often a caller that may be called off looks whether it was.
#[cfg(not(loom))]
const LOOK: std::time::Duration = std::time::Duration::from_millis(2);

/// A caller that waits for a seat.
struct Waiter {
    level: i32,
    has: AtomicBool,
    thread: Thread,
    /// Where it is to go on where whoever gives it the seat is.
    #[cfg(not(loom))]
    sleeper: Option<Sleeper>,
}

struct Table {
    /// In the order in which they came.
    waiters: Vec<Arc<Waiter>>,
    /// Jobs with places for helpers, by number, and the level that they want them from.
    wants: Vec<Want>,
    /// Jobs of less than no priority.
    low: Vec<i32>,
    /// Seats to be taken out as soon as they are free.
    debt: usize,
    seats: usize,
}

/// A job that may have places for helpers.
struct Want {
    key: usize,
    level: i32,
    /// It has some.
    now: bool,
}

/// The table, locked; those who were given a seat hear of it once it is not: who was woken may take the processor
/// at once, and others want the lock.
struct Held<'a> {
    // In this order: fields are dropped in that of their declaration.
    table: MutexGuard<'a, Table>,
    woken: Woken,
}

/// Those who were given a seat, and how long after being told they go on; they hear of it when this is dropped.
#[derive(Default)]
pub struct Woken(Vec<(Arc<Waiter>, Duration)>);

impl Woken {
    /// Has these woken with the others.
    pub fn and(&mut self, mut more: Woken) {
        self.0.append(&mut more.0);
    }

    /// As told by one of `priority`, after whom those go on that are less urgent, or as urgent.
    fn by(mut self, priority: i32) -> Woken {
        for (w, after) in &mut self.0 {
            *after = wait_after(w.level, level(priority));
        }
        self
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        #[cfg_attr(loom, allow(unused_variables))]
        for (w, after) in &self.0 {
            // Nobody goes on who was not told that it has a seat: it still sleeps.
            #[cfg(not(loom))]
            w.sleeper.iter().for_each(|s| s.follow_me(*after));
            w.has.store(true, Ordering::Release);
            w.thread.unpark();
        }
    }
}

impl Deref for Held<'_> {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

/// Who has a seat when it looks whether it must give it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sitter {
    /// The thread that brought the request: it gives way to more urgent ones.
    Caller,
    /// A resident: it also gives way to a caller of its job's priority that has no seat at all.
    Helper,
}

/// The seats of a device's workers.
///
/// A level is twice a priority, plus one where a caller waits for its only seat: whoever works looks at
/// one number, the highest level there is, between two tasks.
pub struct Seats {
    free: CachePadded<AtomicUsize>,
    /// Callers that wait, and seats to be taken out: whoever frees a seat looks here.
    attention: CachePadded<AtomicUsize>,
    wanted: CachePadded<AtomicI32>,
    /// The least priority of those that work, at most 0.
    floor: AtomicI32,
    /// There are no more processors than seats: a caller that is given one finds a processor where whoever
    /// gives it is about to leave it.
    #[cfg_attr(loom, allow(dead_code))]
    follow: bool,
    /// There were callers above others.
    urgent: Lately,
    table: Mutex<Table>,
}

fn level(priority: i32) -> i32 {
    2 * priority.clamp(-FAR, FAR)
}

impl Seats {
    /// `seats` of them, all free.
    pub fn new(seats: usize) -> Seats {
        Seats::made(seats, false)
    }

    /// As [`Seats::new`], where there are no more processors than seats.
    pub fn on_all_processors(seats: usize) -> Seats {
        Seats::made(seats, true)
    }

    fn made(seats: usize, follow: bool) -> Seats {
        Seats {
            follow,
            urgent: Lately::default(),
            free: CachePadded::new(AtomicUsize::new(seats)),
            attention: CachePadded::new(AtomicUsize::new(0)),
            wanted: CachePadded::new(AtomicI32::new(NOBODY)),
            floor: AtomicI32::new(0),
            table: Mutex::new(Table {
                waiters: Vec::new(),
                wants: Vec::new(),
                low: Vec::new(),
                debt: 0,
                seats,
            }),
        }
    }

    fn table(&self) -> Held<'_> {
        #[cfg(loom)]
        let table = self.table.lock().unwrap();
        #[cfg(not(loom))]
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let woken = Woken::default();
        Held { table, woken }
    }

    /// Seats that nobody has.
    pub fn free(&self) -> usize {
        self.free.load(Ordering::SeqCst)
    }

    /// Seats there are, those to be taken out not counted.
    pub fn seats(&self) -> usize {
        self.table().seats
    }

    /// Callers that wait.
    pub fn waiting(&self) -> usize {
        self.table().waiters.len()
    }

    /// Takes a free seat, if there is one.
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

    /// Whether somebody wants the seat of one who works for a job of `priority`: asked between two tasks.
    #[inline]
    pub fn pressed(&self, priority: i32, who: Sitter) -> bool {
        self.wanted.load(Ordering::Relaxed) > level(priority) + i32::from(who == Sitter::Caller)
    }

    /// The turns that whoever works for a job of `priority` takes on its processor: where there were callers
    /// above it, they are to go before it.
    pub fn turn(&self, priority: i32) -> Turn {
        match priority <= 0 && self.urgent.ever() {
            true => Turn::Long,
            false => Turn::Short,
        }
    }

    /// Asked between two tasks of a job of `priority`: now and then lets those go first that want the calling
    /// thread's processor, where there were callers above that job of late, or may be more of them beside it.
    #[inline]
    pub fn yield_turn(&self, priority: i32) {
        if priority <= 0 {
            self.urgent.yield_turn();
        } else {
            yield_to_others_like_it();
        }
    }

    /// Whether a job of `priority` has others below it, so that helpers are to leave those for it.
    pub fn above_others(&self, priority: i32) -> bool {
        priority > self.floor.load(Ordering::SeqCst)
    }

    /// Takes a seat for a caller, waiting for one parked; `gone` tells when the caller is called off, and
    /// then nothing is taken and this is false.
    ///
    /// Who is more urgent than others also takes short turns on its processor from now on, so that it finds
    /// one at once when it wakes for its next request; who had to give way for it, long ones.
    pub fn sit(&self, priority: i32, gone: Option<&dyn Fn() -> bool>) -> bool {
        #[cfg(not(loom))]
        if priority > 0 {
            take_turns(Turn::Short);
            self.urgent.now();
        }
        if priority < 0 {
            let mut t = self.table();
            t.low.push(priority);
            self.low(&t);
        }
        let has = (!self.pressed(priority, Sitter::Caller) && self.try_take())
            || self.wait(priority, gone);
        if !has {
            self.up(priority);
        }
        has
    }

    /// Gives a caller's seat back for good.
    pub fn leave(&self, priority: i32) {
        self.up(priority);
        drop(self.hand_on(priority));
    }

    fn up(&self, priority: i32) {
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

    /// Whether a resident that wants to help a job of `priority` would find a seat.
    pub fn may_help(&self, priority: i32) -> bool {
        self.free() > 0 && !self.pressed(priority, Sitter::Helper)
    }

    /// Takes a seat for a resident that wants to help a job of `priority`, if one is free that nobody
    /// else is to have.
    pub fn sit_to_help(&self, priority: i32) -> bool {
        !self.pressed(priority, Sitter::Helper) && self.try_take()
    }

    /// Gives a seat back.
    pub fn release(&self) {
        drop(self.given_back());
    }

    /// Gives back a seat of one who worked for a job of `priority`; those who get it are woken when the result is
    /// dropped: they may take the processor at once from whoever has something left to do.
    #[must_use = "those who get the seat are woken when this is dropped"]
    pub fn hand_on(&self, priority: i32) -> Woken {
        self.given_back().by(priority)
    }

    fn given_back(&self) -> Woken {
        self.free.fetch_add(1, Ordering::SeqCst);
        // Either this sees who waits, or that one sees the free seat. (Loom orders only fences so.)
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        if self.attention.load(Ordering::SeqCst) == 0 {
            return Woken::default();
        }
        self.served(self.table())
    }

    /// As [`Seats::serve`], for the last thing that is done with the table.
    fn served(&self, mut t: Held<'_>) -> Woken {
        self.serve(&mut t);
        let Held { table, woken } = t;
        drop(table);
        woken
    }

    /// Gives a caller's seat to somebody more urgent and waits until there is one again; `meanwhile` is
    /// called before it waits. False where it was called off meanwhile: it then has none.
    pub fn give_way(
        &self,
        priority: i32,
        gone: Option<&dyn Fn() -> bool>,
        meanwhile: impl FnOnce(),
    ) -> bool {
        #[cfg(not(loom))]
        if priority <= 0 {
            take_turns(Turn::Long);
        }
        let me = self.waiter(priority);
        {
            let mut t = self.table();
            self.queue(&mut t, &me);
            // Queued already: should whoever gets the seat take the processor at once, nothing is left to this
            // thread but to sleep.
            self.free.fetch_add(1, Ordering::SeqCst);
            self.serve(&mut t);
        }
        meanwhile();
        let has = self.wait_for(&me, gone);
        if !has {
            self.up(priority);
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

    fn queue(&self, t: &mut Held<'_>, me: &Arc<Waiter>) {
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
                // A seat was given meanwhile, and whoever did is about to say so.
                gone = None;
                continue;
            }
            #[cfg(loom)]
            thread::park();
            #[cfg(not(loom))]
            thread::park_timeout(LOOK);
        }
        #[cfg(not(loom))]
        me.sleeper.iter().for_each(Sleeper::awake);
        true
    }

    /// Job number `key` of `priority` has places for helpers and wants them, or does not for now: told by its caller,
    /// until it says that the job [has ended](Seats::ended). Those who get a seat by it are woken as by
    /// [`Seats::hand_on`].
    #[must_use = "those who get a seat are woken when this is dropped"]
    pub fn want(&self, key: usize, priority: i32, now: bool) -> Woken {
        let mut t = self.table();
        let level = level(priority);
        t.wants.retain(|w| w.key != key);
        t.wants.push(Want { key, level, now });
        self.served(t).by(priority)
    }

    /// As [`Seats::want`], told by a helper: nothing where the job's caller told of none, or of its end. A place that
    /// stayed wanted after that would be kept from all others for ever.
    #[must_use = "those who get a seat are woken when this is dropped"]
    pub fn want_as_helper(&self, key: usize, priority: i32, now: bool) -> Woken {
        let mut t = self.table();
        match t.wants.iter_mut().find(|w| w.key == key) {
            Some(w) => w.now = now,
            None => return Woken::default(),
        }
        self.served(t).by(priority)
    }

    /// Job number `key` of `priority` wants no helpers any more, whatever those say who are about to leave it.
    #[must_use = "those who get a seat are woken when this is dropped"]
    pub fn ended(&self, key: usize, priority: i32) -> Woken {
        let mut t = self.table();
        t.wants.retain(|w| w.key != key);
        self.served(t).by(priority)
    }

    /// Makes it `seats` seats: new ones are free at once, those that are too many go when they are free.
    pub fn resize(&self, seats: usize) {
        let mut t = self.table();
        let (old, debt) = (t.seats, t.debt);
        t.seats = seats;
        // What there is in truth, with those still to be taken out.
        let held = old + debt;
        if seats >= held {
            t.debt = 0;
            self.free.fetch_add(seats - held, Ordering::SeqCst);
        } else {
            t.debt = held - seats;
        }
        self.attention
            .store(t.waiters.len() + t.debt, Ordering::SeqCst);
        #[cfg(loom)]
        fence(Ordering::SeqCst);
        self.serve(&mut t);
    }

    /// Gives free seats to those that wait, the most urgent first and then the one that came first, but
    /// none that helpers of a more urgent job are to have; then says anew what is wanted.
    fn serve(&self, t: &mut Held<'_>) {
        while t.debt > 0 && self.try_take() {
            t.debt -= 1;
        }
        let helpers = t.wants.iter().filter(|w| w.now).map(|w| w.level).max();
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
            t.woken.0.push((w, Duration::ZERO));
        }
        self.attention
            .store(t.waiters.len() + t.debt, Ordering::SeqCst);
        let callers = t.waiters.iter().map(|w| w.level + 1).max();
        self.wanted
            .store(callers.max(helpers).unwrap_or(NOBODY), Ordering::SeqCst);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Seats, Sitter, Turn};
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    /// Waits until `n` callers wait.
    fn queued(s: &Seats, n: usize) {
        while s.waiting() < n {
            std::thread::yield_now();
        }
    }

    #[test]
    fn no_more_at_work_than_seats_and_everybody_is_served() {
        let seats = Seats::new(3);
        let (at_work, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            for k in 0..8 {
                let (seats, at_work, most) = (&seats, &at_work, &most);
                s.spawn(move || {
                    for i in 0..2000 {
                        let p = (k + i) % 3 - 1;
                        assert!(seats.sit(p, None));
                        let n = at_work.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(n, Ordering::SeqCst);
                        at_work.fetch_sub(1, Ordering::SeqCst);
                        if i % 5 == 0 && seats.pressed(p, Sitter::Caller) {
                            assert!(seats.give_way(p, None, || {}));
                        }
                        seats.leave(p);
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= 3);
        assert_eq!((seats.free(), seats.waiting()), (3, 0));
        assert!(!seats.pressed(-5, Sitter::Helper) && !seats.above_others(0));
    }

    #[test]
    fn the_most_urgent_is_served_first_and_then_the_first_to_come() {
        let seats = Seats::new(1);
        assert!(seats.sit(0, None));
        let order = std::sync::Mutex::new(vec![]);
        std::thread::scope(|s| {
            for (i, p) in [0, -1, 3, 0, 3].into_iter().enumerate() {
                let (seats, order) = (&seats, &order);
                s.spawn(move || {
                    assert!(seats.sit(p, None));
                    order.lock().unwrap().push(i);
                    seats.leave(p);
                });
                queued(seats, i + 1);
            }
            assert!(seats.pressed(2, Sitter::Caller) && !seats.pressed(3, Sitter::Caller));
            assert!(seats.pressed(3, Sitter::Helper) && !seats.pressed(4, Sitter::Helper));
            seats.leave(0);
        });
        assert_eq!(*order.lock().unwrap(), [2, 4, 0, 3, 1]);
    }

    #[test]
    fn who_gives_way_comes_back_when_the_urgent_is_done() {
        let seats = Seats::new(1);
        assert!(seats.sit(0, None));
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(seats.sit(1, None));
                done.store(true, Ordering::SeqCst);
                seats.leave(1);
            });
            queued(&seats, 1);
            assert!(seats.pressed(0, Sitter::Caller));
            assert!(seats.give_way(0, None, || {}));
            assert!(done.load(Ordering::SeqCst));
        });
        seats.leave(0);
        assert_eq!(seats.free(), 1);
    }

    #[test]
    fn who_follows_a_helper_of_an_urgent_job_leaves_it_the_processor_for_a_while() {
        let seats = Seats::new(1);
        for (helped, waits) in [(1, true), (0, false)] {
            assert!(seats.sit_to_help(helped));
            std::thread::scope(|s| {
                let t = s.spawn(|| seats.sit(0, None));
                queued(&seats, 1);
                let woken = seats.hand_on(helped);
                assert_eq!(woken.0.len(), 1);
                assert_eq!(woken.0[0].1 > Duration::ZERO, waits);
                drop(woken);
                assert!(t.join().unwrap());
            });
            seats.leave(0);
        }
    }

    #[test]
    fn helpers_of_an_urgent_job_come_before_callers_that_wait() {
        let seats = Seats::new(2);
        assert!(seats.sit(1, None) && seats.sit(0, None));
        drop(seats.want(7, 1, true));
        assert!(seats.pressed(0, Sitter::Caller) && !seats.pressed(1, Sitter::Helper));
        std::thread::scope(|s| {
            let t = s.spawn(|| seats.give_way(0, None, || {}));
            queued(&seats, 1);
            std::thread::sleep(Duration::from_millis(5));
            assert!(!t.is_finished() && seats.free() == 1);
            assert!(!seats.sit_to_help(0));
            assert!(seats.sit_to_help(1));
            drop(seats.ended(7, 1));
            assert!(!t.is_finished() && seats.free() == 0);
            seats.release();
            assert!(t.join().unwrap());
        });
        assert_eq!(seats.free(), 0);
    }

    #[test]
    fn a_helper_that_leaves_after_the_end_wants_nobody_in_its_place() {
        let seats = Seats::new(2);
        assert!(seats.sit(1, None) && seats.sit_to_help(1));
        drop(seats.want(7, 1, true));
        drop(seats.want_as_helper(7, 1, false));
        drop(seats.want_as_helper(7, 1, true));
        assert!(seats.pressed(0, Sitter::Helper));
        drop(seats.ended(7, 1));
        // It left early, and says so late.
        drop(seats.want_as_helper(7, 1, true));
        seats.release();
        seats.leave(1);
        assert!(!seats.pressed(0, Sitter::Helper));
        assert!(seats.sit(0, None) && seats.sit(0, None));
    }

    #[test]
    fn only_where_urgent_callers_were_do_others_work_below_them() {
        let seats = Seats::new(1);
        let turns = || (seats.turn(0), seats.turn(1));
        assert_eq!(turns(), (Turn::Short, Turn::Short));
        assert!(seats.sit(1, None));
        seats.leave(1);
        assert_eq!(turns(), (Turn::Long, Turn::Short));
    }

    #[test]
    fn who_is_called_off_waits_no_longer() {
        let seats = Seats::new(1);
        assert!(seats.sit(0, None));
        let off = AtomicBool::new(false);
        std::thread::scope(|s| {
            let t = s.spawn(|| seats.sit(-3, Some(&|| off.load(Ordering::SeqCst))));
            queued(&seats, 1);
            off.store(true, Ordering::SeqCst);
            assert!(!t.join().unwrap());
        });
        assert_eq!(seats.waiting(), 0);
        assert!(!seats.above_others(0));
        seats.leave(0);
        assert_eq!(seats.free(), 1);
    }

    #[test]
    fn seats_come_and_go() {
        let seats = Seats::new(3);
        assert!(seats.sit(0, None) && seats.sit(0, None));
        seats.resize(1);
        assert_eq!((seats.free(), seats.seats()), (0, 1));
        seats.leave(0);
        assert_eq!(seats.free(), 0);
        seats.resize(2);
        assert_eq!(seats.free(), 1);
        seats.leave(0);
        assert_eq!(seats.free(), 2);
        seats.resize(4);
        assert_eq!(seats.free(), 4);
    }
}
