//! Streams, as callers see them: messages in order, each finding the state that the one before left. Their
//! queues and their batching are in `streams`.
use crate::mask::Mask;
use crate::slab::{StateLayout, StateStorage};
use crate::streams::Answer;
use crate::streams::{
    AccountedBytes, BatchAxes, Message, StreamEntry, StreamSetup, StreamState, block_of,
    initial_state,
};
use crate::{Cancel, RunError, Session};
use device::State;
use layout::DimBox;
use plan::StatePair;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::Tensor;

/// Messages of a stream whose answers were not received, at most, where nothing else is said.
pub const STREAM_CAPACITY: usize = 64;
/// How long a message lies for somebody to receive it, where nothing else is said: others that it may be
/// batched with are mostly sent within this time.
const LINGER: Duration = Duration::from_millis(1);
/// Bytes of an input that messages share, up to which it is looked at whether they do.
const SHARED: usize = 256;

/// Messages in a row of which each finds the state (KV caches, recurrent state) that the one before left.
///
/// State is declared by pairing outputs with inputs. Where it grows along an axis it stays in place in the
/// device's memory and nothing of it is copied; else the output's tensor becomes the next input as it is.
/// [`Stream::send`] queues a message, [`Stream::receive`] gives the answers in the same order. Whoever
/// waits for an answer works, as with [`Session::run`]. A message that nobody has received for a while
/// ([`Stream::with_linger`]), or that somebody has asked for by [`Stream::try_receive`], is run by a thread
/// that all streams of the session share; it is started by the first such message.
///
/// Messages of several streams of a session that wait at that moment run as one, where they can be batched:
/// where one symbol is an extent of every state, of every output and of every input but those that are equal,
/// and the stream's box lets it be as large. State in place is batched too: streams whose caches are equally
/// long keep them side by side as long as they run together, and nothing is copied then; one whose company
/// changes is moved once. Caches of different lengths run one by one, unless the model has an input that says
/// which of their rows count ([`Stream::with_mask`]). They are batched
/// only where the model's graph proves that items of such a batch do not influence each other; a box with a
/// batch of the message's own size keeps streams apart in any case.
///
/// It keeps its session alive. Dropping a stream frees its state.
pub struct Stream {
    session: Arc<Session>,
    entry: u64,
    setup: Arc<StreamSetup>,
    capacity: usize,
    linger: Duration,
}

/// Refuses a plan over less than a stream asked for: its state would begin in the middle.
fn covered(asked: &DimBox, planned: &DimBox) -> Result<(), RunError> {
    for (name, r) in asked.iter() {
        let Some(p) = planned.get(name).filter(|p| (p.lo, p.hi) != (r.lo, r.hi)) else {
            continue;
        };
        return Err(RunError::Stream {
            why: format!(
                "no plan covers {name}={}..{} as a whole, only {}..{}; open it over that, or over less",
                r.lo, r.hi, p.lo, p.hi
            ),
        });
    }
    Ok(())
}

impl Stream {
    pub(crate) fn new(session: &Arc<Session>, dims: &DimBox) -> Result<Stream, RunError> {
        let program = session.program();
        let grows = |p: &StatePair| {
            let shape = |v: u32| &program.value(v).shape;
            let input = program.inputs.get(p.input as usize);
            let output = program.outputs.get(p.output as usize);
            match (input, output) {
                (Some(&i), Some(o)) => shape(i) != shape(o.1),
                _ => false,
            }
        };
        let mut setup = StreamSetup {
            dims: dims.clone(),
            epoch: None,
            carried: program.states.clone(),
            in_place: vec![],
            layouts: vec![],
            batch_axes: None,
            mask: None,
            most: 0,
        };
        if program.states.iter().any(grows) {
            let epoch = session.stream_epoch(dims)?;
            covered(dims, &epoch.plan.plan().dims)?;
            // With control flow no plan is one block, and state goes from output to input.
            if let Some(block) = block_of(&epoch) {
                let input = |port: u32| {
                    let value = block.inputs[port as usize].value;
                    program.inputs.iter().position(|&v| v == value)
                };
                let placed = block.states.iter().filter_map(|s| input(s.input));
                setup.in_place = placed.map(|i| i as u32).collect();
            }
            setup.carried.retain(|p| !setup.in_place.contains(&p.input));
            setup.epoch = (!setup.in_place.is_empty()).then_some(epoch);
        }
        setup.batch_axes = BatchAxes::of(program);
        if let (Some(epoch), Some(block)) = (&setup.epoch, setup.block()) {
            let along = |j: &BatchAxes| {
                let axis = |&i: &u32| j.inputs.get(i as usize).copied().flatten();
                setup.in_place.iter().map(axis).collect::<Option<Vec<_>>>()
            };
            let along = setup.batch_axes.as_ref().and_then(along);
            let range = &epoch.plan.plan().dims;
            match along.and_then(|a| StateLayout::of(block, range, &a)) {
                Some(layouts) => setup.layouts = layouts,
                None => setup.batch_axes = None,
            }
        }
        let top = |j: &BatchAxes| dims.get(&j.symbol).map_or(0, |r| r.hi);
        let most = setup.batch_axes.as_ref().map_or(0, top);
        setup.most = usize::try_from(most).unwrap_or(0);
        let mut state = StreamState {
            carried: setup.carried.iter().map(|_| None).collect(),
            in_place: StateStorage::Own(vec![]),
            shapes: vec![],
            items: None,
            accounted: AccountedBytes::state(&session.record),
        };
        if let (Some(epoch), Some(block)) = (&setup.epoch, setup.block()) {
            let range = &epoch.plan.plan().dims;
            let mut own = vec![];
            for s in &block.states {
                let port = &block.inputs[s.input as usize];
                let buffer = &block.buffers[s.buffer as usize];
                own.push(State::new(buffer.bytes as usize, &port.name));
                // The growing dimension starts at the bottom of its range: an empty cache.
                let extent = |d: &layout::Dim| {
                    let r = range.bounds(d)?;
                    usize::try_from(if d.known().is_some() { r.hi } else { r.lo }).ok()
                };
                let shape = port.shape.iter().map(|d| extent(d).unwrap_or(0));
                state.shapes.push(shape.collect());
            }
            state.in_place = StateStorage::Own(own);
        }
        state.count();
        let setup = Arc::new(setup);
        let entry = session.streams.table().add(StreamEntry {
            setup: setup.clone(),
            queue: VecDeque::new(),
            answers: VecDeque::new(),
            state: Some(state),
        });
        Ok(Stream {
            session: session.clone(),
            entry,
            setup,
            capacity: STREAM_CAPACITY,
            linger: LINGER,
        })
    }

    /// The same stream, with at most so many messages whose answers were not received (at least 1).
    #[must_use]
    pub fn with_capacity(mut self, messages: usize) -> Stream {
        self.capacity = messages.max(1);
        self
    }

    /// The same stream, whose messages lie so long for somebody to receive them, and for others to be joined
    /// with, before they are run all the same (1 ms where nothing is said). With [`Duration::MAX`] nothing is
    /// run unless somebody receives it or asks for it.
    #[must_use]
    pub fn with_linger(mut self, linger: Duration) -> Stream {
        self.linger = linger;
        self
    }

    /// The same stream, which may run in a batch with others whose caches are of other lengths. `input` says which
    /// rows of the caches count: one of its axes is as long as they are after the message, and where it is 0
    /// the model takes a row to be not there. Shorter caches, and `input`, are filled up at their front with
    /// zeros. That rows so hidden have no influence at all, and that positions are not counted from the
    /// caches' length, is the model's promise, which nothing here can see: a mask that is added before a
    /// softmax keeps it where it makes weights exactly 0. Only before the first message.
    ///
    /// # Errors
    /// No such input, or caches that cannot be filled up; messages were sent.
    pub fn with_mask(mut self, input: &str) -> Result<Stream, RunError> {
        let mask = Mask::of(self.session.program(), &self.setup, input)?;
        let setup = StreamSetup {
            mask: Some(mask),
            ..StreamSetup::clone(&self.setup)
        };
        let mut table = self.session.streams.table();
        let entry = table.all.get_mut(&self.entry);
        let fresh = |l: &&mut StreamEntry| {
            let new = l.state.as_ref().is_some_and(|k| k.items.is_none());
            new && l.queue.is_empty() && l.answers.is_empty()
        };
        let Some(entry) = entry.filter(fresh) else {
            return Err(RunError::Stream {
                why: "messages were sent; say what masks the caches before the first".into(),
            });
        };
        self.setup = Arc::new(setup);
        entry.setup = self.setup.clone();
        drop(table);
        Ok(self)
    }

    /// Names of the inputs that this stream keeps itself, in the model's order.
    pub fn state_inputs(&self) -> Vec<String> {
        let program = self.session.program();
        let inputs = program.inputs.iter().enumerate();
        let kept = inputs.filter(|(i, _)| self.setup.is_state(*i));
        kept.map(|(_, &v)| program.value(v).name.clone()).collect()
    }

    /// Those of [`Stream::state_inputs`] whose state stays in place in the device's memory.
    pub fn in_place(&self) -> Vec<String> {
        let program = self.session.program();
        let value = |&i: &u32| program.value(program.inputs[i as usize]).name.clone();
        self.setup.in_place.iter().map(value).collect()
    }

    /// Bytes of state, as long as no message is under way in another thread.
    pub fn state_bytes(&self) -> u64 {
        self.with_state(|k| k.accounted.bytes()).unwrap_or(0)
    }

    /// Where each state in place is: `host`, or the device's name; left out before the first message.
    pub fn state_places(&self) -> Vec<String> {
        self.with_state(|k| k.in_place.places()).unwrap_or_default()
    }

    fn with_state<T>(&self, f: impl FnOnce(&mut StreamState) -> T) -> Option<T> {
        let mut table = self.session.streams.table();
        let entry = table.all.get_mut(&self.entry)?;
        entry.state.as_mut().map(f)
    }

    /// Messages whose answers were not received.
    pub fn pending(&self) -> usize {
        let table = self.session.streams.table();
        table.all.get(&self.entry).map_or(0, |l| {
            l.queue.len() + l.answers.len() + usize::from(l.state.is_none())
        })
    }

    /// Answers that are there to be received.
    pub fn ready(&self) -> usize {
        let table = self.session.streams.table();
        table.all.get(&self.entry).map_or(0, |l| l.answers.len())
    }

    /// Begins with this state instead of zeros, or goes on with it. Only while no message is pending.
    ///
    /// # Errors
    /// An input that is no state or is kept in place, another type, or messages that are pending.
    pub fn start(&mut self, states: &[(&str, &Tensor)]) -> Result<(), RunError> {
        if self.pending() > 0 {
            return Err(RunError::Stream {
                why: "messages are pending; receive their answers before state is set".into(),
            });
        }
        let program = self.session.program().clone();
        let mut found = vec![];
        for (name, t) in states {
            let of = |p: &StatePair| program.value(program.inputs[p.input as usize]);
            let at = self.setup.carried.iter().position(|p| of(p).name == *name);
            let Some(at) = at else {
                let kept: Vec<String> = self
                    .setup
                    .carried
                    .iter()
                    .map(|p| of(p).name.clone())
                    .collect();
                return Err(RunError::Stream {
                    why: format!(
                        "'{name}' is no state that can be set; it can be set for: {}",
                        match kept.is_empty() {
                            true => "none".to_string(),
                            false => kept.join(", "),
                        }
                    ),
                });
            };
            let value = of(&self.setup.carried[at]);
            if t.dtype() != value.dtype {
                return Err(RunError::Type {
                    name: value.name.clone(),
                    want: value.dtype.to_string(),
                    got: t.dtype().to_string(),
                });
            }
            found.push((at, (*t).clone()));
        }
        self.with_state(|k| {
            for (at, t) in found {
                k.carried[at] = Some(t);
            }
            k.count();
        });
        Ok(())
    }

    /// Queues a message: every input by name, but for state.
    ///
    /// # Errors
    /// [`RunError::StreamFull`]; inputs of other names or types. What is wrong beyond that is the
    /// message's answer.
    pub fn send(&mut self, inputs: &[(&str, &Tensor)]) -> Result<(), RunError> {
        self.queue(inputs, None, Instant::now().checked_add(self.linger))
    }

    /// As [`Stream::send`]; a message that `cancel` gives up is passed over, and its answer is
    /// [`RunError::Cancelled`]. The state is that of the message before it.
    ///
    /// # Errors
    /// As [`Stream::send`].
    pub fn send_cancellable(
        &mut self,
        inputs: &[(&str, &Tensor)],
        cancel: &Cancel,
    ) -> Result<(), RunError> {
        let due = Instant::now().checked_add(self.linger);
        self.queue(inputs, Some(cancel.clone()), due)
    }

    fn queue(
        &mut self,
        inputs: &[(&str, &Tensor)],
        cancel: Option<Cancel>,
        due: Option<Instant>,
    ) -> Result<(), RunError> {
        let pending = self.pending();
        if pending >= self.capacity {
            return Err(RunError::StreamFull { pending });
        }
        let program = self.session.program();
        let state = |name: &str| {
            let at = program
                .inputs
                .iter()
                .position(|&v| program.value(v).name == name);
            at.is_some_and(|i| self.setup.is_state(i))
        };
        if let Some((name, _)) = inputs.iter().find(|(n, _)| state(n)) {
            return Err(RunError::Stream {
                why: format!(
                    "input '{name}' is state that the stream keeps; leave it out, or set it with Stream::start"
                ),
            });
        }
        // State stands in as empty tensors of its type.
        let mut own = vec![];
        for (i, &v) in program.inputs.iter().enumerate() {
            if self.setup.is_state(i) {
                own.push((i, Tensor::zeros(program.value(v).dtype, &[0])?));
            }
        }
        let mut list = vec![None; program.inputs.len()];
        own.iter().for_each(|(i, t)| list[*i] = Some(t));
        self.session.resolve(inputs, &mut list)?;
        self.session.types(&list)?;
        let named = list.iter().enumerate();
        let given: Vec<Option<Tensor>> = named
            .map(|(i, t)| t.filter(|_| !self.setup.is_state(i)).cloned())
            .collect();
        let bytes = given.iter().flatten().map(|t| t.bytes().len() as u64).sum();
        let (key, items) = self.key(&given);
        let first = |p: &StatePair| initial_state(program, *p, &given, &self.setup.dims);
        let mut table = self.session.streams.table();
        if let Some(at) = due {
            self.session.wake_at(&mut table, at)?;
        }
        if let Some(entry) = table.all.get_mut(&self.entry) {
            if let Some(k) = &mut entry.state
                && entry.queue.is_empty()
            {
                for (p, t) in self.setup.carried.iter().zip(&mut k.carried) {
                    if t.is_none() {
                        *t = Some(first(p)?);
                    }
                }
                k.count();
            }
            entry.queue.push_back(Message {
                inputs: given,
                key,
                items,
                cancel,
                due,
                _accounted: AccountedBytes::queue(&self.session.record, bytes),
            });
        }
        Ok(())
    }

    /// What messages must have in common to be joined, and how many items this one has.
    fn key(&self, inputs: &[Option<Tensor>]) -> (Option<u64>, usize) {
        let Some(batch_axes) = self
            .setup
            .batch_axes
            .as_ref()
            .filter(|_| self.setup.most > 1)
        else {
            return (None, 1);
        };
        // FNV-1a.
        let mut h = 0xcbf2_9ce4_8422_2325u64;
        let mut add = |b: &[u8]| {
            for &b in b {
                h = (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        add(self.setup.dims.to_string().as_bytes());
        let mask = self.setup.mask.as_ref();
        add(&mask.map_or(usize::MAX, |m| m.input).to_le_bytes());
        let mut items = None;
        for (i, (t, axis)) in inputs.iter().zip(&batch_axes.inputs).enumerate() {
            let Some(t) = t else { continue };
            add(&[0xff]);
            for (d, n) in t.shape().iter().enumerate() {
                if mask.is_some_and(|m| (m.input, m.axis) == (i, d)) {
                    // It is as long as the longest one's when they run.
                    continue;
                }
                if Some(d) == *axis {
                    if *items.get_or_insert(*n) != *n {
                        return (None, 1);
                    }
                } else {
                    add(&n.to_le_bytes());
                }
            }
            if axis.is_none() {
                if t.bytes().len() > SHARED {
                    return (None, 1);
                }
                add(t.bytes());
            }
        }
        let items = items.unwrap_or(0);
        let alone = items == 0 || items >= self.setup.most;
        ((!alone).then_some(h), items)
    }

    /// The answer to the first message whose answer was not received, waiting for it; the calling thread
    /// works.
    ///
    /// # Errors
    /// That message's; nothing was sent.
    pub fn receive(&mut self) -> Result<Answer, RunError> {
        match self.next(None, true)? {
            Some(a) => Ok(a),
            None => Err(RunError::Abandoned),
        }
    }

    /// As [`Stream::receive`], and `None` where another thread has run it for so long and is not done.
    /// What nobody else runs the calling thread does, however long that takes.
    ///
    /// # Errors
    /// As [`Stream::receive`].
    pub fn receive_timeout(&mut self, wait: Duration) -> Result<Option<Answer>, RunError> {
        self.next(Some(Instant::now().checked_add(wait)).flatten(), true)
    }

    /// The answer if it is there; runs nothing itself, and has what was sent run now, in another thread.
    ///
    /// # Errors
    /// As [`Stream::receive`].
    pub fn try_receive(&mut self) -> Result<Option<Answer>, RunError> {
        self.next(Some(Instant::now()), false)
    }

    fn next(&mut self, until: Option<Instant>, works: bool) -> Result<Option<Answer>, RunError> {
        let queues = self.session.streams.clone();
        let mut table = queues.table();
        loop {
            let Some(entry) = table.all.get_mut(&self.entry) else {
                return Err(RunError::Abandoned);
            };
            if let Some(a) = entry.answers.pop_front() {
                return a.map(Some);
            }
            if entry.queue.is_empty() && entry.state.is_some() {
                return Err(RunError::Stream {
                    why: "nothing was sent whose answer could be received; send first".into(),
                });
            }
            if works && let Some(batch) = queues.take_batch(&mut table, self.entry) {
                drop(table);
                batch.run(&self.session);
                table = queues.table();
                continue;
            }
            if !works {
                let now = Instant::now();
                let queued = table.all.get_mut(&self.entry).into_iter();
                for m in queued.flat_map(|l| &mut l.queue) {
                    m.due = Some(m.due.map_or(now, |t| t.min(now)));
                }
                self.session.wake_at(&mut table, now)?;
                return Ok(None);
            }
            let left = until.map(|t| t.saturating_duration_since(Instant::now()));
            if left.is_some_and(|t| t.is_zero()) {
                return Ok(None);
            }
            table = queues.wait(table, left);
        }
    }

    /// Sends a message and receives its answer.
    ///
    /// # Errors
    /// The message's; earlier messages are pending.
    pub fn run(&mut self, inputs: &[(&str, &Tensor)]) -> Result<Answer, RunError> {
        if self.pending() > 0 {
            return Err(RunError::Stream {
                why: "messages are pending; receive their answers before one is run".into(),
            });
        }
        // Nobody but its caller runs it.
        self.queue(inputs, None, None)?;
        self.receive()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let entry = self.session.streams.table().all.remove(&self.entry);
        // Outside the lock: freeing a large state takes a while.
        drop(entry);
    }
}

impl Session {
    /// A stream: state declared by the program stays between its messages. `dims` is the box that one
    /// plan covers for the stream's whole life.
    ///
    /// # Errors
    /// State that grows, and a dim without a range.
    pub fn stream(self: &Arc<Session>, dims: &DimBox) -> Result<Stream, RunError> {
        Stream::new(self, dims)
    }
}
