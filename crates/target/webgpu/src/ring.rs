//! Requests through a ring, drained in submissions of limited length.
//!
//! WebGPU promises no progress between workgroups, so nobody may stay on the GPU and poll. The ring is
//! the one that resident kernels have ([`workers::ring`]); its other end is on the host: whoever waits
//! for an answer takes what anybody pushed, oldest first, and hands it over in submissions of at most so
//! many tasks. So callers at once share submissions, and none keeps a GPU for long. The answer says that
//! the work was handed over, in order; when it is done, whoever maps its results sees.
use std::convert::Infallible;
use std::mem::{offset_of, size_of};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use workers::ring::{Ring, RingError, Words, abi};

/// Requests that may wait to be handed over.
const SLOTS: u32 = 64;

/// Words in the host's own memory.
#[derive(Clone)]
struct HostWords(Arc<[AtomicU32]>);

impl Words for HostWords {
    type Error = Infallible;

    fn load_acquire(&self, offset: usize) -> Result<u32, Infallible> {
        let w = self.0.get(offset / 4);
        Ok(w.map_or(0, |w| w.load(Ordering::Acquire)))
    }

    fn store_release(&self, offset: usize, value: u32) -> Result<(), Infallible> {
        if let Some(w) = self.0.get(offset / 4) {
            w.store(value, Ordering::Release);
        }
        Ok(())
    }
}

/// What is handed over at once: its parts with their tasks.
type Parts<T> = Vec<(T, u32)>;

/// The ring with both ends.
pub(crate) struct Drained<T> {
    words: HostWords,
    ring: Mutex<Ring<HostWords>>,
    slots: Mutex<Slots<T>>,
    freed: Condvar,
    /// Number of the next request to take.
    next: Mutex<u32>,
    /// Tasks of a submission at most, where it has several parts.
    most: u32,
}

struct Slots<T> {
    free: Vec<u32>,
    parts: Vec<Option<Parts<T>>>,
}

fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Drained<T> {
    /// A ring whose submissions have at most `most` tasks each, or one part.
    pub fn new(most: u32) -> Drained<T> {
        let zeros = (0..abi::ring_bytes(SLOTS) / 4).map(|_| AtomicU32::new(0));
        let words = HostWords(zeros.collect());
        let ring = Ring::new(words.clone(), SLOTS);
        Drained {
            next: Mutex::new(ring.next()),
            ring: Mutex::new(ring),
            slots: Mutex::new(Slots {
                free: (0..SLOTS).rev().collect(),
                parts: (0..SLOTS).map(|_| None).collect(),
            }),
            freed: Condvar::new(),
            words,
            most,
        }
    }

    /// Pushes `parts` and returns when they were handed over, by whomever, with `submit`.
    pub fn run(&self, parts: Parts<T>, submit: &dyn Fn(Vec<T>)) {
        let slot = {
            let mut s = held(&self.slots);
            loop {
                if let Some(n) = s.free.pop() {
                    s.parts[n as usize] = Some(parts);
                    break n;
                }
                s = self.freed.wait(s).unwrap_or_else(PoisonError::into_inner);
            }
        };
        let go_on = || match self.next.try_lock() {
            Ok(mut next) => self.drain(&mut next, submit),
            Err(_) => std::thread::yield_now(),
        };
        // Entries are free again in their order: there may be slots and yet no entry.
        let pushed = loop {
            let pushed = held(&self.ring).push(slot, true);
            match pushed {
                Err(RingError::Full { .. }) => go_on(),
                pushed => break pushed,
            }
        };
        if let Ok(seq) = pushed {
            loop {
                let answer = held(&self.ring).poll(seq);
                if matches!(answer, Ok(Some(_)) | Err(RingError::Unknown { .. })) {
                    break;
                }
                go_on();
            }
        }
        let left = {
            let mut s = held(&self.slots);
            s.free.push(slot);
            s.parts[slot as usize].take()
        };
        self.freed.notify_one();
        // A ring that takes nothing is no reason to lose work.
        if let Some(parts) = left {
            submit(parts.into_iter().map(|p| p.0).collect());
        }
    }

    /// The ticket of request `seq`, when it is there: its slot.
    fn ticket(&self, seq: u32) -> Option<u32> {
        let at = abi::TICKETS + 4 * (seq & (SLOTS - 1)) as usize;
        let Ok(t) = self.words.load_acquire(at);
        (t >> 16 == seq & 0xffff).then_some(t >> 1 & 0x7ff)
    }

    /// Takes all that was pushed and hands it over.
    fn drain(&self, next: &mut u32, submit: &dyn Fn(Vec<T>)) {
        let (mut list, mut carried) = (vec![], 0u32);
        let first = *next;
        while let Some(slot) = self.ticket(*next) {
            let parts = held(&self.slots).parts[slot as usize].take();
            for (part, tasks) in parts.into_iter().flatten() {
                if carried.saturating_add(tasks) > self.most && !list.is_empty() {
                    submit(std::mem::take(&mut list));
                    carried = 0;
                }
                list.push(part);
                carried = carried.saturating_add(tasks);
            }
            *next = next.wrapping_add(1);
        }
        if !list.is_empty() {
            submit(list);
        }
        let mut seq = first;
        while seq != *next {
            let entry = (seq & (SLOTS - 1)) as usize * size_of::<abi::AnswerEntry>();
            let at = abi::answers(SLOTS) + entry + offset_of!(abi::AnswerEntry, seq);
            let Ok(()) = self.words.store_release(at, seq);
            seq = seq.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_handed_over_once_in_submissions_of_limited_length() {
        const MOST: u32 = 10;
        let ring = Drained::new(MOST);
        let handed: Mutex<Vec<Vec<(u32, u32)>>> = Mutex::default();
        let submit = |list: Vec<(u32, u32)>| {
            std::thread::sleep(std::time::Duration::from_micros(50));
            held(&handed).push(list);
        };
        std::thread::scope(|scope| {
            for caller in 0..100 {
                let (ring, submit) = (&ring, &submit);
                scope.spawn(move || {
                    for n in 0..20 {
                        let tasks = (caller + n) % 12;
                        let id = caller * 1000 + n * 2;
                        let parts = vec![((id, tasks), tasks), ((id + 1, 1), 1)];
                        ring.run(parts, submit);
                    }
                });
            }
        });
        let handed = held(&handed);
        let mut seen: Vec<u32> = handed.iter().flatten().map(|p| p.0).collect();
        for one in handed.iter() {
            let sum: u32 = one.iter().map(|p| p.1).sum();
            assert!(sum <= MOST || one.len() == 1, "{one:?}");
        }
        // A caller's own work keeps its order.
        for caller in 0..100 {
            let own = seen.iter().filter(|id| *id / 1000 == caller);
            assert!(own.is_sorted(), "caller {caller}");
        }
        seen.sort_unstable();
        let all = (0..100).flat_map(|c| (0..40).map(move |n| c * 1000 + n));
        assert_eq!(seen, all.collect::<Vec<u32>>());
        // Callers share submissions.
        assert!(handed.len() < 4000, "{}", handed.len());
    }
}
