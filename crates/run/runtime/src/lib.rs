//! Engines, sessions and streams: verified plans run for requests.
//!
//! An [`Engine`] owns devices with resident workers and serves all its sessions. A [`Session`] runs
//! one program; its current plan is one atomic pointer ([`Session::swap`]), so plans change while
//! requests run. Planning happens behind the [`plan::Planner`] trait: this crate links no planner.
#![forbid(unsafe_code)]

mod admission;
mod attendants;
mod background;
mod batched;
mod batching;
mod binding;
mod budget;
mod cancel;
mod compiled;
mod dims;
mod engine;
mod epoch;
mod error;
mod handle;
mod interpret;
mod mask;
mod options;
mod pending;
mod prewarm;
mod queued;
mod record;
mod recycled;
mod retention;
mod session;
mod shared;
mod slab;
mod slot;
mod spans;
mod special;
mod stack;
mod stats;
mod store;
mod stream;
mod stream_run;
mod stream_thread;
mod streams;
mod trial;
mod value;
mod watch;
mod widen;

pub use batching::{batch_symbol, why_not_batched};
pub use binding::Binding;
pub use cancel::Cancel;
pub use engine::{Engine, Memory, SessionMemory, SessionView};
pub use error::RunError;
pub use handle::SessionHandle;
pub use options::SessionOptions;
pub use pending::RunFuture;
pub use retention::{RETAINED_PACKED_FACTOR, RETAINED_PACKED_MIN};
pub use session::{Call, Session};
pub use special::{Bound, Specialise};
pub use stats::{SessionStats, quantile_s};
pub use store::PlanStore;
pub use stream::{STREAM_CAPACITY, Stream};
pub use streams::Answer;
pub use supervisor::admission::{SessionLoad, SessionPolicy};
pub use supervisor::batching::Batching;
pub use trial::{Prepared, TrialShare};
pub use watch::{Capture, CapturedRequest, Observed, ObservedRun, TimedRun};
