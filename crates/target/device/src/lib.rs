//! The boundary between the runtime and whatever executes plans.
//!
//! A [`Device`] compiles one block of a verified plan into an [`Executable`]; a request runs in a
//! [`Frame`], the memory of one request slot. The runtime plans nothing and a device plans nothing.
#![deny(unsafe_op_in_unsafe_fn)]

mod buffer;
mod error;
mod host_part;
mod pages;
mod port;
mod recycle;
mod state;
mod store;
mod tables;
mod unified;

pub use buffer::AlignedBytes;
pub use error::{DeviceError, PlanErrorText};
pub use host_part::{HostMemory, HostPart, HostView, host_block};
pub use pages::Guard;
#[cfg(target_os = "linux")]
pub use pages::GuardedBytes;
pub use pages::MappedFile;
pub use port::check_port;
pub use recycle::{Recycled, Recycler};
pub use state::State;
pub use store::{EmptyShelf, PackedBytes, PackedKey, PackedStore, Shelf};
pub use tables::{Call, StepShape, TableError, Tables};
pub use unified::{Place, Remote, Transfers, UnifiedBuffer};

use kernel::Target;
use machine::{Machine, Way, WayTime};
use plan::{HostOp, Plan, TiledPlan, Timeline, VerifiedPlan};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tensor::{Tensor, WeightStore};

/// A stretch of work that a device recorded: one ticket of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worked {
    /// [`Executable::id`].
    pub executable: u64,
    /// Step of it.
    pub step: u32,
    /// Worker; 0 stands for all callers.
    pub worker: u32,
    /// Nanoseconds since the device was made.
    pub start_ns: u64,
    /// Nanoseconds since the device was made.
    pub end_ns: u64,
}

/// How a device keeps workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Workers never leave between requests.
    Resident,
    /// Work goes out in bounded submissions.
    Bounded {
        /// Tasks per submission at most.
        tasks: u32,
    },
}

/// What [`Device::prepare`] made, of a type that the device knows.
pub type Prepared = Box<dyn Any + Send>;

/// Something that runs plans: resident CPU threads, a GPU, an emulated GPU, virtual time.
pub trait Device: Send + Sync {
    /// `cpu`, `cuda:0`, `emulated:a100`.
    fn name(&self) -> &str;
    /// The machine's description.
    fn machine(&self) -> &Machine;
    /// What the backend can do.
    fn target(&self) -> &Target;
    /// How workers are kept.
    fn residency(&self) -> Residency;
    /// The way by which the steps of `plan` reach the device, with what a request is predicted to take by
    /// it; `None` for a device that has but one, and where nothing reaches it.
    fn request_way(&self, plan: &Plan) -> Option<WayTime> {
        let _ = plan;
        None
    }
    /// Workers, the calling thread included.
    fn workers(&self) -> usize;
    /// What its workers did last, as far as rings of fixed size hold it; empty where nothing is recorded.
    fn history(&self) -> Vec<Worked> {
        Vec::new()
    }
    /// The present by the clock of [`Device::history`]: nanoseconds since the device was made.
    fn clock_ns(&self) -> u64 {
        0
    }
    /// Lets at most `workers` threads work at once from now on (at least one, at most
    /// [`Device::workers`]): cores were taken from this process, or given back.
    fn limit_workers(&self, workers: usize) {
        let _ = workers;
    }
    /// Has these workers (from 1 on; 0 stands for all callers) leave work to the others from now on, and no
    /// further ones: somebody else uses their cores.
    fn avoid_workers(&self, workers: &[u32]) {
        let _ = workers;
    }
    /// Which share of its core each worker had, or would have had, since this was asked last: 1 where it is
    /// alone. Empty where nobody can say.
    fn shares(&self) -> Vec<f64> {
        Vec::new()
    }
    /// Makes block `block` (counting blocks only) of `plan` executable and runs its init segment;
    /// results of init are taken from and put into `packed`, so that plans share them.
    fn compile(
        &self,
        plan: Arc<VerifiedPlan>,
        block: usize,
        weights: &Arc<WeightStore>,
        packed: &PackedStore,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        self.compile_from(plan, block, weights, packed, &EmptyShelf, None)
    }
    /// What of compiling block `block` needs no proof of the plan, so that it can go on beside that proof;
    /// `None` where nothing does. For [`Device::compile_from`], which takes it where it is of the very plan.
    /// What a step states of its tasks and scratch may be anything yet: nothing is to be allocated by it.
    ///
    /// # Errors
    /// The plan cannot be compiled here.
    fn prepare(
        &self,
        plan: &Arc<TiledPlan>,
        block: usize,
    ) -> Result<Option<Prepared>, DeviceError> {
        let _ = (plan, block);
        Ok(None)
    }
    /// Like [`Device::compile`]; what `shelf` holds of the results of init is not made again, nor what
    /// `prepared` holds of compiling.
    fn compile_from(
        &self,
        plan: Arc<VerifiedPlan>,
        block: usize,
        weights: &Arc<WeightStore>,
        packed: &PackedStore,
        shelf: &dyn Shelf,
        prepared: Option<Prepared>,
    ) -> Result<Arc<dyn Executable>, DeviceError>;
    /// Of a device that exists only here: its clock in nanoseconds, as far as the host has waited for it.
    /// What requests take is then to be read off this and not off the host's clock.
    fn emulated_ns(&self) -> Option<u64> {
        None
    }
    /// The acknowledged round trip of a request without work, in nanoseconds: the clock starts before the
    /// host's store and stops when the host has read the answer. `None` where no worker listens, or none
    /// answers.
    ///
    /// # Errors
    /// The device failed.
    fn round_trip_ns(&self) -> Result<Option<u64>, DeviceError> {
        Ok(None)
    }
    /// Where its memory is, if that is another place than the host.
    fn place(&self) -> Option<Arc<dyn Place>> {
        None
    }
    /// Runs one host operator whose output sizes are known only when it has run.
    fn run_host(
        &self,
        op: &HostOp,
        inputs: &[Option<&Tensor>],
    ) -> Result<Vec<Tensor>, DeviceError> {
        let _ = inputs;
        Err(DeviceError::Unsupported {
            device: self.name().into(),
            step: op.name.clone(),
            why: "it runs no host operators".into(),
        })
    }
}

/// A compiled block.
pub trait Executable: Send + Sync {
    /// What a request slot keeps for this executable: parameters, counters. Its arena is made when
    /// a request first runs in it, or lent with [`Executable::exchange`].
    fn new_frame(&self) -> Result<Frame, DeviceError>;
    /// As [`Executable::new_frame`], with what follows from the block's symbols having these values, in the
    /// block's order, made beforehand where the device can: the first request finds it.
    fn frame_for(&self, symbols: &[i64]) -> Result<Frame, DeviceError> {
        let _ = symbols;
        self.new_frame()
    }
    /// Whether a frame holds memory that the device has beside the host's: frames beyond those in use are
    /// then not made beforehand.
    fn frames_hold_device_memory(&self) -> bool {
        false
    }
    /// Bytes of memory that a request works in: arena and the caller's scratch.
    fn memory_bytes(&self) -> usize {
        0
    }
    /// Swaps the memory that requests in `frame` work in with `memory`, so that slots of several
    /// executables can share one. Its contents mean nothing between requests.
    fn exchange(&self, frame: &mut Frame, memory: &mut AlignedBytes) {
        let _ = (frame, memory);
    }
    /// Runs one request to its end; the calling thread works too. Several threads may run the same
    /// executable at once, each with its own frame. `request.stop_after` ends early after a step.
    fn run(&self, frame: &mut Frame, request: Request<'_>) -> Result<(), DeviceError>;
    /// Runs one request on buffers that lie wherever they lie: inputs are brought to where this runs,
    /// outputs are left there. Blocks without state only.
    ///
    /// # Errors
    /// As [`Executable::run`], and what bringing an input costs.
    fn run_unified(
        &self,
        frame: &mut Frame,
        request: UnifiedRequest<'_>,
    ) -> Result<(), DeviceError> {
        run_on_host(&mut |r| self.run(frame, r), request)
    }
    /// A number of its own among those of the device, as [`Worked::executable`] has it; 0 where nothing is
    /// recorded.
    fn id(&self) -> u64 {
        0
    }
    /// The way by which requests of which no timeline is wanted reach an NVIDIA GPU; `None` for another device,
    /// and where no step is a kernel of it.
    fn way(&self) -> Option<Way> {
        None
    }
    /// Names of the steps, in plan order.
    fn step_names(&self) -> Vec<String>;
    /// Bytes of init results that this executable keeps alive (shared ones counted whole).
    fn packed_bytes(&self) -> u64;
    /// Init results by their keys, for a [`Shelf`] of later processes.
    fn packed(&self) -> Vec<(PackedKey, Arc<PackedBytes>)> {
        Vec::new()
    }
}

/// What a device keeps per request slot.
pub struct Frame(pub Box<dyn Any + Send>);

/// What a request may take of a device, and how it is called off. The default is everything, at no
/// particular priority.
#[derive(Clone, Copy, Debug, Default)]
pub struct Permit<'a> {
    /// Workers granted, the caller included (who always works: 0 is taken for 1); it may change while
    /// the request runs. `None`: as many as there are.
    pub workers: Option<&'a AtomicU32>,
    /// Requests of lower priority give their workers up between two tasks while this one can use them.
    pub priority: i32,
    /// Set by whoever gives the request up: it ends with [`DeviceError::Cancelled`] when what it began is
    /// done, which is at the next task on the host and in a kernel that stays, and elsewhere a few steps
    /// or submissions later: as many as the device is kept supplied with. Nothing of it is left
    /// running then. What it wrote of a state is unspecified: rows that a request adds are beyond those
    /// that the next one reads, so a stream goes on from the request before.
    pub cancel: Option<&'a AtomicBool>,
}

impl Permit<'_> {
    /// Workers beside the caller, at most `most`.
    #[inline]
    pub fn helpers(&self, most: usize) -> usize {
        match self.workers {
            None => most,
            Some(n) => (n.load(Ordering::Relaxed).max(1) as usize - 1).min(most),
        }
    }

    /// Whether the request was given up.
    #[inline]
    pub fn called_off(&self) -> bool {
        self.cancel.is_some_and(|c| c.load(Ordering::Relaxed))
    }
}

/// One request to a compiled block.
pub struct Request<'a> {
    /// Values of the block's symbols, in its order.
    pub symbols: &'a [i64],
    /// Dense row-major bytes per input port. Ports that are state are ignored (empty).
    pub inputs: &'a [&'a [u8]],
    /// Dense row-major bytes per output port, of exactly the size of its shape. Ports that are
    /// state are ignored (empty).
    pub outputs: &'a mut [&'a mut [u8]],
    /// Memory of each entry of the block's `states`.
    pub states: &'a mut [&'a mut State],
    /// Where to record what ran when, if anywhere.
    pub timeline: Option<&'a mut Timeline>,
    /// Last step to run, for debugging by bisection; outputs are then unspecified.
    pub stop_after: Option<u32>,
    /// What it may take. Devices without workers to share out look at nothing of it but whether it was
    /// given up.
    pub permit: Permit<'a>,
}

/// One request on unified buffers.
pub struct UnifiedRequest<'a> {
    /// Values of the block's symbols, in its order.
    pub symbols: &'a [i64],
    /// One per input port, of its shape.
    pub inputs: &'a [&'a UnifiedBuffer],
    /// One per output port, of its shape; what they held is gone.
    pub outputs: &'a mut [UnifiedBuffer],
    /// Where to record what ran when, if anywhere.
    pub timeline: Option<&'a mut Timeline>,
    /// What it may take.
    pub permit: Permit<'a>,
}

/// A request on unified buffers by one on the host's memory, which `run` runs.
///
/// # Errors
/// Those of `run`, and what bringing an input costs.
pub fn run_on_host(
    run: &mut dyn FnMut(Request<'_>) -> Result<(), DeviceError>,
    request: UnifiedRequest<'_>,
) -> Result<(), DeviceError> {
    let inputs: Vec<Arc<Tensor>> = request
        .inputs
        .iter()
        .map(|b| b.host())
        .collect::<Result<_, _>>()?;
    let bytes: Vec<&[u8]> = inputs.iter().map(|t| t.bytes()).collect();
    let mut made = vec![];
    for o in request.outputs.iter() {
        let t = Tensor::zeros(o.dtype(), o.shape());
        made.push(t.map_err(|_| DeviceError::Memory {
            what: "an output".into(),
            bytes: o.bytes(),
        })?);
    }
    let mut outputs: Vec<&mut [u8]> = made.iter_mut().map(Tensor::bytes_mut).collect();
    let own = Request {
        symbols: request.symbols,
        inputs: &bytes,
        outputs: &mut outputs,
        states: &mut [],
        timeline: request.timeline,
        stop_after: None,
        permit: request.permit,
    };
    run(own)?;
    for (o, t) in request.outputs.iter_mut().zip(made) {
        o.set_host(t)?;
    }
    Ok(())
}
