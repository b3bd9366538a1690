//! The ring against a host thread that plays the kernel: order, capacity, epochs, cancellation.
use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Words of this process.
#[derive(Clone)]
struct Shared(Arc<Vec<AtomicU32>>);

impl Shared {
    fn new(bytes: usize) -> Shared {
        Shared(Arc::new(
            (0..bytes / 4).map(|_| AtomicU32::new(0)).collect(),
        ))
    }
}

impl Words for Shared {
    type Error = std::convert::Infallible;
    fn load_acquire(&self, offset: usize) -> Result<u32, Self::Error> {
        Ok(self.0[offset / 4].load(Ordering::Acquire))
    }
    fn store_release(&self, offset: usize, value: u32) -> Result<(), Self::Error> {
        self.0[offset / 4].store(value, Ordering::Release);
        Ok(())
    }
}

/// What a kernel does with tickets, on a thread: answers each with its slot as the end of its time.
fn serve(words: &Shared, capacity: u32, first: u32, epoch: u32) -> u32 {
    let mut seq = first;
    let stop = offset_of!(Header, stop);
    let ticket = |seq: u32| {
        let at = abi::TICKETS + 4 * (seq & (capacity - 1)) as usize;
        words
            .load_acquire(at)
            .map(|t| (t >> 16 == seq & 0xffff).then_some(t))
    };
    loop {
        let Ok(mut found) = ticket(seq);
        if found.is_none() && words.load_acquire(stop) == Ok(1) {
            let Ok(again) = ticket(seq);
            found = again;
            if found.is_none() {
                return seq;
            }
        }
        let Some(t) = found else {
            std::thread::yield_now();
            continue;
        };
        if (t >> 12) & 15 != epoch & 15 {
            return seq;
        }
        let at =
            abi::answers(capacity) + (seq & (capacity - 1)) as usize * size_of::<AnswerEntry>();
        let slot = t >> 1 & 2047;
        let Ok(()) = words.store_release(at + offset_of!(AnswerEntry, end), slot);
        let Ok(()) = words.store_release(at + offset_of!(AnswerEntry, error), t & 1);
        let Ok(()) = words.store_release(at + offset_of!(AnswerEntry, seq), seq);
        seq = seq.wrapping_add(1);
    }
}

#[test]
fn requests_are_answered_once_each_in_any_order() {
    for first in [1, 65_530, u32::MAX - 100] {
        let words = Shared::new(abi::ring_bytes(8));
        let mut ring = Ring::starting_at(words.clone(), 8, first);
        let server = std::thread::spawn(move || serve(&words, 8, first, 0));
        let mut open: Vec<(u32, u32)> = vec![];
        for n in 0..2000u32 {
            while ring.under_way() == 8 {
                open.retain(|&(seq, slot)| match ring.poll(seq).unwrap() {
                    Some(a) => {
                        assert_eq!(a.clock_ns.1, u64::from(slot));
                        false
                    }
                    None => true,
                });
                std::thread::yield_now();
            }
            let slot = n * 7 % MAX_SLOTS;
            open.push((ring.push(slot, false).unwrap(), slot));
            if n % 3 == 0 {
                open.reverse();
            }
        }
        ring.stop().unwrap();
        assert_eq!(ring.push(0, false), Err(RingError::Stopped));
        assert_eq!(server.join().unwrap(), first.wrapping_add(2000));
        for (seq, _) in open {
            assert!(ring.poll(seq).unwrap().is_some());
            assert_eq!(ring.poll(seq), Err(RingError::Unknown { seq }));
        }
        assert_eq!(ring.under_way(), 0);
    }
}

#[test]
fn a_full_ring_says_so_and_loses_nothing() {
    let words = Shared::new(abi::ring_bytes(4));
    let mut ring = Ring::new(words.clone(), 4);
    let seqs: Vec<u32> = (0..4).map(|s| ring.push(s, false).unwrap()).collect();
    let before: Vec<u32> = words.0.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    assert_eq!(ring.push(4, false), Err(RingError::Full { capacity: 4 }));
    let after: Vec<u32> = words.0.iter().map(|w| w.load(Ordering::Relaxed)).collect();
    assert_eq!(before, after);
    assert_eq!(ring.poll(seqs[0]), Ok(None));
    ring.stop().unwrap();
    assert_eq!(serve(&words, 4, 1, 0), 5);
    // The last answer is taken first: the entry is free only when the oldest one is.
    assert!(ring.poll(seqs[3]).unwrap().is_some());
    assert_eq!(ring.under_way(), 4);
    assert!(ring.poll(seqs[0]).unwrap().is_some());
    assert_eq!(ring.under_way(), 3);
    assert_eq!(ring.poll(77), Err(RingError::Unknown { seq: 77 }));
}

#[test]
fn a_kernel_leaves_requests_of_the_next_epoch() {
    let words = Shared::new(abi::ring_bytes(4));
    let mut ring = Ring::new(words.clone(), 4);
    let a = ring.push(3, true).unwrap();
    assert_eq!(ring.next_epoch(), Ok(1));
    let b = ring.push(4, false).unwrap();
    let left = serve(&words, 4, 1, 0);
    assert_eq!(left, b);
    let failed = ring.poll(a).unwrap().unwrap().failed;
    assert_eq!(
        failed,
        Some(Failed {
            step: 4095,
            fault: 1
        })
    );
    assert_eq!(ring.poll(b), Ok(None));
    ring.stop().unwrap();
    assert_eq!(serve(&words, 4, left, 1), 3);
    assert_eq!(ring.poll(b).unwrap().unwrap().clock_ns.1, 4);
}

#[test]
fn slots_beyond_a_ticket_are_refused() {
    let mut ring = Ring::new(Shared::new(abi::ring_bytes(1)), 1);
    assert_eq!(ring.push(2047, false), Err(RingError::Slot { slot: 2047 }));
}

#[test]
fn requests_under_way_are_called_off_by_number() {
    let words = Shared::new(abi::ring_bytes(2));
    let mut ring = Ring::new(words.clone(), 2);
    assert_eq!(ring.call_off(1), Err(RingError::Unknown { seq: 1 }));
    let listed = |n: u32| {
        let Ok(v) = words.load_acquire(abi::offs(2) + 4 * (n & 1) as usize);
        v
    };
    let count = || {
        let Ok(v) = words.load_acquire(offset_of!(Header, offs));
        v
    };
    for turn in 0..3 {
        let a = ring.push(0, true).unwrap();
        let b = ring.push(1, true).unwrap();
        ring.call_off(b).unwrap();
        assert_eq!((count(), listed(2 * turn)), (2 * turn + 1, b));
        ring.call_off(a).unwrap();
        assert_eq!((count(), listed(2 * turn + 1)), (2 * turn + 2, a));
        assert_eq!(ring.offs(), count());
        ring.stop().unwrap();
        serve(&words, 2, a, turn);
        for seq in [a, b] {
            assert!(!ring.poll(seq).unwrap().unwrap().called_off);
            assert_eq!(ring.call_off(seq), Err(RingError::Unknown { seq }));
        }
        ring.next_epoch().unwrap();
    }
}
