//! The facade's error: what failed, in one sentence with the remedy.
/// Why something could not be done: one sentence that names the file, node or tensor and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be imported.
    #[error(transparent)]
    Import(#[from] onnx::ImportError),
    /// A rewrite broke the graph (a fault of ours).
    #[error("{0}; this is a fault of shopfloor, please report it with the model")]
    Rewrite(#[from] rewrite::Error),
    /// The graph cannot be planned.
    #[error(transparent)]
    Planner(#[from] planner::PlannerError),
    /// A plan cannot be made or is not valid.
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    /// A saved plan cannot be read.
    #[error("{path}: {source}")]
    PlanFile {
        /// File.
        path: String,
        /// What is wrong.
        source: plan::PlanError,
    },
    /// A request failed.
    #[error(transparent)]
    Run(#[from] runtime::RunError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// A kernel written by hand cannot be read, or breaks a rule.
    #[error(transparent)]
    Kernel(#[from] kernel::KernelError),
    /// A machine description is wrong or unknown.
    #[error(transparent)]
    Machine(#[from] machine::MachineError),
    /// The machine cannot be calibrated.
    #[error(transparent)]
    Calibrate(#[from] cpu::calibrate::CalibrateError),
    /// A graph cannot be put together.
    #[error(transparent)]
    Graph(#[from] graph::GraphError),
    /// A tensor's bytes and shape disagree.
    #[error(transparent)]
    Tensor(#[from] tensor::TensorError),
    /// A file that a tool reads or writes is wrong.
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
    /// A file cannot be read or written.
    #[error("{path}: {source}; check the path and its permissions")]
    Io {
        /// File.
        path: String,
        /// Reason.
        source: std::io::Error,
    },
    /// A value given by the caller is wrong.
    #[error("{0}")]
    Usage(String),
}

impl Error {
    /// An error of another crate.
    pub fn other(e: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Other(Box::new(e))
    }

    /// True when the model has operators that are not covered.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Error::Import(onnx::ImportError::Unsupported(_)))
    }
}
