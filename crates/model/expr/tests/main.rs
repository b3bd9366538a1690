//! The tests of this crate, in one program.
mod monoids;
mod patterns;
mod programs;
