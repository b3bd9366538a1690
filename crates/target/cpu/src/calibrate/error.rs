//! What can go wrong while calibrating.

use std::path::PathBuf;

/// What can go wrong while calibrating or keeping a calibration.
#[derive(Debug, thiserror::Error)]
pub enum CalibrateError {
    /// A measuring thread could not be started or died.
    #[error(
        "a measuring thread on CPU {cpu} failed: {message}; free memory or threads and try again"
    )]
    Thread {
        /// The CPU it was to run on.
        cpu: usize,
        /// Why.
        message: String,
    },
    /// What was measured cannot be, again and again.
    #[error("what was measured cannot be ({what}){}; calibrate again when less else runs", busy.as_ref().map_or(String::new(), |b| format!("; {b}")))]
    Implausible {
        /// What cannot be.
        what: String,
        /// That the machine was busy, where it was.
        busy: Option<String>,
    },
    /// There is no folder for user data.
    #[error(
        "there is no folder to keep a calibration in; set XDG_DATA_HOME or HOME, or write it to a file of your own"
    )]
    NoFolder,
    /// A calibration could not be read or written.
    #[error("{}: {source}; check that the folder exists and may be written", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A stored calibration does not read.
    #[error("{0}; calibrate again to replace it")]
    Text(#[from] machine::MachineError),
}
