//! A block whose requests go to a kernel that stays on the GPU.
//!
//! Inputs and outputs are copied by the kernel itself, from and to pinned memory, as tasks before and
//! behind the plan's; so a request takes no call of the driver. All memory is made and the module is
//! loaded when the block is compiled. Requests take one of a few slots, and wait when none is free: the
//! ring has as many entries, so it is never more than full. A block with steps of the host is pushed in
//! stretches, with those steps between them ([`super::section`]). For a timeline the workers write down
//! what their clocks say ([`super::clocks`]). What needs the driver (values on the device, a run that ends
//! early) goes step by step, for which the kernel leaves first.
//!
//! Weights that do not fit are copied by the kernel too, from page-locked memory that holds them all, ahead
//! of the steps that read them. Copies that the driver makes in a stream of their own are allowed beside a
//! kernel that runs, and leave its workers free; but the host would have to start each of them in the middle
//! of a request, when it learns that a place is free, and tell the kernel of its end: two more ways over the
//! link per place, and a worker that waits for the host. Here a weight on its way is an entry like others,
//! its tasks are counted and waited for as theirs, and a request stays without a call of the driver. The
//! price: page-locked memory for all that is streamed, workers that copy instead of computing while they
//! do, and one request at a time, as there is one ring of places. A block for which the host cannot lock so
//! much runs step by step.
//!
//! Whoever waits for an answer only reads memory. After `CudaOptions::watchdog` without one the driver is
//! asked whether the kernel is still there, and the workers' own words are read twice: when nothing has
//! moved in between, they become the request's error and the kernel is told to leave.
//!
//! Whoever waits also looks whether the request was called off: it then says so in the ring, the workers
//! leave the rest of its tasks out, and the answer comes when those under way are done.
mod hang;
mod push;
mod request;

use super::section::{self, Phase, Section};
use super::slots::Slots;
use super::{CudaExecutable, CudaFrame, StateBuffers, block_of};
use crate::driver::{DevicePtr, FunctionId, Launch, Pinned};
use crate::modules::Module;
use crate::place::Gpu;
use crate::pool::{Block as Memory, Pool};
use crate::resident::{PinnedWords, Start};
use crate::steps::Work;
use device::{DeviceError, Executable, Frame, HostMemory, Request, Shelf, UnifiedRequest};
use emit::ptx::resident::{Abi, Idle, Resident};
use kernel::TileProgram;
use layout::Dim;
use machine::Way;
use plan::{Bound, BufferKind, Params};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use workers::ring::{Ring, Times, abi};

const NAME: &str = "the resident kernel";
/// Requests that may be under way in a kernel.
const SLOTS: usize = 4;
/// Tables that a kernel can have: what a ticket's word has room for.
const MOST_TABLES: usize = 2048;
/// Dynamic shared memory that a launch may have without asking.
const SHARED: u32 = 48 << 10;
/// Polls of a worker after which its wait is late and looks whether to leave: some milliseconds.
const PATIENCE: u32 = 1 << 13;
/// Polls of the host between looks at its clock.
const POLLS: u32 = 1024;

static OWNERS: AtomicU64 = AtomicU64::new(1);

/// Memory of a slot.
struct Slot {
    memory: Memory,
    pinned: Arc<dyn Pinned>,
}

impl Slot {
    fn of(e: &CudaExecutable) -> Result<Slot, DeviceError> {
        let failed = |error| e.gpu.failed(NAME, error);
        Ok(Slot {
            memory: e.gpu.pool.take(e.frame_bytes).map_err(failed)?,
            pinned: e
                .gpu
                .context
                .pinned(e.staged_bytes.max(16))
                .map_err(failed)?,
        })
    }
}

/// Device memory of `bytes` zeros.
fn zeroed(gpu: &Gpu, bytes: usize) -> Result<Memory, DeviceError> {
    let failed = |e| gpu.failed(NAME, e);
    let zeros = vec![0; bytes.max(16)];
    let m = gpu.pool.take(zeros.len() as u64).map_err(failed)?;
    gpu.context.upload(m.ptr(), &zeros).map_err(failed)?;
    Ok(m)
}

/// A compiled block with a resident kernel.
pub(crate) struct ResidentExecutable {
    inner: CudaExecutable,
    params: Params,
    stretches: Vec<Section>,
    phases: Vec<Phase>,
    /// Numbers of dimensions in waits.
    dims: BTreeMap<Dim, u32>,
    slots: Vec<Slot>,
    uses: Slots,
    /// Streamed buffers in page-locked memory, by buffer.
    streamed: Vec<Option<Arc<dyn Pinned>>>,
    start: Start,
    payloads: Arc<dyn Pinned>,
    ring: Arc<Mutex<Ring<PinnedWords>>>,
    owner: u64,
    workers: u32,
    /// Where workers write their times; one request at a time has it.
    times: Mutex<Arc<dyn Pinned>>,
    _memory: Vec<Memory>,
    _module: Arc<Module>,
}

/// A frame: parameters, what runs step by step, and the host's memory.
struct ResidentFrame {
    bound: Bound,
    other: Option<Frame>,
    host: Option<HostMemory>,
}

/// What became of a block that was to run in a kernel that stays.
pub(crate) enum ResidentStart {
    /// It runs, in such a kernel where that can be.
    Made(Arc<dyn Executable>),
    /// Its weights are streamed: it is to be made anew with so many bytes kept free.
    Short(u64),
}

/// Whether a kernel can stay for the block: it has steps on the GPU, none by the driver's calls and none
/// in PTX of its user's, whose plan says so.
fn possible(e: &CudaExecutable) -> bool {
    let mut work = e.steps.work.iter();
    let called = work.any(|w| matches!(w, Work::Host(_)));
    let some = e.steps.work.iter().any(|w| matches!(w, Work::Kernel(_)));
    let few = section::count(e) * (SLOTS + 1) < MOST_TABLES;
    let own = |w: &Work| matches!(w, Work::Kernel(k) if k.is_own());
    some && few && !called && !e.steps.work.iter().any(own) && !e.gpu.unified()
}

fn unsupported(gpu: &Gpu, why: String) -> DeviceError {
    DeviceError::Unsupported {
        device: gpu.name.clone(),
        step: NAME.into(),
        why,
    }
}

/// The kernel of a block, on the GPU.
struct Loaded {
    module: Arc<Module>,
    function: FunctionId,
    code: Resident,
    /// CTAs that are on the GPU at once.
    ctas: u64,
}

impl Loaded {
    /// The kernel of all steps of `e` that are kernels, for a ring of `capacity` entries.
    fn of(e: &CudaExecutable, shelf: &dyn Shelf, capacity: u32) -> Result<Loaded, DeviceError> {
        let gpu = &e.gpu;
        let fail = |why: String| unsupported(gpu, why);
        let programs = e.plan.step_programs(e.block).iter();
        let own = programs.zip(&e.steps.work);
        let own = own.filter(|(_, w)| matches!(w, Work::Kernel(_)));
        let programs: Vec<&TileProgram> = own.filter_map(|(p, _)| p.as_ref()).collect();
        let abi = Abi::new(capacity, &abi::offsets(capacity))
            .ok_or_else(|| fail("an offset of the protocol is missing".into()))?;
        let optin = gpu.context.info().shared_per_block_optin;
        let code = emit::ptx::resident::emit(&programs, (gpu.arch, optin), &abi, Idle::default())
            .map_err(|e| fail(e.to_string()))?;
        let failed = |e| gpu.failed(NAME, e);
        let module = gpu.modules.load(&code.text, shelf).map_err(failed)?;
        let function = module.function(&code.entry).map_err(failed)?;
        let shape = code.shape;
        if shape.shared_bytes + code.static_shared > SHARED {
            let asked = gpu.context.allow_shared(function, shape.shared_bytes);
            asked.map_err(failed)?;
        }
        let per = gpu
            .context
            .blocks_per_sm(function, shape.threads, shape.shared_bytes)
            .map_err(failed)?;
        let ctas = u64::from(per) * u64::from(gpu.context.info().sms);
        if ctas < 2 {
            return Err(fail(format!(
                "{ctas} of its CTAs fit on the GPU, two are needed"
            )));
        }
        Ok(Loaded {
            module,
            function,
            code,
            ctas,
        })
    }
}

impl ResidentExecutable {
    /// `inner` with a kernel that stays, or as it is where that cannot be.
    pub fn over(inner: CudaExecutable, shelf: &dyn Shelf) -> Result<ResidentStart, DeviceError> {
        if !possible(&inner) {
            return Ok(ResidentStart::Made(Arc::new(inner)));
        }
        match inner.persistent.pinned(&inner.gpu) {
            Ok(streamed) => ResidentExecutable::made(inner, shelf, streamed),
            Err(_) => Ok(ResidentStart::Made(Arc::new(inner))),
        }
    }

    fn made(
        inner: CudaExecutable,
        shelf: &dyn Shelf,
        streamed: Vec<Option<Arc<dyn Pinned>>>,
    ) -> Result<ResidentStart, DeviceError> {
        let gpu = inner.gpu.clone();
        let plan = inner.plan.clone();
        let b = block_of(&plan, inner.block)?;
        let fail = |why: String| unsupported(&gpu, why);
        let failed = |e| gpu.failed(NAME, e);
        // Streamed weights pass through places that only one request can have.
        let slots = match inner.persistent.passes() {
            0 => SLOTS,
            _ => 1,
        };
        // One more slot is for requests without work.
        let capacity = (slots as u32 + 1).next_power_of_two();
        let Loaded {
            module,
            function,
            code,
            ctas,
        } = Loaded::of(&inner, shelf, capacity)?;
        let shape = code.shape;
        let mut params = inner.params.clone();
        let cut = section::cut(&inner, b, (&code, ctas - 1), &mut params)
            .map_err(|e| fail(e.to_string()))?;
        let tables = match cut.stretches.first() {
            Some(s) => &s.tables,
            None => return Err(fail("none of its steps is on the GPU".into())),
        };
        let workers = (ctas - 1).min(cut.most.max(1)) as u32;
        // A slot's tables for every stretch, and those of requests without work.
        let own = slots * cut.stretches.len();
        // Memory: what streaming left was counted without this.
        let sizes = [
            workers as usize * size_of::<abi::StatusEntry>(),
            abi::feed_bytes(capacity),
            tables.slot_bytes() * (own + 1),
        ];
        if inner.persistent.passes() > 0 {
            // One frame was counted; what needs the driver has one of its own.
            let needs: u64 = sizes.iter().map(|&n| Pool::size(n as u64)).sum();
            let needs = needs + Pool::size(inner.frame_bytes);
            if needs > inner.reserved_bytes {
                return Ok(ResidentStart::Short(needs));
            }
        }
        let pinned = |bytes: usize| gpu.context.pinned(bytes.max(16)).map_err(failed);
        let [status, feed, table] = sizes.map(|bytes| zeroed(&gpu, bytes));
        let (status, feed, table) = (status?, feed?, table?);
        let payloads = pinned(tables.payload_bytes() * (own + 1))?;
        let empty = section::nothing(code.copy_body()).map_err(|e| fail(e.to_string()))?;
        let at = tables.payload_bytes() * own;
        payloads.write(at, &empty).map_err(failed)?;
        let longest = cut.stretches.iter().map(|s| s.entries.len()).max();
        let times = pinned(Times::bytes(longest.unwrap_or(0), workers))?;
        let ring = Ring::new(PinnedWords(pinned(abi::ring_bytes(capacity))?), capacity);
        let all: Result<Vec<Slot>, DeviceError> = (0..slots).map(|_| Slot::of(&inner)).collect();
        Ok(ResidentStart::Made(Arc::new(ResidentExecutable {
            start: Start {
                function,
                shape: Launch {
                    grid: [workers + 1, 1, 1],
                    block: [shape.threads, 1, 1],
                    shared_bytes: shape.shared_bytes,
                    early: false,
                },
                feed: feed.ptr(),
                feed_bytes: abi::feed_bytes(capacity) as u64,
                slots: table.ptr(),
                payloads: payloads.device_ptr(),
                status: status.ptr(),
                slot_bytes: tables.slot_bytes() as u64,
                payload_bytes: tables.payload_bytes() as u64,
                cleared: tables.cleared(),
                patience: PATIENCE,
                empty: own as u32,
            },
            params,
            slots: all?,
            uses: Slots::new(slots, cut.stretches.len()),
            streamed,
            payloads,
            ring: Arc::new(Mutex::new(ring)),
            owner: OWNERS.fetch_add(1, Ordering::Relaxed),
            stretches: cut.stretches,
            phases: cut.phases,
            dims: cut.dims,
            workers,
            times: Mutex::new(times),
            _memory: vec![status, feed, table],
            _module: module,
            inner,
        })))
    }

    fn failed(&self, e: crate::DriverError) -> DeviceError {
        self.inner.gpu.failed("a request of the resident kernel", e)
    }

    /// Address of a buffer for a slot and the states of a request.
    fn address(&self, slot: &Slot, states: &StateBuffers<'_>, buffer: usize) -> DevicePtr {
        if let Some(k) = states.here.iter().find(|k| k.0 == buffer) {
            return k.1;
        }
        match self.inner.places[buffer] {
            Some(at) => slot.memory.ptr().offset(at),
            None => self.inner.persistent.list[buffer]
                .ptr()
                .unwrap_or(DevicePtr(0)),
        }
    }

    fn own<'a>(&self, frame: &'a mut Frame) -> Result<&'a mut ResidentFrame, DeviceError> {
        let f = frame.0.downcast_mut::<ResidentFrame>();
        f.ok_or_else(|| {
            self.inner
                .refused("the frame was made by another executable; make one with new_frame")
        })
    }
}

impl ResidentFrame {
    /// What runs step by step, made when it is first needed.
    fn step_by_step(&mut self, e: &CudaExecutable) -> Result<&mut Frame, DeviceError> {
        if self.other.is_none() {
            self.other = Some(e.new_frame()?);
        }
        let made = self.other.as_mut().filter(|f| f.0.is::<CudaFrame>());
        made.ok_or_else(|| e.refused("a frame could not be made"))
    }
}

impl Executable for ResidentExecutable {
    fn new_frame(&self) -> Result<Frame, DeviceError> {
        let e = &self.inner;
        let b = block_of(&e.plan, e.block)?;
        let bound = Bound::for_block(&self.params, b, &e.plan.plan().dims)?;
        let kept = |k: &BufferKind| matches!(k, BufferKind::Arena | BufferKind::Output(_));
        let beside = e.beside.as_ref();
        Ok(Frame(Box::new(ResidentFrame {
            bound,
            other: None,
            host: beside.map(|_| HostMemory::new(b, kept)).transpose()?,
        })))
    }

    fn frames_hold_device_memory(&self) -> bool {
        true
    }

    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError> {
        let f = self.own(frame)?;
        match request.stop_after.is_none() {
            true => self.resident(f, request),
            false => self.inner.run(f.step_by_step(&self.inner)?, request),
        }
    }

    fn run_unified(
        &self,
        frame: &mut Frame,
        request: UnifiedRequest<'_>,
    ) -> Result<(), DeviceError> {
        let f = self.own(frame)?;
        self.inner
            .run_unified(f.step_by_step(&self.inner)?, request)
    }

    fn way(&self) -> Option<Way> {
        Some(Way::Resident)
    }

    fn step_names(&self) -> Vec<String> {
        self.inner.step_names()
    }

    fn packed_bytes(&self) -> u64 {
        self.inner.packed_bytes()
    }
}

impl Drop for ResidentExecutable {
    fn drop(&mut self) {
        let gpu = &self.inner.gpu;
        let mut live = gpu.stays.change();
        if let Some(l) = live.take_if(|l| l.owner == self.owner) {
            // Its memory goes away: it must have left; a lost GPU has.
            if gpu.alive().is_ok() {
                let _ = l.leave();
            }
        }
    }
}
