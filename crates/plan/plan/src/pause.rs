//! Cooperative pauses for planning that runs beside requests: the planner calls [`pause`] often, and the caller
//! decides what that does.
use std::cell::Cell;

thread_local!(static PAUSE: Cell<Option<fn()>> = const { Cell::new(None) });

/// Runs `work`, and has whatever is planned, proved or compiled in it call `pause` before every prediction and
/// between steps: thousands of times a second. A system that shares processors out by clock ticks leaves one to
/// such work for milliseconds, though requests with tasks of microseconds wait for it; `pause` is where it
/// steps aside.
pub fn with_pauses<T>(pause: fn(), work: impl FnOnce() -> T) -> T {
    /// Puts back what was there, even when `work` panics.
    struct Back(Option<fn()>);
    impl Drop for Back {
        fn drop(&mut self) {
            PAUSE.set(self.0);
        }
    }
    let _back = Back(PAUSE.replace(Some(pause)));
    work()
}

/// Others may go first, where [`with_pauses`] asked for it on this thread.
pub fn pause() {
    if let Some(p) = PAUSE.get() {
        p();
    }
}

/// Whether [`with_pauses`] asked for pauses on this thread.
pub fn pauses() -> bool {
    PAUSE.get().is_some()
}
