use device::{Device, PackedStore};
use plan::Planner;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Devices with resident workers, shared by all sessions.
pub struct Engine {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) packed: PackedStore,
    /// Nanoseconds.
    planning: AtomicU64,
}

/// What everything takes, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Init results (packed weights, folded constants), shared ones once.
    pub packed: u64,
}

impl Engine {
    /// An engine on one device.
    pub fn new(device: Arc<dyn Device>, planner: Arc<dyn Planner>) -> Arc<Engine> {
        Arc::new(Engine {
            device,
            planner,
            packed: PackedStore::new(),
            planning: AtomicU64::new(0),
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The planner.
    pub fn planner(&self) -> &Arc<dyn Planner> {
        &self.planner
    }

    /// What requests of all sessions have spent so far on plans that did not exist yet: schedules, proof,
    /// compiling, and packing of weights.
    pub fn planning(&self) -> Duration {
        Duration::from_nanos(self.planning.load(Ordering::Relaxed))
    }

    pub(crate) fn planned(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.planning.fetch_add(ns, Ordering::Relaxed);
    }

    /// Memory in use.
    pub fn memory(&self) -> Memory {
        Memory {
            packed: self.packed.bytes(),
        }
    }
}
