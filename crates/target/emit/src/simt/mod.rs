//! Tile programs as threads: one lowering that takes every decision from the schedule, the form that
//! printers of WGSL and PTX read, and an interpreter of it.
pub mod ir;
pub mod run;

mod arith;
pub(crate) mod build;
mod circular;
pub(crate) mod forms;
pub(crate) mod lanes;
mod lower;
mod remainder;
pub(crate) mod scalar;

pub use ir::Program;
pub use lower::{Caps, lower};
