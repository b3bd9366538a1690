//! On which processors those with a seat are. Where there are as many seats as processors, each finds one of
//! its own; the system may still put two of them on one, and leave another idle until its next look, which
//! comes after milliseconds. Whoever finds itself beside another one between two tasks goes to a free one.
use crossbeam_utils::CachePadded;
use device::place::{Sleeper, this_cpu};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};

/// No processor that anybody else may be on.
const NOWHERE: usize = usize::MAX;

/// Those with a seat, by processor. What is read may be old: at worst somebody moves for nothing, or one task
/// later.
pub(crate) struct Stands {
    cpus: Vec<usize>,
    /// By the processor's number.
    on: Vec<CachePadded<AtomicU32>>,
}

impl Stands {
    /// Nobody on any of `cpus`.
    pub(crate) fn new(cpus: &[usize]) -> Stands {
        let most = cpus.iter().max().map_or(0, |c| c + 1);
        Stands {
            cpus: cpus.to_vec(),
            on: (0..most).map(|_| CachePadded::default()).collect(),
        }
    }

    /// The calling thread has a seat.
    pub(crate) fn stand(&self) -> Stand<'_> {
        let stand = Stand {
            stands: self,
            at: Cell::new(NOWHERE),
        };
        stand.note();
        stand
    }

    /// As many as there are processors.
    pub(crate) fn most(&self) -> usize {
        self.cpus.len()
    }

    /// Takes a processor that nobody is on, of those that `may` says.
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

/// Where a thread with a seat is; it ends with the seat.
pub(crate) struct Stand<'a> {
    stands: &'a Stands,
    at: Cell<usize>,
}

impl Stand<'_> {
    /// Notes on which processor the calling thread is.
    fn note(&self) {
        let known = |c: &usize| *c < self.stands.on.len();
        let here = this_cpu().filter(known).unwrap_or(NOWHERE);
        if here != self.at.get() {
            self.away();
            if let Some(n) = self.stands.on.get(here) {
                n.fetch_add(1, Ordering::Relaxed);
            }
            self.at.set(here);
        }
    }

    fn away(&self) {
        if let Some(n) = self.stands.on.get(self.at.replace(NOWHERE)) {
            n.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether another one is on the processor of the calling thread.
    fn beside(&self) -> bool {
        self.note();
        let on = self.stands.on.get(self.at.get());
        on.is_some_and(|n| n.load(Ordering::Relaxed) > 1)
    }

    /// Has `go` take the calling thread to a processor that nobody is on, of those that `may` says, if
    /// another one is on its own; true where it went.
    fn part(&self, may: impl Fn(usize) -> bool, go: impl FnOnce(usize) -> bool) -> bool {
        let Some(cpu) = self.stands.free(may) else {
            return false;
        };
        // Not here any more from now on: moving may take longer than others take to look.
        self.away();
        let went = go(cpu);
        if went {
            self.at.set(cpu);
        } else {
            self.stands.on[cpu].fetch_sub(1, Ordering::Relaxed);
            self.note();
        }
        went
    }

    /// As a caller, who may run anywhere and keeps that right: goes to a free processor if another one with a
    /// seat is on the same; true where it went.
    pub(crate) fn settle(&self) -> bool {
        self.beside() && {
            let me = Sleeper::here();
            self.part(
                |c| me.as_ref().is_some_and(|m| m.may(c)),
                |c| me.as_ref().is_some_and(|m| m.go(c)),
            )
        }
    }

    /// As a resident, who is pinned: goes to `only` with `go` if another one with a seat is on the same
    /// processor and nobody there.
    pub(crate) fn settle_on(&self, only: usize, go: impl FnOnce(usize) -> bool) {
        if self.beside() {
            self.part(|c| c == only, go);
        }
    }
}

impl Drop for Stand<'_> {
    fn drop(&mut self) {
        self.away();
    }
}

#[cfg(all(test, target_os = "linux", not(loom)))]
mod tests {
    use super::Stands;
    use device::place::{pin, this_thread};
    use std::sync::Barrier;

    #[test]
    fn two_on_one_processor_part_where_another_is_free() {
        let set = rustix::thread::sched_getaffinity(None).expect("its own processors");
        let cpus: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|&c| set.is_set(c))
            .take(2)
            .collect();
        let stands = Stands::new(&cpus);
        let meet = Barrier::new(2);
        std::thread::scope(|s| {
            s.spawn(|| {
                let pinned = pin(this_thread(), cpus[0]);
                let stand = stands.stand();
                meet.wait();
                meet.wait();
                drop(stand);
                assert!(pinned);
            });
            let two = s.spawn(|| {
                let pinned = pin(this_thread(), cpus[0]);
                let stand = stands.stand();
                rustix::thread::sched_setaffinity(None, &set).expect("its own processors");
                meet.wait();
                stand.settle();
                let at = stand.at.get();
                meet.wait();
                let after = rustix::thread::sched_getaffinity(None).expect("its own processors");
                (pinned, at, after == set)
            });
            let (pinned, at, free) = two.join().expect("it ends");
            assert!(pinned && free);
            assert_eq!(at != cpus[0], cpus.len() == 2, "on {at} of {cpus:?}");
        });
        let left = |n: &crossbeam_utils::CachePadded<std::sync::atomic::AtomicU32>| {
            n.load(std::sync::atomic::Ordering::Relaxed)
        };
        assert!(stands.on.iter().all(|n| left(n) == 0));
    }

    #[test]
    fn who_moves_is_on_neither_processor_for_others_until_it_is_there() {
        let set = rustix::thread::sched_getaffinity(None).expect("its own processors");
        let each = 0..rustix::thread::CpuSet::MAX_CPU;
        let cpus: Vec<usize> = each.filter(|&c| set.is_set(c)).take(2).collect();
        let stands = Stands::new(&cpus);
        let on = |c: usize| stands.on[c].load(std::sync::atomic::Ordering::Relaxed);
        std::thread::scope(|s| {
            s.spawn(|| {
                assert!(pin(this_thread(), cpus[0]));
                let stand = stands.stand();
                let mut seen = None;
                let went = stand.part(
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
