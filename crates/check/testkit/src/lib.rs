//! What tests of whole models share: the zoo with its references, generated weights, comparison of results.
#![forbid(unsafe_code)]

pub mod compare;
pub mod cores;
pub mod exact;
pub mod generate;
#[cfg(target_os = "linux")]
pub mod guard;
pub mod handwritten;
pub mod lab;
pub mod memory;
pub mod mutate;
pub mod named;
pub mod onnx_file;
pub mod operators;
pub mod printed;
pub mod random;
pub mod readers;
pub mod scale;
pub mod tiles;
pub mod tools;
pub mod zoo;

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::mutate::proto::{fields, message};
    pub use crate::mutate::text::tokens;
    pub use crate::mutate::zip::crc;
}
