//! From a graph of core ops to a plan: fusion, layouts, schedules, order, memory.
//!
//! [`program`] turns a graph into a [`plan::Program`] (fused kernels, symbolic dims); `bind` turns
//! a program into a [`plan::Plan`] for a box of dims and devices. The planner asks no device: it
//! reads [`machine::Machine`] and [`kernel::Target`], which are data.
#![forbid(unsafe_code)]

mod bind;
mod error;
mod fuse;
mod kernels;
mod located;
mod merge;
mod program;
mod relayout;
mod split;
mod state;

pub use bind::{
    Placement, PlanOptions, Planner, Sweep, predict_again, predict_over, predict_steps,
};
pub use error::PlannerError;
pub use plan::Precision;
pub use program::{ProgramOptions, program};
