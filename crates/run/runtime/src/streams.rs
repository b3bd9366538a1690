//! The message queues of a session's streams. A caller that receives runs its own stream's next message, in a
//! batch with messages of other streams where they can be batched.
//!
//! A stream has at most one message running, so that answers come in the order of the messages and each message
//! finds the state that the one before left. Messages that no caller receives are run by one thread of the
//! session (`stream_thread`).
use crate::epoch::{Env, Epoch, lookup};
use crate::interpret::shape_of;
use crate::mask::Mask;
use crate::record::SessionRecord;
use crate::slab::{self, BatchPart, StateLayout, StateStorage};
use crate::stream::Answer;
use crate::stream_thread::StreamThread;
use crate::{Cancel, RunError, Session, stack};
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
    fn outputs_in_place(&self) -> Vec<&str> {
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
struct BatchMember {
    id: u64,
    setup: Arc<StreamSetup>,
    message: Message,
    state: StreamState,
    answer: Option<Result<Answer, RunError>>,
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
    members: Vec<BatchMember>,
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

impl MessageBatch<'_> {
    /// Runs the messages.
    pub fn run(mut self, session: &Session) {
        for m in &mut self.members {
            if m.message.cancel.as_ref().is_some_and(Cancel::is_cancelled) {
                m.answer = Some(session.account(None, Err(RunError::Cancelled)));
            }
        }
        let mut left: Vec<&mut BatchMember> = (self.members.iter_mut())
            .filter(|m| m.answer.is_none())
            .collect();
        if left.len() > 1 && run_batch(session, &mut left).is_ok() {
            return;
        }
        // What is wrong with one message is not the others' fault.
        for m in left {
            let began = session.record.stats.begin();
            let out = match m.setup.block() {
                Some(_) => run_in_place(session, m),
                None => run_carried(session, m),
            };
            m.answer = Some(session.account(began, out));
        }
    }
}

/// The inputs of several messages as those of one request: `pads` rows of zeros stand in front of each one's cache,
/// which makes it as long as that of message `longest`.
fn batch_inputs(
    session: &Session,
    members: &[&mut BatchMember],
    axes: &BatchAxes,
    (longest, pads): (usize, &[usize]),
) -> Result<Vec<Tensor>, RunError> {
    let setup = &members[0].setup;
    let (program, buffers) = (session.program(), session.buffers());
    let shapes = in_place_shapes(session, members[longest]);
    let mut inputs: Vec<Tensor> = vec![];
    for (i, axis) in axes.inputs.iter().enumerate() {
        let value = program.value(program.inputs[i]);
        // State in place enters as zeros of its shape: only the shape is looked at.
        let own = setup.in_place.iter().position(|&p| p as usize == i);
        if let (Some(s), Some(axis)) = (own, axis) {
            let mut shape = shapes[s].clone();
            shape[*axis] = members.iter().map(|m| m.message.items).sum();
            inputs.push(Tensor::zeros(value.dtype, &shape)?);
            continue;
        }
        if let (Some(m), Some(axis)) = (setup.mask.as_ref().filter(|m| m.input == i), axis) {
            let each: Vec<Tensor> = members
                .iter()
                .zip(pads)
                .filter_map(|(own, &pad)| Some((own.message.inputs[i].as_ref()?, pad)))
                .map(|(t, pad)| stack::padded(buffers, t, m.axis, pad, &value.name))
                .collect::<Result<_, _>>()?;
            let each: Vec<&Tensor> = each.iter().collect();
            inputs.push(stack::join(buffers, &each, *axis, &value.name)?);
            continue;
        }
        let state = setup.carried.iter().position(|p| p.input as usize == i);
        let each: Vec<&Tensor> = members
            .iter()
            .filter_map(|m| match state {
                Some(s) => m.state.carried[s].as_ref(),
                None => m.message.inputs[i].as_ref(),
            })
            .collect();
        inputs.push(match (axis, each.first()) {
            (Some(axis), _) => stack::join(buffers, &each, *axis, &value.name)?,
            // Its bytes are equal: they are part of the key.
            (None, Some(t)) => (*t).clone(),
            (None, None) => return Err(RunError::Abandoned),
        });
    }
    Ok(inputs)
}

/// Runs several messages as one request.
fn run_batch(session: &Session, members: &mut [&mut BatchMember]) -> Result<(), RunError> {
    let setup = members[0].setup.clone();
    let Some(batch_axes) = &setup.batch_axes else {
        return Err(RunError::Abandoned);
    };
    let buffers = session.buffers();
    let items: Vec<usize> = members.iter().map(|m| m.message.items).collect();
    // How long each one's caches are, where that may differ.
    let length = |m: &BatchMember| -> usize {
        let grows = setup.mask.as_ref().map(|m| m.grows);
        let first = m.state.shapes.first();
        let n = first.zip(grows).and_then(|(s, g)| s.get(g));
        n.copied().unwrap_or(0)
    };
    let lengths: Vec<usize> = members.iter().map(|m| length(m)).collect();
    let longest = (0..members.len()).max_by_key(|&i| lengths[i]).unwrap_or(0);
    let pads: Vec<usize> = lengths.iter().map(|n| lengths[longest] - n).collect();
    let inputs = batch_inputs(session, members, batch_axes, (longest, &pads))?;
    let list: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
    let began: Vec<_> = members
        .iter()
        .map(|_| session.record.stats.begin())
        .collect();
    let mut env = Env::new();
    let outs = {
        let guard = session.admit()?;
        match &setup.epoch {
            Some(epoch) => {
                env = sizes_in_plan(session, epoch, &list)?;
                let storages = members.iter_mut().map(|m| &mut m.state.in_place).collect();
                let parts = items.iter().zip(&pads);
                let parts: Vec<BatchPart> = parts
                    .map(|(&items, &pad)| BatchPart { items, pad })
                    .collect();
                let slab = slab::share(storages, &parts, &setup.layouts)?;
                let mut states = slab.states();
                session.run_placed(epoch, &list, &env, &mut states, guard.permit_of_all())?
            }
            None => {
                let mut slot = None;
                let permit = guard.permit_of_all();
                let outs = session.run_within(&setup.dims, &list, &mut slot, permit);
                if let Some(l) = slot {
                    session.give_back(l);
                }
                outs?
            }
        }
    };
    let mut parts: Vec<Vec<(usize, Tensor)>> = members.iter().map(|_| vec![]).collect();
    let in_place = setup.outputs_in_place();
    let names = session.output_names();
    for (i, o) in outs.iter().enumerate() {
        if !in_place.contains(&names[i].as_str()) {
            let split = stack::split(buffers, o, batch_axes.outputs[i], &items, &names[i])?;
            parts
                .iter_mut()
                .zip(split)
                .for_each(|(p, t)| p.push((i, t)));
        }
    }
    let mut next: Vec<Vec<Vec<usize>>> = vec![];
    for (n, length) in items.iter().zip(&lengths) {
        let ragged = |s: &Sym| setup.mask.as_ref().is_some_and(|m| m.symbol == *s);
        let own = env.iter().map(|(s, v)| match *s == batch_axes.symbol {
            true => (s.clone(), *n as i64),
            false if ragged(s) => (s.clone(), *length as i64),
            false => (s.clone(), *v),
        });
        next.push(next_shapes(&setup, &own.collect::<Env>())?);
    }
    for (((m, outs), began), shapes) in members.iter_mut().zip(parts).zip(began).zip(next) {
        m.state.shapes = shapes;
        m.state.items = Some(m.message.items);
        let out = store_outputs(session, &m.setup, &mut m.state, outs);
        m.answer = Some(session.account(began, Ok(out)));
    }
    Ok(())
}

/// Puts outputs, by their numbers, that are state where the next message finds them, and names the others.
fn store_outputs(
    session: &Session,
    setup: &StreamSetup,
    state: &mut StreamState,
    outs: Vec<(usize, Tensor)>,
) -> Answer {
    let mut answer = vec![];
    for (i, t) in outs {
        match setup.carried.iter().position(|p| p.output as usize == i) {
            Some(s) => state.carried[s] = Some(t),
            None => answer.push((session.output_names()[i].clone(), t)),
        }
    }
    state.count();
    answer
}

/// Shapes with which the states in place of a message's stream enter, in the order of its block's states.
fn in_place_shapes(session: &Session, m: &BatchMember) -> Vec<Vec<usize>> {
    let states = m.setup.block().into_iter().flat_map(|b| {
        let ports = b.states.iter().map(|s| &b.inputs[s.input as usize]);
        ports.zip(&m.state.shapes)
    });
    let follow = |(port, shape): (&plan::Port, &Vec<usize>)| {
        let extents = port.shape.iter().zip(shape).map(|(d, &n)| {
            // Symbolic extents that another input gives (a batch) follow that input.
            let given = d.as_sym();
            let given = given.and_then(|s| given_extent(session.program(), &m.message.inputs, s));
            given.unwrap_or(n)
        });
        extents.collect()
    };
    states.map(follow).collect()
}

/// The sizes of a request, all in the plan that keeps state in place.
fn sizes_in_plan(
    session: &Session,
    epoch: &Epoch,
    list: &[Option<&Tensor>],
) -> Result<Env, RunError> {
    let env = session.shapes(list)?;
    match epoch.covers(&env) {
        true => Ok(env),
        false => Err(RunError::Stream {
            why: format!(
                "its plan covers {}, and this message is outside; open a stream over a larger range",
                epoch.plan.plan().dims
            ),
        }),
    }
}

/// Shapes of the states in place after a request of these sizes.
fn next_shapes(setup: &StreamSetup, env: &Env) -> Result<Vec<Vec<usize>>, RunError> {
    let states = setup.block().into_iter().flat_map(|b| {
        let ports = b.states.iter();
        ports.map(|s| &b.outputs[s.output as usize])
    });
    states.map(|p| shape_of(&p.shape, env, &p.name)).collect()
}

/// Runs one message whose state goes from output to input as tensors.
fn run_carried(session: &Session, m: &mut BatchMember) -> Result<Answer, RunError> {
    let setup = m.setup.clone();
    let mut list: Vec<Option<&Tensor>> = m.message.inputs.iter().map(Option::as_ref).collect();
    for (pair, t) in setup.carried.iter().zip(&m.state.carried) {
        list[pair.input as usize] = t.as_ref();
    }
    let call = crate::Call {
        cancel: m.message.cancel.as_ref(),
        deadline: None,
    };
    let guard = session.admit_call(call)?;
    let mut slot = None;
    let outs = session.run_within(&setup.dims, &list, &mut slot, guard.permit());
    if let Some(l) = slot {
        session.give_back(l);
    }
    drop(guard);
    let outs = outs?.into_iter().enumerate().collect();
    Ok(store_outputs(session, &setup, &mut m.state, outs))
}

/// Runs one message on the plan that keeps its state in place.
fn run_in_place(session: &Session, m: &mut BatchMember) -> Result<Answer, RunError> {
    let setup = m.setup.clone();
    let (Some(epoch), Some(block)) = (&setup.epoch, setup.block()) else {
        return Err(RunError::Abandoned);
    };
    // State in place enters as zeros of its shape: only the shape is looked at.
    let mut own: Vec<(u32, Tensor)> = vec![];
    let shapes = in_place_shapes(session, m);
    for ((s, shape), &input) in block.states.iter().zip(&shapes).zip(&setup.in_place) {
        let dtype = block.inputs[s.input as usize].dtype;
        own.push((input, Tensor::zeros(dtype, shape)?));
    }
    let mut list: Vec<Option<&Tensor>> = m.message.inputs.iter().map(Option::as_ref).collect();
    for (pair, t) in setup.carried.iter().zip(&m.state.carried) {
        list[pair.input as usize] = t.as_ref();
    }
    for (i, t) in &own {
        list[*i as usize] = Some(t);
    }
    let env = sizes_in_plan(session, epoch, &list)?;
    let call = crate::Call {
        cancel: m.message.cancel.as_ref(),
        deadline: None,
    };
    let guard = session.admit_call(call)?;
    let states = m.state.in_place.own(&setup.layouts)?;
    let outs = session.run_placed(epoch, &list, &env, states, guard.permit());
    drop(guard);
    let outs = outs?;
    m.state.shapes = next_shapes(&setup, &env)?;
    m.state.items = Some(m.message.items);
    let in_place = setup.outputs_in_place();
    let names = session.output_names();
    let outs = outs.into_iter().enumerate();
    let outs = outs.filter(|(i, _)| !in_place.contains(&names[*i].as_str()));
    Ok(store_outputs(session, &setup, &mut m.state, outs.collect()))
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
