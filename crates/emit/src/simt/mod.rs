//! Tile programs as threads: one lowering that takes every decision from the schedule, the form that
//! printers of WGSL and PTX read, and an interpreter of it.
pub mod ir;
pub mod run;

pub(crate) mod build;
pub(crate) mod lanes;
mod lower;
pub(crate) mod scalar;

pub use ir::Program;
pub use lower::{Caps, lower};
