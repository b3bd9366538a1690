//! A [`cuda::Driver`] made of the PTX emulator: emulated GPUs.
//!
//! A stream runs only while the host waits for it, asks whether it is done, or reads a word of pinned memory
//! atomically. So the host's polling lets kernels run, and every run of a program is the same. Kernels of
//! different streams take turns. Events carry emulated
//! time: the time of a launch is derived from what it executed and moved, and from the GPU's figures;
//! kernels that overlap do not slow each other down. A kernel whose CTAs wait for each other or for the
//! host keeps time per CTA while it runs, and the host's clock goes on with what it reads of it. Calls of
//! the driver take the host no time, which favours programs that make many. Loading or unloading a module and
//! getting or freeing memory wait for everything that was launched, as the real driver may; when what runs
//! can never end by itself, that is an error with every warp's state instead of a hang.
//!
//! [`Fault`]s make calls fail. A kernel with which the emulator finds something wrong fails its stream;
//! an illegal access makes the GPU unusable, as on a real one.
//!
//! Never here: planning, tile programs, the host's clock as a measure of anything.
#![forbid(unsafe_code)]

mod catalog;
mod context;
mod faults;
mod gpu;
mod hook;
mod pinned;
mod state;
mod time;

pub use catalog::NAMES;
pub use faults::Fault;
pub use gpu::EmulatedGpu;
pub use hook::Happened;
pub use ptx_emulator::Checks;
pub use time::Link;

use context::Emulated;
use cuda::{Context, DeviceInfo, Driver, DriverError};
use faults::Faults;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A driver with emulated GPUs.
pub struct EmulatedDriver {
    gpus: Vec<Arc<Emulated>>,
    faults: Vec<Arc<Mutex<Faults>>>,
}

impl EmulatedDriver {
    /// A driver that knows `gpus`, numbered in this order.
    pub fn new(gpus: Vec<EmulatedGpu>) -> EmulatedDriver {
        let faults: Vec<Arc<Mutex<Faults>>> = gpus.iter().map(|_| Arc::default()).collect();
        let gpus = gpus.into_iter().enumerate().zip(&faults);
        EmulatedDriver {
            gpus: gpus
                .map(|((n, mut g), f)| {
                    g.info.ordinal = n as u32;
                    Arc::new(Emulated::new(g, f.clone()))
                })
                .collect(),
            faults,
        }
    }

    /// Makes calls to GPU `ordinal` fail from now on; nothing where there is none.
    pub fn inject(&self, ordinal: u32, fault: Fault) {
        if let Some(f) = self.faults.get(ordinal as usize) {
            f.lock().unwrap_or_else(PoisonError::into_inner).add(fault);
        }
    }

    /// Calls that GPU `ordinal` had so far, by the driver's name for them. What the host does to pinned
    /// memory is none.
    pub fn calls(&self, ordinal: u32) -> BTreeMap<&'static str, u64> {
        let gpu = self.gpus.get(ordinal as usize);
        gpu.map_or(BTreeMap::new(), |g| g.lock().calls.clone())
    }

    /// Calls `hook` with what happens on GPU `ordinal` from now on, instead of another one. It is called
    /// while the GPU is held: it may call nothing of the driver.
    pub fn watch(&self, ordinal: u32, hook: impl Fn(Happened) + Send + Sync + 'static) {
        if let Some(g) = self.gpus.get(ordinal as usize) {
            g.lock().told = hook::Told::new(Arc::new(hook));
        }
    }

    /// Takes back every fault that was injected; a GPU that was lost stays lost.
    pub fn clear(&self, ordinal: u32) {
        if let Some(f) = self.faults.get(ordinal as usize) {
            *f.lock().unwrap_or_else(PoisonError::into_inner) = Faults::default();
        }
    }
}

impl Driver for EmulatedDriver {
    fn version(&self) -> u32 {
        12040
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>, DriverError> {
        Ok(self.gpus.iter().map(|g| g.info().clone()).collect())
    }

    fn open(&self, ordinal: u32) -> Result<Arc<dyn Context>, DriverError> {
        match self.gpus.get(ordinal as usize) {
            Some(g) => Ok(Arc::new(context::Handle(g.clone()))),
            None => Err(DriverError::NoDevice {
                ordinal,
                count: self.gpus.len() as u32,
            }),
        }
    }
}
