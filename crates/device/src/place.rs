//! Which processor a thread runs on.

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
}

/// Has the calling thread take short turns on its processor, the shortest there are: one that wakes with a
/// shorter turn than whoever is on the processor goes before it at once, instead of after that one's turn of
/// some milliseconds, and gives the processor back as soon. It gets no larger share by it. Where the system does
/// not know of turns (Linux before 6.12) nothing changes.
#[cfg(target_os = "linux")]
pub fn short_turns() {
    turns(SHORT_TURN_NS);
}

/// Has the calling thread take long turns, for work that is in no hurry: one that wakes with a shorter turn goes
/// before it unless its own is about to end, and the longer it is the more seldom that is (one time in fourteen of Linux's own turns of
/// 1.4 ms, after which the other waits for the system's next look, up to 4 ms later). It gets no other share by
/// it.
#[cfg(target_os = "linux")]
pub fn long_turns() {
    turns(LONG_TURN_NS);
}

/// Sets the length of the calling thread's turns where it is another one now.
#[cfg(target_os = "linux")]
fn turns(ns: u64) {
    use std::cell::Cell;
    thread_local!(static SET: Cell<u64> = const { Cell::new(0) });
    if SET.replace(ns) == ns {
        return;
    }
    let me: libc::pid_t = 0;
    // Threads that the user runs under a policy of their own keep it.
    if let Some(mut a) = policy(me).filter(|a| a.sched_policy == libc::SCHED_OTHER as u32) {
        a.sched_runtime = ns;
        set_policy(me, &a);
    }
}

/// How the system shares processors out to a thread of this process, 0 for the calling one; `None` where it does
/// not say.
#[cfg(target_os = "linux")]
fn policy(thread: libc::pid_t) -> Option<libc::sched_attr> {
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
    // SAFETY: the system writes at most `size` bytes to `a`, which has as many, all of them integers.
    let known =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut a, size, 0u32) } == 0;
    a.size = size;
    known.then_some(a)
}

/// Has the system share processors out to a thread otherwise; where it refuses, the thread competes as before.
#[cfg(target_os = "linux")]
fn set_policy(thread: libc::pid_t, a: &libc::sched_attr) {
    // SAFETY: the system reads `size` bytes of `a`, which is initialised and has as many.
    unsafe { libc::syscall(libc::SYS_sched_setattr, thread, std::ptr::from_ref(a), 0u32) };
}

/// The shortest turn that Linux gives, in nanoseconds.
#[cfg(target_os = "linux")]
const SHORT_TURN_NS: u64 = 100_000;

/// Long turns, in nanoseconds: what others wait at most where the system lets nobody go before a turn's end
/// (Linux before 6.17 does so to those that had more than their share).
#[cfg(target_os = "linux")]
const LONG_TURN_NS: u64 = 20_000_000;

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
pub fn short_turns() {}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn long_turns() {}

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

    /// Has it go on where the calling thread is not, if it may; called right before it is woken. One that has just
    /// gone to sleep is else woken where it was, though other processors are idle.
    #[cfg(target_os = "linux")]
    pub fn keep_off_me(&self) {
        let mut others = self.own;
        if let Some(cpu) = this_cpu().filter(|&c| self.may(c)) {
            others.unset(cpu);
        }
        if others.count() > 0 {
            let _ = rustix::thread::sched_setaffinity(Some(self.thread.0), &others);
        }
    }

    /// Has it take no processor from anybody who is on one when it wakes: the system otherwise takes it from
    /// whoever wakes another that slept for longer, and gives it back after that one's turn of some
    /// milliseconds. Called right before it is woken; false where the system takes turns as it likes.
    #[cfg(target_os = "linux")]
    pub fn take_no_turn(&self) -> bool {
        let id = rustix::thread::Pid::as_raw(Some(self.thread.0));
        let own = policy(id).filter(|a| a.sched_policy == libc::SCHED_OTHER as u32);
        let Some(mut a) = own else {
            return false;
        };
        // Those that are in no hurry wait for the end of somebody's turn, and are otherwise like others.
        a.sched_policy = libc::SCHED_BATCH as u32;
        set_policy(id, &a);
        true
    }

    /// It was woken so ([`Sleeper::take_no_turn`]), and is like others again; called by itself.
    #[cfg(target_os = "linux")]
    pub fn take_turns(&self) {
        let now = policy(0).filter(|a| a.sched_policy == libc::SCHED_BATCH as u32);
        if let Some(mut a) = now {
            a.sched_policy = libc::SCHED_OTHER as u32;
            set_policy(0, &a);
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
    pub fn keep_off_me(&self) {}

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn take_no_turn(&self) -> bool {
        false
    }

    /// Not available on this system.
    #[cfg(not(target_os = "linux"))]
    pub fn take_turns(&self) {}

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
    use super::{LONG_TURN_NS, SHORT_TURN_NS, Sleeper, long_turns, policy, short_turns};
    use std::sync::{Condvar, Mutex};

    #[test]
    fn turns_are_short_and_long_where_the_system_has_them() {
        let turn = || policy(0).map(|a| a.sched_runtime);
        std::thread::spawn(move || {
            let before = turn();
            for _ in 0..2 {
                short_turns();
                short_turns();
                let short = turn();
                long_turns();
                // Systems that have no such turns say that they last nothing.
                let can = before.is_some_and(|b| b > 0);
                let wanted = [Some(SHORT_TURN_NS), Some(LONG_TURN_NS)];
                assert!(!can || [short, turn()] == wanted, "{before:?} {short:?}");
            }
        })
        .join()
        .expect("no panic");
    }

    #[test]
    fn who_was_woken_without_a_turn_takes_turns_again() {
        let kind = || policy(0).map(|a| a.sched_policy as i32);
        let before = kind();
        let me = Sleeper::here().expect("the system says where it may run");
        let taken = me.take_no_turn();
        assert_eq!(taken, before == Some(libc::SCHED_OTHER));
        if taken {
            assert_eq!(kind(), Some(libc::SCHED_BATCH));
        }
        me.take_turns();
        assert_eq!(kind(), before);
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
