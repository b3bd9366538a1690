//! Which processor a thread runs on.

#[cfg(target_os = "linux")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A thread as the system names it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadId(#[cfg(target_os = "linux")] rustix::thread::Pid);

/// The calling thread.
#[cfg(target_os = "linux")]
pub fn this_thread() -> ThreadId {
    ThreadId(rustix::thread::gettid())
}

/// The processor that the calling thread is on. Asked between tasks: the C library reads it off what the kernel
/// keeps for every thread, where rustix makes a call.
#[cfg(target_os = "linux")]
pub fn this_cpu() -> Option<usize> {
    // SAFETY: it takes nothing and touches nothing of ours; a system that does not know gives a negative number.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Pins a thread to one processor; false where the system does not let it.
#[cfg(target_os = "linux")]
pub fn pin(t: ThreadId, cpu: usize) -> bool {
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return false;
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(Some(t.0), &set).is_ok()
}

/// Has the calling thread stand back for others that want its processor: for work beside the requests.
#[cfg(target_os = "linux")]
pub fn stand_back() {
    // Where the system does not let it, it competes like others.
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), STAND_BACK);
    // Who steps aside gives up its turn: a long one would have it wait for as long.
    turns_of(ASIDE_NS);
}

/// Lets others go first that wait for the calling thread's processor, if it worked for a while since it last
/// did, and waits while requests hurry: for work beside the requests, called often.
pub fn step_aside() {
    use std::cell::Cell;
    thread_local!(static LAST: Cell<Option<Instant>> = const { Cell::new(None) });
    let hurried = || HURRIED.load(Ordering::Relaxed) > 0;
    if !hurried() && LAST.get().is_some_and(|t| t.elapsed() < BESIDE) {
        return;
    }
    std::thread::yield_now();
    let since = Instant::now();
    // Until none did at two looks: the answer of the last one is to be away.
    let mut calm = !hurried();
    while !calm && since.elapsed() < WAIT {
        std::thread::sleep(BESIDE);
        calm = !hurried();
        std::thread::sleep(BESIDE);
        calm &= !hurried();
    }
    LAST.set(Some(Instant::now()));
}

/// How long work beside the requests goes on without stepping aside.
const BESIDE: Duration = Duration::from_micros(200);

/// How long it waits at most for requests that hurry: there may be some all the time.
const WAIT: Duration = Duration::from_millis(2);

/// Requests that hurry, of the whole process.
static HURRIED: AtomicUsize = AtomicUsize::new(0);

/// A request that work beside the requests waits for, as long as this lives.
#[derive(Debug)]
pub struct Hurry(());

impl Hurry {
    /// From now on.
    pub fn on() -> Hurry {
        HURRIED.fetch_add(1, Ordering::Relaxed);
        Hurry(())
    }
}

impl Drop for Hurry {
    fn drop(&mut self) {
        HURRIED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long its turns are, in nanoseconds: longer than those of urgent requests, which then go before it.
#[cfg(target_os = "linux")]
const ASIDE_NS: u64 = 400_000;

/// How long a thread's turns on its processor are. They change nothing of its share: one that wakes with a
/// shorter turn than whoever is on the processor goes before it at once, instead of at the end of that one's
/// turn, and gives the processor back as soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The shortest there are: for one that is to have a processor at once when it wakes.
    Short,
    /// Longer than those that the system gives: for one that others may go before at any time.
    Long,
}

/// Has the calling thread take such turns from now on. Where the system does not know of turns (Linux before
/// 6.12), nothing changes.
#[cfg(target_os = "linux")]
pub fn take_turns(turn: Turn) {
    use std::cell::Cell;
    thread_local!(static NOW: Cell<Option<Turn>> = const { Cell::new(None) });
    if NOW.replace(Some(turn)) != Some(turn) {
        turns_of(match turn {
            Turn::Short => SHORT_NS,
            Turn::Long => LONG_NS,
        });
    }
}

/// Has the calling thread take turns so long, in nanoseconds.
#[cfg(target_os = "linux")]
fn turns_of(ns: u64) {
    let size = size_of::<libc::sched_attr>() as u32;
    let mut a = libc::sched_attr {
        size,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let me: libc::pid_t = 0;
    // SAFETY: the system writes at most `size` bytes to `a`, which has as many, all of them integers.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, me, &raw mut a, size, 0u32) } == 0;
    // Threads that the user runs under a policy of their own keep it.
    if known && a.sched_policy == libc::SCHED_OTHER as u32 {
        a.size = size;
        a.sched_runtime = ns;
        // Threads that this one starts are to have turns of their own. It would take their priority as well,
        // where that is above the usual.
        if a.sched_nice >= 0 {
            a.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        // SAFETY: the system reads `size` bytes of `a`, which is initialised. Where it refuses, the thread
        // competes as before.
        unsafe { libc::syscall(libc::SYS_sched_setattr, me, &raw const a, 0u32) };
    }
}

/// The shortest turn that Linux gives, in nanoseconds.
#[cfg(target_os = "linux")]
const SHORT_NS: u64 = 100_000;

/// Long turns, in nanoseconds. Who wakes with a short turn goes first unless less than that is left of the
/// other one's: the longer that is, the more rarely it happens.
#[cfg(target_os = "linux")]
const LONG_NS: u64 = 20_000_000;

/// Nanoseconds that the calling thread has run so far, as the system counts; 0 where it does not say.
#[cfg(target_os = "linux")]
pub fn thread_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|w| w.parse().ok()).unwrap_or(0)
}

/// The niceness of work beside the requests: about a tenth of a processor that is wanted all the time.
#[cfg(target_os = "linux")]
const STAND_BACK: i32 = 10;

/// The calling thread.
#[cfg(not(target_os = "linux"))]
pub fn this_thread() -> ThreadId {
    ThreadId()
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn this_cpu() -> Option<usize> {
    None
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn pin(_: ThreadId, _: usize) -> bool {
    false
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn stand_back() {}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn take_turns(_: Turn) {}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn thread_time_ns() -> u64 {
    0
}

/// A thread that is about to wait, so that whoever wakes it can say on which processor it goes on; or one that
/// goes to another processor by itself.
///
/// Where every processor is at work, the system may queue a woken thread behind one that works on, though
/// the waker's own processor comes free a moment later, and then leaves that one idle for a time slice.
#[derive(Debug)]
pub struct Sleeper {
    #[cfg(target_os = "linux")]
    thread: ThreadId,
    /// The processors that it may use, but for the moment of its waking.
    #[cfg(target_os = "linux")]
    own: rustix::thread::CpuSet,
    /// Whoever wakes it has something left to do that is more urgent.
    #[cfg(target_os = "linux")]
    after: AtomicBool,
}

/// Whether one of priority `waits` that is called by one of priority `leaves` goes on after that one is away with
/// its answer: where that one is more urgent, or both are. Between others it would cost more than it gives.
pub fn goes_after(waits: i32, leaves: i32) -> bool {
    waits < leaves || (waits == leaves && leaves > 0)
}

/// What that one has to tell others and bring an answer away. Who slept has more of the processor due to it
/// than who worked, and would keep it until the system's next tick.
#[cfg(target_os = "linux")]
const AWAY: Duration = Duration::from_micros(150);

impl Sleeper {
    /// The calling thread; `None` where the system does not say where it may run.
    #[cfg(target_os = "linux")]
    pub fn here() -> Option<Sleeper> {
        Some(Sleeper {
            thread: this_thread(),
            own: rustix::thread::sched_getaffinity(None).ok()?,
            after: AtomicBool::new(false),
        })
    }

    /// Has it go on where the calling thread is, `after` that is away with what it has left to do; called
    /// right before it is woken.
    #[cfg(target_os = "linux")]
    pub fn follow_me(&self, after: bool) {
        self.after.store(after, Ordering::Relaxed);
        if let Some(cpu) = this_cpu().filter(|&c| self.may(c)) {
            pin(self.thread, cpu);
        }
    }

    /// Whether it may run on this processor.
    #[cfg(target_os = "linux")]
    pub fn may(&self, cpu: usize) -> bool {
        cpu < rustix::thread::CpuSet::MAX_CPU && self.own.is_set(cpu)
    }

    /// Takes it to a processor, from which the system may move it as before; called by itself. False where
    /// the system does not let it.
    #[cfg(target_os = "linux")]
    pub fn go(&self, cpu: usize) -> bool {
        let went = pin(self.thread, cpu);
        self.awake();
        went
    }

    /// Lets it run wherever it might before; called by itself when it was woken.
    #[cfg(target_os = "linux")]
    pub fn awake(&self) {
        // Nothing to be done where the system refuses: it may take processors away at any time.
        let _ = rustix::thread::sched_setaffinity(None, &self.own);
        if self.after.swap(false, Ordering::Relaxed) {
            std::thread::sleep(AWAY);
        }
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn here() -> Option<Sleeper> {
        None
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn follow_me(&self, _: bool) {}

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn may(&self, _: usize) -> bool {
        false
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn go(&self, _: usize) -> bool {
        false
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn awake(&self) {}
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{
        AWAY, HURRIED, Hurry, LONG_NS, SHORT_NS, Sleeper, Turn, WAIT, goes_after, step_aside,
        take_turns, this_thread,
    };
    use std::sync::atomic::Ordering;
    use std::sync::{Condvar, Mutex};
    use std::time::Instant;

    #[test]
    fn turns_are_taken_where_the_system_has_them_and_not_handed_down() {
        let turn = || {
            let id = rustix::thread::Pid::as_raw(Some(this_thread().0));
            let text = std::fs::read_to_string(format!("/proc/self/task/{id}/sched")).ok()?;
            let line = text.lines().find(|l| l.starts_with("se.slice"))?;
            line.split_whitespace().last()?.parse::<u64>().ok()
        };
        std::thread::spawn(move || {
            // Systems that do not say how long turns are may not have them.
            let Some(own) = turn() else { return };
            let taken = [Turn::Short, Turn::Short, Turn::Long, Turn::Short].map(|t| {
                take_turns(t);
                turn()
            });
            let known = [SHORT_NS, SHORT_NS, LONG_NS, SHORT_NS].map(Some);
            assert!(taken == known || taken == [Some(own); 4], "{own} {taken:?}");
            let child = std::thread::spawn(turn).join().expect("no panic");
            assert_eq!(child, Some(own));
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn work_beside_requests_waits_while_some_hurry_but_not_for_ever() {
        let took = || {
            let since = Instant::now();
            step_aside();
            since.elapsed()
        };
        let hurry = Hurry::on();
        assert!(took() >= WAIT);
        drop(hurry);
        assert_eq!(HURRIED.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_less_urgent_and_the_equally_urgent_go_on_after() {
        let after = [(0, 1), (1, 1), (-1, 0), (-2, -1)];
        let at_once = [(0, 0), (1, 0), (2, 1), (-1, -1)];
        assert!(after.iter().all(|&(w, l)| goes_after(w, l)));
        assert!(!at_once.iter().any(|&(w, l)| goes_after(w, l)));
    }

    #[test]
    fn a_sleeper_goes_on_where_it_was_called_and_is_free_afterwards() {
        let allowed = || rustix::thread::sched_getaffinity(None).expect("its own processors");
        let place = Mutex::new((None, false));
        let called = Condvar::new();
        std::thread::scope(|s| {
            let t = s.spawn(|| {
                let before = allowed();
                let mut p = place.lock().expect("nobody panics");
                p.0 = Sleeper::here();
                called.notify_all();
                while !p.1 {
                    p = called.wait(p).expect("nobody panics");
                }
                let during = allowed();
                p.0.take().expect("it slept").awake();
                (before, during, allowed(), Instant::now())
            });
            let mut p = place.lock().expect("nobody panics");
            while p.0.is_none() {
                p = called.wait(p).expect("nobody panics");
            }
            p.0.iter().for_each(|s| s.follow_me(true));
            let told = Instant::now();
            p.1 = true;
            drop(p);
            called.notify_all();
            let (before, during, after, on) = t.join().expect("nobody panics");
            assert_eq!(during.count(), 1);
            assert!(before == after);
            assert!(on.duration_since(told) >= AWAY);
        });
    }
}
