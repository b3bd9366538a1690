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
