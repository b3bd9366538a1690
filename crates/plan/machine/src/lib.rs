//! Machines as data: memory levels, execution units, links, costs and limits, each number with its
//! source; the work a kernel asks of a machine; the cost that follows ([`predict`]); calculators
//! that need nothing else ([`calc`]); the catalog and the reader of users' own files.
//!
//! Nothing here looks at the machine it runs on and nothing here knows kernels or graphs. All
//! quantities are `f64` in SI units: bytes, bytes per second, seconds, operations per second
//! (a fused multiply-add counts as two operations), watts, hertz.
#![forbid(unsafe_code)]

pub mod calc;
mod catalog;
mod catalog_files;
mod change;
mod cost;
mod error;
mod explain;
mod measure;
mod model;
mod oddities;
mod plausible;
mod products;
mod slice;
mod sourced;
pub mod staging;
mod text;
pub mod toml;
pub mod units;
mod warps;
mod ways;
mod work;

pub use catalog::{CatalogEntry, catalog, lookup};
pub use change::{CHANGES, Change};
pub use cost::{
    Bound, COPIED, Cost, EXCHANGED, Efficiencies, EfficiencyTable, Phase, Share, predict,
    predict_phases, predict_seconds,
};
pub use error::MachineError;
pub use explain::{explain, explain_by};
pub use measure::{
    BandwidthPoint, Extent, LatencyPoint, LevelMeasure, Measurements, OpRate, WorkerPoint,
};
pub use model::{
    Bandwidth, Bus, Costs, Isa, Level, Limits, Link, Machine, MachineKind, NumType, Unit,
    UnitClass, WayCosts, Workers,
};
pub use plausible::{Contradiction, Subject};
pub use products::{ProductCosts, TiledProduct};
pub use sourced::{Source, Sourced};
pub use warps::{Pipe, WarpRates, Warps};
pub use ways::{KernelSpan, Leg, RequestSteps, Way, WayTime};
pub use work::{Traffic, Work};
