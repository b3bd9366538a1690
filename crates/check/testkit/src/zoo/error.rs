//! Why a model of the zoo could not be used.

use std::path::PathBuf;

/// Why a model of the zoo could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ZooError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A description does not have the form it should have.
    #[error("{path}: {reason}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// An array file could not be read.
    #[error(transparent)]
    Data(#[from] data::DataError),
}
