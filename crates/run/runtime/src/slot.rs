//! Request slots: what a request needs beside its plan, reused between requests. A slot has memory, and for
//! plans of one block everything that follows from the inputs' shapes, so that the next request of the same
//! shapes computes none of it again. `session` takes slots from the pool and gives them back.
use crate::RunError;
use crate::compiled::{Epoch, PlanSet};
use crate::dims::Env;
use crate::dims::same_shapes;
use crate::dims::shape_of;
use crate::prewarm::PrewarmedPlans;
use crate::record::SessionRecord;
use crate::recycled::output;
use crate::value::Shaped;
use device::{AlignedBytes, Frame, Permit, Recycler, Request, UnifiedBuffer, UnifiedRequest};
use layout::DType;
use plan::{Block, PlanSegment, Program, Timeline, ValueIx, VerifiedPlan};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tensor::Tensor;

/// Sets of shapes that a slot remembers.
const SHAPES: usize = 4;
/// Ports up to which no list is allocated.
const FEW: usize = 16;
/// Bytes of dropped outputs that a session keeps for new ones at most.
pub(crate) const RECYCLED_OUTPUTS: usize = 64 << 20;

/// A request slot of a session.
pub(crate) struct RequestSlot {
    /// Arena and scratch, of whichever block runs; as large as the largest so far.
    pub memory: AlignedBytes,
    ready: Vec<ReadyPlan>,
    /// Bytes of `memory` that the session's record knows of.
    booked: usize,
}

/// A plan of one block with everything that follows from one set of input shapes.
pub(crate) struct ReadyPlan {
    version: u64,
    /// Rank and extents of each input, one after the other.
    key: Vec<usize>,
    epoch: Arc<Epoch>,
    frame: Frame,
    symbols: Vec<i64>,
    /// Input of the program that each port reads.
    inputs: Vec<u32>,
    outputs: Vec<Out>,
}

struct Out {
    name: String,
    dtype: DType,
    shape: Vec<usize>,
    bytes: usize,
}

impl ReadyPlan {
    /// The plan of `epoch` made ready for inputs of these shapes; `None` when it is not one block
    /// from the program's inputs to its outputs.
    pub fn new(
        program: &Program,
        epoch: Arc<Epoch>,
        version: u64,
        shapes: &[&[usize]],
        env: &Env,
    ) -> Result<Option<ReadyPlan>, RunError> {
        let Some(block) = only_block(&epoch) else {
            return Ok(None);
        };
        let mut inputs = Vec::new();
        let mut places: BTreeMap<ValueIx, u32> = BTreeMap::new();
        for (i, &v) in program.inputs.iter().enumerate() {
            places.entry(v).or_insert(i as u32);
        }
        for p in &block.inputs {
            match places.get(&p.value) {
                Some(&i) => inputs.push(i),
                None => return Ok(None),
            }
        }
        let mut outputs = Vec::new();
        for ((_, v), p) in program.outputs.iter().zip(&block.outputs) {
            if *v != p.value || matches!(p.dtype, DType::Str | DType::Host) {
                return Ok(None);
            }
            let shape = shape_of(&p.shape, env, &p.name)?;
            outputs.push(Out {
                name: p.name.clone(),
                dtype: p.dtype,
                bytes: Tensor::byte_len(p.dtype, &shape)?,
                shape,
            });
        }
        if program.outputs.len() != block.outputs.len() {
            return Ok(None);
        }
        let symbols = crate::dims::values(&block.symbols, env);
        let mut key = Vec::new();
        for s in shapes {
            key.push(s.len());
            key.extend_from_slice(s);
        }
        let frame = epoch.blocks[0].exe.frame_for(&symbols)?;
        Ok(Some(ReadyPlan {
            version,
            key,
            epoch,
            frame,
            symbols,
            inputs,
            outputs,
        }))
    }

    /// The version of its plan.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Rank and extents of each input, one after the other.
    pub fn key(&self) -> &[usize] {
        &self.key
    }

    /// Runs a request: `inputs` in the program's order, of the shapes this was made for.
    fn run(
        &mut self,
        memory: &mut AlignedBytes,
        inputs: &[Option<&Tensor>],
        outputs: &mut [Tensor],
        timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
        permit: Permit<'_>,
    ) -> Result<(), RunError> {
        let exe = &*self.epoch.blocks[0].exe;
        let (frame, symbols) = (&mut self.frame, &self.symbols);
        let n = self.inputs.len();
        let mut list = self.inputs.iter().map(|&i| {
            let t = inputs.get(i as usize).copied().flatten();
            t.map_or(&[][..], Tensor::bytes)
        });
        let (few, many): ([&[u8]; FEW], Vec<&[u8]>);
        let ins = if n <= FEW {
            few = std::array::from_fn(|_| list.next().unwrap_or_default());
            &few[..n]
        } else {
            many = list.collect();
            &many
        };
        let n = outputs.len();
        let mut list = outputs.iter_mut().map(Tensor::bytes_mut);
        let (mut few, mut many): ([&mut [u8]; FEW], Vec<&mut [u8]>);
        let outs = if n <= FEW {
            few = std::array::from_fn(|_| list.next().unwrap_or_default());
            &mut few[..n]
        } else {
            many = list.collect();
            &mut many
        };
        let request = Request {
            symbols,
            inputs: ins,
            outputs: outs,
            states: &mut [],
            timeline,
            stop_after,
            permit,
        };
        crate::compiled::with_memory(exe, frame, memory, |frame| exe.run(frame, request))?;
        self.epoch.intact()
    }
}

fn only_block(epoch: &Epoch) -> Option<&Block> {
    match epoch.plan.plan().segments.as_slice() {
        [PlanSegment::Block(b)] if b.states.is_empty() => Some(b),
        _ => None,
    }
}

impl RequestSlot {
    pub fn new() -> Result<RequestSlot, RunError> {
        Ok(RequestSlot {
            memory: AlignedBytes::new(0, "the memory of a request")?,
            ready: Vec::new(),
            booked: 0,
        })
    }

    /// Brings what is ready for these shapes to the front, if there is such.
    pub fn find<T: Shaped>(&mut self, version: u64, inputs: &[Option<&T>]) -> bool {
        let shapes = || inputs.iter().map(|t| t.map_or(&[][..], T::shape));
        let hit = |r: &ReadyPlan| r.version == version && same_shapes(&r.key, shapes());
        match self.ready.iter().position(hit) {
            Some(0) => true,
            Some(i) => {
                self.ready[..=i].rotate_right(1);
                true
            }
            None => false,
        }
    }

    /// Puts `ready` in front.
    pub fn keep(&mut self, ready: ReadyPlan) {
        self.ready.truncate(SHAPES - 1);
        self.ready.insert(0, ready);
    }

    /// Puts what was made ready beforehand in front, if there is such.
    fn take(&mut self, prewarmed: Option<ReadyPlan>) -> bool {
        prewarmed.map(|r| self.keep(r)).is_some()
    }

    /// Fresh outputs of what is in front.
    pub fn outputs(&self, buffers: &Arc<Recycler>) -> Result<Vec<Tensor>, RunError> {
        let mut made = Vec::new();
        for o in self.ready.first().iter().flat_map(|r| &r.outputs) {
            made.push(output(buffers, o.dtype, &o.shape, o.bytes, &o.name)?);
        }
        Ok(made)
    }

    /// Whether `outputs` are of the shapes of what is in front.
    pub fn fits(&self, outputs: &[Tensor]) -> bool {
        self.ready.first().is_some_and(|r| {
            r.outputs.len() == outputs.len()
                && r.outputs
                    .iter()
                    .zip(outputs)
                    .all(|(o, t)| o.dtype == t.dtype() && *o.shape == *t.shape())
        })
    }

    /// Runs a request on what is in front.
    pub fn run(
        &mut self,
        inputs: &[Option<&Tensor>],
        outputs: &mut [Tensor],
        timeline: Option<&mut Timeline>,
        stop_after: Option<u32>,
        permit: Permit<'_>,
    ) -> Result<(), RunError> {
        let RequestSlot { memory, ready, .. } = self;
        match ready.first_mut() {
            Some(r) => r.run(memory, inputs, outputs, timeline, stop_after, permit),
            None => Ok(()),
        }
    }

    /// Runs a request on what is in front, on buffers that lie anywhere; gives the outputs where they
    /// were made.
    pub fn run_unified(
        &mut self,
        inputs: &[Option<&UnifiedBuffer>],
        permit: Permit<'_>,
    ) -> Result<Vec<UnifiedBuffer>, RunError> {
        let RequestSlot { memory, ready, .. } = self;
        let Some(r) = ready.first_mut() else {
            return Ok(vec![]);
        };
        let ins: Vec<&UnifiedBuffer> = r
            .inputs
            .iter()
            .filter_map(|&i| inputs.get(i as usize).copied().flatten())
            .collect();
        let mut outs: Vec<UnifiedBuffer> = r
            .outputs
            .iter()
            .map(|o| UnifiedBuffer::new(o.dtype, &o.shape))
            .collect();
        let exe = &*r.epoch.blocks[0].exe;
        let request = UnifiedRequest {
            symbols: &r.symbols,
            inputs: &ins,
            outputs: &mut outs,
            timeline: None,
            permit,
        };
        crate::compiled::with_memory(exe, &mut r.frame, memory, |frame| {
            exe.run_unified(frame, request)
        })?;
        Ok(outs)
    }

    /// The plan of what is in front.
    pub fn plan(&self) -> Option<&Arc<VerifiedPlan>> {
        self.ready.first().map(|r| &r.epoch.plan)
    }

    /// Whether what is in front is for the top of its plan's box, as its prediction is.
    pub fn at_top(&self) -> bool {
        self.ready.first().is_some_and(|r| {
            let symbols = only_block(&r.epoch).map_or(&[][..], |b| &b.symbols);
            let dims = &r.epoch.plan.plan().dims;
            let mut each = symbols.iter().zip(&r.symbols);
            each.all(|(s, v)| dims.get(s).is_none_or(|range| range.hi == *v))
        })
    }

    /// Takes out what was ready for plans that were replaced.
    fn forget<'a>(&'a mut self, plan_set: &'a PlanSet) -> impl Iterator<Item = ReadyPlan> + 'a {
        self.ready.extract_if(.., |r| !plan_set.knows(r.version))
    }
}

/// The slots that no request uses now: never more than requests that ran at once.
pub(crate) struct SlotPool(Mutex<Idle>);

#[derive(Default)]
struct Idle {
    slots: Vec<RequestSlot>,
    prewarmed: PrewarmedPlans,
}

impl SlotPool {
    pub fn new() -> SlotPool {
        SlotPool(Mutex::new(Idle::default()))
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, with whether what is in front of it is ready for these inputs by the plan of this version.
    pub fn take<T: Shaped>(
        &self,
        version: u64,
        inputs: &[Option<&T>],
    ) -> Result<(RequestSlot, bool), RunError> {
        let mut idle = self.idle();
        for i in (0..idle.slots.len()).rev() {
            if idle.slots[i].find(version, inputs) {
                return Ok((idle.slots.swap_remove(i), true));
            }
        }
        let (slot, prewarmed) = (idle.slots.pop(), idle.prewarmed.take(version, inputs));
        drop(idle);
        let mut slot = slot.map_or_else(RequestSlot::new, Ok)?;
        let ready = slot.take(prewarmed);
        Ok((slot, ready))
    }

    /// As [`RequestSlot::find`], where what was made ready beforehand may be brought too.
    pub fn find<T: Shaped>(
        &self,
        slot: &mut RequestSlot,
        version: u64,
        inputs: &[Option<&T>],
    ) -> bool {
        if slot.find(version, inputs) {
            return true;
        }
        let prewarmed = self.idle().prewarmed.take(version, inputs);
        slot.take(prewarmed)
    }

    /// A slot was made ready for requests of these shapes by the plan in use.
    pub fn note(&self, ready: &ReadyPlan) {
        self.idle().prewarmed.note(ready.key());
    }

    /// As [`PrewarmedPlans::wanted`].
    pub fn wanted(&self) -> Vec<(Vec<usize>, usize)> {
        self.idle().prewarmed.wanted()
    }

    /// As [`PrewarmedPlans::replace`].
    pub fn replace(&self, ready: Vec<ReadyPlan>) {
        let left = self.idle().prewarmed.replace(ready);
        drop(left);
    }

    /// Gives a slot back; what it had ready for plans that were replaced meanwhile is forgotten.
    pub fn give_back(&self, plan_set: &PlanSet, record: &SessionRecord, mut slot: RequestSlot) {
        drop(slot.forget(plan_set));
        let bytes = slot.memory.len();
        if bytes != slot.booked {
            // Memory of a slot only grows.
            let more = (bytes - slot.booked.min(bytes)) as u64;
            record.arenas.fetch_add(more, Ordering::Relaxed);
            slot.booked = bytes;
        }
        self.idle().slots.push(slot);
    }

    /// Lets go of plans that were replaced.
    pub fn forget(&self, plan_set: &PlanSet) {
        let mut idle = self.idle();
        let gone: Vec<ReadyPlan> = (idle.slots.iter_mut())
            .flat_map(|l| l.forget(plan_set))
            .collect();
        // Requests wait for the lock, and whoever lets go of plans may stand back for them.
        drop(idle);
        drop(gone);
    }
}
