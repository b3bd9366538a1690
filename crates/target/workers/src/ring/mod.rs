//! How a host and workers that never leave talk: a ring of requests and a ring of answers in memory
//! that both sides see, and tables of tasks, waits and parameters beside them.
//!
//! The host pushes a ticket (one word, released) and polls for the answer (its first word, acquired);
//! no driver is called. A request names a *slot*: memory of its own with the tables of its steps and the
//! counters of its tasks. There is one producer; requests are answered in any order, each at the entry
//! of its own sequence number. The host never has more requests under way than the ring has entries, so
//! nothing is overwritten; one more is [`RingError::Full`].
//!
//! The kernel's side, with a diagram of its states, is `emit::ptx::resident`. A ticket carries its epoch:
//! a kernel that meets one of another epoch leaves it to the kernel that comes next, so that a swap of
//! plans is: launch the next kernel behind the running one, push on.
//!
//! What both sides share is laid out in [`abi`]; `device::Tables` makes a plan's steps into what it says.
pub mod abi;
mod status;
mod times;

pub use status::{Dump, Phase, WorkerStatus};
pub use times::{Times, WorkerTime};

use abi::{AnswerEntry, Header};
use std::mem::{offset_of, size_of};

/// Slots at most: a ticket has eleven bits for them, and one value is taken.
pub const MAX_SLOTS: u32 = 2047;
/// Entries at most.
pub const MAX_CAPACITY: u32 = 4096;

/// Memory that a kernel reads and writes too, word by word.
pub trait Words {
    /// What can go wrong.
    type Error;
    /// The word at byte `offset`, a multiple of 4: what was released with it is visible afterwards.
    ///
    /// # Errors
    /// It is not inside.
    fn load_acquire(&self, offset: usize) -> Result<u32, Self::Error>;
    /// Stores the word at byte `offset`, a multiple of 4, after everything stored before.
    ///
    /// # Errors
    /// It is not inside.
    fn store_release(&self, offset: usize, value: u32) -> Result<(), Self::Error>;
}

/// Why a request could not be pushed or asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError<E> {
    /// As many requests are under way as there are entries.
    #[error("the ring's {capacity} entries are all under way; take answers first")]
    Full {
        /// Entries.
        capacity: u32,
    },
    /// There is no such slot.
    #[error("slot {slot} is beyond {MAX_SLOTS}; use fewer slots")]
    Slot {
        /// Slot asked for.
        slot: u32,
    },
    /// The kernel was told to leave.
    #[error("the workers were told to leave; start a kernel for the next epoch first")]
    Stopped,
    /// That request was never pushed, or its answer was taken.
    #[error("request {seq} is not under way")]
    Unknown {
        /// Sequence number.
        seq: u32,
    },
    /// The memory says no.
    #[error(transparent)]
    Words(E),
}

/// A step that failed, as an answer says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Step, in the order of the tables; 4095 stands for that and all later ones.
    pub step: u32,
    /// Number of its fault, from 1.
    pub fault: u32,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Request.
    pub seq: u32,
    /// The first step that failed, if one did.
    pub failed: Option<Failed>,
    /// Whether the workers knew that it was called off; tasks that came after were left out.
    pub called_off: bool,
    /// Device clock in nanoseconds, when the request was taken and when it was done.
    pub clock_ns: (u64, u64),
}

/// What the kernel says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidentState {
    /// Epoch of the kernel that wrote last.
    pub epoch: u32,
    /// Whether it takes requests.
    pub running: bool,
}

/// The host's end.
pub struct Ring<W> {
    words: W,
    capacity: u32,
    epoch: u32,
    stopped: bool,
    /// The next request's number, and the first that is not answered.
    next: u32,
    oldest: u32,
    /// Requests called off.
    offs: u32,
    /// Answered, by entry.
    answered: Vec<bool>,
}

impl<W: Words> Ring<W> {
    /// A ring with nothing in it, in zeroed memory of [`abi::ring_bytes`] bytes; `capacity` is made a
    /// power of two up to [`MAX_CAPACITY`]. Numbers of requests begin with 1, the epoch with 0.
    pub fn new(words: W, capacity: u32) -> Ring<W> {
        Ring::starting_at(words, capacity, 1)
    }

    /// The same with another first number.
    pub fn starting_at(words: W, capacity: u32, first: u32) -> Ring<W> {
        let capacity = capacity.clamp(1, MAX_CAPACITY).next_power_of_two();
        Ring {
            words,
            capacity,
            epoch: 0,
            stopped: false,
            next: first,
            oldest: first,
            offs: 0,
            answered: vec![false; capacity as usize],
        }
    }

    /// Entries.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The memory.
    pub fn words(&self) -> &W {
        &self.words
    }

    /// Number of the next request: what a kernel that is started now begins with.
    pub fn next(&self) -> u32 {
        self.next
    }

    /// Epoch of requests pushed from now on.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Requests called off so far: a kernel that is started now knows of those.
    pub fn offs(&self) -> u32 {
        self.offs
    }

    /// Requests that are not answered, or whose answers were not taken.
    pub fn under_way(&self) -> u32 {
        self.next.wrapping_sub(self.oldest)
    }

    fn entry(&self, seq: u32) -> usize {
        (seq & (self.capacity - 1)) as usize
    }

    /// Pushes a request for `slot`; `fresh` when its payload was written since the last one. What was
    /// stored before is seen by the kernel. Returns the request's number.
    ///
    /// # Errors
    /// [`RingError::Full`]; the workers were told to leave; the slot is too high.
    pub fn push(&mut self, slot: u32, fresh: bool) -> Result<u32, RingError<W::Error>> {
        if slot >= MAX_SLOTS {
            return Err(RingError::Slot { slot });
        }
        if self.stopped {
            return Err(RingError::Stopped);
        }
        if self.under_way() >= self.capacity {
            return Err(RingError::Full {
                capacity: self.capacity,
            });
        }
        let seq = self.next;
        let ticket = seq << 16 | (self.epoch & 15) << 12 | slot << 1 | u32::from(fresh);
        let at = self.entry(seq);
        self.answered[at] = false;
        self.words
            .store_release(abi::TICKETS + 4 * at, ticket)
            .map_err(RingError::Words)?;
        self.next = seq.wrapping_add(1);
        Ok(seq)
    }

    /// The answer to request `seq`, once, when it is there.
    ///
    /// # Errors
    /// The request is not under way.
    pub fn poll(&mut self, seq: u32) -> Result<Option<Answer>, RingError<W::Error>> {
        let at = self.entry(seq);
        if seq.wrapping_sub(self.oldest) >= self.under_way() || self.answered[at] {
            return Err(RingError::Unknown { seq });
        }
        let base = abi::answers(self.capacity) + at * size_of::<AnswerEntry>();
        let load = |o: usize| self.words.load_acquire(base + o).map_err(RingError::Words);
        if load(offset_of!(AnswerEntry, seq))? != seq {
            return Ok(None);
        }
        let wide = |o: usize| Ok(u64::from(load(o)?) | u64::from(load(o + 4)?) << 32);
        let error = load(offset_of!(AnswerEntry, error))?;
        let clock_ns = (
            wide(offset_of!(AnswerEntry, begin))?,
            wide(offset_of!(AnswerEntry, end))?,
        );
        let called_off = load(offset_of!(AnswerEntry, off))? != 0;
        self.answered[at] = true;
        while self.oldest != self.next && self.answered[self.entry(self.oldest)] {
            self.oldest = self.oldest.wrapping_add(1);
        }
        Ok(Some(Answer {
            seq,
            failed: failed(error),
            called_off,
            clock_ns,
        }))
    }

    /// Calls request `seq` off: its tasks that did not begin yet are left out, and its answer comes as
    /// soon as those that did are done. Once is enough; the answer is to be waited for as before. A
    /// kernel that was told to leave may run the request to its end.
    ///
    /// # Errors
    /// The request is not under way.
    pub fn call_off(&mut self, seq: u32) -> Result<(), RingError<W::Error>> {
        let at = self.entry(seq);
        if seq.wrapping_sub(self.oldest) >= self.under_way() || self.answered[at] {
            return Err(RingError::Unknown { seq });
        }
        let word = abi::offs(self.capacity) + 4 * self.entry(self.offs);
        self.words
            .store_release(word, seq)
            .map_err(RingError::Words)?;
        let count = self.offs.wrapping_add(1);
        self.words
            .store_release(offset_of!(Header, offs), count)
            .map_err(RingError::Words)?;
        self.offs = count;
        Ok(())
    }

    /// Tells the workers to finish what was pushed and leave.
    ///
    /// # Errors
    /// The memory says no.
    pub fn stop(&mut self) -> Result<(), RingError<W::Error>> {
        self.stopped = true;
        self.words
            .store_release(offset_of!(Header, stop), 1)
            .map_err(RingError::Words)
    }

    /// Tells the workers to leave now, whatever was pushed: those in a wait that is late leave it, those
    /// in a task end that first. What was under way has no answer; see [`Ring::abandon`].
    ///
    /// # Errors
    /// The memory says no.
    pub fn abort(&mut self) -> Result<(), RingError<W::Error>> {
        self.stopped = true;
        self.words
            .store_release(offset_of!(Header, stop), 2)
            .map_err(RingError::Words)
    }

    /// Gives up what is under way, once the kernel has left: asking for such an answer is
    /// [`RingError::Unknown`] from now on. Its slots need fresh tables and zeroed heads.
    pub fn abandon(&mut self) {
        self.oldest = self.next;
        self.answered.fill(true);
    }

    /// From now on requests are for the next epoch: the running kernel finishes what it has and leaves
    /// at the first of them. Give its successor [`Ring::next`] and the epoch returned.
    ///
    /// # Errors
    /// The memory says no.
    pub fn next_epoch(&mut self) -> Result<u32, RingError<W::Error>> {
        self.epoch = self.epoch.wrapping_add(1);
        self.stopped = false;
        self.words
            .store_release(offset_of!(Header, stop), 0)
            .map_err(RingError::Words)?;
        Ok(self.epoch)
    }

    /// What the kernel says of itself.
    ///
    /// # Errors
    /// The memory says no.
    pub fn standing(&self) -> Result<ResidentState, RingError<W::Error>> {
        let v = self
            .words
            .load_acquire(offset_of!(Header, state))
            .map_err(RingError::Words)?;
        Ok(ResidentState {
            epoch: v >> 1,
            running: v & 1 == 1,
        })
    }

    /// Whether a wait was late since this was asked last.
    ///
    /// # Errors
    /// The memory says no.
    pub fn take_late(&mut self) -> Result<bool, RingError<W::Error>> {
        let at = offset_of!(Header, late);
        let late = self.words.load_acquire(at).map_err(RingError::Words)? != 0;
        if late {
            self.words.store_release(at, 0).map_err(RingError::Words)?;
        }
        Ok(late)
    }
}

/// What an answer's word says.
fn failed(error: u32) -> Option<Failed> {
    (error != 0).then(|| Failed {
        step: 4095 - (error >> 20),
        fault: error & 0xf_ffff,
    })
}

#[cfg(test)]
mod tests;
