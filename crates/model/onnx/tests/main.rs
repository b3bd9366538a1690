//! The tests of this crate, in one program.
mod import;
mod reader;
