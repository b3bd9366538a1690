//! The tests of this crate, in one program.
mod calculators;
mod cli;
mod common;
mod emulate;
mod emulated;
mod folders;
mod life;
mod report;
mod roofline;
mod studies;
