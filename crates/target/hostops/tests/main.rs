//! The tests of this crate, in one program.
mod core;
mod host_values;
#[cfg(feature = "pictures")]
mod pictures;
mod prepared;
#[cfg(feature = "patterns")]
mod regex;
mod small_float;
mod standard;
mod table;
