//! Work on several threads, for predictions that take long and do not depend on each other.

use layout::Arrange;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

/// `f` of every item, in their order, on as many threads as there are processors. Where planning is to step aside
/// for requests ([`plan::with_pauses`]) this thread does all of it, and so it does where no thread can be had.
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let processors = available_parallelism().map_or(1, |n| n.get());
    let threads = match plan::pauses() {
        true => 1,
        false => processors.min(items.len()),
    };
    let next = AtomicUsize::new(0);
    let take = || -> Vec<(usize, R)> {
        let mut done = vec![];
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else {
                return done;
            };
            done.push((at, f(item)));
        }
    };
    let mut all = thread::scope(|s| {
        let others: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(s, take).ok())
            .collect();
        let mut all = take();
        for other in others {
            match other.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.arrange_by_key(|r| r.0);
    all.into_iter().map(|r| r.1).collect()
}
