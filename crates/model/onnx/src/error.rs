//! The crate's error type: each variant names the file and the field, tensor or path, and says
//! what to do.

/// Why a model could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The model file is missing, not a regular file, or not readable.
    #[error("{file}: {problem}")]
    File {
        /// Path of the model as given.
        file: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The bytes are not a well-formed ONNX message.
    #[error(
        "{file}: damaged ONNX file: {message}.{field} at byte {offset}: {problem}; export or download the model again"
    )]
    Malformed {
        /// Path of the model as given.
        file: String,
        /// Name of the protobuf message.
        message: &'static str,
        /// Name of the field, or `tag` where the field itself cannot be read.
        field: String,
        /// Offset in the file, in bytes.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// The message is well formed but not a model this reader accepts.
    #[error("{file}: {field}: {problem}")]
    Model {
        /// Path of the model as given.
        file: String,
        /// Field of the model, such as `ir_version`.
        field: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A tensor's data does not fit its type and dimensions, or cannot be had.
    #[error("{file}: tensor '{tensor}': {problem}")]
    Tensor {
        /// Path of the model as given.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// What is wrong and what to do.
        problem: String,
    },
    /// A tensor's external data cannot be used.
    #[error("{file}: tensor '{tensor}': external data '{path}': {problem}")]
    External {
        /// Path of the model as given.
        file: String,
        /// Name of the tensor.
        tensor: String,
        /// The location as the model states it.
        path: String,
        /// What is wrong and what to do.
        problem: String,
    },
}
