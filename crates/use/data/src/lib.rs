//! Tensors in files: npy arrays, npz archives, ONNX tensors; pictures and sound behind the feature `media`.
//!
//! Every reader takes hostile bytes: what a header declares is checked against the bytes that are
//! there before anything is allocated for it.
//!
//! Never here: a model, a plan.
#![forbid(unsafe_code)]

mod error;
mod file;
mod host_value;
#[cfg(feature = "media")]
mod media;
mod npy;
mod npz;
mod proto;
mod text;

pub use error::DataError;
pub use host_value::{pb_from_bytes_as, read_pb_as};
#[cfg(feature = "media")]
pub use media::{Sound, png_from_bytes, read_png, read_wav, wav_from_bytes};
pub use npy::{npy_from_bytes, npy_to_bytes, read_npy, write_npy};
pub use npz::{npz_from_bytes, npz_to_bytes, read_npz, read_npz_of, write_npz};
pub use proto::{pb_from_bytes, pb_to_bytes, read_pb, write_pb};

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::npz::zip::write as write_zip;
}
