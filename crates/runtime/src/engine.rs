use device::{Device, PackedStore};
use plan::Planner;
use std::sync::Arc;

/// Devices with resident workers, shared by all sessions.
pub struct Engine {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) planner: Arc<dyn Planner>,
    pub(crate) packed: PackedStore,
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

    /// Memory in use.
    pub fn memory(&self) -> Memory {
        Memory {
            packed: self.packed.bytes(),
        }
    }
}
