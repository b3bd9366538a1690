//! Where the cycles of warps go: a clock beside the functional run.
//!
//! [`crate::Machine::time`] runs a launch as [`crate::Machine::run`] does and, CTA by CTA, goes through what
//! its warps executed once more on SMs that are described by plain numbers ([`Timing`]). Nothing random is
//! in it: the same launch on the same numbers gives the same cycles.
//!
//! # The model
//!
//! CTAs go to SMs in turn, as many on each as fit; their warps to its schedulers. A scheduler issues one
//! instruction per cycle, of the warp that went last if that can go on, else of the oldest that can. A warp
//! can go on when the registers that its next instruction reads and writes are there (a scoreboard with one
//! entry per register), when it waits at no barrier, and when the pipe takes something new. Pipes of f32,
//! f16, f64, integers, special functions and matrices belong to a scheduler, that of memory to the SM. What
//! an assembler folds or renames (moves, parameters, address conversions) costs nothing, what it makes
//! several machine instructions of costs as many slots. Between branches and barriers instructions go in
//! the order that an assembler would give them, loads early, as far as a thread's registers reach.
//!
//! Loads go through L1 and L2, caches of 128-byte lines in 32-byte sectors in which the line unused for
//! longest goes; both are empty when the launch begins. L1, the SM's port to L2, L2 and device memory
//! are queues with a rate. A level's latency is what a lone load takes that is answered there. Stores go
//! to L2 and, once per sector that they make dirty, on to device memory: the launch ends when those are
//! through. `cp.async` counts in groups as it is waited for; bulk copies go the same way without the pipe of
//! memory. Phases of barrier objects are complete when the last arrival or copy of the CTA's own is there. A
//! `wgmma` takes the matrix units of its warps' schedulers at the machine's rate, as 64 columns at least,
//! beside the warps, which wait for it in groups.
//!
//! # What it leaves out
//!
//! Fetching instructions, banks of registers, translation of addresses, limits on loads in flight other than
//! the queues' lengths, pages and channels of device memory. CTAs that wait for each other are timed as if
//! what they polled for had been there.

pub(crate) mod cache;
mod cost;
mod figures;
mod launch;
mod memory;
mod order;
mod phases;
mod reason;
mod result;
mod sm;
mod text;
pub(crate) mod trace;
mod warps;

pub use figures::{Level, MatrixRates, Timing};
pub(crate) use reason::ByReason;
pub use reason::Reason;
pub use result::{Interval, LineStalls, Stalls, WarpStalls};
pub use text::stalls_table;

use crate::error::PtxError;
use crate::machine::{Launch, Machine, Module, Outcome};

impl Machine {
    /// Runs a launch to its end and says where the cycles of its warps would go on a GPU of these numbers.
    /// What comes out in memory, what is found and what is counted is what [`Machine::run`] gives; it
    /// takes about three times as long, on one thread.
    ///
    /// # Errors
    /// When it cannot start, when a number of `timing` is none that a GPU has or an instruction needs a unit
    /// that it has not, and when CTAs in flight execute more than can be kept.
    pub fn time(
        &self,
        module: &Module,
        launch: &Launch,
        timing: &Timing,
    ) -> Result<(Outcome, Stalls), PtxError> {
        let bad = |what: &str| PtxError::Launch {
            kernel: launch.kernel.clone(),
            what: format!("it cannot be timed: {what}"),
        };
        if let Some(what) = timing.wrong() {
            return Err(bad(what));
        }
        let plan = self.prepare(module, launch)?;
        launch::time(&self.memory, plan, launch, timing)
    }
}
