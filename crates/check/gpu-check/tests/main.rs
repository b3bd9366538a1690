//! The tests of this crate, in one program.
mod assembled;
mod gpu_check;
