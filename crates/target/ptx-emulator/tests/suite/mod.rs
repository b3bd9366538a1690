//! Kernels of known behaviour, written by hand, and what the emulator makes of them.
#![forbid(unsafe_code)]
// Shifts of products stand as the instruction set's manual has them.
#![allow(clippy::precedence)]

mod arithmetic;
mod bulk;
mod cache;
mod checks;
mod cluster;
mod common;
mod control;
mod convert;
mod counters;
mod damaged;
mod floats;
mod matrix;
mod mbarrier;
mod memory;
mod order;
mod parser;
mod pipeline;
mod ptxas;
mod round;
mod speed;
mod tensor;
mod timing;
mod timing_async;
mod warps;
mod wgmma;
mod wgmma_faults;
