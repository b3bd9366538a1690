//! Which processor a thread runs on.

use std::cmp::Ordering::{Equal, Less};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

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
    /// Microseconds that it leaves the processor to whoever wakes it.
    #[cfg(target_os = "linux")]
    after: AtomicU32,
}

/// How long one of priority `waits` that is called by one of priority `leaves` leaves the processor to that one,
/// until it is away with its answer: where that one is more urgent, or both are. Between others it would cost more
/// than it gives.
///
/// Who slept has more of the processor due to it than who worked, and would keep it until the system's next tick.
/// The less urgent take longer: of two that wake at once, either may be the first, and the system lets timers within
/// 50 us of each other go off together.
pub fn wait_after(waits: i32, leaves: i32) -> Duration {
    match waits.cmp(&leaves) {
        Less => Duration::from_micros(250),
        Equal if leaves > 0 => Duration::from_micros(50),
        _ => Duration::ZERO,
    }
}

impl Sleeper {
    /// The calling thread; `None` where the system does not say where it may run.
    #[cfg(target_os = "linux")]
    pub fn here() -> Option<Sleeper> {
        Some(Sleeper {
            thread: this_thread(),
            own: rustix::thread::sched_getaffinity(None).ok()?,
            after: AtomicU32::new(0),
        })
    }

    /// Has it go on where the calling thread is, so long `after` it is woken; called right before that.
    #[cfg(target_os = "linux")]
    pub fn follow_me(&self, after: Duration) {
        let us = u32::try_from(after.as_micros()).unwrap_or(u32::MAX);
        self.after.store(us, Ordering::Relaxed);
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
        let after = self.after.swap(0, Ordering::Relaxed);
        if after > 0 {
            std::thread::sleep(Duration::from_micros(after.into()));
        }
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn here() -> Option<Sleeper> {
        None
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn follow_me(&self, _: Duration) {}

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
    use super::{Sleeper, wait_after};
    use std::sync::{Condvar, Mutex};
    use std::time::{Duration, Instant};

    #[test]
    fn the_less_urgent_and_the_equally_urgent_go_on_after() {
        let after = [(0, 1), (1, 1), (-1, 0), (-2, -1)];
        let at_once = [(0, 0), (1, 0), (2, 1), (-1, -1)];
        assert!(
            after
                .iter()
                .all(|&(w, l)| wait_after(w, l) > Duration::ZERO)
        );
        assert!(at_once.iter().all(|&(w, l)| wait_after(w, l).is_zero()));
        assert!(wait_after(0, 1) > 2 * wait_after(1, 1));
    }

    #[test]
    fn a_sleeper_goes_on_where_it_was_called_and_is_free_afterwards() {
        let allowed = || rustix::thread::sched_getaffinity(None).expect("its own processors");
        const AWAY: Duration = Duration::from_millis(1);
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
            p.0.iter().for_each(|s| s.follow_me(AWAY));
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
