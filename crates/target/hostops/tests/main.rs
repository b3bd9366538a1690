//! The tests of this crate, in one program.
mod core;
mod host_values;
mod prepared;
mod standard;
mod table;
// The unit tests of a module that nothing outside the crate sees.
#[allow(dead_code, reason = "the tests use a part")]
#[path = "../src/small_float.rs"]
mod small_float;
