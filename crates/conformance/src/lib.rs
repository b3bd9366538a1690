//! One suite for everything that runs tile programs: every family at random shapes (also 1, odd,
//! prime, empty), layouts, types and schedules, compared with the reference. What runs it implements
//! [`Subject`]; a [`device::Device`] does so through [`OnDevice`]. For tests only.
#![forbid(unsafe_code)]

mod build;
mod families;
mod on_device;
mod rng;
mod schedules;
pub mod simt;
mod suite;

pub use families::{Case, cases};
pub use on_device::OnDevice;
pub use rng::Rng;
pub use schedules::{cpu_schedules, gpu_schedules};
pub use suite::{Failure, Outcome, Subject, run};
