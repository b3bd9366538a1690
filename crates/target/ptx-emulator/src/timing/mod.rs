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
//! through. `cp.async` counts in groups as it is waited for.
//!
//! # What it leaves out
//!
//! Fetching instructions, banks of registers, translation of addresses, limits on loads in flight other than
//! the queues' lengths, pages and channels of device memory. CTAs that wait for each other are timed as if
//! what they polled for had been there.

pub(crate) mod cache;
mod cost;
mod launch;
mod memory;
mod order;
mod result;
mod sm;
mod text;
pub(crate) mod trace;
mod warps;

pub use result::{Interval, LineStalls, Stalls, WarpStalls};
pub use text::stalls_table;

use crate::error::PtxError;
use crate::machine::{Launch, Machine, Module, Outcome};

/// A level of memory, as SMs see it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// What it holds, of one SM for shared memory and L1, of all for the others.
    pub bytes: f64,
    /// Cycles from a lone load to its value.
    pub latency: f64,
    /// Bytes a cycle that one SM loads from it at most.
    pub per_sm: f64,
    /// Bytes a cycle that all SMs load from it.
    pub read: f64,
    /// Bytes a cycle that all SMs store to it.
    pub write: f64,
}

/// Operations (multiply-adds counted twice) per cycle of an SM's matrix units, by the format of the factors;
/// 0 where there are none.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct MatrixRates {
    /// f16.
    pub half: f64,
    /// bf16.
    pub bf16: f64,
    /// tf32.
    pub tf32: f64,
    /// 8-bit integers.
    pub int8: f64,
}

/// A GPU in numbers, in cycles of its SMs' clock, with as many CTAs on an SM as the launch's registers and
/// shared memory let be there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// SMs.
    pub sms: u32,
    /// Schedulers of an SM: instructions that it issues per cycle.
    pub schedulers: u32,
    /// CTAs of the launch that are on an SM together.
    pub ctas_per_sm: u32,
    /// Registers of a thread: how many values an assembler lets be under way at once.
    pub registers: u32,
    /// Cycles from a CTA's place being free to its first instruction.
    pub cta_start: f64,
    /// Lanes of an SM that begin an f32 instruction per cycle.
    pub fma: f64,
    /// The same for f16, of which an instruction has one or two a lane; 0 where there is none.
    pub half: f64,
    /// The same for f64; 0 where there is none.
    pub double: f64,
    /// The same for integers, comparisons and logic.
    pub alu: f64,
    /// The same for special functions and conversions.
    pub special: f64,
    /// The same for addresses of loads and stores.
    pub memory: f64,
    /// The matrix units.
    pub matrix: MatrixRates,
    /// Cycles from an instruction to one that needs its result.
    pub dependent: f64,
    /// The same for special functions, besides their turn in the pipe.
    pub special_latency: f64,
    /// The same for matrix instructions, besides their turn in the pipe.
    pub matrix_latency: f64,
    /// Cycles from the last warp's coming to a barrier to all warps' going on.
    pub barrier: f64,
    /// Shared memory.
    pub shared: Level,
    /// L1, what shared memory leaves of it.
    pub l1: Level,
    /// L2.
    pub l2: Level,
    /// Device memory.
    pub device: Level,
}

/// Why a warp did not issue, or that it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// It issued.
    Issued,
    /// It waits for shared memory.
    Shared,
    /// It waits for a load that L1 answers.
    L1,
    /// It waits for L2.
    L2,
    /// It waits for device memory.
    Device,
    /// It waits at a barrier.
    Barrier,
    /// It waits for the result of an instruction before.
    Dependency,
    /// It waits for a pipe that is still taking another instruction.
    Pipe,
    /// It could go on, and another warp's instruction was issued.
    Slot,
}

impl Reason {
    /// All, in the order they are printed.
    pub const ALL: [Reason; 9] = [
        Reason::Issued,
        Reason::Device,
        Reason::L2,
        Reason::L1,
        Reason::Shared,
        Reason::Barrier,
        Reason::Dependency,
        Reason::Pipe,
        Reason::Slot,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Issued => "issued",
            Reason::Shared => "shared memory",
            Reason::L1 => "L1",
            Reason::L2 => "L2",
            Reason::Device => "device memory",
            Reason::Barrier => "barrier",
            Reason::Dependency => "dependency",
            Reason::Pipe => "free pipe",
            Reason::Slot => "issue slot",
        }
    }

    /// What it means, in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Reason::Issued => "an instruction goes to a pipe",
            Reason::Shared => "a value from shared memory or another lane",
            Reason::L1 => "a load that L1 answers",
            Reason::L2 => "a load that L2 answers, or its queue",
            Reason::Device => "a load from device memory, or its queue",
            Reason::Barrier => "other warps, at a barrier",
            Reason::Dependency => "the result of an instruction before",
            Reason::Pipe => "a pipe that still takes another instruction",
            Reason::Slot => "ready, and another warp was issued",
        }
    }
}

/// Cycles by reason, as [`Reason`] numbers them.
pub(crate) type ByReason = [u64; 9];

impl Timing {
    /// The first number that no machine can have.
    fn wrong(&self) -> Option<&'static str> {
        let levels = [self.shared, self.l1, self.l2, self.device];
        let rate = |v: f64| v.is_finite() && v > 0.0;
        let cost = |v: f64| v.is_finite() && (0.0..=1e9).contains(&v);
        if self.sms == 0 || self.sms > 4096 || self.schedulers == 0 || self.schedulers > 16 {
            return Some("1 to 4096 SMs with 1 to 16 schedulers each are possible");
        }
        if self.ctas_per_sm == 0 {
            return Some("no CTA fits on an SM");
        }
        if ![self.fma, self.alu, self.special, self.memory]
            .into_iter()
            .all(rate)
        {
            return Some("f32, integer, special and memory pipes need a rate");
        }
        if !levels
            .iter()
            .all(|l| rate(l.per_sm) && rate(l.read) && rate(l.write))
        {
            return Some("every level needs a rate");
        }
        let costs = [
            self.cta_start,
            self.dependent,
            self.special_latency,
            self.matrix_latency,
            self.barrier,
        ];
        let latencies = levels.iter().map(|l| l.latency);
        if !latencies.chain(costs).all(cost) {
            return Some("latencies are numbers of cycles from 0");
        }
        if !levels
            .iter()
            .all(|l| l.bytes.is_finite() && (0.0..=1e15).contains(&l.bytes))
        {
            return Some("every level needs a size");
        }
        None
    }
}

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
