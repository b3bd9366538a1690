//! Work on several threads, for what takes long in parts that do not depend on each other: predictions, kernels' texts.

use layout::Arrange;
use std::cell::RefCell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, available_parallelism};

/// Processors of which no thread of [`map`] makes use.
#[derive(Clone)]
struct Idle(Arc<AtomicIsize>);

thread_local! {
    /// Those that [`with_threads`] gave what runs on this thread.
    static OWN: RefCell<Option<Idle>> = const { RefCell::new(None) };
}

impl Idle {
    /// All but one of so many.
    fn beside_one_of(processors: usize) -> Idle {
        let all = isize::try_from(processors).unwrap_or(isize::MAX);
        Idle(Arc::new(AtomicIsize::new(all.max(1) - 1)))
    }

    /// Those that maps on this thread share: its own, or those of the process.
    fn here() -> Idle {
        static ALL: OnceLock<Idle> = OnceLock::new();
        let all = || Idle::beside_one_of(available_parallelism().map_or(1, |n| n.get()));
        let own = OWN.with_borrow(Clone::clone);
        own.unwrap_or_else(|| ALL.get_or_init(all).clone())
    }

    /// Maps in `work` share these.
    fn shared_by<T>(own: Option<Idle>, work: impl FnOnce() -> T) -> T {
        /// Puts back what was there, even when `work` panics.
        struct Back(Option<Idle>);
        impl Drop for Back {
            fn drop(&mut self) {
                OWN.set(self.0.take());
            }
        }
        let _back = Back(OWN.replace(own));
        work()
    }

    fn take(&self) -> Option<Processor> {
        let left = |n: isize| (n > 0).then(|| n - 1);
        let taken = (self.0).fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
        taken.ok().map(|_| Processor(self.clone()))
    }

    fn lend(&self) -> Lent {
        self.0.fetch_add(1, Ordering::Relaxed);
        Lent(self.clone())
    }
}

/// A processor that a thread makes use of, and gives back.
struct Processor(Idle);

/// A processor that a thread has for itself and lends to others while it waits.
struct Lent(Idle);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Processor {
    fn drop(&mut self) {
        self.0.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Runs `work`, in which maps take so many threads together, this one included, however many processors there are.
pub fn with_threads<T>(threads: usize, work: impl FnOnce() -> T) -> T {
    Idle::shared_by(Some(Idle::beside_one_of(threads)), work)
}

/// `f` of every item, in their order, on as many threads as there are idle processors: maps within maps, and those of
/// several callers, share them, unless a caller has threads of its own ([`with_threads`]). Where planning is to step aside
/// for requests ([`crate::with_pauses`]) this thread does all of it, and so it does where no thread can be had.
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
    let idle = Idle::here();
    let mut all = thread::scope(|s| {
        let others: Vec<_> = (0..more)
            .map_while(|_| idle.take())
            .filter_map(|own| {
                let (take, shared) = (&take, OWN.with_borrow(Clone::clone));
                let work = move || {
                    let _own = own;
                    Idle::shared_by(shared, take)
                };
                thread::Builder::new().spawn_scoped(s, work).ok()
            })
            .collect();
        let mut all = take();
        // What the others still do may have it.
        let _lent = idle.lend();
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
