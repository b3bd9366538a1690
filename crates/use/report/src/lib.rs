//! Plans, profiles and measurements as tables, JSON and traces for people and tools.
//!
//! Each report is plain data that serialises (its JSON form holds everything) with a `render` that
//! prints the part a person reads, at most [`Style::width`] columns wide. Nothing here measures,
//! plans or reads files.
#![forbid(unsafe_code)]

mod bench;
mod bodies;
pub mod calc;
mod fixed;
mod handoff;
mod how_run;
mod inspect;
mod load;
mod machines;
mod median;
mod memory;
mod overhead;
pub mod page;
mod perfetto;
mod plan_view;
mod precision;
mod profile;
mod queues;
mod step;
mod streams;
mod study;
mod sweep;
mod table;
mod timeline_text;
mod trace;
pub mod walk;
mod ways;
mod whys;

pub use bench::{BenchReport, LatencyMs};
pub use bodies::{BodyView, bodies_text, bodies_us, counted, counted_inside};
pub use fixed::{FixedCost, FixedCostRow};
pub use handoff::{HandoffReport, HandoffRow, RING_AIM};
pub use how_run::{EMULATED, HowRun, Worker};
pub use inspect::{InspectedKernel, InspectedNode, InspectedValue, Inspection, Unsupported};
pub use load::{LoadReport, Planned, PlanningMs, ProcessMs};
pub use machine::units;
pub use machines::{MachineEntry, machine_list, machine_table};
pub use memory::{BESIDE, MemoryView};
pub use overhead::{NOTICED_US, Overhead, RequestParts};
pub use perfetto::perfetto_trace;
pub use plan_view::{DivisionView, PlanView};
pub use precision::precision_text;
pub use profile::{Accounting, NodeAccount, Profile, ProfileInput, StepProfile};
pub use queues::{QueueView, queues};
pub use step::{StepView, schedule_text, step_number};
pub use streams::{StreamsReport, StreamsRow};
pub use study::{
    Advice, AdviceView, AloneView, ChangedStep, Computed, FleetPoint, FleetRow, FleetView,
    WhatIfView, bounds_of, memory_on,
};
pub use sweep::{SweepReport, SweepRow};
pub use table::{Align, Style, Table};
pub use timeline_text::timeline_text;
pub use trace::chrome_trace;
pub use ways::{PersistentReport, ROUND_TRIP_AIM_US, WaysReport};

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::page::build::{module_in, timeline as page_timeline};
    pub use crate::page::html::page;
    pub use crate::timeline_text::letters;
    pub use crate::whys::grouped;
}
