//! The tests of this crate, in one program.
mod borrowed;
mod header;
mod programs;
