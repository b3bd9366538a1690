//! Programs and plans: what is run, bound to dims, buffers, waits and schedules.
//!
//! A [`Program`] is a model as fused kernels with symbolic dims and no schedule; it is bound many
//! times. A [`Plan`] is a program bound to a box of dims and to devices. Only [`Plan::verify`]
//! makes a [`VerifiedPlan`], and code that trusts offsets accepts nothing else. This crate decides
//! nothing and knows no graph.
#![forbid(unsafe_code)]

mod at;
pub mod division;
mod elapsed;
mod error;
pub mod json;
mod made_once;
pub mod parallel;
mod params;
mod pause;
mod pieces;
mod plan;
mod planner;
mod precision;
mod program;
mod step_set;
mod subprogram;
mod text;
mod timeline;
mod verify;
mod ways;
mod why;

pub use at::Bound;
pub use elapsed::WORKERS_PAY;
pub use error::{Maker, PlanError};
pub use made_once::MadeOnce;
pub use params::{Params, Size};
pub use pause::{pause, pauses, with_pauses};
pub use pieces::{Pieces, Reach};
pub use plan::{
    Block, Buffer, BufferId, BufferKind, DeviceRef, Goal, HostArg, Plan, PlanSegment, Port,
    StateRef, Step, StepId, StepWork, TileMap, TileNeeds, TiledPlan, VerifiedPlan, Wait,
};
pub use planner::{
    Allotment, Candidate, Change, Load, Observation, Observations, Planner, RateSeen, Serving,
};
pub use precision::Precision;
pub use program::{
    Batch, Constraint, Fate, HostOp, Item, ItemWork, NodeFate, Program, ProgramSymbol,
    ProgramValue, REFUSE, Refusal, Saving, Segment, StatePair, SymbolOrigin, ValueIx, ValueOrigin,
    WeightInfo,
};
pub use step_set::{MAX_NODES, StepSet};
pub use subprogram::{Cuts, Subprogram};
pub use timeline::{Activity, DeviceSpan, Mark, Span, Timeline};
pub use verify::{MAX_PAIRS, MAX_STEPS, MAX_SYMBOLS, Race, race, tile_map};
pub use why::{Alternative, Decisions, Why};

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::step_set::shared_nodes;
    pub use crate::verify::Equal;
}
