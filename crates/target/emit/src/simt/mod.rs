//! Tile programs as what the threads of a CTA do: one lowering that takes every decision from the schedule,
//! the form that printers of WGSL and PTX read, its rules, its text, and an interpreter of it.
pub mod ir;
pub mod run;
pub mod verify;

mod arith;
pub(crate) mod build;
mod circular;
pub(crate) mod dependents;
pub(crate) mod forms;
mod fresh;
pub(crate) mod lanes;
mod lower;
mod numbered;
mod remainder;
pub(crate) mod scalar;
mod text;

pub use ir::Program;
pub use lower::{Caps, in_cluster, lower};
