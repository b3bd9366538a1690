//! The tests of this crate, in one program.
mod accuracy;
mod files;
