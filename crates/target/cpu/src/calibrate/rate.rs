//! What a loop measures.

use machine::{NumType, UnitClass};

/// Makes a loop that runs a number of passes, on the thread that runs it.
pub(super) type Make = Box<dyn Fn() -> Box<dyn FnMut(usize)> + Sync>;

/// The class, format and loop of a rate to measure.
pub(super) struct Rate {
    pub class: UnitClass,
    pub dtype: NumType,
    pub isa: &'static str,
    pub lanes: u64,
    pub ops_per_pass: f64,
    pub make: Make,
}
