//! Work on several threads, for what takes long in parts that do not depend on each other: predictions, kernels' texts.

use layout::Arrange;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

/// Processors of which no thread of [`map`] makes use.
fn idle() -> &'static AtomicIsize {
    static IDLE: OnceLock<AtomicIsize> = OnceLock::new();
    IDLE.get_or_init(|| {
        let processors = available_parallelism().map_or(1, |n| n.get());
        AtomicIsize::new(isize::try_from(processors).unwrap_or(1) - 1)
    })
}

/// A processor that a thread makes use of, and gives back.
struct Processor;

/// A processor that a thread has for itself and lends to others while it waits.
struct Lent;

impl Lent {
    fn new() -> Lent {
        idle().fetch_add(1, Ordering::Relaxed);
        Lent
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        idle().fetch_sub(1, Ordering::Relaxed);
    }
}

impl Processor {
    fn take() -> Option<Processor> {
        let left = |n: isize| (n > 0).then(|| n - 1);
        let taken = idle().fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken.ok().map(|_| Processor)
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        idle().fetch_add(1, Ordering::Relaxed);
    }
}

/// `f` of every item, in their order, on as many threads as there are idle processors: maps within maps, and those of
/// several callers, share them. Where planning is to step aside for requests ([`crate::with_pauses`]) this thread does all
/// of it, and so it does where no thread can be had.
pub fn map<T: Sync, R: Send>(items: &[T], f: impl Fn(&T) -> R + Sync) -> Vec<R> {
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
    let more = match crate::pauses() {
        true => 0,
        false => items.len().saturating_sub(1),
    };
    let mut all = thread::scope(|s| {
        let others: Vec<_> = (0..more)
            .map_while(|_| Processor::take())
            .filter_map(|own| {
                let work = || {
                    let _own = own;
                    take()
                };
                thread::Builder::new().spawn_scoped(s, work).ok()
            })
            .collect();
        let mut all = take();
        // What the others still do may have it.
        let _lent = Lent::new();
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
