//! A GPU as a device.
use crate::executable::{CudaExecutable, ResidentExecutable, ResidentStart};
use crate::options::{CudaOptions, Moved};
use crate::place::{CudaPlace, Gpu};
use crate::{DeviceInfo, Driver, PoolUse};
use device::{Device, DeviceError, Executable, PackedStore, Place, Prepared, Residency, Shelf};
use kernel::Target;
use machine::{Machine, Source, Sourced, Way, WayTime};
use plan::{HostOp, Plan, VerifiedPlan};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// A GPU that runs plans made for PTX.
pub struct CudaDevice {
    machine: Machine,
    target: Target,
    gpu: Arc<Gpu>,
    place: Arc<dyn Place>,
    host: Option<Arc<dyn Device>>,
}

/// The newest architecture printed for that a GPU of this compute capability runs under this driver.
fn arch(info: &DeviceInfo, driver: u32) -> Option<&'static str> {
    emit::ptx::arch_under(info.compute.major * 10 + info.compute.minor, driver)
}

impl CudaDevice {
    /// GPU `ordinal` of `driver`, called `name`, which plans are made for as `machine` describes it.
    ///
    /// # Errors
    /// There is no such GPU, it is too old, or the driver fails.
    pub fn open(
        name: &str,
        driver: &dyn Driver,
        ordinal: u32,
        machine: Machine,
        options: CudaOptions,
    ) -> Result<CudaDevice, DeviceError> {
        let failed = |why: String| DeviceError::Failed {
            device: name.into(),
            why,
        };
        let context = driver.open(ordinal).map_err(|e| failed(e.to_string()))?;
        let info = context.info();
        let arch = arch(info, driver.version()).ok_or_else(|| {
            failed(format!(
                "{} has compute capability {}.{}; 7.5 and later are printed for",
                info.name, info.compute.major, info.compute.minor
            ))
        })?;
        let driver = (arch, driver.version());
        let gpu = Arc::new(Gpu::new(name, context, driver, options));
        Ok(CudaDevice {
            machine,
            target: emit::ptx::target(arch),
            place: Arc::new(CudaPlace(gpu.clone())),
            gpu,
            host: None,
        })
    }

    /// The same, with the device that runs what plans give to the host: those over `host` and this
    /// device, in this order.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn Device>) -> CudaDevice {
        self.host = Some(host);
        self
    }

    /// The same, planned for by `target`, which has no value that the GPU's own lacks.
    #[must_use]
    pub fn with_target(mut self, target: Target) -> CudaDevice {
        self.target = target;
        self
    }

    /// `like` with the name, size and memory that the driver tells of a GPU that has no description
    /// of its own.
    pub fn described(info: &DeviceInfo, mut like: Machine) -> Machine {
        like.name = info.name.clone();
        like.aliases.clear();
        like.workers.count = Sourced::new(u64::from(info.sms), Source::Spec);
        like.workers.clock_hz = Sourced::new(f64::from(info.clock_khz) * 1e3, Source::Spec);
        like
    }

    /// What the driver says of the GPU.
    pub fn info(&self) -> &DeviceInfo {
        self.gpu.context.info()
    }

    /// Device memory, allocated and reserved.
    pub fn memory(&self) -> PoolUse {
        self.gpu.pool.used()
    }

    /// Modules that are loaded.
    pub fn modules(&self) -> usize {
        self.gpu.modules.len()
    }

    /// Bytes that crossed the link so far.
    pub fn moved(&self) -> Moved {
        self.gpu.moved()
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        &self.gpu.name
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn residency(&self) -> Residency {
        match self.gpu.options.launch {
            Some(Way::Resident) => Residency::Resident,
            _ => Residency::Bounded { tasks: u32::MAX },
        }
    }

    fn request_way(&self, plan: &Plan) -> Option<WayTime> {
        plan.request_way(&self.machine, self.gpu.options.launch)
    }

    fn workers(&self) -> usize {
        self.machine.worker_count()
    }

    fn compile_from(
        &self,
        plan: Arc<VerifiedPlan>,
        block: usize,
        weights: &Arc<WeightStore>,
        packed: &PackedStore,
        shelf: &dyn Shelf,
        _: Option<Prepared>,
    ) -> Result<Arc<dyn Executable>, DeviceError> {
        let (gpu, place) = (self.gpu.clone(), self.place.clone());
        let host = self.host.as_deref();
        if let Some((host, own)) = host.zip(device::host_block(plan.plan(), block)) {
            let own = Arc::new(own.verify()?);
            return host.compile_from(own, 0, weights, packed, shelf, None);
        }
        // Modules and memory are made while no kernel stays.
        let _no_resident = self.gpu.without_resident()?;
        let make = |reserved| {
            let (gpu, place) = (gpu.clone(), place.clone());
            CudaExecutable::new(
                gpu,
                place,
                (plan.clone(), block),
                weights,
                host,
                (shelf, reserved),
            )
        };
        let way = self.request_way(plan.plan()).map(|t| t.way);
        let asked = self.gpu.options.launch.or(plan.plan().launch);
        if asked != Some(Way::Resident) {
            return Ok(Arc::new(make(0)?.launched(way == Some(Way::Graph), shelf)?));
        }
        // Where weights are streamed, the kernel's room comes from that of weights that stay; with more of
        // them streamed the tables are a little longer.
        let mut reserved = 0;
        for _ in 0..4 {
            let made = match make(reserved) {
                Err(DeviceError::Memory { .. }) if reserved > 0 => break,
                made => made?,
            };
            match ResidentExecutable::over(made, shelf)? {
                ResidentStart::Made(e) => return Ok(e),
                ResidentStart::Short(bytes) => reserved = bytes,
            }
        }
        Ok(Arc::new(make(0)?))
    }

    fn emulated_ns(&self) -> Option<u64> {
        self.gpu.context.emulated_ns()
    }

    fn round_trip_ns(&self) -> Result<Option<u64>, DeviceError> {
        let gpu = &self.gpu;
        let live = gpu.stays.now();
        gpu.alive()?;
        match &*live {
            None => Ok(None),
            Some(l) => l
                .round_trip(&gpu.context, gpu.options.watchdog)
                .map_err(|e| gpu.failed("a round trip", e)),
        }
    }

    fn place(&self) -> Option<Arc<dyn Place>> {
        Some(self.place.clone())
    }

    fn run_host(
        &self,
        op: &HostOp,
        inputs: &[Option<&Tensor>],
    ) -> Result<Vec<Tensor>, DeviceError> {
        hostops::run(&op.name, &op.attrs, inputs).map_err(|e| DeviceError::Step {
            step: op.name.clone(),
            nodes: "-".into(),
            why: e.to_string(),
        })
    }
}
