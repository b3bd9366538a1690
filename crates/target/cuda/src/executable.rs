//! A compiled block: requests run in frames of their own, on two streams.
mod clocks;
mod resident;
mod section;
mod slots;

use crate::driver::{DevicePtr, Pinned};
use crate::graphs::{self, Graphs};
use crate::handles::{Event, Stream};
use crate::persistent::PersistentBuffers;
use crate::place::{CudaMemory, Gpu};
use crate::pool::Block as Memory;
use crate::staging;
use crate::steps::{CompiledSteps, Work};
use crate::stream_request::{Asked, Far, In, Out, StreamRequest};
use crate::watch::Watch;
use device::{
    AlignedBytes, Device, DeviceError, Executable, Frame, HostMemory, HostPart, Place, Remote,
    Request, Shelf, State, UnifiedRequest,
};
use layout::Arrange;
use machine::Way;
use plan::{Activity, Block, Bound, BufferKind, Params, Size, VerifiedPlan};
use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::time::Instant;
use tensor::WeightStore;

pub(crate) use resident::{ResidentExecutable, ResidentStart};

/// Alignment of everything in a request's memory.
const ALIGN: u64 = 256;
/// Copies from this size on have a stream of their own: below it, an event costs more than the copy.
pub(crate) const LARGE: usize = 256 << 10;
/// Numbers of the streams in a timeline.
pub(crate) const COMPUTE: u32 = 0;
pub(crate) const COPIES: u32 = 1;

pub(crate) struct Port {
    pub name: String,
    pub size: Size,
    pub buffer: usize,
    pub state: bool,
    /// Offset in pinned memory.
    pub staged: usize,
    /// The first step that reads it, or the last that writes it.
    pub step: Option<usize>,
    /// Whether its buffer lies on the device.
    pub here: bool,
}

impl Port {
    /// Whether a caller's buffer of `got` bytes is of the port's size under the parameters `p`; state
    /// has a size of its own.
    pub fn takes(&self, p: &[i64], got: usize) -> Result<(), DeviceError> {
        match self.state {
            true => Ok(()),
            false => device::check_port(&self.name, &self.size, p, got),
        }
    }
}

/// A compiled block of a plan.
pub(crate) struct CudaExecutable {
    pub gpu: Arc<Gpu>,
    pub place: Arc<dyn Place>,
    pub plan: Arc<VerifiedPlan>,
    pub block: usize,
    pub steps: CompiledSteps,
    pub params: Params,
    pub persistent: PersistentBuffers,
    /// Offset of each buffer in a request's memory; `None` for those that stay.
    pub places: Vec<Option<u64>>,
    /// Offset of the words for faults, and bytes in all.
    pub faults: u64,
    pub frame_bytes: u64,
    /// Offset of the words for arrivals.
    pub arrivals: u64,
    /// Bytes of device memory that stay free for a resident kernel, beside weights and a frame.
    pub reserved_bytes: u64,
    pub staged_bytes: usize,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    /// Offset in pinned memory of what each step copies.
    pub staging_offsets: Vec<usize>,
    /// Whether launches in a row are queued as graphs.
    pub graphs: bool,
    /// The host's part, where the plan is over the host and this device.
    pub beside: Option<HostSide>,
}

/// What the host does for a block.
pub(crate) struct HostSide {
    pub part: HostPart,
    /// What init made.
    pub init_results: HostMemory,
    pub weights: Arc<WeightStore>,
}

/// Memory and streams of one request slot.
struct CudaFrame {
    bound: Bound,
    memory: Memory,
    pinned: Arc<dyn Pinned>,
    compute: Stream,
    copies: Stream,
    /// Events used again from request to request.
    events: Vec<Event>,
    /// Of launches that requests use again.
    graphs: Graphs,
    host: Option<HostMemory>,
}

/// Address of memory that is the device's own.
fn own(m: &Arc<dyn Remote>) -> DevicePtr {
    let own = m.as_any().downcast_ref();
    own.map_or(DevicePtr(0), CudaMemory::ptr)
}

/// The states of a request, in the memory that their buffers are in.
#[derive(Default)]
pub(crate) struct StateBuffers<'a> {
    /// How many there are.
    count: usize,
    /// Addresses of buffers on the device.
    pub here: Vec<(usize, DevicePtr)>,
    /// Buffers in the host's memory.
    host: Vec<(u32, &'a mut AlignedBytes)>,
    /// What keeps the memory on the device.
    _memory: Vec<Arc<dyn Remote>>,
}

impl StateBuffers<'_> {
    /// Lends the host's to a frame's memory, or takes them back.
    fn exchange(&mut self, host: &mut Option<HostMemory>) {
        if let Some(memory) = host {
            for (buffer, bytes) in &mut self.host {
                memory.exchange(*buffer, bytes);
            }
        }
    }
}

fn block_of(plan: &VerifiedPlan, block: usize) -> Result<&Block, DeviceError> {
    plan.plan()
        .blocks()
        .nth(block)
        .ok_or_else(|| DeviceError::Unsupported {
            device: "cuda".into(),
            step: format!("block {block}"),
            why: "the plan has no such block".into(),
        })
}

/// Offsets of a request's buffers, of the words for faults, and bytes in all.
fn lay(b: &Block, place: u32) -> Result<(Vec<Option<u64>>, u64, u64), DeviceError> {
    let whole = |bytes: u64| bytes.checked_next_multiple_of(ALIGN);
    let fail = |what: &str, bytes: u64| DeviceError::Memory {
        what: what.into(),
        bytes,
    };
    let arena = b.arena(place);
    let none = || fail("a block", arena);
    let mut end = whole(arena).ok_or_else(none)?;
    let mut places = vec![];
    for buf in &b.buffers {
        if buf.place != place {
            places.push(None);
            continue;
        }
        places.push(match buf.kind {
            BufferKind::Arena => {
                let last = buf.offset.checked_add(buf.bytes);
                if last.is_none_or(|l| l > arena) {
                    return Err(fail(&buf.name, buf.bytes));
                }
                Some(buf.offset)
            }
            BufferKind::Weight(_) | BufferKind::Init => None,
            // A stream has its own.
            BufferKind::State(_) => None,
            BufferKind::Input(_) | BufferKind::Output(_) => {
                let at = end;
                let next = whole(buf.bytes).and_then(|n| end.checked_add(n));
                end = next.ok_or_else(|| fail(&buf.name, buf.bytes))?;
                Some(at)
            }
        });
    }
    let words = b.steps.len() as u64 * 4 + 4;
    let bytes = end.checked_add(words).ok_or_else(none)?;
    Ok((places, end, bytes))
}

/// The device that runs the host's steps of a plan in which the GPU is device `own`.
fn host_for<'a>(
    gpu: &Gpu,
    own: u32,
    host: Option<&'a dyn Device>,
) -> Result<Option<&'a dyn Device>, DeviceError> {
    let refused = |why: &str| DeviceError::Unsupported {
        device: gpu.name.clone(),
        step: "start".into(),
        why: why.into(),
    };
    Ok(match (own, host) {
        (0, _) => None,
        (1, Some(h)) => Some(h),
        (1, None) => {
            return Err(refused(
                "the plan gives steps to the host, which this device was opened without",
            ));
        }
        _ => {
            return Err(refused(
                "the plan is over more than the host and this device; plan for those two",
            ));
        }
    })
}

impl CudaExecutable {
    pub fn new(
        gpu: Arc<Gpu>,
        place: Arc<dyn Place>,
        (plan, block): (Arc<VerifiedPlan>, usize),
        weights: &Arc<WeightStore>,
        host: Option<&dyn Device>,
        (shelf, reserved_bytes): (&dyn Shelf, u64),
    ) -> Result<CudaExecutable, DeviceError> {
        let b = block_of(&plan, block)?;
        let own = plan.plan().devices.len().saturating_sub(1) as u32;
        let host = host_for(&gpu, own, host)?;
        let (places, faults, frame_bytes) = lay(b, own)?;
        let mut params = Params::new();
        let programs = plan.step_programs(block);
        let steps =
            CompiledSteps::compile((&gpu, shelf), (b, &b.steps, own), programs, &mut params)?;
        let mut beside = match host {
            None => None,
            Some(h) => Some(HostSide {
                part: HostPart::new(h, &plan, b, &b.steps, &mut params)?,
                init_results: HostMemory::new(b, |k| *k == BufferKind::Init)?,
                weights: weights.clone(),
            }),
        };
        let mut staged = 0usize;
        let mut room = |buffer: u32| {
            let at = staged;
            let bytes = b.buffers[buffer as usize].bytes.next_multiple_of(ALIGN);
            staged = staged.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
            at
        };
        let mut ports = |list: &[plan::Port], states: Vec<u32>, given: bool| -> Vec<Port> {
            list.iter()
                .enumerate()
                .map(|(i, p)| {
                    let buffer = p.buffer as usize;
                    let uses = |u: &Vec<usize>| u.contains(&buffer);
                    Port {
                        here: b.buffers[buffer].place == own,
                        name: p.name.clone(),
                        size: Size::new(p.dtype, &p.shape, &mut params),
                        buffer,
                        state: states.contains(&(i as u32)),
                        staged: room(p.buffer),
                        step: match given {
                            true => steps.reads.iter().position(uses),
                            false => steps.writes.iter().rposition(uses),
                        },
                    }
                })
                .collect()
        };
        let inputs = ports(&b.inputs, b.states.iter().map(|s| s.input).collect(), true);
        let outputs = ports(
            &b.outputs,
            b.states.iter().map(|s| s.output).collect(),
            false,
        );
        let offsets = steps.work.iter().map(|w| match w {
            Work::CopyDirection(r) => room(r.to),
            _ => 0,
        });
        let staging_offsets = offsets.collect();
        let at = (&*plan, block, own);
        let both = host.zip(beside.as_mut().map(|b| &mut b.init_results));
        let needs = frame_bytes.saturating_add(reserved_bytes);
        let persistent =
            PersistentBuffers::new((&gpu, shelf), at, b, weights, &steps, needs, both)?;
        Ok(CudaExecutable {
            gpu,
            place,
            block,
            steps,
            params,
            persistent,
            places,
            faults,
            frame_bytes,
            arrivals: frame_bytes,
            reserved_bytes,
            staged_bytes: staged,
            inputs,
            outputs,
            staging_offsets,
            graphs: false,
            beside,
            plan,
        })
    }

    pub fn failed(&self, what: &str) -> impl Fn(crate::DriverError) -> DeviceError {
        let (gpu, what) = (self.gpu.clone(), what.to_string());
        move |e| gpu.failed(&what, e)
    }
}

impl Executable for CudaExecutable {
    fn new_frame(&self) -> Result<Frame, DeviceError> {
        let _no_resident = self.gpu.without_resident()?;
        let b = block_of(&self.plan, self.block)?;
        let failed = self.failed("the memory of a request");
        let stream = || Stream::new(&self.gpu.context, 0).map_err(&failed);
        let compute = stream()?;
        let memory = self.gpu.pool.take(self.frame_bytes).map_err(&failed)?;
        if self.steps.arrivals > 0 {
            let words = memory.ptr().offset(self.arrivals);
            let bytes = u64::from(self.steps.arrivals) * 4;
            let zeroed = self.gpu.context.fill(words, 0, bytes, compute.id());
            zeroed.map_err(&failed)?;
        }
        Ok(Frame(Box::new(CudaFrame {
            bound: Bound::for_block(&self.params, b, &self.plan.plan().dims)?,
            memory,
            pinned: self
                .gpu
                .context
                .pinned(self.staged_bytes + b.steps.len() * 4)
                .map_err(&failed)?,
            compute,
            copies: stream()?,
            events: vec![],
            graphs: Graphs::default(),
            host: match &self.beside {
                None => None,
                Some(_) => Some(HostMemory::new(b, |k| {
                    matches!(k, BufferKind::Arena | BufferKind::Output(_))
                })?),
            },
        })))
    }

    fn frames_hold_device_memory(&self) -> bool {
        true
    }

    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError> {
        let Request {
            symbols,
            inputs,
            outputs,
            states,
            timeline,
            stop_after,
            permit,
        } = request;
        let asked = Asked {
            symbols,
            permit,
            inputs: inputs.iter().map(|b| In::Host(b)).collect(),
            outputs: outputs.iter_mut().map(|b| Out::Host(b)).collect(),
            timeline,
            stop_after,
        };
        let states = self.lent_states(states)?;
        self.drained(frame, asked, states)
    }

    fn run_unified(
        &self,
        frame: &mut Frame,
        request: UnifiedRequest<'_>,
    ) -> Result<(), DeviceError> {
        let mut all = self.inputs.iter().chain(&self.outputs);
        if !all.all(|p| p.here) {
            return device::run_on_host(&mut |r| self.run(frame, r), request);
        }
        let mut given = vec![];
        for b in request.inputs {
            given.push(b.at(&self.place)?);
        }
        let mut made = vec![];
        for o in request.outputs.iter() {
            made.push(self.place.allocate(o.bytes())?);
        }
        let bytes = |m: &Arc<dyn Remote>| m.bytes() as usize;
        let asked = Asked {
            symbols: request.symbols,
            permit: request.permit,
            inputs: given.iter().map(|m| In::Device(own(m))).collect(),
            outputs: made.iter().map(|m| Out::Device(own(m), bytes(m))).collect(),
            timeline: request.timeline,
            stop_after: None,
        };
        self.drained(frame, asked, StateBuffers::default())?;
        for (o, m) in request.outputs.iter_mut().zip(made) {
            o.set_at(&self.place, m);
        }
        Ok(())
    }

    fn way(&self) -> Option<Way> {
        self.way_of(false)
    }

    fn step_names(&self) -> Vec<String> {
        self.steps.names.clone()
    }

    fn packed_bytes(&self) -> u64 {
        self.persistent.device_bytes + self.persistent.streamed_bytes
    }
}

impl CudaExecutable {
    /// The same for requests whose steps are launched: in a row as graphs, or one by one, each with the one behind it
    /// where the plan says so.
    ///
    /// # Errors
    /// A launch of two steps cannot be made.
    pub fn launched(
        mut self,
        graphs: bool,
        shelf: &dyn Shelf,
    ) -> Result<CudaExecutable, DeviceError> {
        self.graphs = graphs;
        let plan = self.plan.clone();
        let (b, dims) = (block_of(&plan, self.block)?, &plan.plan().dims);
        let programs = plan.step_programs(self.block);
        let top = |d: &layout::Dim| dims.at_top(d);
        let list = (&b.steps[..], programs);
        (self.steps).join((&self.gpu, shelf), list, top, &mut self.params)?;
        self.arrivals = self.frame_bytes.next_multiple_of(4);
        self.frame_bytes = self.arrivals + u64::from(self.steps.arrivals) * 4;
        Ok(self)
    }

    /// Runs a request; nothing of one that failed is left running when the next one begins.
    fn drained(
        &self,
        frame: &mut Frame,
        asked: Asked<'_, '_>,
        mut states: StateBuffers<'_>,
    ) -> Result<(), DeviceError> {
        if asked.permit.called_off() {
            return Err(DeviceError::Cancelled);
        }
        let _no_resident = self.gpu.without_resident()?;
        let f = frame.0.downcast_mut::<CudaFrame>();
        let f = f.ok_or_else(|| {
            self.refused("the frame was made by another executable; make one with new_frame")
        })?;
        states.exchange(&mut f.host);
        let cut = asked.stop_after.is_some();
        let done = self.request(f, asked, &states);
        states.exchange(&mut f.host);
        if done.is_err() {
            let _ = f.copies.synchronize();
            let _ = f.compute.synchronize();
        }
        // Weights that were on their way for steps which did not run.
        if let (true, Some(ring)) = (done.is_err() || cut, &self.persistent.ring) {
            let ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = ring.copies.synchronize();
        }
        done
    }

    /// The states of a request brought to where the plan has them.
    pub fn lent_states<'a>(
        &self,
        states: &'a mut [&mut State],
    ) -> Result<StateBuffers<'a>, DeviceError> {
        let b = block_of(&self.plan, self.block)?;
        let mut out = StateBuffers {
            count: states.len(),
            ..StateBuffers::default()
        };
        for (s, state) in b.states.iter().zip(states.iter_mut()) {
            let buffer = &b.buffers[s.buffer as usize];
            state.covers(buffer)?;
            if buffer.place == 0 && self.beside.is_some() {
                out.host.push((s.buffer, state.host()?));
                continue;
            }
            let memory = state.at(&self.place)?;
            out.here.push((s.buffer as usize, own(&memory)));
            out._memory.push(memory);
        }
        Ok(out)
    }

    /// Whether every step has a launch of its own in a request whose launches are `timed` or not: so that each has a
    /// time, or is behind the weights that are brought for it.
    fn apart(&self, timed: bool) -> bool {
        timed || self.persistent.loads.iter().any(|l| !l.is_empty())
    }

    /// The way by which the block's kernels are launched for a request whose launches are `timed` or not.
    fn way_of(&self, timed: bool) -> Option<Way> {
        let kernels = self.steps.work.iter().any(|w| matches!(w, Work::Kernel(_)));
        kernels.then_some(match self.graphs && !self.apart(timed) {
            true => Way::Graph,
            false => Way::Steps,
        })
    }

    fn refused(&self, why: &str) -> DeviceError {
        DeviceError::Unsupported {
            device: self.gpu.name.clone(),
            step: "request".into(),
            why: why.into(),
        }
    }

    /// Whether an output's steps can write where the caller wants it: a buffer of its own.
    fn lendable(&self, b: &Block, port: &Port) -> bool {
        let all = self.inputs.iter().chain(&self.outputs);
        let same = all.filter(|p| p.buffer == port.buffer).count();
        matches!(b.buffers[port.buffer].kind, BufferKind::Output(_)) && same == 1 && !port.state
    }

    fn request(
        &self,
        f: &mut CudaFrame,
        mut r: Asked<'_, '_>,
        states: &StateBuffers<'_>,
    ) -> Result<(), DeviceError> {
        let b = block_of(&self.plan, self.block)?;
        let start = Instant::now();
        self.counts(b, &r, states)?;
        let p = f.bound.at(r.symbols)?;
        self.sizes(p, &r)?;
        let all = self.steps.names.len();
        let count = r.stop_after.map_or(all, |s| (s as usize + 1).min(all));
        let streamed = (0..all).filter(|&s| !self.persistent.loads[s].is_empty());
        let ring = self.persistent.ring.as_ref();
        let watch = match &r.timeline {
            Some(_) => Some(Watch::new(
                &self.gpu,
                start,
                [&f.compute, &f.copies],
                count,
            )?),
            None => None,
        };
        let given: Vec<&[u8]> = r
            .inputs
            .iter()
            .map(|i| match i {
                In::Host(b) => *b,
                In::Device(_) => &[],
            })
            .collect();
        let far = match (&self.beside, &mut f.host) {
            (Some(beside), Some(memory)) => Some(Far {
                beside,
                block: b,
                memory,
                inputs: &given,
                symbols: r.symbols,
            }),
            _ => None,
        };
        // Times are taken, and weights brought, launch by launch.
        let timed = watch.is_some() || r.stop_after.is_some();
        let graphs = self.way_of(timed) == Some(Way::Graph);
        let mut g = StreamRequest {
            e: self,
            memory: &f.memory,
            lent: vec![None; b.buffers.len()],
            pinned: &f.pinned,
            compute: &f.compute,
            copies: &f.copies,
            events: &mut f.events,
            used: 0,
            ring: ring.map(|m| m.lock().unwrap_or_else(PoisonError::into_inner)),
            loads: streamed.collect(),
            begun: 0,
            watch,
            far,
            permit: r.permit,
            ahead: VecDeque::new(),
            graphs: graphs.then_some(&mut f.graphs),
            reusable_event: None,
            fetched: vec![],
        };
        self.lend(&mut g, b, &r, states);
        let waits = self.give(&mut g, &r)?;
        let failed = self.failed("a request");
        let faults = self.steps.may_fault();
        let words = f.memory.ptr().offset(self.faults);
        if faults {
            let zeroed = self
                .gpu
                .context
                .fill(words, 0, all as u64 * 4, f.compute.id());
            zeroed.map_err(&failed)?;
        }
        for n in 0..g.ring.as_ref().map_or(0, |r| r.slots.len()) {
            g.prefetch(n)?;
        }
        self.queue_steps(&mut g, &r, (p, count), &waits)?;
        let (watch, fetched) = (g.watch.take(), std::mem::take(&mut g.fetched));
        drop(g);
        self.settle(f, faults.then_some(words))?;
        if r.permit.called_off() {
            return Err(DeviceError::Cancelled);
        }
        self.read_outputs(f, &mut r.outputs, &fetched)?;
        f.copies.synchronize().map_err(self.failed("a request"))?;
        if let (Some(t), Some(w)) = (r.timeline.as_deref_mut(), watch) {
            t.steps = self.step_names();
            t.spans.clear();
            t.device.clear();
            t.launched.extend(self.way_of(true));
            w.write(&self.gpu, t)?;
        }
        Ok(())
    }

    /// Whether a request has as many values of each kind as the block.
    fn counts(
        &self,
        b: &Block,
        r: &Asked<'_, '_>,
        states: &StateBuffers<'_>,
    ) -> Result<(), DeviceError> {
        let same = r.symbols.len() == b.symbols.len()
            && r.inputs.len() == self.inputs.len()
            && r.outputs.len() == self.outputs.len()
            && states.count == b.states.len();
        let why = "symbols, inputs, outputs or states are not as many as the block has";
        same.then_some(()).ok_or_else(|| self.refused(why))
    }

    /// Whether a request's values are of the ports' sizes under the parameters `p`.
    fn sizes(&self, p: &[i64], r: &Asked<'_, '_>) -> Result<(), DeviceError> {
        for (port, given) in self.inputs.iter().zip(&r.inputs) {
            if let In::Host(bytes) = given {
                port.takes(p, bytes.len())?;
            }
        }
        for (port, out) in self.outputs.iter().zip(&r.outputs) {
            port.takes(p, out.len())?;
        }
        Ok(())
    }

    /// Buffers that lie in the caller's memory for this request, or in what both sides see.
    fn lend(
        &self,
        g: &mut StreamRequest<'_>,
        b: &Block,
        r: &Asked<'_, '_>,
        states: &StateBuffers<'_>,
    ) {
        for (port, out) in self.outputs.iter().zip(&r.outputs) {
            if port.here && self.lendable(b, port) {
                g.lent[port.buffer] = match out {
                    Out::Device(at, _) => Some(*at),
                    // Both sides see what is staged.
                    Out::Host(_) if self.gpu.unified() => {
                        Some(g.pinned.device_ptr().offset(port.staged as u64))
                    }
                    Out::Host(_) => None,
                };
            }
        }
        for &(buffer, at) in &states.here {
            g.lent[buffer] = Some(at);
        }
        if self.gpu.unified() {
            self.lend_copies(g, b);
        }
    }

    /// Queues the first `count` steps, each behind the events that it waits for, and what they make for the
    /// caller.
    fn queue_steps(
        &self,
        g: &mut StreamRequest<'_>,
        r: &Asked<'_, '_>,
        (p, count): (&[i64], usize),
        waits: &[Vec<usize>],
    ) -> Result<(), DeviceError> {
        let failed = self.failed("a request");
        let b = block_of(&self.plan, self.block)?;
        // Times are taken, and weights brought, launch by launch.
        let apart = self.apart(g.watch.is_some() || r.stop_after.is_some());
        let mut next = 0;
        while next < count {
            let step = next;
            g.wanted()?;
            for &e in &waits[step] {
                let what = (Activity::Wait, step, 0);
                let (gpu, compute, event) = (&self.gpu, g.compute, &g.events[e]);
                let queue = || compute.wait(event).map_err(&failed);
                Watch::around(&mut g.watch, gpu, compute, COMPUTE, what, queue)?;
            }
            next = step + 1;
            match &self.steps.work[step] {
                Work::Kernel(_) => {
                    let breaks = |s: usize| s >= count || !waits[s].is_empty();
                    let end = match g.graphs.is_some() {
                        _ if apart => next,
                        true => graphs::stretch(step, &self.steps.work, &b.steps, breaks).end,
                        // One launch may be several steps.
                        false => {
                            let most = step + self.steps.most_held(step);
                            let end = (next..most).find(|&s| breaks(s)).unwrap_or(most);
                            step + self.steps.held(step, end, p)
                        }
                    };
                    next = end.max(next);
                    match next - step {
                        1 => g.kernels(step..next, p)?,
                        _ => g.graph(step..next, p)?,
                    }
                }
                Work::Host(_) => g.host(step, p)?,
                Work::Far => g.far(step, p)?,
                Work::CopyDirection(r) => g.copy(step, r, p)?,
            }
            // What no later step writes can leave while they run.
            for (port, out) in self.outputs.iter().zip(&r.outputs) {
                let made = port.step.filter(|s| (step..next).contains(s));
                if let (Some(made), false, true) = (made, port.state, port.here) {
                    g.take(port, made, out)?;
                }
            }
        }
        for (port, out) in self.outputs.iter().zip(&r.outputs) {
            if port.step.is_none() && !port.state && port.here {
                g.take(port, 0, out)?;
            }
        }
        Ok(())
    }

    /// Waits for all steps; an error where one wrote a fault to `words` on the device.
    fn settle(&self, f: &CudaFrame, words: Option<DevicePtr>) -> Result<(), DeviceError> {
        let failed = self.failed("a request");
        let all = self.steps.names.len();
        if let Some(words) = words {
            let to = self.staged_bytes..self.staged_bytes + all * 4;
            let context = &self.gpu.context;
            let queued = context.download_into(&f.pinned, to, words, f.compute.id());
            queued.map_err(&failed)?;
        }
        let done = f.compute.synchronize();
        if words.is_some() {
            let mut words = vec![0; all * 4];
            let read = f.pinned.read(self.staged_bytes, &mut words);
            // A lost GPU's own error says more.
            if read.is_ok() {
                self.steps.fault(&words)?;
            }
        }
        done.map_err(&failed)
    }

    /// Copies outputs that the caller wants in the host's memory to it, those of [`StreamRequest::fetched`] piece by
    /// piece as they arrive.
    fn read_outputs(
        &self,
        f: &CudaFrame,
        outputs: &mut [Out<'_>],
        fetched: &[(usize, usize)],
    ) -> Result<(), DeviceError> {
        let failed = self.failed("a request");
        for (port, out) in self.outputs.iter().zip(outputs) {
            match (out, &f.host) {
                _ if port.state => {}
                (Out::Host(out), _) if port.here => {
                    let first = fetched.iter().find(|x| x.0 == port.staged);
                    if first.is_none() && out.len() >= LARGE {
                        f.copies.synchronize().map_err(&failed)?;
                    }
                    let ready = |piece: usize| match first {
                        Some((_, first)) => f.events[first + piece].synchronize(),
                        None => Ok(()),
                    };
                    staging::read(&f.pinned, port.staged, out, ready).map_err(&failed)?;
                }
                (Out::Host(out), Some(m)) => {
                    let made = m.bytes_kept(port.buffer as u32).get(..out.len());
                    out.copy_from_slice(made.ok_or_else(|| self.refused("an output is missing"))?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Where both sides see one memory: kernels write what the host reads into what it reads from.
    fn lend_copies(&self, g: &mut StreamRequest<'_>, b: &Block) {
        for (w, &staged) in self.steps.work.iter().zip(&self.staging_offsets) {
            let Work::CopyDirection(r) = w else { continue };
            let (from, to) = (&b.buffers[r.from as usize], &b.buffers[r.to as usize]);
            let lent = &mut g.lent[r.from as usize];
            let whole = matches!(from.kind, BufferKind::Arena) && from.bytes <= to.bytes;
            if !r.up && whole && lent.is_none() {
                *lent = Some(g.pinned.device_ptr().offset(staged as u64));
            }
        }
    }

    /// Queues copies of what the request gives, in the order of their use, so that the first step
    /// waits for its own only; gives the events that each step is to wait for.
    fn give(
        &self,
        g: &mut StreamRequest<'_>,
        r: &Asked<'_, '_>,
    ) -> Result<Vec<Vec<usize>>, DeviceError> {
        let all = self.steps.names.len();
        let mut order: Vec<usize> = (0..self.inputs.len()).collect();
        order.arrange_by_key(|&i| self.inputs[i].step);
        let mut waits: Vec<Vec<usize>> = vec![vec![]; all];
        for i in order {
            let port = &self.inputs[i];
            if port.state || self.places[port.buffer].is_none() {
                continue;
            }
            let bytes = match &r.inputs[i] {
                In::Host(bytes) => bytes,
                In::Device(at) => {
                    g.lent[port.buffer] = Some(*at);
                    continue;
                }
            };
            let passed = || self.outputs.iter().any(|o| o.buffer == port.buffer);
            let step = match port.step {
                Some(s) => s,
                // Nobody reads it but the caller.
                None if passed() && all > 0 => 0,
                None => continue,
            };
            let sent = g.send((port.buffer, port.staged, step), bytes)?;
            waits[step].extend(sent);
        }
        Ok(waits)
    }
}
