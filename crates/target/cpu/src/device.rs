//! The CPU as a device.
use crate::digests::Digests;
use crate::executable::{CompiledBlock, CpuExecutable, UnprovedBlock};
use crate::init;
use crate::isa::Isa;
use crate::pool::{Fault, Pool};
use crate::shares::Shares;
use crate::target::target;
use crate::ukr::{Kernels, kernels};
use device::{
    Device, DeviceError, Executable, PackedStore, Permit, Prepared, Residency, Shelf, Worked,
};
use kernel::Target;
use machine::Machine;
use plan::{HostOp, TiledPlan, VerifiedPlan};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// What a [`CpuDevice`] is made with; every field has a default.
#[derive(Clone, Default)]
pub struct CpuOptions {
    /// Workers, the calling thread included; `None`: one per core that this process may use.
    pub threads: Option<usize>,
    /// Instruction set; `None`: the best that the CPU has.
    pub isa: Option<Isa>,
    /// Description to plan with; `None`: the present CPU with its stored calibration.
    pub machine: Option<Machine>,
    /// What is to go wrong, in tests: see [`Fault`].
    pub fault: Option<Arc<Fault>>,
}

impl std::fmt::Debug for CpuOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuOptions")
            .field("threads", &self.threads)
            .field("isa", &self.isa)
            .field("machine", &self.machine.as_ref().map(|m| &m.name))
            .field("fault", &self.fault.is_some())
            .finish()
    }
}

/// The present CPU with its resident workers.
pub struct CpuDevice {
    machine: Machine,
    target: Target,
    kernels: &'static Kernels,
    pool: Arc<Pool>,
    shares: Shares,
    digests: Digests,
}

/// Workers at most: more than any machine has.
const MAX_THREADS: usize = 4096;

impl CpuDevice {
    /// Starts the workers. Fails where the CPU does not have the instruction set asked for, or where
    /// no thread can be started.
    pub fn new(options: CpuOptions) -> Result<CpuDevice, DeviceError> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if !isa.available() {
            return Err(DeviceError::Unsupported {
                device: "cpu".into(),
                step: "start".into(),
                why: format!("this CPU does not have {isa}; use --isa {}", Isa::detect()),
            });
        }
        let cpus = crate::detect::worker_cpus();
        let workers = options.threads.unwrap_or(cpus.len()).clamp(1, MAX_THREADS);
        Ok(CpuDevice {
            machine: options.machine.unwrap_or_else(crate::detect::present),
            target: target(isa),
            kernels: kernels(isa),
            pool: Arc::new(Pool::new(workers, &cpus, options.fault)?),
            shares: Shares::new(cpus),
            digests: Digests::default(),
        })
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.kernels.isa
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &str {
        "cpu"
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn residency(&self) -> Residency {
        Residency::Resident
    }

    fn workers(&self) -> usize {
        self.pool.workers()
    }

    fn history(&self) -> Vec<Worked> {
        self.pool.traces().read()
    }

    fn clock_ns(&self) -> u64 {
        self.pool.traces().now()
    }

    fn limit_workers(&self, workers: usize) {
        self.pool.limit(workers);
    }

    fn avoid_workers(&self, workers: &[u32]) {
        self.pool.avoid(workers);
    }

    fn shares(&self) -> Vec<f64> {
        match self.pool.places() {
            Some(places) => self.shares.read(&places),
            None => Vec::new(),
        }
    }

    fn prepare(
        &self,
        plan: &Arc<TiledPlan>,
        block: usize,
    ) -> Result<Option<Prepared>, DeviceError> {
        let block = UnprovedBlock::new(plan.clone(), block, self.kernels)?;
        Ok(Some(Box::new(block)))
    }

    fn compile_from(
        &self,
        plan: Arc<VerifiedPlan>,
        block: usize,
        weights: &Arc<WeightStore>,
        packed: &PackedStore,
        shelf: &dyn Shelf,
        prepared: Option<Prepared>,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        let kept = init::Init {
            pool: &self.pool,
            plan: &plan,
            block,
            kernels: self.kernels,
            weights,
            packed,
            shelf,
            digests: &self.digests,
        }
        .persistent_buffers()?;
        let made = prepared.and_then(|p| p.downcast::<UnprovedBlock>().ok());
        let made = match made.and_then(|u| u.of(&plan, block)) {
            Some(b) => b,
            None => CompiledBlock::new(plan.tiled(), block, self.kernels)?,
        };
        let e = CpuExecutable::new(self.pool.clone(), plan, block, made, weights, kept)?;
        Ok(Arc::new(e))
    }

    fn run_host(
        &self,
        op: &HostOp,
        inputs: &[Option<&Tensor>],
    ) -> Result<Vec<Tensor>, DeviceError> {
        let _seat = self.pool.acquire(Permit::default())?;
        hostops::run(&op.name, &op.attrs, inputs).map_err(|e| DeviceError::Step {
            step: op.name.clone(),
            nodes: "-".into(),
            why: e.to_string(),
        })
    }
}
