//! The tests of this crate, in one program.
mod gemm;
mod resident;
mod threads;
