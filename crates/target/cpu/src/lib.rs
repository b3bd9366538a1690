//! Plans on the CPU: tile programs, resident workers, and the present CPU described and measured.
//!
//! [`CpuDevice`] compiles a block of a verified plan into operations on whole tiles (crate `microkernels` has
//! the loops) and runs requests on resident threads. It plans nothing.

pub mod calibrate;
mod code;
pub mod detect;
mod device;
mod digests;
mod exec;
mod executable;
pub mod handoff;
mod host;
mod init;
mod job;
mod placement;
mod pool;
mod shares;
mod steps;
mod target;
mod trace;

pub use crate::code::{Called, called};
pub use crate::device::{CpuDevice, CpuOptions};
pub use crate::pool::Fault;
pub(crate) use microkernels as ukr;
pub use microkernels::isa;
pub use microkernels::isa::Isa;
pub use target::target;
pub use workers::time_slice::{let_others_first, stand_back, step_aside, thread_time_ns};
