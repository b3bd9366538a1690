//! The tests of this crate, in one program.
mod pages;
mod recycle;
mod unified;
