//! The tests of this crate, in one program.
extern crate kernel;

mod broken;
mod common;
mod elapsed;
mod good;
