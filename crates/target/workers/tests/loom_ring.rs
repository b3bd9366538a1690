//! Every interleaving of a host and a worker around one entry of the ring:
//! `RUSTFLAGS="--cfg loom" cargo test -p shopfloor-workers --test loom_ring`.
#![cfg(loom)]

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use shopfloor_workers::ring::{Ring, RingError, Words, abi};
use std::mem::offset_of;

struct Shared {
    words: Vec<AtomicU32>,
    input: UnsafeCell<u32>,
    output: UnsafeCell<u32>,
}

// SAFETY: ticket and answer order the accesses, which is what loom checks here.
unsafe impl Sync for Shared {}

struct Host(Arc<Shared>);

impl Words for Host {
    type Error = std::convert::Infallible;
    fn load_acquire(&self, offset: usize) -> Result<u32, Self::Error> {
        Ok(self.0.words[offset / 4].load(Ordering::Acquire))
    }
    fn store_release(&self, offset: usize, value: u32) -> Result<(), Self::Error> {
        self.0.words[offset / 4].store(value, Ordering::Release);
        Ok(())
    }
}

/// A ring of one entry: what the request carries is seen by the worker, what the answer carries by
/// the host, and there is no room for a second request before the first answer is taken.
#[test]
fn a_request_and_its_answer_order_what_they_carry() {
    loom::model(|| {
        let shared = Arc::new(Shared {
            words: (0..abi::ring_bytes(1) / 4)
                .map(|_| AtomicU32::new(0))
                .collect(),
            input: UnsafeCell::new(0),
            output: UnsafeCell::new(0),
        });
        let other = shared.clone();
        let worker = thread::spawn(move || {
            while other.words[abi::TICKETS / 4].load(Ordering::Acquire) >> 16 != 1 {
                thread::yield_now();
            }
            // SAFETY: the host wrote before it released the ticket.
            let x = other.input.with(|p| unsafe { *p });
            // SAFETY: the host reads after the answer.
            other.output.with_mut(|p| unsafe { *p = x + 1 });
            let at = abi::answers(1) + offset_of!(abi::AnswerEntry, seq);
            other.words[at / 4].store(1, Ordering::Release);
        });
        let mut ring = Ring::new(Host(shared.clone()), 1);
        // SAFETY: nothing was pushed yet.
        shared.input.with_mut(|p| unsafe { *p = 41 });
        let seq = ring.push(0, true).unwrap();
        assert_eq!(ring.push(0, true), Err(RingError::Full { capacity: 1 }));
        while ring.poll(seq).unwrap().is_none() {
            thread::yield_now();
        }
        // SAFETY: the answer was taken.
        assert_eq!(shared.output.with(|p| unsafe { *p }), 42);
        worker.join().unwrap();
    });
}
