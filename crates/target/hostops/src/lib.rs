//! Rare operators and control values in safe plain code.
//!
//! Three ways in: [`run`] evaluates an operator of the table by its ONNX type (`ml.` before those of
//! ai.onnx.ml, `ms.` before those of com.microsoft); the typed functions evaluate core ops that a
//! plan may run as `host` steps as long as no kernel family has them; [`prepare`] makes a plan's step
//! ready once. Sizes come from data here, so every size is checked, and an output larger than
//! [`MAX_OUTPUT_BYTES`], or texts larger than [`MAX_TEXT_BYTES`], are an error before they are made.
//!
//! Never here: a kernel, a plan, a thread.
#![forbid(unsafe_code)]

mod args;
mod core;
mod data;
mod error;
mod native;
mod ops;
mod prepared;
mod reasons;
mod small_float;

pub use crate::core::*;
pub use data::{MAX_OUTPUT_BYTES, MAX_TEXT_BYTES};
pub use error::HostError;
pub use prepared::{HostTensor, In, Out, Prepared, prepare};
pub use reasons::reason;

use args::Args;
use tensor::{Attrs, Tensor};

/// Evaluates operator `name` of the table. Inputs are in ONNX order, `None` where an optional one
/// is left out, or only those given while the attribute `present` marks the left out ones by 0;
/// sizes may also be given as the attributes that older opsets had. Gives every output
/// that the operator can have, also those that the model leaves out.
pub fn run(
    name: &str,
    attrs: &Attrs,
    inputs: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, HostError> {
    if let Some(native) = native::code(attrs) {
        return native::run(native, attrs, inputs);
    }
    let f = ops::TABLE
        .binary_search_by(|(n, _)| (*n).cmp(name))
        .map(|i| ops::TABLE[i].1)
        .map_err(|_| HostError::Unknown { name: name.into() })?;
    let spread = error::named(name, args::spread(attrs, inputs))?;
    let inputs = spread.as_deref().unwrap_or(inputs);
    error::named(name, f(&Args { attrs, inputs }))
}

/// Names that [`run`] knows, in alphabetical order.
pub fn host_names() -> Vec<&'static str> {
    ops::TABLE.iter().map(|(n, _)| *n).collect()
}

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::ops::regex::Pattern;
    pub use crate::small_float::{named, power};
}
