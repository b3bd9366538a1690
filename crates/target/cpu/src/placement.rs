//! Which processor each thread with a lease runs on. Where there are as many leases as processors, each thread
//! can have one of its own, but the system may put two threads on one processor and leave another idle until it
//! balances again, milliseconds later. A thread that shares its processor moves to a free one between two tasks.
//! `pool` uses it.
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use workers::padded::CachePadded;
use workers::place::{Sleeper, this_cpu};

/// No processor that is counted.
const NO_CORE: usize = usize::MAX;

/// The number of threads with a lease on each processor. A count that is read may be old: at worst a thread moves
/// in vain, or one task later.
pub(crate) struct CoreOccupancy {
    cpus: Vec<usize>,
    /// By the processor's number.
    on: Vec<CachePadded<AtomicU32>>,
}

impl CoreOccupancy {
    /// With no thread on any of `cpus`.
    pub(crate) fn new(cpus: &[usize]) -> CoreOccupancy {
        let most = cpus.iter().max().map_or(0, |c| c + 1);
        CoreOccupancy {
            cpus: cpus.to_vec(),
            on: (0..most).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The calling thread has a lease.
    pub(crate) fn place(&self) -> CorePlacement<'_> {
        let place = CorePlacement {
            occupancy: self,
            at: Cell::new(NO_CORE),
        };
        place.update();
        place
    }

    /// As many as there are processors.
    pub(crate) fn most(&self) -> usize {
        self.cpus.len()
    }

    /// Claims a processor without threads among those that `may` allows.
    fn free(&self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let mut each = self.cpus.iter().copied().filter(|&c| may(c));
        each.find(|&c| {
            self.on[c].load(Ordering::Relaxed) == 0
                && (self.on[c])
                    .compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
        })
    }
}

/// The processor of one thread with a lease; dropped with the lease.
pub(crate) struct CorePlacement<'a> {
    occupancy: &'a CoreOccupancy,
    at: Cell<usize>,
}

impl CorePlacement<'_> {
    /// Counts the calling thread on the processor that it runs on.
    fn update(&self) {
        let known = |c: &usize| *c < self.occupancy.on.len();
        let here = this_cpu().filter(known).unwrap_or(NO_CORE);
        if here != self.at.get() {
            self.unregister();
            if let Some(n) = self.occupancy.on.get(here) {
                n.fetch_add(1, Ordering::Relaxed);
            }
            self.at.set(here);
        }
    }

    fn unregister(&self) {
        if let Some(n) = self.occupancy.on.get(self.at.replace(NO_CORE)) {
            n.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether another thread with a lease is on this processor.
    fn shares_core(&self) -> bool {
        self.update();
        let on = self.occupancy.on.get(self.at.get());
        on.is_some_and(|n| n.load(Ordering::Relaxed) > 1)
    }

    /// Has `go` take the calling thread to a processor that nobody is on, of those that `may` says, if
    /// another one is on its own; true where it went.
    fn move_off(&self, may: impl Fn(usize) -> bool, go: impl FnOnce(usize) -> bool) -> bool {
        let Some(cpu) = self.occupancy.free(may) else {
            return false;
        };
        // Not here any more from now on: moving may take longer than others take to look.
        self.unregister();
        let went = go(cpu);
        if went {
            self.at.set(cpu);
        } else {
            self.occupancy.on[cpu].fetch_sub(1, Ordering::Relaxed);
            self.update();
        }
        went
    }

    /// As a caller, who may run anywhere and keeps that right: goes to a free processor if another one with a
    /// lease is on the same; true where it went.
    pub(crate) fn leave_shared_core(&self) -> bool {
        self.shares_core() && {
            let me = Sleeper::here();
            self.move_off(
                |c| me.as_ref().is_some_and(|m| m.may(c)),
                |c| me.as_ref().is_some_and(|m| m.go(c)),
            )
        }
    }

    /// As a resident, who is pinned: goes to `only` with `go` if another one with a lease is on the same
    /// processor and nobody there.
    pub(crate) fn leave_shared_core_for(&self, only: usize, go: impl FnOnce(usize) -> bool) {
        if self.shares_core() {
            self.move_off(|c| c == only, go);
        }
    }
}

impl Drop for CorePlacement<'_> {
    fn drop(&mut self) {
        self.unregister();
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::CoreOccupancy;
    use std::sync::Barrier;
    use workers::place::{CpuSet, pin, this_thread};

    #[test]
    fn two_on_one_processor_part_where_another_is_free() {
        let set = CpuSet::allowed().expect("its own processors");
        let cpus: Vec<usize> = set.numbers().take(2).collect();
        let occupancy = CoreOccupancy::new(&cpus);
        let meet = Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                let pinned = pin(this_thread(), cpus[0]);
                let place = occupancy.place();
                meet.wait();
                meet.wait();
                drop(place);
                assert!(pinned);
            });
            let two = s.spawn(|| {
                let pinned = pin(this_thread(), cpus[0]);
                let place = occupancy.place();
                assert!(set.allow(this_thread()));
                meet.wait();
                place.leave_shared_core();
                let at = place.at.get();
                meet.wait();
                (pinned, at, CpuSet::allowed() == Some(set))
            });
            let (pinned, at, free) = two.join().expect("it ends");
            assert!(pinned && free);
            assert_eq!(at != cpus[0], cpus.len() == 2, "on {at} of {cpus:?}");
        });
        let left = |n: &workers::padded::CachePadded<std::sync::atomic::AtomicU32>| {
            n.load(std::sync::atomic::Ordering::Relaxed)
        };
        assert!(occupancy.on.iter().all(|n| left(n) == 0));
    }

    #[test]
    fn who_moves_is_on_neither_processor_for_others_until_it_is_there() {
        let set = CpuSet::allowed().expect("its own processors");
        let cpus: Vec<usize> = set.numbers().take(2).collect();
        let occupancy = CoreOccupancy::new(&cpus);
        let on = |c: usize| occupancy.on[c].load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(pin(this_thread(), cpus[0]));
                let place = occupancy.place();
                let mut seen = None;
                let went = place.move_off(
                    |_| true,
                    |cpu| {
                        seen = Some((on(cpus[0]), on(cpu)));
                        false
                    },
                );
                // With one processor there is nowhere to go.
                assert!(
                    !went && seen == (cpus.len() == 2).then_some((0, 1)),
                    "{seen:?}"
                );
                assert_eq!(on(cpus[0]), 1);
            });
        });
        assert!(cpus.iter().all(|&c| on(c) == 0));
    }
}
