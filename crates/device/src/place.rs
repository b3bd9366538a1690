//! Which processor a thread runs on.

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
    take_turns(ASIDE_NS);
}

/// Lets others go first that wait for the calling thread's processor, if it worked for a while since it last
/// did: for work beside the requests, called often.
pub fn step_aside() {
    use std::cell::Cell;
    thread_local!(static LAST: Cell<Option<Instant>> = const { Cell::new(None) });
    if LAST.get().is_none_or(|t| t.elapsed() > BESIDE) {
        std::thread::yield_now();
        LAST.set(Some(Instant::now()));
    }
}

/// How long work beside the requests goes on without stepping aside.
const BESIDE: Duration = Duration::from_micros(200);

/// How long its turns are, in nanoseconds: longer than those of urgent requests, which then go before it.
#[cfg(target_os = "linux")]
const ASIDE_NS: u64 = 400_000;

/// Has the calling thread take short turns on its processor, the shortest there are: one that wakes with a
/// shorter turn than whoever is on the processor goes before it at once, instead of after that one's turn of
/// some milliseconds, and gives the processor back as soon. It gets no larger share by it. Done once per
/// thread; where the system does not know of turns (Linux before 6.12) nothing changes.
#[cfg(target_os = "linux")]
pub fn step_forward() {
    use std::cell::Cell;
    thread_local!(static DONE: Cell<bool> = const { Cell::new(false) });
    if DONE.replace(true) {
        return;
    }
    take_turns(TURN_NS);
}

/// Has the calling thread take turns so long, in nanoseconds.
#[cfg(target_os = "linux")]
fn take_turns(ns: u64) {
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
        // SAFETY: the system reads `size` bytes of `a`, which is initialised. Where it refuses, the thread
        // competes as before.
        unsafe { libc::syscall(libc::SYS_sched_setattr, me, &raw const a, 0u32) };
    }
}

/// The shortest turn that Linux gives, in nanoseconds.
#[cfg(target_os = "linux")]
const TURN_NS: u64 = 100_000;

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
pub fn step_forward() {}

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
}

impl Sleeper {
    /// The calling thread; `None` where the system does not say where it may run.
    #[cfg(target_os = "linux")]
    pub fn here() -> Option<Sleeper> {
        Some(Sleeper {
            thread: this_thread(),
            own: rustix::thread::sched_getaffinity(None).ok()?,
        })
    }

    /// Has it go on where the calling thread is; called right before it is woken.
    #[cfg(target_os = "linux")]
    pub fn follow_me(&self) {
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
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn here() -> Option<Sleeper> {
        None
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn follow_me(&self) {}

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
    use super::{Sleeper, TURN_NS, step_forward, this_thread};
    use std::sync::{Condvar, Mutex};

    #[test]
    fn short_turns_are_taken_where_the_system_has_them() {
        let turn = || {
            let id = rustix::thread::Pid::as_raw(Some(this_thread().0));
            let text = std::fs::read_to_string(format!("/proc/self/task/{id}/sched")).ok()?;
            let line = text.lines().find(|l| l.starts_with("se.slice"))?;
            line.split_whitespace().last()?.parse::<u64>().ok()
        };
        std::thread::spawn(move || {
            let before = turn();
            step_forward();
            step_forward();
            // Systems that do not say how long turns are may not have short ones.
            if let (Some(before), Some(now)) = (before, turn()) {
                assert!(now == TURN_NS || now == before, "{before} {now}");
            }
        })
        .join()
        .expect("no panic");
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
                (before, during, allowed())
            });
            let mut p = place.lock().expect("nobody panics");
            while p.0.is_none() {
                p = called.wait(p).expect("nobody panics");
            }
            p.0.iter().for_each(Sleeper::follow_me);
            p.1 = true;
            drop(p);
            called.notify_all();
            let (before, during, after) = t.join().expect("nobody panics");
            assert_eq!(during.count(), 1);
            assert!(before == after);
        });
    }
}
