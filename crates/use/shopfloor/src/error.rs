//! The facade's error: what failed, in one sentence with the remedy.
use crate::RunError;

/// What a part of this library says, of a type that may change.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why something could not be done: one sentence that names the file, node or tensor and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model cannot be read, or has what is not covered ([`Error::is_unsupported`]).
    #[error(transparent)]
    Model(Cause),
    /// The model cannot be planned, or a plan is not valid.
    #[error(transparent)]
    Plan(Cause),
    /// A saved plan cannot be read.
    #[error("{path}: {source}")]
    PlanFile {
        /// File.
        path: String,
        /// What is wrong.
        source: Cause,
    },
    /// A request failed, was refused or was cancelled.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The device cannot be used.
    #[error(transparent)]
    Device(Cause),
    /// A kernel written by hand cannot be read, or breaks a rule.
    #[error(transparent)]
    Kernel(Cause),
    /// A machine's description is wrong or unknown, or this machine cannot be calibrated.
    #[error(transparent)]
    Machine(Cause),
    /// A tensor's bytes and shape disagree.
    #[error(transparent)]
    Tensor(Cause),
    /// A file that a tool reads or writes is wrong.
    #[error(transparent)]
    Other(Cause),
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
    /// A fault of this library.
    #[error("{0}; this is a fault of shopfloor, please report it with the model")]
    Internal(Cause),
}

impl Error {
    /// An error of another crate.
    pub fn other(e: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Other(Box::new(e))
    }

    /// True when the model has operators that are not covered.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.import(), Some(onnx::ImportError::Unsupported(_)))
    }

    /// True when the bytes of the model are no well-formed ONNX message.
    pub fn is_damaged(&self) -> bool {
        let e = self.import();
        matches!(
            e,
            Some(onnx::ImportError::File(onnx::Error::Malformed { .. }))
        )
    }

    fn import(&self) -> Option<&onnx::ImportError> {
        match self {
            Error::Model(e) => e.downcast_ref(),
            _ => None,
        }
    }
}

/// Errors of the crates behind this one, by what they are about.
macro_rules! from {
    ($($kind:ident: $($error:ty),+;)+) => {
        $($(
            #[doc(hidden)]
            impl From<$error> for Error {
                fn from(e: $error) -> Error {
                    Error::$kind(Box::new(e))
                }
            }
        )+)+
    };
}

from! {
    Model: onnx::ImportError, graph::GraphError;
    Plan: planner::PlannerError, plan::PlanError;
    Device: device::DeviceError;
    Kernel: kernel::KernelError;
    Machine: machine::MachineError, cpu::calibrate::CalibrateError;
    Tensor: tensor::TensorError;
    Internal: rewrite::Error;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn messages_and_reasons_are_those_of_the_crate_that_failed() {
        let file = "/no/such/machine.toml";
        let made = || machine::Machine::from_file(file.as_ref()).unwrap_err();
        let e = Error::from(made());
        assert!(matches!(e, Error::Machine(_)));
        assert_eq!(e.to_string(), made().to_string());
        let reason = |e: &dyn std::error::Error| e.source().map(ToString::to_string);
        assert_eq!(reason(&e), reason(&made()));
        assert!(e.source().is_some());
    }
}
