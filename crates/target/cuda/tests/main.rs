//! The tests of this crate, in one program.
mod sys;
mod without_gpu;
