//! The tests of this crate, in one program.
mod core;
mod held;
mod prepared;
mod standard;
mod table;
