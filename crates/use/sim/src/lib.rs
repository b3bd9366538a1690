//! Engines in virtual time: the scheduler and the supervisor that run live, on simulated devices.
//!
//! A [`Scenario`] names devices (from machine descriptions, with what is wrong with the
//! descriptions and what happens to the devices), models, sessions, their traffic, and what is
//! expected. [`simulate`] runs it, exactly the same for the same seed. Nothing here plans: where a
//! step's times come from is behind [`Backend`], and the built-in one predicts given work.
#![forbid(unsafe_code)]

mod arrivals;
mod backend;
mod cost;
mod device;
mod error;
mod outcome;
mod rng;
mod scenario;
mod verdict;
mod world;

pub use backend::{Backend, Offer, Request, Served, Way, WorkBackend};
pub use cost::{Conditions, StepTime};
pub use error::SimError;
pub use outcome::{DeviceOutcome, Outcome, SessionOutcome, Span};
pub use rng::Rng;
pub use scenario::{
    DeviceSpec, Expect, Fault, FaultKind, Metric, ModelSpec, Scenario, SecondDeviceSpec,
    SessionSpec, StepSpec, Traffic, TrafficKind, VariantSpec,
};
pub use verdict::{Check, Verdict, judge};
pub use world::simulate;

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::arrivals::Arrivals;
}
