//! Errors of measurement files and of predictions from them.
use std::path::PathBuf;

/// What is wrong with a measurements file or with the constants.
#[derive(Debug, thiserror::Error)]
pub enum PredictError {
    /// The file cannot be read.
    #[error("{path}: {source}; check the path")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The compressed file is damaged or opens to more than is taken.
    #[error("{path}: {what}")]
    Gzip {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A field does not read.
    #[error("{file}, line {line}, column `{column}`: {what}")]
    Field {
        /// The file.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Name of the column, or its number where it has none.
        column: String,
        /// What is wrong and what would be right.
        what: String,
    },
    /// The first line is none of a measurements file.
    #[error(
        "{file}, line 1: no measurements file has the columns `{found}`; expected those of kernels ({kernels}), whole models ({models}) or decoding ({decode})",
        kernels = crate::columns::KERNELS.join(","),
        models = crate::columns::MODELS.join(","),
        decode = crate::columns::DECODE.join(",")
    )]
    Header {
        /// The file.
        file: String,
        /// Its first line.
        found: String,
    },
    /// The file of constants does not read.
    #[error("constants: {0}")]
    Constants(String),
}
