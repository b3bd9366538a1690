//! Analysis on top of the library `shopfloor`: what is in a model, what its plan is and why, what bounds
//! it, what a change of the machine would buy, and how many requests a fleet answers.
//!
//! The command line is a thin layer over this crate. It plans, predicts and measures through `shopfloor`
//! and turns what it learns into the views of `report`; it has no formula of its own for what a plan or a
//! profile states. A program that only runs models does not need it.
#![forbid(unsafe_code)]

mod advise;
mod annotate;
mod bench;
mod bodies;
mod calibrate;
mod clock;
pub mod emitted;
mod fixed;
mod fleet;
mod folders;
mod half;
mod handoff;
mod inspect;
mod load;
mod measured;
mod nodes;
mod op;
pub mod pages;
pub mod planview;
mod read_inputs;
pub mod roofline;
mod simulate;
pub mod stalls;
mod step_costs;
mod stream_rates;
mod supervised_load;
mod sweep;
pub mod targets;
pub mod walk;
mod ways;
mod what_if;

pub use advise::advise;
pub use annotate::annotate;
pub use bench::{BenchOptions, Bind, Subject, bench, peak_rss};
pub use calibrate::{SHORT, calibrate};
pub use clock::rounds;
pub use fixed::{chain_model, fixed_cost};
pub use fleet::{batch_of, batches, fleet};
pub use folders::{Closeness, TestFolder, Verdict, find_test_folders, run_test_folder};
pub use handoff::handoff;
pub use inspect::{inspect, operators};
pub use load::{load_times, planning_times, steady_ms};
pub use measured::table as measured_table;
pub use op::{OP_FORMS, op_model};
pub use read_inputs::{read_inputs, read_inputs_of};
pub use simulate::{SimulateOptions, Simulation, replay, simulate};
pub use stream_rates::streams;
pub use supervised_load::{CallerStats, SupervisedLoad, supervised_load};
pub use sweep::sweep;
pub use ways::persistent;
pub use what_if::what_if;

pub use data;
pub use files;
pub use machine::calc;
pub use plan::json;
pub use predict;
pub use report;
pub use sim;
pub use supervisor;

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::bodies::bodies;
    pub use crate::step_costs::{Sample, fit, models};
    pub use crate::walk::lanes::{touched, way};
}
