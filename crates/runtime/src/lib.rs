//! Engines, sessions and streams: verified plans run for requests.
//!
//! An [`Engine`] owns devices with resident workers and serves all its sessions. A [`Session`] runs
//! one program; its current plan is one atomic pointer ([`Session::swap`]), so plans change beside
//! the traffic. Planning happens behind the [`plan::Planner`] trait: this crate links no planner.
#![forbid(unsafe_code)]

mod admission;
mod binding;
mod engine;
mod epoch;
mod error;
mod interpret;
mod kept;
mod lane;
mod session;
mod store;
mod stream;
mod value;

pub use admission::{Action, Admission, Event, RequestId};
pub use binding::Binding;
pub use engine::{Engine, Memory};
pub use error::RunError;
pub use kept::{KEPT_LEAST, KEPT_PACKED};
pub use session::{Session, SessionOptions};
pub use store::PlanStore;
pub use stream::Stream;
