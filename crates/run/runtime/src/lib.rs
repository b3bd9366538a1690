//! Engines, sessions and streams: verified plans run for requests.
//!
//! An [`Engine`] owns devices with resident workers and serves all its sessions. A [`Session`] runs
//! one program; its current plan is one atomic pointer ([`Session::swap`]), so plans change beside
//! the traffic. Planning happens behind the [`plan::Planner`] trait: this crate links no planner.
#![forbid(unsafe_code)]

mod aide;
mod attend;
mod binding;
mod book;
mod cancel;
mod desk;
mod engine;
mod epoch;
mod error;
mod held;
mod hub;
mod interpret;
mod joined;
mod kept;
mod lane;
mod mask;
mod served;
mod session;
mod slab;
mod spare;
mod special;
mod stack;
mod stats;
mod store;
mod stream;
mod ticket;
mod trial;
mod value;
mod watch;
mod widen;

pub use binding::Binding;
pub use cancel::Cancel;
pub use engine::{Engine, Memory, SessionMemory, SessionView};
pub use error::RunError;
pub use joined::{batch as joins_along, crossing as joins_not};
pub use kept::{KEPT_LEAST, KEPT_PACKED};
pub use served::Served;
pub use session::{Call, Session, SessionOptions};
pub use special::{Bound, Specialise};
pub use stats::{SessionStats, quantile_s};
pub use store::PlanStore;
pub use stream::{Answer, STREAM_CAPACITY, Stream};
pub use supervisor::admission::{SessionLoad, SessionPolicy};
pub use supervisor::batching::Batching;
pub use trial::{Prepared, Turns};
pub use watch::{Keep, Kept, RunSeen, Seen, TimedRun};
