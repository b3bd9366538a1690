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
    #[error("{path}: {source}{}", remedy(source))]
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

/// What to do about a file that cannot be read or written; a file that is not what it should be says so itself.
fn remedy(e: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{FileTooLarge, InvalidData, InvalidInput};
    match e.kind() {
        FileTooLarge | InvalidData | InvalidInput => "",
        _ => "; check the path and its permissions",
    }
}

/// What an error is about, for programs that decide by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The bytes of the model are no well-formed ONNX message.
    Damaged,
    /// The model has operators that are not covered.
    Unsupported,
    /// The model contradicts itself, or cannot be planned.
    Model,
    /// The inputs of a request do not fit the model: names, types, sizes.
    Input,
    /// A request was refused: the queue is full, or its deadline cannot be kept.
    Refused,
    /// A request was given up by its caller.
    Cancelled,
    /// A request failed while it ran.
    Failed,
    /// A device cannot be used.
    Device,
    /// A file cannot be read or written.
    Io,
    /// Another value given by the caller is wrong.
    Usage,
    /// A fault of this library.
    Internal,
}

fn kind_of_run(e: &RunError) -> ErrorKind {
    match e {
        RunError::Missing { .. }
        | RunError::Unknown { .. }
        | RunError::Type { .. }
        | RunError::Shape { .. }
        | RunError::Dim { .. }
        | RunError::Sizes(_)
        | RunError::Assumed { .. } => ErrorKind::Input,
        RunError::Overloaded { .. }
        | RunError::Late { .. }
        | RunError::Draining
        | RunError::StreamFull { .. }
        | RunError::Refused(_) => ErrorKind::Refused,
        RunError::Cancelled => ErrorKind::Cancelled,
        RunError::Stream { .. } | RunError::StateAlone { .. } => ErrorKind::Usage,
        _ => ErrorKind::Failed,
    }
}

impl Error {
    /// What it is about.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Model(_) if self.is_damaged() => ErrorKind::Damaged,
            Error::Model(_) if self.is_unsupported() => ErrorKind::Unsupported,
            Error::Model(_) if self.is_io() => ErrorKind::Io,
            Error::Model(_) | Error::Plan(_) => ErrorKind::Model,
            Error::Run(e) => kind_of_run(e),
            Error::Device(_) => ErrorKind::Device,
            Error::Io { .. } => ErrorKind::Io,
            Error::Internal(_) => ErrorKind::Internal,
            _ => ErrorKind::Usage,
        }
    }

    /// An error of another crate.
    pub fn other(e: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Other(Box::new(e))
    }

    /// True when the model has operators that are not covered.
    pub fn is_unsupported(&self) -> bool {
        matches!(self.import(), Some(onnx::ImportError::Unsupported(_)))
    }

    /// True when the caller names an input or a dimension that the model has not.
    pub fn is_unknown_name(&self) -> bool {
        matches!(self.import(), Some(onnx::ImportError::Unknown { .. }))
    }

    /// True when the bytes of the model are no well-formed ONNX message.
    pub fn is_damaged(&self) -> bool {
        let e = self.import();
        matches!(
            e,
            Some(onnx::ImportError::File(onnx::Error::Malformed { .. }))
        )
    }

    /// Whether a file of the model cannot be read.
    fn is_io(&self) -> bool {
        let e = self.import();
        matches!(e, Some(onnx::ImportError::File(onnx::Error::File { .. })))
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
