//! What can be wrong before anything runs.

/// Why PTX text, or a request about it, is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PtxError {
    /// The text is not PTX as it is read here.
    #[error("line {line}: {what}")]
    Text {
        /// Line of the text, from 1.
        line: u32,
        /// What was not understood.
        what: String,
    },
    /// Valid PTX that is not run here.
    #[error("line {line}: not supported: {what}")]
    Unsupported {
        /// Line of the text, from 1.
        line: u32,
        /// The form that is left out.
        what: String,
    },
    /// The module has no such kernel.
    #[error("there is no kernel named '{name}'; the module has: {have}")]
    NoKernel {
        /// The name asked for.
        name: String,
        /// The names there are.
        have: String,
    },
    /// A launch that no device would take.
    #[error("kernel '{kernel}' cannot be launched: {what}")]
    Launch {
        /// The kernel.
        kernel: String,
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A host access outside every allocation, or an allocation that is not to be had.
    #[error("memory: {0}")]
    Memory(String),
}

pub(crate) fn text<T>(line: u32, what: impl Into<String>) -> Result<T, PtxError> {
    Err(PtxError::Text {
        line,
        what: what.into(),
    })
}

pub(crate) fn unsupported<T>(line: u32, what: impl Into<String>) -> Result<T, PtxError> {
    Err(PtxError::Unsupported {
        line,
        what: what.into(),
    })
}
