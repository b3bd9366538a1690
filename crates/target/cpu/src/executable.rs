//! A compiled block: its steps, the memory of a request, and the run of one.
use crate::exec::View;
use crate::exec::calls::Known;
use crate::job::Job;
use crate::pool::{Pool, Workspace};
use crate::steps::CompiledSteps;
use device::{
    AlignedBytes, DeviceError, Executable, Frame, PackedBytes, PackedKey, Permit, Request,
};
use layout::DType;
use plan::{
    Block, Bound, BufferKind, Params, Plan, Size, Span, TileNeeds, TiledPlan, VerifiedPlan,
    WORKERS_PAY,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tensor::WeightStore;
use workers::flow::Flow;

/// Below this predicted time a request runs on the calling thread alone.
const TINY_S: f64 = 20e-6;
/// Memory of a buffer that outlives requests.
pub(crate) enum PersistentBuffer {
    /// Init results, with the keys they are kept under, and aligned copies.
    Bytes(Arc<PackedBytes>, Option<PackedKey>),
    /// A constant in the mapped file.
    Weight(*const u8),
    /// Belongs to a frame or a request.
    No,
}

/// A port, its size as parameters.
struct CPort {
    name: String,
    size: Size,
    buffer: usize,
    state: bool,
}

/// A compiled block of a plan.
pub(crate) struct CpuExecutable {
    id: u64,
    pool: Arc<Pool>,
    plan: Arc<VerifiedPlan>,
    block: usize,
    steps: CompiledSteps,
    kept: Vec<PersistentBuffer>,
    inputs: Vec<CPort>,
    outputs: Vec<CPort>,
    tiny: bool,
    /// Steps that do not wait for each other are worth to be run side by side.
    abreast: bool,
    /// Bytes of the arena, a multiple of the alignment of scratch, which lies behind it.
    arena: usize,
    packed: u64,
    /// Keeps mapped weights alive.
    _weights: Arc<WeightStore>,
}

// SAFETY: weights are read only and kept alive by the store.
unsafe impl Send for CpuExecutable {}
// SAFETY: as above.
unsafe impl Sync for CpuExecutable {}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Block number `block` of a plan, counting blocks only.
pub(crate) fn block_of(plan: &Plan, block: usize) -> Result<&Block, DeviceError> {
    plan.blocks()
        .nth(block)
        .ok_or_else(|| DeviceError::Unsupported {
            device: "cpu".into(),
            step: format!("block {block}"),
            why: "the plan has no such block".into(),
        })
}

/// What compiling a block makes of its steps and ports alone.
pub(crate) struct CompiledBlock {
    steps: CompiledSteps,
    inputs: Vec<CPort>,
    outputs: Vec<CPort>,
}

impl CompiledBlock {
    pub(crate) fn new(
        plan: &TiledPlan,
        block: usize,
        kernels: &'static crate::ukr::Kernels,
    ) -> Result<CompiledBlock, DeviceError> {
        let b = block_of(plan.plan(), block)?;
        let mut params = Params::within(&plan.plan().dims);
        let mut ports = |ports: &[plan::Port], states: Vec<u32>| -> Vec<CPort> {
            ports
                .iter()
                .enumerate()
                .map(|(i, p)| CPort {
                    name: p.name.clone(),
                    size: Size::new(p.dtype, &p.shape, &mut params),
                    buffer: p.buffer as usize,
                    state: states.contains(&(i as u32)),
                })
                .collect()
        };
        let inputs = ports(&b.inputs, b.states.iter().map(|s| s.input).collect());
        let outputs = ports(&b.outputs, b.states.iter().map(|s| s.output).collect());
        let steps = CompiledSteps::compile(
            &b.steps,
            plan.step_programs(block),
            &plan.plan().dims,
            kernels,
            params,
        )?;
        Ok(CompiledBlock {
            steps,
            inputs,
            outputs,
        })
    }
}

/// A compiled block of a plan that is not proved yet: nothing comes out of it but with that plan's proof.
pub(crate) struct UnprovedBlock {
    plan: Arc<TiledPlan>,
    block: usize,
    made: CompiledBlock,
}

impl UnprovedBlock {
    pub(crate) fn new(
        plan: Arc<TiledPlan>,
        block: usize,
        kernels: &'static crate::ukr::Kernels,
    ) -> Result<UnprovedBlock, DeviceError> {
        let made = CompiledBlock::new(&plan, block, kernels)?;
        Ok(UnprovedBlock { plan, block, made })
    }

    /// What was compiled, if it is block `block` of `plan`.
    pub(crate) fn of(self, plan: &VerifiedPlan, block: usize) -> Option<CompiledBlock> {
        (Arc::ptr_eq(&self.plan, plan.tiled()) && self.block == block).then_some(self.made)
    }
}

impl CpuExecutable {
    /// Gives the buffers of ports and states the memory of a request, staged where it is not aligned.
    #[inline]
    fn bind(
        &self,
        f: &mut CpuFrame,
        b: &Block,
        request: &mut Request<'_>,
    ) -> Result<(), DeviceError> {
        let count = |got: usize, want: usize, what: &str| {
            if got == want {
                Ok(())
            } else {
                Err(DeviceError::Port {
                    port: format!("the list of {what}"),
                    want: want as u64,
                    got: got as u64,
                })
            }
        };
        count(request.inputs.len(), self.inputs.len(), "inputs")?;
        count(request.outputs.len(), self.outputs.len(), "outputs")?;
        count(request.states.len(), b.states.len(), "states")?;
        let fits = |port: &CPort, want: usize, got: usize| {
            if want == got {
                Ok(())
            } else {
                Err(DeviceError::Port {
                    port: port.name.clone(),
                    want: want as u64,
                    got: got as u64,
                })
            }
        };
        for (i, (port, bytes)) in self.inputs.iter().zip(request.inputs).enumerate() {
            if port.state {
                continue;
            }
            fits(port, f.sizes[i], bytes.len())?;
            f.bufs[port.buffer] = if aligned(bytes.as_ptr(), port.size.dtype) {
                bytes.as_ptr().cast_mut()
            } else {
                let s = stage(&mut f.staged[i], bytes.len(), &port.name)?;
                s[..bytes.len()].copy_from_slice(bytes);
                s.as_ptr()
            };
        }
        for (i, (port, bytes)) in self
            .outputs
            .iter()
            .zip(request.outputs.iter_mut())
            .enumerate()
        {
            if port.state {
                continue;
            }
            fits(port, f.sizes[self.inputs.len() + i], bytes.len())?;
            f.bufs[port.buffer] = if aligned(bytes.as_ptr(), port.size.dtype) {
                bytes.as_mut_ptr()
            } else {
                stage(
                    &mut f.staged[self.inputs.len() + i],
                    bytes.len(),
                    &port.name,
                )?
                .as_ptr()
            };
        }
        for (s, state) in b.states.iter().zip(request.states.iter_mut()) {
            state.covers(&b.buffers[s.buffer as usize])?;
            f.bufs[s.buffer as usize] = state.host()?.as_ptr();
        }
        Ok(())
    }

    /// `made` is block `block` of `plan`, compiled.
    pub(crate) fn new(
        pool: Arc<Pool>,
        plan: Arc<VerifiedPlan>,
        block: usize,
        made: CompiledBlock,
        weights: &Arc<WeightStore>,
        kept: Vec<PersistentBuffer>,
    ) -> Result<CpuExecutable, DeviceError> {
        let CompiledBlock {
            steps,
            inputs,
            outputs,
        } = made;
        let b = block_of(plan.plan(), block)?;
        pool.reserve(steps.scratch, steps.views)?;
        let packed = kept
            .iter()
            .map(|k| {
                if let PersistentBuffer::Bytes(b, _) = k {
                    b.len() as u64
                } else {
                    0
                }
            })
            .sum();
        let whole = b
            .arena_bytes
            .checked_next_multiple_of(AlignedBytes::ALIGN as u64);
        let arena = whole
            .and_then(|n| usize::try_from(n).ok())
            .filter(|n| n.checked_add(steps.scratch).is_some())
            .ok_or_else(|| DeviceError::Memory {
                what: "the arena".into(),
                bytes: b.arena_bytes,
            })?;
        let tiny = b.predicted.time_s > 0.0 && b.predicted.time_s < TINY_S;
        let each = |i: usize| b.steps[i].predicted.time_s;
        let workers = pool.workers() as u32;
        let abreast = b.elapsed_s(1, each) > WORKERS_PAY * b.elapsed_s(workers, each);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(CpuExecutable {
            id,
            pool,
            block,
            steps,
            kept,
            inputs,
            outputs,
            tiny,
            abreast,
            arena,
            packed,
            _weights: weights.clone(),
            plan,
        })
    }

    fn block(&self) -> Result<&Block, DeviceError> {
        block_of(self.plan.plan(), self.block)
    }

    /// Points the arena's buffers into the frame's memory, where it lies elsewhere than before.
    fn lay(&self, f: &mut CpuFrame, b: &Block) -> Result<(), DeviceError> {
        let need = self.memory_bytes();
        if f.memory.len() < need {
            f.memory = AlignedBytes::new(need, "the arena of a request")?;
        }
        let base = f.memory.as_ptr();
        if f.laid != base {
            for (p, buf) in f.bufs.iter_mut().zip(&b.buffers) {
                if buf.kind == BufferKind::Arena {
                    *p = base.wrapping_add(buf.offset as usize);
                }
            }
            f.laid = base;
        }
        Ok(())
    }

    /// Memory of a request slot, for any symbols.
    fn frame(&self) -> Result<CpuFrame, DeviceError> {
        let b = self.block()?;
        let bound = Bound::for_block(&self.steps.params, b, &self.plan.plan().dims)?;
        let mut bufs = Vec::new();
        for (buf, kept) in b.buffers.iter().zip(&self.kept) {
            bufs.push(match kept {
                PersistentBuffer::Bytes(k, _) => k.as_ptr().cast_mut(),
                PersistentBuffer::Weight(w) => w.cast_mut(),
                PersistentBuffer::No => std::ptr::null_mut(),
            });
            let end = buf.offset.checked_add(buf.bytes);
            if buf.kind == BufferKind::Arena && end.is_none_or(|e| e > self.arena as u64) {
                return Err(DeviceError::Unsupported {
                    device: "cpu".into(),
                    step: buf.name.clone(),
                    why: "its buffer lies outside the arena; verify the plan".into(),
                });
            }
        }
        let mut workspace = Workspace::new()?;
        workspace.grow(0, self.steps.views)?;
        let n = self.steps.work.len();
        Ok(CpuFrame {
            executable: self.id,
            bound,
            memory: AlignedBytes::new(0, "the arena of a request")?,
            laid: std::ptr::null_mut(),
            bufs,
            dims: None,
            sizes: vec![0; self.inputs.len() + self.outputs.len()],
            tasks: vec![0; n],
            needs: vec![vec![]; n],
            known: (0..n).map(|_| Known::default()).collect(),
            single: false,
            flow: Flow::new(n, self.pool.workers()),
            workspace,
            spans: (0..self.pool.workers())
                .map(|_| Mutex::new(Vec::new()))
                .collect(),
            staged: (0..self.inputs.len() + self.outputs.len())
                .map(|_| None)
                .collect(),
        })
    }

    /// Evaluates what follows from the symbols' values, unless they are those of the last request.
    fn dims(&self, f: &mut CpuFrame, b: &Block, symbols: &[i64]) -> Result<(), DeviceError> {
        if f.dims.as_deref() == Some(symbols) {
            return Ok(());
        }
        if symbols.len() != b.symbols.len() {
            return Err(DeviceError::Port {
                port: "the list of dimensions".into(),
                want: b.symbols.len() as u64,
                got: symbols.len() as u64,
            });
        }
        let mut last = f.dims.take().unwrap_or_default();
        f.bound.at(symbols)?;
        let p = f.bound.values();
        for (size, port) in f
            .sizes
            .iter_mut()
            .zip(self.inputs.iter().chain(&self.outputs))
        {
            *size = port.size.bytes(p).unwrap_or(usize::MAX);
        }
        self.steps.tasks(p, &mut f.tasks)?;
        self.steps.needs(p, &mut f.needs);
        f.flow.lay(&self.steps.specs, &f.tasks);
        f.known.fill_with(Known::default);
        f.single = !self.abreast && f.tasks.iter().all(|&t| t <= 1);
        last.clear();
        last.extend_from_slice(symbols);
        f.dims = Some(last);
        Ok(())
    }
}

/// Memory of one request slot.
struct CpuFrame {
    executable: u64,
    bound: Bound,
    /// Arena and, behind it, the caller's scratch; made or lent when a request comes.
    memory: AlignedBytes,
    /// Where the memory lay when `bufs` was last filled in.
    laid: *mut u8,
    bufs: Vec<*mut u8>,
    /// The symbols that `sizes` and `tasks` belong to.
    dims: Option<Vec<i64>>,
    /// Bytes of every port, inputs first.
    sizes: Vec<usize>,
    tasks: Vec<u32>,
    needs: Vec<Vec<Option<TileNeeds>>>,
    /// What was learned of each step under these symbols.
    known: Vec<Known>,
    /// No step of these dims has several tasks, and none is to be run beside another one.
    single: bool,
    flow: Flow,
    workspace: Workspace,
    spans: Vec<Mutex<Vec<Span>>>,
    /// Copies of callers' memory that is not aligned to its elements.
    staged: Vec<Option<AlignedBytes>>,
}

// SAFETY: the pointers are to the frame's own arena, to kept memory, or of one request, set anew by each.
unsafe impl Send for CpuFrame {}

impl Executable for CpuExecutable {
    fn new_frame(&self) -> Result<Frame, DeviceError> {
        Ok(Frame(Box::new(self.frame()?)))
    }

    fn frame_for(&self, symbols: &[i64]) -> Result<Frame, DeviceError> {
        let mut f = self.frame()?;
        self.dims(&mut f, self.block()?, symbols)?;
        Ok(Frame(Box::new(f)))
    }

    fn memory_bytes(&self) -> usize {
        self.arena + self.steps.scratch
    }

    fn exchange(&self, frame: &mut Frame, memory: &mut AlignedBytes) {
        if let Some(f) = frame.0.downcast_mut::<CpuFrame>() {
            std::mem::swap(&mut f.memory, memory);
        }
    }

    fn run(&self, frame: &mut Frame, mut request: Request<'_>) -> Result<(), DeviceError> {
        let b = self.block()?;
        let f = frame
            .0
            .downcast_mut::<CpuFrame>()
            .filter(|f| f.executable == self.id)
            .ok_or_else(|| DeviceError::Unsupported {
                device: "cpu".into(),
                step: "request".into(),
                why: "the frame was made by another executable; make one with new_frame".into(),
            })?;
        let permit = request.permit;
        let lease = self.pool.acquire(permit)?;
        let start = request.timeline.is_some().then(Instant::now);
        self.lay(f, b)?;
        self.dims(f, b, request.symbols)?;
        self.bind(f, b, &mut request)?;
        let p = f.bound.values();
        let n = request
            .stop_after
            .map_or(f.tasks.len(), |s| (s as usize + 1).min(f.tasks.len()));
        let error = Mutex::new(None);
        if start.is_some() {
            for m in &mut f.spans {
                m.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
            }
        }
        let alone = self.tiny || f.single || self.pool.workers() == 1;
        if !alone {
            f.flow.reset();
        }
        let tasks = &f.tasks[..n];
        let job = Job {
            steps: &self.steps,
            flow: &f.flow,
            round: f.flow.round(),
            tasks,
            needs: &f.needs,
            p,
            bufs: &f.bufs,
            error: &error,
            spans: start.map(|s| (&f.spans[..], s)),
            leases: lease.leases(),
            permit,
            traces: (self.pool.traces().is_on()).then(|| (self.id, self.pool.traces())),
            fault: self.pool.fault(),
        };
        let scratch = f.memory.as_ptr().wrapping_add(self.arena);
        if alone {
            job.alone(&lease, scratch, &mut f.workspace.views, &mut f.known);
        } else {
            self.pool.run(&job, &lease, scratch, &mut f.workspace.views);
        }
        drop(lease);
        if permit.called_off() {
            return Err(DeviceError::Cancelled);
        }
        if let Some((s, why)) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(self.steps.error(s, why));
        }
        for (i, (port, bytes)) in self
            .outputs
            .iter()
            .zip(request.outputs.iter_mut())
            .enumerate()
        {
            if let (false, false, Some(s)) = (
                port.state,
                aligned(bytes.as_ptr(), port.size.dtype),
                &f.staged[self.inputs.len() + i],
            ) {
                bytes.copy_from_slice(&s[..bytes.len()]);
            }
        }
        if let Some(t) = request.timeline {
            t.steps = self.step_names();
            t.spans.clear();
            for m in &mut f.spans {
                t.spans
                    .append(m.get_mut().unwrap_or_else(PoisonError::into_inner));
            }
            t.total_ns = start.map_or(0, |s| s.elapsed().as_nanos() as u64);
        }
        Ok(())
    }

    fn step_names(&self) -> Vec<String> {
        self.steps.names.clone()
    }

    fn packed_bytes(&self) -> u64 {
        self.packed
    }

    fn id(&self) -> u64 {
        self.id
    }

    fn packed(&self) -> Vec<(PackedKey, Arc<PackedBytes>)> {
        let results = self.kept.iter().filter_map(|k| match k {
            PersistentBuffer::Bytes(bytes, Some(key)) => Some((*key, bytes.clone())),
            _ => None,
        });
        results.collect()
    }
}

/// Whether memory may be read as elements of `d`.
pub(crate) fn aligned(p: *const u8, d: DType) -> bool {
    (p as usize).is_multiple_of((d.bits() as usize / 8).max(1))
}

fn stage<'a>(
    slot: &'a mut Option<AlignedBytes>,
    bytes: usize,
    what: &str,
) -> Result<&'a mut AlignedBytes, DeviceError> {
    let fresh = match slot.take() {
        Some(s) if s.len() >= bytes => s,
        _ => AlignedBytes::new(bytes, what)?,
    };
    Ok(slot.insert(fresh))
}

/// Runs steps once, outside any frame (the init segment).
pub(crate) fn run_once(
    pool: &Pool,
    steps: &CompiledSteps,
    p: &[i64],
    bufs: &[*mut u8],
    tasks: &[u32],
) -> Result<(), DeviceError> {
    pool.reserve(steps.scratch, steps.views)?;
    let mut workspace = Workspace::new()?;
    workspace.grow(steps.scratch, steps.views)?;
    let flow = Flow::new(tasks.len(), pool.workers());
    let error = Mutex::new(None);
    let permit = Permit::default();
    let lease = pool.acquire(permit)?;
    let job = Job {
        steps,
        flow: &flow,
        round: flow.round(),
        tasks,
        needs: &[],
        p,
        bufs,
        error: &error,
        spans: None,
        leases: lease.leases(),
        permit,
        traces: None,
        fault: None,
    };
    pool.run(
        &job,
        &lease,
        workspace.scratch.as_ptr(),
        &mut workspace.views,
    );
    match error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((s, why)) => Err(steps.error(s, why)),
        None => Ok(()),
    }
}

/// Views are plain memory.
const _: () = assert!(size_of::<View>() < 256);
