//! Who runs when, with how many workers, and when the division of labour changes: state machines
//! without clocks, threads or I/O.
//!
//! [`admission::Scheduler`] admits requests of many sessions and hands out workers,
//! [`batching::Batcher`] joins requests of equal shapes into a batch, and [`supervise::Supervisor`] observes the
//! engine and changes the division that [`plan::division::choose`] made. Each is a `step(now, event) -> actions`:
//! the runtime calls it live, the simulator in virtual time, and a recorded log replays to the same
//! decisions. No device, thread or clock is known here.
#![forbid(unsafe_code)]

pub mod admission;
pub mod batching;
pub mod stats;
pub mod supervise;
