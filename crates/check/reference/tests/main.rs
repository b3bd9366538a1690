//! The tests of this crate, in one program.
mod custom;
mod graphs;
mod programs;
