//! Plans on any GPU through WebGPU.
//!
//! A request's memory (ports, arena, states) is one buffer, what stays (weights and what is made of
//! them) another; both are bound once, and each step is given the places of its operands as numbers.
//! Host steps run on the CPU on copies of their operands. Requests go through a ring (`workers::ring`), which
//! the host drains in submissions of limited length. Nothing here plans.
#![forbid(unsafe_code)]
#![cfg(feature = "wgpu")]

mod device;
mod executable;
mod gpu;
mod host;
mod memory;
mod ring;
mod run;

pub use crate::device::{WebGpuDevice, adapters};
