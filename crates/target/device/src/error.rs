//! Errors of devices: compiling, memory, running, cancelled.
/// Why a device could not compile or run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// Memory could not be had.
    #[error(
        "{what} needs {bytes} bytes, which could not be allocated; use smaller dimensions or more memory"
    )]
    Memory {
        /// What for.
        what: String,
        /// How much.
        bytes: u64,
    },
    /// An input or output has the wrong size.
    #[error(
        "{port} holds {got} bytes, but its shape takes {want}; give a tensor of the model's dtype and shape"
    )]
    Port {
        /// Input or output name.
        port: String,
        /// Bytes of the shape.
        want: u64,
        /// Bytes given.
        got: u64,
    },
    /// A step failed while running (an index out of range, a host operator's refusal).
    #[error("step '{step}' (nodes {nodes}): {why}")]
    Step {
        /// Step.
        step: String,
        /// Model nodes.
        nodes: String,
        /// Reason and remedy.
        why: String,
    },
    /// The device cannot run what the plan asks for.
    #[error("device '{device}' cannot run step '{step}': {why}")]
    Unsupported {
        /// Device.
        device: String,
        /// Step.
        step: String,
        /// Reason.
        why: String,
    },
    /// The device itself failed: its driver refused a call, or it is lost.
    #[error("device '{device}': {why}")]
    Failed {
        /// Device.
        device: String,
        /// What its driver says.
        why: String,
    },
    /// Whoever sent the request gave it up.
    #[error("the request was cancelled")]
    Cancelled,
    /// Dims do not fit the plan.
    #[error(transparent)]
    Plan(#[from] PlanErrorText),
}

/// A plan's error as text (plan errors are not comparable).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanErrorText(pub String);

impl From<plan::PlanError> for DeviceError {
    fn from(e: plan::PlanError) -> DeviceError {
        DeviceError::Plan(PlanErrorText(e.to_string()))
    }
}
