//! Published measurements against predictions: how far off the cost model is, by source, GPU and operator.
//!
//! Every row of a measurements file becomes kernels as the vendor's library would launch them
//! ([`ops`]): a [`kernel::Kernel`] with a schedule drawn from the `vendor` [`kernel::Target`]
//! ([`vendor()`]). The two make a tile program, whose `Work` is read off by the walker that plans use
//! too, and [`machine::predict`] says what that costs. What a source's way of measuring adds is a
//! constant. Every number that was chosen after a look at measurements is in `constants.toml`.
//!
//! The crate runs nothing and knows no device, no runtime and no ONNX.
#![forbid(unsafe_code)]

mod columns;
pub mod constants;
mod csv;
pub mod decode;
mod error;
pub mod fit;
mod gpus;
mod kernels;
pub mod measurements;
pub mod models;
pub mod ops;
pub mod page;
mod report;
mod rows;
mod stats;
pub mod vendor;

pub use constants::Constants;
pub use error::PredictError;
pub use gpus::machine_of;
pub use measurements::{Measurements, Row};
pub use report::{Group, Options, Pair, Report, compare, pairs};
pub use stats::Errors;
pub use vendor::vendor;

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::gpus::TAKEN_FOR;
    pub use crate::stats::median;
}
