//! How a GPU is used, and what crossed its link.

use machine::Way;
use std::time::Duration;

/// How a [`crate::CudaDevice`] uses its GPU.
#[derive(Clone, Debug)]
pub struct CudaOptions {
    /// Device memory to use at most, in bytes; what is free when not said.
    pub memory: Option<u64>,
    /// Whether weights that do not fit are streamed from the host ahead of use, rather than refused.
    pub streaming: bool,
    /// How steps reach the GPU: when not said, as a plan says that was made for one way, else what is predicted
    /// to take less of launching them and of graphs.
    ///
    /// In a kernel that stays ([`Way::Resident`]) requests reach blocks through memory that both sides see,
    /// and steps of the host in between them are run while it waits. Streamed weights are then held in
    /// page-locked memory, all of them; a block for which the host has not so much, or the device no room
    /// for the kernel's tables beside the weights under way, runs step by step.
    pub launch: Option<Way>,
    /// How long nothing of a resident kernel may move while somebody waits for an answer. Then what
    /// every worker does goes into the request's error, and the kernel is told to leave.
    pub watchdog: Duration,
}

impl Default for CudaOptions {
    fn default() -> CudaOptions {
        CudaOptions {
            memory: None,
            streaming: true,
            launch: None,
            watchdog: Duration::from_secs(5),
        }
    }
}

/// Bytes that crossed the link so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// From the host to the device.
    pub to_device: u64,
    /// From the device to the host.
    pub to_host: u64,
}
