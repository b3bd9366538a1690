//! Tile programs as threads: one lowering that takes every decision from the schedule, and the form
//! that printers of WGSL and PTX read.
pub mod ir;

pub(crate) mod build;
pub(crate) mod lanes;
mod lower;
pub(crate) mod scalar;

pub use ir::Program;
pub use lower::{Caps, lower};
