//! A GPU's memory as a place for values.
use crate::driver::{Context, DevicePtr, Pinned};
use crate::handles::Stream;
use crate::options::{CudaOptions, Moved};
use crate::pool::{Block as Memory, Pool};
use crate::resident_owner::{OwnerLock, ResidentOwner};
use crate::{DriverError, Modules};
use device::{DeviceError, Place, Remote};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tensor::WeightStore;

/// What all executables of a device share.
pub(crate) struct Gpu {
    pub name: String,
    pub context: Arc<dyn Context>,
    pub pool: Arc<Pool>,
    pub modules: Modules,
    pub arch: &'static str,
    pub options: CudaOptions,
    /// Constants in device memory, by the store they are of and their number there: plans of one model
    /// share them. Who holds one holds its store too.
    constants: Mutex<BTreeMap<(usize, u32), Weak<Constant>>>,
    to_device: AtomicU64,
    to_host: AtomicU64,
    /// The kernel that stays, while one does; it may be of another device.
    pub stays: Arc<ResidentOwner>,
}

/// A constant in device memory.
pub(crate) struct Constant {
    pub memory: Memory,
    _store: Arc<WeightStore>,
}

impl Gpu {
    pub fn new(
        name: &str,
        context: Arc<dyn Context>,
        (arch, driver): (&'static str, u32),
        options: CudaOptions,
    ) -> Gpu {
        Gpu {
            name: name.into(),
            pool: Pool::new(context.clone()),
            modules: Modules::new(context.clone(), driver),
            stays: ResidentOwner::of(&*context),
            context,
            arch,
            options,
            constants: Mutex::default(),
            to_device: AtomicU64::new(0),
            to_host: AtomicU64::new(0),
        }
    }

    /// A driver's error as one of devices, about `what`.
    pub fn failed(&self, what: &str, e: DriverError) -> DeviceError {
        match e {
            DriverError::OutOfMemory { asked, .. } => DeviceError::Memory {
                what: format!("{what} on {} ({e})", self.name),
                bytes: asked,
            },
            e => DeviceError::Failed {
                device: self.name.clone(),
                why: format!("{what}: {e}"),
            },
        }
    }

    /// Constant `id` of `store` in device memory, put there by `place` unless somebody holds it.
    pub fn constant(
        &self,
        store: &Arc<WeightStore>,
        id: u32,
        place: impl FnOnce() -> Result<Memory, DeviceError>,
    ) -> Result<Arc<Constant>, DeviceError> {
        let key = (Arc::as_ptr(store) as usize, id);
        let mut known = self
            .constants
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(c) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(c);
        }
        let c = Arc::new(Constant {
            memory: place()?,
            _store: store.clone(),
        });
        known.retain(|_, c| c.strong_count() > 0);
        known.insert(key, Arc::downgrade(&c));
        Ok(c)
    }

    /// Fails when a kernel is known to stay for ever: the driver would wait for it.
    pub fn alive(&self) -> Result<(), DeviceError> {
        match self.stays.stuck.get() {
            None => Ok(()),
            Some(why) => Err(DeviceError::Failed {
                device: self.name.clone(),
                why: format!("a kernel of it never ends; start the process again: {why}"),
            }),
        }
    }

    /// Waits until a resident kernel has finished its requests and ended. No other one starts while the returned lock is
    /// held. Calls of the driver that may wait for running kernels, and kernels that would wait for its SMs, need it.
    pub fn without_resident(&self) -> Result<OwnerLock<'_>, DeviceError> {
        loop {
            let now = self.stays.now();
            self.alive()?;
            if now.is_none() {
                return Ok(now);
            }
            drop(now);
            if let Some(l) = self.stays.change().take() {
                let left = l.leave();
                left.map_err(|e| self.failed("the resident kernel", e))?;
            }
        }
    }

    /// Counts a copy to the device; where memory is one, it crosses no link.
    pub fn sent(&self, bytes: u64) {
        if !self.unified() {
            self.to_device.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts a copy from the device.
    pub fn fetched(&self, bytes: u64) {
        if !self.unified() {
            self.to_host.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    pub fn moved(&self) -> Moved {
        Moved {
            to_device: self.to_device.load(Ordering::Relaxed),
            to_host: self.to_host.load(Ordering::Relaxed),
        }
    }

    /// Whether host and device have one memory.
    pub fn unified(&self) -> bool {
        self.context.info().integrated
    }

    /// Bytes that executables may have in all.
    pub fn memory(&self) -> Result<u64, DeviceError> {
        let m = self.context.memory();
        let m = m.map_err(|e| self.failed("memory", e))?;
        // Reserved by the pool and free there is as good as free.
        let used = self.pool.used();
        let free = m.free + (used.reserved - used.allocated);
        let limit = self.options.memory.unwrap_or(u64::MAX);
        Ok(free.min(limit.saturating_sub(used.allocated)))
    }
}

/// The place itself.
pub(crate) struct CudaPlace(pub Arc<Gpu>);

enum Kind {
    Device(Memory),
    /// On a GPU without memory of its own: both sides use it as it is.
    Shared(Arc<dyn Pinned>),
}

/// A value's memory.
pub(crate) struct CudaMemory {
    gpu: Arc<Gpu>,
    kind: Kind,
    bytes: u64,
}

impl CudaMemory {
    pub fn new(gpu: &Arc<Gpu>, bytes: u64) -> Result<CudaMemory, DeviceError> {
        let failed = |e| gpu.failed("a value", e);
        let kind = match gpu.unified() {
            true => Kind::Shared(gpu.context.pinned(bytes as usize).map_err(failed)?),
            false => Kind::Device(gpu.pool.take(bytes).map_err(failed)?),
        };
        Ok(CudaMemory {
            gpu: gpu.clone(),
            kind,
            bytes,
        })
    }

    pub fn ptr(&self) -> DevicePtr {
        match &self.kind {
            Kind::Device(m) => m.ptr(),
            Kind::Shared(p) => p.device_ptr(),
        }
    }
}

impl Remote for CudaMemory {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn upload(&self, from: &[u8]) -> Result<(), DeviceError> {
        let _no_resident = self.gpu.without_resident()?;
        let done = match &self.kind {
            _ if from.is_empty() => return Ok(()),
            Kind::Shared(p) => p.write(0, from),
            Kind::Device(m) => {
                self.gpu.sent(from.len() as u64);
                self.gpu.context.upload(m.ptr(), from)
            }
        };
        done.map_err(|e| self.gpu.failed("a value", e))
    }

    fn download(&self, to: &mut [u8]) -> Result<(), DeviceError> {
        let _no_resident = self.gpu.without_resident()?;
        let done = match &self.kind {
            _ if to.is_empty() => return Ok(()),
            Kind::Shared(p) => p.read(0, to),
            Kind::Device(m) => {
                self.gpu.fetched(to.len() as u64);
                self.gpu.context.download(to, m.ptr())
            }
        };
        done.map_err(|e| self.gpu.failed("a value", e))
    }

    fn zero(&self) -> Result<(), DeviceError> {
        let Kind::Device(m) = &self.kind else {
            return self.upload(&vec![0; self.bytes as usize]);
        };
        if self.bytes == 0 {
            return Ok(());
        }
        let _no_resident = self.gpu.without_resident()?;
        let failed = |e| self.gpu.failed("a value", e);
        let context = &self.gpu.context;
        let stream = Stream::new(context, 0).map_err(failed)?;
        let queued = context.fill(m.ptr(), 0, self.bytes, stream.id());
        queued.map_err(failed)?;
        stream.synchronize().map_err(failed)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Place for CudaPlace {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn shares_host(&self) -> bool {
        self.0.unified()
    }

    fn allocate(&self, bytes: u64) -> Result<Arc<dyn Remote>, DeviceError> {
        let _no_resident = self.0.without_resident()?;
        Ok(Arc::new(CudaMemory::new(&self.0, bytes)?))
    }
}
