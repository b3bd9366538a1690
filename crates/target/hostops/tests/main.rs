//! The tests of this crate, in one program.
mod core;
mod host_values;
mod prepared;
mod standard;
mod table;
