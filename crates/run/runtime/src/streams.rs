//! The message queues of a session's streams. A caller that receives runs its own stream's next message, in a
//! batch with messages of other streams where they can be batched.
//!
//! A stream has at most one message running, so that answers come in the order of the messages and each message
//! finds the state that the one before left. Messages that no caller receives are run by one thread of the
//! session (`stream_thread`).
use crate::compiled::Epoch;
use crate::dims::{Env, lookup};
use crate::mask::Mask;
use crate::record::SessionRecord;
use crate::slab::{StateLayout, StateStorage};
use crate::{Cancel, RunError};
use layout::{DType, Dim, DimBox, Sym};
use plan::{Block, PlanSegment, Program, StatePair};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tensor::Tensor;

/// The axes along which messages of several streams are batched: those of a symbol that is a whole extent of
/// every state, every output, and every input but those that all messages share.
#[derive(Clone)]
pub(crate) struct BatchAxes {
    pub symbol: Sym,
    /// The axis of each input; `None` for one that all messages share.
    pub inputs: Vec<Option<usize>>,
    pub outputs: Vec<usize>,
}

/// The axis whose extent is `symbol`, if that is the only extent that has to do with it.
fn axis_of(shape: &[Dim], symbol: &str) -> Result<Option<usize>, ()> {
    let mut found = None;
    for (axis, d) in shape.iter().enumerate() {
        let mut all = BTreeSet::new();
        d.symbols(&mut all);
        if all.iter().any(|s| **s == *symbol) {
            if found.is_some() || d.as_sym() != Some(symbol) {
                return Err(());
            }
            found = Some(axis);
        }
    }
    Ok(found)
}

impl BatchAxes {
    /// Along the first symbol that will do and along which items are proved not to influence each other.
    pub fn of(program: &Program) -> Option<BatchAxes> {
        let apart = program.batches.iter().filter(|b| b.crosses.is_none());
        apart.map(|b| &b.symbol).find_map(|symbol| {
            let whole = |v: u32| {
                let value = program.value(v);
                let held = matches!(value.dtype, DType::Str | DType::Host);
                (!held && value.dtype.bits() >= 8).then_some(&value.shape)
            };
            let mut inputs = vec![];
            for (i, &v) in program.inputs.iter().enumerate() {
                let axis = axis_of(whole(v)?, symbol).ok()?;
                let state = program.states.iter().any(|p| p.input as usize == i);
                if axis.is_none() && state {
                    return None;
                }
                inputs.push(axis);
            }
            let own = |i: usize| !program.states.iter().any(|p| p.input as usize == i);
            let given = inputs
                .iter()
                .enumerate()
                .any(|(i, a)| own(i) && a.is_some());
            let outputs = program.outputs.iter();
            let outputs: Option<Vec<usize>> = outputs
                .map(|o| axis_of(whole(o.1)?, symbol).ok().flatten())
                .collect();
            given.then_some(BatchAxes {
                symbol: symbol.clone(),
                inputs,
                outputs: outputs?,
            })
        })
    }
}

/// A stream's configuration: what all its messages have in common.
#[derive(Clone)]
pub(crate) struct StreamSetup {
    /// The box of its plan.
    pub dims: DimBox,
    /// The plan that keeps state in place, if one does.
    pub epoch: Option<Arc<Epoch>>,
    /// Pairs whose state goes from output to input as a tensor.
    pub carried: Vec<StatePair>,
    /// Inputs whose state the plan keeps in place, in the order of its block's states.
    pub in_place: Vec<u32>,
    /// How the items of each of these lie in its memory; none where they are not batched.
    pub layouts: Vec<StateLayout>,
    pub batch_axes: Option<BatchAxes>,
    /// How streams of different lengths are batched, if they are.
    pub mask: Option<Mask>,
    /// Items that may run together.
    pub most: usize,
}

impl StreamSetup {
    /// The block whose state stays in place.
    pub fn block(&self) -> Option<&Block> {
        self.epoch.as_deref().and_then(block_of)
    }

    /// Names of the outputs whose state stays in place.
    pub(crate) fn outputs_in_place(&self) -> Vec<&str> {
        let states = self.block().into_iter().flat_map(|b| {
            let ports = b.states.iter();
            ports.map(|s| b.outputs[s.output as usize].name.as_str())
        });
        states.collect()
    }

    pub fn is_state(&self, input: usize) -> bool {
        let carried = self.carried.iter().any(|p| p.input as usize == input);
        carried || self.in_place.iter().any(|&p| p as usize == input)
    }
}

pub(crate) fn block_of(epoch: &Epoch) -> Option<&Block> {
    match epoch.plan.plan().segments.as_slice() {
        [PlanSegment::Block(b)] => Some(b),
        _ => None,
    }
}

/// Bytes that the session's record counts while this lives.
pub(crate) struct AccountedBytes {
    record: Arc<SessionRecord>,
    which: fn(&SessionRecord) -> &AtomicU64,
    bytes: u64,
}

impl AccountedBytes {
    pub fn state(record: &Arc<SessionRecord>) -> AccountedBytes {
        AccountedBytes {
            record: record.clone(),
            which: |b| &b.states,
            bytes: 0,
        }
    }

    pub fn queue(record: &Arc<SessionRecord>, bytes: u64) -> AccountedBytes {
        let mut b = AccountedBytes {
            record: record.clone(),
            which: |b| &b.queue,
            bytes: 0,
        };
        b.set(bytes);
        b
    }

    pub fn set(&mut self, bytes: u64) {
        let counter = (self.which)(&self.record);
        counter.fetch_add(bytes, Ordering::Relaxed);
        counter.fetch_sub(std::mem::replace(&mut self.bytes, bytes), Ordering::Relaxed);
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for AccountedBytes {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A stream's state between its messages.
pub(crate) struct StreamState {
    /// State tensors, one for each of [`StreamSetup::carried`]; `None` before the first message.
    pub carried: Vec<Option<Tensor>>,
    /// State in place, and its present shapes.
    pub in_place: StateStorage,
    pub shapes: Vec<Vec<usize>>,
    /// Items of its messages so far; `None` before the first.
    pub items: Option<usize>,
    pub accounted: AccountedBytes,
}

impl StreamState {
    /// Has the record count what is kept now.
    pub fn count(&mut self) {
        let carried = self
            .carried
            .iter()
            .flatten()
            .map(|t| t.bytes().len() as u64);
        let bytes = carried.sum::<u64>() + self.in_place.bytes();
        self.accounted.set(bytes);
    }
}

/// One message.
pub(crate) struct Message {
    /// By the program's inputs; state is left out.
    pub inputs: Vec<Option<Tensor>>,
    /// Equal for messages that may be batched; `None` for one that runs by itself.
    pub key: Option<u64>,
    pub items: usize,
    pub cancel: Option<Cancel>,
    /// When it is run if nobody has received it before; `None`: never.
    pub due: Option<Instant>,
    pub _accounted: AccountedBytes,
}

/// A stream's queue, answers and state.
pub(crate) struct StreamEntry {
    pub setup: Arc<StreamSetup>,
    pub queue: VecDeque<Message>,
    pub answers: VecDeque<Result<Answer, RunError>>,
    /// `None` while a message is under way.
    pub state: Option<StreamState>,
}

#[derive(Default)]
pub(crate) struct StreamTable {
    pub all: BTreeMap<u64, StreamEntry>,
    next: u64,
    pub thread: StreamThread,
    /// Batched messages are under way: others that could be batched wait for the next turn together.
    batch_axes: bool,
}

impl StreamTable {
    pub fn add(&mut self, entry: StreamEntry) -> u64 {
        let id = self.next;
        self.next += 1;
        self.all.insert(id, entry);
        id
    }

    /// The stream whose message is to be run first if nobody receives it, of those that can be, and when.
    pub fn due(&self) -> Option<(Instant, u64)> {
        let all = self.all.iter().filter_map(|(&id, entry)| {
            let m = entry.queue.front()?;
            let free = entry.state.is_some() && !(self.batch_axes && m.key.is_some());
            free.then_some((m.due?, id))
        });
        all.min()
    }

    /// Takes the next message of stream `own`, and of others those that run in the same batch.
    fn take(&mut self, own: u64) -> Option<Vec<BatchMember>> {
        let first = self.all.get(&own)?;
        let (key, most, mut items) = match first.queue.front() {
            Some(m) => (m.key, first.setup.most, m.items),
            None => return None,
        };
        if first.state.is_none() || (key.is_some() && self.batch_axes) {
            return None;
        }
        let mut members = vec![own];
        if key.is_some() {
            // From the own stream on, so that none is always the last.
            let others = self.all.range(own + 1..).chain(self.all.range(..own));
            for (&id, entry) in others {
                let Some(m) = entry.queue.front() else {
                    continue;
                };
                if m.key != key || items + m.items > most || !can_batch_states(first, entry) {
                    continue;
                }
                items += m.items;
                members.push(id);
            }
            self.batch_axes = true;
        }
        let mut taken = vec![];
        for id in members {
            if let Some(entry) = self.all.get_mut(&id)
                && let Some(state) = entry.state.take()
                && let Some(message) = entry.queue.pop_front()
            {
                taken.push(BatchMember {
                    id,
                    setup: entry.setup.clone(),
                    message,
                    state,
                    answer: None,
                });
            }
        }
        Some(taken)
    }
}

/// Whether the states of two idle streams can be batched.
fn can_batch_states(a: &StreamEntry, b: &StreamEntry) -> bool {
    let (Some(ka), Some(kb), Some(batch_axes)) = (&a.state, &b.state, &a.setup.batch_axes) else {
        return false;
    };
    // Items of a state in place lie where the message before had them.
    let steady = |l: &StreamEntry, k: &StreamState| {
        let now = l.queue.front().map(|m| m.items);
        k.items.is_none() || k.items == now
    };
    let plans = [&a.setup, &b.setup].map(|s| s.epoch.as_ref().map(Arc::as_ptr));
    if plans[0] != plans[1] || !steady(a, ka) || !steady(b, kb) {
        return false;
    }
    let lengths = ka.shapes.iter().zip(&kb.shapes);
    let mut lengths = lengths.zip(&a.setup.in_place).map(|((x, y), &input)| {
        let along = batch_axes.inputs.get(input as usize).copied().flatten();
        let ragged = a.setup.mask.as_ref().zip(b.setup.mask.as_ref());
        let grows = ragged.map(|(m, _)| m.grows);
        let free = |d: usize| Some(d) == along || Some(d) == grows;
        x.len() == y.len() && (0..x.len()).all(|d| free(d) || x[d] == y[d])
    });
    if !lengths.all(|same| same) {
        return false;
    }
    let states = a
        .setup
        .carried
        .iter()
        .zip(ka.carried.iter().zip(&kb.carried));
    states.into_iter().all(|(pair, both)| match both {
        (Some(x), Some(y)) => {
            let along = batch_axes
                .inputs
                .get(pair.input as usize)
                .copied()
                .flatten();
            let same = |d: usize| Some(d) == along || x.shape()[d] == y.shape()[d];
            x.shape().len() == y.shape().len() && (0..x.shape().len()).all(same)
        }
        _ => false,
    })
}

/// A message under way.
pub(crate) struct BatchMember {
    pub id: u64,
    pub setup: Arc<StreamSetup>,
    pub message: Message,
    pub state: StreamState,
    pub answer: Option<Result<Answer, RunError>>,
}

/// The streams of a session.
#[derive(Default)]
pub(crate) struct StreamQueues {
    table: Mutex<StreamTable>,
    changed: Condvar,
    /// For the thread that runs what nobody receives.
    pub alarm: Condvar,
}

/// Messages that this thread runs. Each of their streams gets an answer and its state back, whatever
/// happens.
pub(crate) struct MessageBatch<'h> {
    queues: &'h StreamQueues,
    pub(crate) members: Vec<BatchMember>,
    batch_axes: bool,
}

impl StreamQueues {
    pub fn table(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until something has changed, for so long at most.
    pub fn wait<'g>(
        &self,
        table: MutexGuard<'g, StreamTable>,
        most: Option<std::time::Duration>,
    ) -> MutexGuard<'g, StreamTable> {
        match most {
            None => self
                .changed
                .wait(table)
                .unwrap_or_else(PoisonError::into_inner),
            Some(t) => {
                let r = self.changed.wait_timeout(table, t);
                r.unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// The next message of stream `own`, with others of other streams where they can be batched; `None`
    /// where none is free to be run.
    pub fn take_batch(&self, table: &mut StreamTable, own: u64) -> Option<MessageBatch<'_>> {
        let members = table.take(own)?;
        let batch_axes = members.first().is_some_and(|m| m.message.key.is_some());
        Some(MessageBatch {
            queues: self,
            members,
            batch_axes,
        })
    }
}

/// The extent that the inputs of a message give to a symbol.
pub(crate) fn given_extent(
    program: &Program,
    inputs: &[Option<Tensor>],
    sym: &str,
) -> Option<usize> {
    program.inputs.iter().zip(inputs).find_map(|(&v, t)| {
        let axis = program
            .value(v)
            .shape
            .iter()
            .position(|d| d.as_sym() == Some(sym))?;
        t.as_ref()?.shape().get(axis).copied()
    })
}

/// Zeros of a state's shape before the first message: extents that the message gives are its, others
/// begin at the bottom of their range in `dims` (an empty cache).
pub(crate) fn initial_state(
    program: &Program,
    pair: StatePair,
    inputs: &[Option<Tensor>],
    dims: &DimBox,
) -> Result<Tensor, RunError> {
    let value = program.value(program.inputs[pair.input as usize]);
    let mut syms = BTreeSet::new();
    value.shape.iter().for_each(|d| d.symbols(&mut syms));
    let mut env = Env::new();
    for s in syms {
        let given = given_extent(program, inputs, &s).map(|n| n as i64);
        let least = || dims.get(&s).map(|r| r.lo);
        let n = given.or_else(least).ok_or_else(|| RunError::Stream {
            why: format!(
                "no input gives dimension '{s}' of state '{}'; give it a range in the stream's dims, or begin with Stream::start",
                value.name
            ),
        })?;
        env.insert(s, n);
    }
    let extent = |d: &Dim| {
        d.eval(&|s| lookup(&env, s))
            .and_then(|n| usize::try_from(n).ok())
    };
    let shape: Option<Vec<usize>> = value.shape.iter().map(extent).collect();
    let shape = shape.ok_or_else(|| RunError::Stream {
        why: format!(
            "state '{}' has no size before the first message; give it one with Stream::start",
            value.name
        ),
    })?;
    Ok(Tensor::zeros(value.dtype, &shape)?)
}

impl Drop for MessageBatch<'_> {
    fn drop(&mut self) {
        let mut table = self.queues.table();
        for m in self.members.drain(..) {
            // A stream that was dropped meanwhile has no entry: its state goes here.
            if let Some(entry) = table.all.get_mut(&m.id) {
                entry.state = Some(m.state);
                let answer = m.answer.unwrap_or(Err(RunError::Abandoned));
                entry.answers.push_back(answer);
            }
        }
        if self.batch_axes {
            table.batch_axes = false;
        }
        self.queues.notify_if_due(&table);
        drop(table);
        self.queues.changed.notify_all();
    }
}

/// Outputs of one message, by name, in the model's order; those that are state are not among them.
pub type Answer = Vec<(String, Tensor)>;

/// State of that thread.
#[derive(Default)]
pub(crate) struct StreamThread {
    /// Started and not ended.
    pub(crate) running: bool,
    /// Asked to end.
    pub(crate) closed: bool,
    /// Sleeping: until then, or without a limit.
    pub(crate) asleep: Option<Option<Instant>>,
}
