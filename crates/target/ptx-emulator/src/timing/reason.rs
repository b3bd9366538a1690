//! Why a warp does not issue.

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
