//! A GPU as a device.
use crate::executable::GpuExecutable;
use crate::gpu::{self, Gpu};
use device::{Device, DeviceError, Executable, PackedStore, Prepared, Residency, Shelf};
use kernel::Target;
use machine::{Machine, Source, Sourced};
use plan::{HostOp, VerifiedPlan};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Names of the adapters that answer, for `--on wgpu:NAME`.
pub fn adapters() -> Vec<String> {
    gpu::names()
}

/// An adapter that runs plans made for WGSL.
pub struct WebGpuDevice {
    name: String,
    machine: Machine,
    target: Target,
    gpu: Arc<Gpu>,
    host: Option<Arc<dyn Device>>,
}

impl WebGpuDevice {
    /// Opens the first adapter whose name contains `adapter` (any: the fastest kind there is).
    ///
    /// # Errors
    /// No adapter answers (the text says what to install), or none is named so.
    pub fn open(adapter: Option<&str>) -> Result<WebGpuDevice, DeviceError> {
        let gpu = Gpu::open(adapter)?;
        let mut machine = emit::wgsl::machine().map_err(|e| DeviceError::Unsupported {
            device: "wgpu".into(),
            step: "start".into(),
            why: e.to_string(),
        })?;
        machine.name = gpu.name.clone();
        let spec = |v: u32| Some(Sourced::new(u64::from(v), Source::Spec));
        machine.limits.threads_per_cta = spec(gpu.limits.threads);
        machine.limits.shared_per_cta = spec(gpu.limits.shared_bytes);
        Ok(WebGpuDevice {
            name: format!("wgpu:{}", gpu.name),
            target: emit::wgsl::target(gpu.limits),
            machine,
            gpu: Arc::new(gpu),
            host: None,
        })
    }

    /// The same, whose submissions carry at most `tasks` tasks (2^20 when not said) in dispatches of at
    /// most `groups` workgroups along a dimension (what the adapter takes). Before anything is compiled.
    #[must_use]
    pub fn with_submissions(mut self, tasks: u32, groups: u32) -> WebGpuDevice {
        if let Some(gpu) = Arc::get_mut(&mut self.gpu) {
            gpu.bounded(tasks, groups);
        }
        self
    }

    /// The same, which calls `tell` whenever something was handed to the GPU, from the thread of the
    /// request. Before anything is compiled.
    #[must_use]
    pub fn with_tell(mut self, tell: impl Fn() + Send + Sync + 'static) -> WebGpuDevice {
        if let Some(gpu) = Arc::get_mut(&mut self.gpu) {
            gpu.tell = Some(Box::new(tell));
        }
        self
    }

    /// The same, with the device that runs what plans give to the host: those over `host` and this
    /// device, in this order.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn Device>) -> WebGpuDevice {
        self.host = Some(host);
        self
    }
}

impl Device for WebGpuDevice {
    fn name(&self) -> &str {
        &self.name
    }

    fn machine(&self) -> &Machine {
        &self.machine
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn residency(&self) -> Residency {
        Residency::Bounded {
            tasks: self.gpu.most_tasks,
        }
    }

    fn workers(&self) -> usize {
        self.machine.workers.count.value as usize
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
        let own = device::host_block(plan.plan(), block);
        if let Some((host, own)) = self.host.as_deref().zip(own) {
            let own = Arc::new(own.verify()?);
            return host.compile_from(own, 0, weights, packed, shelf, None);
        }
        Ok(Arc::new(GpuExecutable::new(
            self.gpu.clone(),
            plan,
            block,
            weights,
            self.host.as_deref(),
        )?))
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
