//! A kernel that stays: its ring, its launch, its end.
use crate::driver::{Arg, Context, FunctionId, Launch, Pinned};
use crate::handles::Stream;
use crate::{DevicePtr, DriverError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use workers::ring::{Answer, Ring, RingError, Words};

/// Pinned memory as a ring's words.
pub(crate) struct PinnedWords(pub Arc<dyn Pinned>);

impl Words for PinnedWords {
    type Error = DriverError;

    fn load_acquire(&self, offset: usize) -> Result<u32, DriverError> {
        self.0.load_acquire(offset)
    }

    fn store_release(&self, offset: usize, value: u32) -> Result<(), DriverError> {
        self.0.store_release(offset, value)
    }
}

/// What a launch of a resident kernel takes.
pub(crate) struct Start {
    pub function: FunctionId,
    pub shape: Launch,
    pub feed: DevicePtr,
    pub slots: DevicePtr,
    pub payloads: DevicePtr,
    pub status: DevicePtr,
    /// Bytes of the feed.
    pub feed_bytes: u64,
    pub slot_bytes: u64,
    pub payload_bytes: u64,
    /// First byte of a slot that fresh tables clear, first of every request, and end.
    pub cleared: (usize, usize, usize),
    /// Polls after which a wait is late.
    pub patience: u32,
    /// Slot whose tables hold no work.
    pub empty: u32,
}

/// A ring with a kernel behind it. The ring outlives kernels: one that left is followed by another.
pub(crate) struct Live {
    ring: Arc<Mutex<Ring<PinnedWords>>>,
    stream: Stream,
    /// Whose it is.
    pub owner: u64,
    /// Slot whose tables hold no work, and whether this kernel has them.
    empty: u32,
    greeted: AtomicBool,
}

fn held<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

fn word(e: RingError<DriverError>) -> DriverError {
    match e {
        RingError::Words(e) => e,
        e => DriverError::Argument {
            call: "ring",
            why: e.to_string(),
        },
    }
}

impl Live {
    /// Launches a kernel that takes requests from `ring`'s next one on.
    pub fn start(
        context: &Arc<dyn Context>,
        ring: &Arc<Mutex<Ring<PinnedWords>>>,
        s: &Start,
        owner: u64,
    ) -> Result<Live, DriverError> {
        let stream = Stream::new(context, 0)?;
        let mut r = held(ring);
        let epoch = r.next_epoch().map_err(word)?;
        let (zero, fault, end) = s.cleared;
        let pointers = [
            r.words().0.device_ptr(),
            s.feed,
            s.slots,
            s.payloads,
            s.status,
        ];
        let mut args: Vec<Arg> = pointers.into_iter().map(Arg::Pointer).collect();
        args.extend(
            [
                s.slot_bytes,
                s.payload_bytes,
                zero as u64,
                end as u64,
                fault as u64,
                u64::from(r.next()),
                u64::from(r.offs()),
                u64::from(epoch),
                u64::from(s.patience),
            ]
            .map(Arg::U64),
        );
        // What the kernel before told its workers is over, its end included.
        context.fill(s.feed, 0, s.feed_bytes, stream.id())?;
        context.launch(s.function, s.shape, &args, stream.id())?;
        drop(r);
        Ok(Live {
            ring: ring.clone(),
            stream,
            owner,
            empty: s.empty,
            greeted: AtomicBool::new(false),
        })
    }

    /// Pushes a request: its number, or `None` while every entry is under way. Entries are free again in
    /// their order, so that one whose answer is not taken yet holds up those behind it.
    pub fn push(&self, slot: u32, fresh: bool) -> Result<Option<u32>, DriverError> {
        match held(&self.ring).push(slot, fresh) {
            Ok(seq) => Ok(Some(seq)),
            Err(RingError::Full { .. }) => Ok(None),
            Err(e) => Err(word(e)),
        }
    }

    /// Calls request `seq` off; its answer is still to be waited for.
    pub fn call_off(&self, seq: u32) -> Result<(), DriverError> {
        match held(&self.ring).call_off(seq) {
            // Its answer was taken, or it was given up: it is over.
            Err(RingError::Unknown { .. }) => Ok(()),
            r => r.map_err(word),
        }
    }

    /// Gives up what is under way in a ring whose kernel is over.
    pub fn abandon(&self) {
        held(&self.ring).abandon();
    }

    /// The acknowledged round trip of a request without work, in nanoseconds of the host's clock, or of
    /// the GPU's own where that is emulated: from before the host's store to after its read of the
    /// answer. `None` when no answer came within `patience`.
    pub fn round_trip(
        &self,
        context: &Arc<dyn Context>,
        patience: Duration,
    ) -> Result<Option<u64>, DriverError> {
        let fresh = !self.greeted.swap(true, Ordering::Relaxed);
        let (began, clock) = (Instant::now(), context.emulated_ns());
        let Some(seq) = self.push(self.empty, fresh)? else {
            self.greeted.fetch_and(!fresh, Ordering::Relaxed);
            return Ok(None);
        };
        loop {
            if answer(&self.ring, seq).map_err(word)?.is_some() {
                break;
            }
            if began.elapsed() > patience {
                return Ok(None);
            }
            std::hint::spin_loop();
        }
        let took = began.elapsed().as_nanos() as u64;
        let emulated = context.emulated_ns().zip(clock);
        Ok(Some(emulated.map_or(took, |(now, then)| now - then)))
    }

    /// Lets the kernel finish what was pushed, and waits until it has left.
    pub fn leave(&self) -> Result<(), DriverError> {
        held(&self.ring).stop().map_err(word)?;
        self.stream.synchronize()
    }

    /// Tells the kernel to leave whatever it was given, and says whether it has within `grace`.
    pub fn abort(&self, context: &Arc<dyn Context>, grace: Duration) -> Result<bool, DriverError> {
        held(&self.ring).abort().map_err(word)?;
        let began = Instant::now();
        while !context.is_done(self.stream.id())? {
            if began.elapsed() > grace {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        held(&self.ring).abandon();
        Ok(true)
    }

    /// Whether the kernel is over, though nobody told it to: an error says why.
    pub fn is_over(&self, context: &Arc<dyn Context>) -> Result<bool, DriverError> {
        context.is_done(self.stream.id())
    }
}

/// The answer to `seq`, when it is there; [`RingError::Unknown`] when it was given up.
pub(crate) fn answer(
    ring: &Mutex<Ring<PinnedWords>>,
    seq: u32,
) -> Result<Option<Answer>, RingError<DriverError>> {
    held(ring).poll(seq)
}
