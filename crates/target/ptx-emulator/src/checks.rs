//! What is found wrong while a kernel runs.

use std::collections::HashMap;
use std::fmt;

/// Which checks are made; all of them unless switched off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// Reads of bytes and registers that nothing wrote.
    pub uninitialised: bool,
    /// Accesses that nothing orders, in shared and global memory and in registers of products in flight.
    pub races: bool,
    /// Barriers that only some lanes of a warp reach together.
    pub divergence: bool,
}

impl Default for Checks {
    fn default() -> Checks {
        Checks {
            uninitialised: true,
            races: true,
            divergence: true,
        }
    }
}

impl Checks {
    /// Bounds and alignment only, which are always checked.
    pub fn none() -> Checks {
        Checks {
            uninitialised: false,
            races: false,
            divergence: false,
        }
    }
}

/// Kinds of findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// An access outside every allocation, or to one that was freed.
    OutOfBounds,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// A store to memory that may only be read.
    ReadOnly,
    /// A read of bytes that nothing wrote, in global or local memory, or an atomic operation on some.
    UninitialisedMemory,
    /// A read of bytes of shared memory that nothing wrote.
    UninitialisedShared,
    /// A read of a register that nothing wrote.
    UninitialisedRegister,
    /// Two accesses of shared memory by threads of a CTA that no barrier separates.
    SharedRace,
    /// Two accesses of global memory that nothing orders.
    GlobalRace,
    /// Two strong accesses whose scopes do not include each other.
    NarrowScope,
    /// A read of bytes that an asynchronous copy still writes.
    EarlyRead,
    /// A register that a `wgmma` in flight still reads or adds to.
    RegisterInFlight,
    /// A `wgmma` on registers that were written since the last `wgmma.fence`, or without any.
    MissingWgmmaFence,
    /// A read through the async proxy of shared memory that ordinary instructions wrote, without
    /// `fence.proxy.async` and a barrier in between.
    MissingProxyFence,
    /// An access before `griddepcontrol.wait` of global memory that a kernel before may still write, or a write.
    Dependency,
    /// An aligned barrier that only some lanes of a warp reach together.
    DivergentBarrier,
    /// A warp-wide instruction by a lane that its mask leaves out, or for lanes that never come.
    WarpMask,
    /// `trap`.
    Trap,
    /// Nothing can go on.
    Deadlock,
    /// More steps than allowed.
    StepLimit,
    /// What hardware leaves undefined.
    Undefined,
}

impl Kind {
    /// Whether the kernel ends there.
    pub fn fatal(self) -> bool {
        matches!(
            self,
            Kind::OutOfBounds
                | Kind::Misaligned
                | Kind::ReadOnly
                | Kind::Trap
                | Kind::Deadlock
                | Kind::StepLimit
        )
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Kind::OutOfBounds => "out of bounds",
            Kind::Misaligned => "misaligned",
            Kind::ReadOnly => "read-only memory",
            Kind::UninitialisedMemory => "uninitialised memory",
            Kind::UninitialisedShared => "uninitialised shared memory",
            Kind::UninitialisedRegister => "uninitialised register",
            Kind::SharedRace => "shared-memory race",
            Kind::GlobalRace => "global-memory race",
            Kind::NarrowScope => "scope too narrow",
            Kind::EarlyRead => "read before cp.async wait",
            Kind::RegisterInFlight => "register in flight",
            Kind::MissingWgmmaFence => "missing wgmma.fence",
            Kind::MissingProxyFence => "missing proxy fence",
            Kind::Dependency => "access before griddepcontrol.wait",
            Kind::DivergentBarrier => "divergent barrier",
            Kind::WarpMask => "warp mask",
            Kind::Trap => "trap",
            Kind::Deadlock => "deadlock",
            Kind::StepLimit => "step limit",
            Kind::Undefined => "undefined",
        }
    }
}

/// A finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it is.
    pub kind: Kind,
    /// Line of the PTX text; 0 for accesses of the host.
    pub line: u32,
    /// The other line involved, of races.
    pub other_line: Option<u32>,
    /// The kernel.
    pub kernel: String,
    /// Its CTA; none for the host.
    pub cta: Option<[u32; 3]>,
    /// Warp in the CTA and lane in the warp.
    pub warp: u32,
    /// Lane in the warp.
    pub lane: u32,
    /// What happened, in words.
    pub message: String,
    /// How often the same was found at these lines.
    pub count: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Where it was stands on the first line, also of messages that list every warp.
        let (first, rest) = match self.message.split_once('\n') {
            Some((first, rest)) => (first, Some(rest)),
            None => (self.message.as_str(), None),
        };
        write!(f, "line {}: {}: {first}", self.line, self.kind.name())?;
        match self.cta {
            Some([x, y, z]) => write!(
                f,
                " (kernel {}, CTA {x},{y},{z}, warp {}, lane {})",
                self.kernel, self.warp, self.lane
            )?,
            None => write!(f, " (kernel {}, the host)", self.kernel)?,
        }
        if self.count > 1 {
            write!(f, ", {} times", self.count)?;
        }
        match rest {
            Some(rest) => write!(f, "\n{rest}"),
            None => Ok(()),
        }
    }
}

/// Findings so far, each kind once for its lines.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    pub list: Vec<Report>,
    seen: HashMap<(Kind, u32, Option<u32>), usize>,
    pub fatal: bool,
}

/// Most findings kept apart.
const MOST: usize = 1000;

impl Reports {
    /// Counts one more of these if it is known already.
    pub fn count_repeat(&mut self, kind: Kind, line: u32, other: Option<u32>) -> bool {
        match self.seen.get(&(kind, line, other)) {
            Some(k) => {
                self.list[*k].count += 1;
                true
            }
            None => false,
        }
    }

    pub fn add(&mut self, r: Report) {
        if r.kind.fatal() {
            self.fatal = true;
        }
        if self.list.len() >= MOST || self.count_repeat(r.kind, r.line, r.other_line) {
            return;
        }
        self.seen
            .insert((r.kind, r.line, r.other_line), self.list.len());
        self.list.push(r);
    }
}
