//! Which processor a thread runs on.

/// A thread as the system names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadId(#[cfg(target_os = "linux")] rustix::thread::Pid);

/// The calling thread.
#[cfg(target_os = "linux")]
pub(crate) fn this_thread() -> ThreadId {
    ThreadId(rustix::thread::gettid())
}

/// The processor that the calling thread is on.
#[cfg(target_os = "linux")]
pub(crate) fn this_cpu() -> Option<usize> {
    Some(rustix::thread::sched_getcpu())
}

/// Pins a thread to one processor; false where the system does not let it.
#[cfg(target_os = "linux")]
pub(crate) fn pin(t: ThreadId, cpu: usize) -> bool {
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
pub(crate) fn this_thread() -> ThreadId {
    ThreadId()
}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn this_cpu() -> Option<usize> {
    None
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub(crate) fn pin(_: ThreadId, _: usize) -> bool {
    false
}

/// Not available on this system.
#[cfg(not(target_os = "linux"))]
pub fn stand_back() {}

/// Not known on this system.
#[cfg(not(target_os = "linux"))]
pub fn thread_time_ns() -> u64 {
    0
}
