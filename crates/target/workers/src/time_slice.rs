//! When a thread has its time slice on a processor that others want as well: urgent requests, what works below
//! them, and what goes on beside all requests.
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a thread's time slices on its processor are. They change nothing of its share: one that wakes with a
/// shorter time slice than whoever is on the processor goes before it at once, instead of at the end of that one's
/// time slice, and gives the processor back as soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSlice {
    /// The shortest there are: for one that is to have a processor at once when it wakes.
    Short,
    /// Longer than those that the system gives: for one that others may go before at any time.
    Long,
}

/// Has the calling thread take such time slices from now on. Where the system does not know of time slices (Linux before
/// 6.12), nothing changes.
#[cfg(target_os = "linux")]
pub fn set_time_slice(turn: TimeSlice) {
    thread_local!(static NOW: Cell<Option<TimeSlice>> = const { Cell::new(None) });
    if NOW.replace(Some(turn)) != Some(turn) {
        set_slice_ns(match turn {
            TimeSlice::Short => SHORT_NS,
            TimeSlice::Long => LONG_NS,
        });
    }
}

/// Sets the calling thread's time slice, in nanoseconds.
#[cfg(target_os = "linux")]
fn set_slice_ns(ns: u64) {
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
        // Threads that this one starts are to have time slices of their own. It would take their priority as well,
        // where that is above the usual.
        if a.sched_nice >= 0 {
            a.sched_flags |= libc::SCHED_FLAG_RESET_ON_FORK as u64;
        }
        // SAFETY: the system reads `size` bytes of `a`, which is initialised. Where it refuses, the thread
        // competes as before.
        unsafe { libc::syscall(libc::SYS_sched_setattr, me, &raw const a, 0u32) };
    }
}

/// The shortest time slice that Linux gives, in nanoseconds.
#[cfg(target_os = "linux")]
const SHORT_NS: u64 = 100_000;

/// Long time slices, in nanoseconds: longer than those that Linux gives, which are 2.8 ms on eight processors and more.
/// Who wakes with a short time slice goes first unless less than that is left of the other one's.
#[cfg(target_os = "linux")]
const LONG_NS: u64 = 3_000_000;

/// Turns of work beside the requests, in nanoseconds: longer than those of urgent requests, which then go before
/// it.
#[cfg(target_os = "linux")]
const BACKGROUND_NS: u64 = 400_000;

/// The niceness of work beside the requests: about a tenth of a processor that is wanted all the time.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 10;

/// The last time at which something urgent was seen.
#[derive(Debug, Default)]
pub struct LastUrgent(AtomicU64);

/// For how long urgent requests are expected to come again, in nanoseconds.
const URGENT_AGAIN_NS: u64 = 10_000_000_000;

/// How long work below urgent requests goes on without letting others go first, in nanoseconds: one that wakes near
/// the end of a long time slice does not go before it, and is kept waiting for so long (one in thirty: the shortest time slice as
/// a share of a long one).
const YIELD_EVERY_NS: u64 = 250_000;

/// How long work for an urgent request goes on without letting others go first, in nanoseconds: another urgent
/// request that wakes on its processor has time slices as short, and would wait until the first one is done though it is to
/// have a lease of its own.
const YIELD_TO_EQUALS_NS: u64 = 100_000;

impl LastUrgent {
    /// It is seen now.
    pub fn now(&self) {
        self.0.store(since_start().max(1), Ordering::Relaxed);
    }

    /// Whether it ever was.
    pub fn ever(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    /// Lets those go first that want the calling thread's processor, if it worked for a while since it last did
    /// and this was seen of late; asked between two tasks. True where it did.
    ///
    /// A thread to which the system thinks that nothing is due just now does not go before others when it wakes,
    /// however short its time slices are, and loses the processor to them in the midst of its work. It then waits for a
    /// clock tick, which comes after milliseconds. Who gives up its time slice is owed the less for it, so that the
    /// other one is due.
    #[inline]
    pub fn yield_if_urgent(&self) -> bool {
        let seen = self.0.load(Ordering::Relaxed);
        seen > 0 && yield_if_urgent(seen)
    }
}

/// Lets those go first that want the calling thread's processor, if it worked for a while since it last did: for one
/// that works for an urgent request, asked between two tasks.
#[inline]
pub fn yield_to_equals() {
    yield_after(YIELD_TO_EQUALS_NS, since_start());
}

/// As [`LastUrgent::yield_if_urgent`] for what was seen at that time.
fn yield_if_urgent(seen: u64) -> bool {
    let now = since_start();
    now.saturating_sub(seen) < URGENT_AGAIN_NS && yield_after(YIELD_EVERY_NS, now)
}

thread_local! {
    /// When the calling thread last let others go first.
    static LAST: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Lets others have the calling thread's processor at `now`, unless it did within the last `ns` nanoseconds; true
/// where it does.
fn yield_after(ns: u64, now: u64) -> bool {
    let does = LAST.get().is_none_or(|l| now.saturating_sub(l) > ns);
    if does {
        LAST.set(Some(now));
        std::thread::yield_now();
    }
    does
}

/// Nanoseconds since this was first asked.
fn since_start() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Has the calling thread stand back for others that want its processor: for work beside the requests.
#[cfg(target_os = "linux")]
pub fn stand_back() {
    let me: libc::id_t = 0;
    // SAFETY: it takes and gives numbers. Where the system does not let it, the thread competes like others.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, me, BACKGROUND_NICENESS) };
    // Who steps aside gives up its time slice: a long one would have it wait for as long.
    set_slice_ns(BACKGROUND_NS);
}

/// How long work beside the requests goes on without letting others go first.
const BESIDE: Duration = Duration::from_micros(200);

/// How long it waits at most for requests that hurry: there may be some all the time.
const WAIT: Duration = Duration::from_millis(2);

/// Requests that hurry, of the whole process.
static HURRIED: AtomicUsize = AtomicUsize::new(0);

/// A request that work beside the requests waits for, as long as this lives.
#[derive(Debug)]
pub struct UrgentGuard(());

impl UrgentGuard {
    /// From now on.
    pub fn on() -> UrgentGuard {
        HURRIED.fetch_add(1, Ordering::Relaxed);
        UrgentGuard(())
    }
}

impl Drop for UrgentGuard {
    fn drop(&mut self) {
        HURRIED.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets others go first that wait for the calling thread's processor, and waits while requests hurry, if it worked
/// for a while since it last did: for work beside the requests that must not be late itself, called often.
///
/// Yielding alone is not enough: who was kept waiting is owed the processor, and takes it from an urgent request at
/// the first chance, for as long as there is something left to do.
pub fn let_others_first() {
    if yield_after(BESIDE.as_nanos() as u64, since_start()) {
        wait_while_hurried();
        // It goes on for a while before it waits again.
        LAST.set(Some(since_start()));
    }
}

/// As [`let_others_first`], and waits whenever requests hurry: for work beside the requests that has time.
pub fn step_aside() {
    yield_after(BESIDE.as_nanos() as u64, since_start());
    wait_while_hurried();
}

/// Waits while requests hurry, but not for ever.
fn wait_while_hurried() {
    let hurried = || HURRIED.load(Ordering::Relaxed) > 0;
    let since = Instant::now();
    // Until none did at two looks: the answer of the last one is to be away.
    let mut calm = !hurried();
    while !calm && since.elapsed() < WAIT {
        std::thread::sleep(BESIDE);
        calm = !hurried();
        std::thread::sleep(BESIDE);
        calm &= !hurried();
    }
}

/// Nanoseconds that the calling thread has run so far, as the system counts; 0 where it does not say.
#[cfg(target_os = "linux")]
pub fn thread_time_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next();
    first.and_then(|w| w.parse().ok()).unwrap_or(0)
}

/// Seconds that all threads of this process have run so far; `None` where the system does not say.
#[cfg(target_os = "linux")]
pub fn process_time_s() -> Option<f64> {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the system writes two numbers to `t`.
    let said = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    (said == 0).then_some(t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9)
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn set_time_slice(_: TimeSlice) {}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn stand_back() {}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn thread_time_ns() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use super::{
        HURRIED, LastUrgent, UrgentGuard, WAIT, YIELD_EVERY_NS, let_others_first, step_aside,
    };
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    #[cfg(target_os = "linux")]
    #[test]
    fn turns_are_taken_where_the_system_has_them_and_not_handed_down() {
        let turn = || {
            // SAFETY: it takes nothing and does not fail.
            let id = unsafe { libc::gettid() };
            let text = std::fs::read_to_string(format!("/proc/self/task/{id}/sched")).ok()?;
            let line = text.lines().find(|l| l.starts_with("se.slice"))?;
            line.split_whitespace().last()?.parse::<u64>().ok()
        };
        std::thread::spawn(move || {
            // Systems that do not say how long time slices are may not have them.
            let Some(own) = turn() else { return };
            use super::{LONG_NS, SHORT_NS, TimeSlice, set_time_slice};
            let taken = [
                TimeSlice::Short,
                TimeSlice::Short,
                TimeSlice::Long,
                TimeSlice::Short,
            ]
            .map(|t| {
                set_time_slice(t);
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
    fn who_works_below_urgent_requests_steps_back_now_and_then_while_there_are_some() {
        let lately = LastUrgent::default();
        assert!(!lately.ever() && !lately.yield_if_urgent());
        lately.now();
        let since = Instant::now();
        assert!(lately.ever() && lately.yield_if_urgent());
        while !lately.yield_if_urgent() {
            assert!(since.elapsed() < Duration::from_secs(10));
        }
        assert!(since.elapsed() >= Duration::from_nanos(YIELD_EVERY_NS));
    }

    #[test]
    fn work_beside_requests_waits_while_some_hurry_but_not_for_ever() {
        let took = |beside: fn()| {
            let since = Instant::now();
            beside();
            since.elapsed()
        };
        let urgent = UrgentGuard::on();
        assert!(took(let_others_first) >= WAIT);
        assert!(took(step_aside) >= WAIT);
        drop(urgent);
        assert_eq!(HURRIED.load(Ordering::Relaxed), 0);
    }
}
