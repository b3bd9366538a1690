//! `onnx`: reads ONNX files and lowers their operators to core ops; see ARCHITECTURE.md.
//!
//! [`ModelFile`] maps a file and parses its messages with this crate's own protobuf cursor
//! ([`proto`]). Tensor data is never copied: it stays a [`Bytes`] range of the mapping, or of
//! the mapping of the external file it lies in ([`ExternalFiles`]).
//!
//! Never here: a machine, a kernel, a schedule.
#![deny(unsafe_code)]

mod error;
mod external;
mod file;
mod import;
mod mapped;
mod ops;
pub mod proto;

pub use error::Error;
pub use external::ExternalFiles;
pub use file::ModelFile;
pub use import::{
    CustomLowered, CustomNode, CustomOp, CustomOps, ImportError, ImportOptions, Imported, Metadata,
    Port, PortDim, Report, UnsupportedNode, import, import_file, import_refused, unpack_codes,
};
pub use mapped::map_path;
pub use ops::covered as covered_operators;
pub use ops::covered_versions;
pub use tensor::Bytes;

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::import::sparse::positions;
    pub use crate::proto::annotate::{annotate, modules};
}
