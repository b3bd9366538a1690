//! Which processor a thread runs on.

use std::cmp::Ordering::{Equal, Less};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A thread as the system names it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadId(#[cfg(target_os = "linux")] libc::pid_t);

/// The calling thread.
#[cfg(target_os = "linux")]
pub fn this_thread() -> ThreadId {
    // SAFETY: it takes nothing, touches nothing of ours and does not fail.
    ThreadId(unsafe { libc::gettid() })
}

/// The processor that the calling thread is on. Asked between tasks: the C library reads it off what the kernel
/// keeps for every thread, without a call.
#[cfg(target_os = "linux")]
pub fn this_cpu() -> Option<usize> {
    // SAFETY: it takes nothing and touches nothing of ours; a system that does not know gives a negative number.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// Processors of this machine.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSet([libc::c_ulong; CpuSet::WORDS]);

#[cfg(target_os = "linux")]
impl CpuSet {
    const BITS: usize = libc::c_ulong::BITS as usize;
    const WORDS: usize = libc::CPU_SETSIZE as usize / CpuSet::BITS;

    /// One processor; `None`: no set holds one with this number.
    pub fn one(cpu: usize) -> Option<CpuSet> {
        let mut words = [0; CpuSet::WORDS];
        *words.get_mut(cpu / CpuSet::BITS)? = 1 << (cpu % CpuSet::BITS);
        Some(CpuSet(words))
    }

    /// Those that the calling thread may use; `None` where the system does not say.
    pub fn allowed() -> Option<CpuSet> {
        let mut set = CpuSet([0; CpuSet::WORDS]);
        let at = (&raw mut set.0).cast::<libc::cpu_set_t>();
        // SAFETY: the system writes at most as many bytes as the set has, all of them integers; 0 is the calling thread.
        let said = unsafe { libc::sched_getaffinity(0, size_of_val(&set.0), at) };
        (said == 0).then_some(set)
    }

    /// Lets a thread use these and no others; false where the system does not let it.
    pub fn allow(&self, t: ThreadId) -> bool {
        let at = (&raw const self.0).cast::<libc::cpu_set_t>();
        // SAFETY: the system reads as many bytes as the set has.
        unsafe { libc::sched_setaffinity(t.0, size_of_val(&self.0), at) == 0 }
    }

    /// Whether a processor is in the set.
    pub fn has(&self, cpu: usize) -> bool {
        let word = self.0.get(cpu / CpuSet::BITS);
        word.is_some_and(|w| w >> (cpu % CpuSet::BITS) & 1 == 1)
    }

    /// Their numbers, rising.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| self.has(cpu))
    }
}

/// Pins a thread to one processor; false where the system does not let it.
#[cfg(target_os = "linux")]
pub fn pin(t: ThreadId, cpu: usize) -> bool {
    CpuSet::one(cpu).is_some_and(|only| only.allow(t))
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
    own: CpuSet,
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
            own: CpuSet::allowed()?,
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
        self.own.has(cpu)
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
        let _ = self.own.allow(self.thread);
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
    use super::{CpuSet, Sleeper, wait_after};
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
        let allowed = || CpuSet::allowed().expect("its own processors");
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
            assert_eq!(during.numbers().count(), 1);
            assert!(before == after);
            assert!(on.duration_since(told) >= AWAY);
        });
    }
}
