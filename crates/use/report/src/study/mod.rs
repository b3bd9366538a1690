//! Plans for machines that need not be there, compared: over devices, over changes of one, and over what
//! its user could change.

mod advise;
mod fleet;
mod what_if;

pub use advise::{Advice, AdviceView, Computed};
pub use fleet::{FleetPoint, FleetRow, FleetView, bounds_of, memory_on};
pub use what_if::{AloneView, ChangedStep, WhatIfView};

use crate::calc::because;
use crate::units;

/// Whose kernels, and whether nothing was ever compared with their predictions.
pub(crate) fn label(kernels: &str, unvalidated: bool) -> String {
    match unvalidated {
        true => format!("{kernels}, unvalidated"),
        false => kernels.into(),
    }
}

/// How many times as fast: `1.52x`.
fn times(old: f64, new: f64) -> String {
    match new > 0.0 {
        true => format!("{}x", units::number(old / new)),
        false => "-".into(),
    }
}
