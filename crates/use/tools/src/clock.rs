//! By which clock requests are timed: that of an emulated device where they reach it, else this machine's.
use shopfloor::{Error, Session};
use std::time::Instant;

/// Requests of an emulated device that are measured: each is like the last.
pub(crate) const EMULATED: usize = 9;

/// How many requests of `session`, which has run one, tell what `wanted` of them would: a few where each takes as long
/// as the last by an emulated device's clock.
pub fn rounds(session: &Session, wanted: usize) -> usize {
    match emulated_ns(session) {
        Some(_) => wanted.min(EMULATED),
        None => wanted,
    }
}

/// The clock of an emulated device that requests of `session` reach: it stands still where none does.
pub(crate) fn emulated_ns(session: &Session) -> Option<u64> {
    let runtime = session.runtime();
    let now = runtime.engine().device().emulated_ns();
    now.filter(|_| !runtime.launched().is_empty())
}

/// What `run`, requests of `session`, takes: nanoseconds.
pub(crate) fn timed_ns(
    session: &Session,
    run: impl FnOnce() -> Result<(), Error>,
) -> Result<f64, Error> {
    let (began, then) = (Instant::now(), emulated_ns(session));
    run()?;
    Ok(match emulated_ns(session).zip(then) {
        Some((now, then)) => (now - then) as f64,
        None => began.elapsed().as_secs_f64() * 1e9,
    })
}
