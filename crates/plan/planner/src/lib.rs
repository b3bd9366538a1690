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

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::bind::cut::{CutValue, NEVER, Problem};
    pub use crate::bind::known::{KnownSteps, Predicted};
    pub use crate::bind::memory::{Life, assign, in_time, placed};
    pub use crate::bind::prior::alike;
    pub use crate::bind::recency::Recency;
    pub use crate::bind::schedule::rank::{COUNTED, others_too};
    pub use crate::bind::schedule::renumber::{numbered_as, with_lanes_last};
    pub use crate::bind::waits::{Bytes, DisjointWrites, Touch, lives, waits};
    pub use crate::fuse::order::Order as GroupOrder;
    pub use crate::merge::{Joinable, join, joinings};
    pub use crate::relayout::{Order, Region, regions, relaid, without_copies};
    pub use crate::split::{apart, partings};
}
