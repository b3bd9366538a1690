//! What a loop measures.

use machine::{NumType, UnitClass};

/// The class, format and loop of a rate to measure.
pub(crate) struct Rate {
    pub class: UnitClass,
    pub dtype: NumType,
    pub isa: &'static str,
    pub lanes: u64,
    pub ops_per_pass: f64,
    pub run: fn(usize),
}
