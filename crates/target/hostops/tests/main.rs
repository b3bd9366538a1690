//! The tests of this crate, in one program.
mod core;
mod host_values;
mod prepared;
#[cfg(feature = "patterns")]
mod regex;
mod small_float;
mod standard;
mod table;
