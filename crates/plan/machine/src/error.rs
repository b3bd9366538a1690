//! Errors of this crate.

use std::path::PathBuf;

/// What can go wrong with machine descriptions.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A machine file does not parse.
    #[error("{file}:{line}: {message}")]
    Parse {
        /// File or `<text>`.
        file: String,
        /// Line, from 1.
        line: usize,
        /// What is wrong and what is expected.
        message: String,
    },
    /// A field holds a value that no machine can have.
    #[error("{file}:{line}: field `{field}`: {message}")]
    FieldAt {
        /// File or `<text>`.
        file: String,
        /// Line, from 1; 0 when the field is not written in the file.
        line: usize,
        /// Path of the field.
        field: String,
        /// What is wrong and what is expected.
        message: String,
    },
    /// A field of a machine in memory holds a value that no machine can have.
    #[error("machine `{machine}`, field `{field}`: {message}")]
    Field {
        /// Its name.
        machine: String,
        /// Path of the field.
        field: String,
        /// What is wrong and what is expected.
        message: String,
    },
    /// A name that the catalog does not know and that is no file.
    #[error("no machine is called `{name}` and no such file exists; {hint}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// Near names, or how to list them all.
        hint: String,
    },
    /// A name that fits several machines.
    #[error("`{name}` fits several machines: {}; give one of these names", candidates.join(", "))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The machines it fits.
        candidates: Vec<String>,
    },
    /// A file could not be read or written.
    #[error("{}: {source}; check that the path exists and may be accessed", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A machine or measurements that cannot be written as text.
    #[error("cannot write `{name}` as text: {message}")]
    Write {
        /// The machine's name.
        name: String,
        /// Why.
        message: String,
    },
}
