//! Errors of reading and writing arrays, with the file and the remedy.
use std::path::PathBuf;

/// Why a file of arrays, pictures or sound could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// The file could not be opened or read.
    #[error("cannot read {path}: {source}; check the path and its permissions")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The path names a folder, pipe or device.
    #[error("{path} is not a regular file; give the path of a file on disk")]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file could not be written.
    #[error("cannot write {path}: {source}; check that the folder exists and has room")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not an array in npy format.
    #[error("{name} is no valid .npy array: {reason}")]
    Npy {
        /// File, or archive and array.
        name: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// The array's element type has no counterpart here.
    #[error(
        "{name} holds elements of type '{descr}', which tensors cannot hold; save it as bool, an integer or a float type"
    )]
    ElementType {
        /// File, or archive and array.
        name: String,
        /// Type as the header spells it.
        descr: String,
    },
    /// The bytes are not an archive of arrays.
    #[error("{name} is no valid .npz archive: {reason}")]
    Npz {
        /// The file.
        name: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// The bytes are not a tensor in ONNX's protobuf form.
    #[error("{name} is no valid ONNX tensor: {reason}")]
    Proto {
        /// The file.
        name: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// The bytes are not a picture that can be read.
    #[error("{name} is no readable PNG picture: {reason}")]
    Picture {
        /// The file.
        name: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
    /// The bytes are not a sound that can be read.
    #[error("{name} is no readable WAV sound: {reason}")]
    Sound {
        /// The file.
        name: String,
        /// What is wrong, and the remedy.
        reason: String,
    },
}
