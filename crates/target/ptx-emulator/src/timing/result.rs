//! What a timed run gives.

use super::{ByReason, Reason};

/// Cycles of a line of the text.
#[derive(Debug, Clone, PartialEq)]
pub struct LineStalls {
    /// The line, from 1.
    pub line: u32,
    /// Cycles in which warps issued it.
    pub issued: u64,
    /// Cycles by reason in which warps stood before it, those with any, most first.
    pub lost: Vec<(Reason, u64)>,
    /// The line whose value they waited for most.
    pub waits_for: Option<u32>,
}

impl LineStalls {
    /// Cycles lost, for all reasons.
    pub fn total_lost(&self) -> u64 {
        self.lost.iter().map(|l| l.1).sum()
    }
}

/// Cycles of a warp.
#[derive(Debug, Clone, PartialEq)]
pub struct WarpStalls {
    /// Number of its CTA in the launch.
    pub cta: u32,
    /// Its number in the CTA.
    pub warp: u32,
    /// The SM that it was on.
    pub sm: u32,
    /// Its scheduler there.
    pub scheduler: u32,
    /// Cycle of its first chance to issue.
    pub from: u64,
    /// Cycle after its last instruction.
    pub to: u64,
    /// Cycles by reason, those with any; they add up to `to - from`.
    pub cycles: Vec<(Reason, u64)>,
}

/// What one warp did for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// Number of its CTA.
    pub cta: u32,
    /// Its number in the CTA.
    pub warp: u32,
    /// First cycle.
    pub from: u64,
    /// Cycle after the last.
    pub to: u64,
    /// What it did or waited for.
    pub reason: Reason,
    /// The line that it issued or stood before.
    pub line: u32,
}

/// Where the cycles went.
#[derive(Debug, Clone, PartialEq)]
pub struct Stalls {
    /// Cycles from the first CTA's start until all is done and stored.
    pub cycles: u64,
    /// Warps.
    pub warps: u64,
    /// Cycles of all warps, each from its start to its end.
    pub warp_cycles: u64,
    /// Those by reason, in the order of [`Reason::ALL`].
    pub reasons: Vec<(Reason, u64)>,
    /// Share of all schedulers' cycles in which they issued.
    pub issue: f64,
    /// Bytes that went through shared memory, L1, L2 and device memory.
    pub bytes: [f64; 4],
    /// By line of the text, ascending.
    pub lines: Vec<LineStalls>,
    /// The first warps of the launch, in its order: 4096 at most.
    pub each: Vec<WarpStalls>,
    /// What the warps of the first SM's first scheduler did, from the start on: 4096 stretches at most.
    pub intervals: Vec<Interval>,
}

impl Stalls {
    /// Share of all warps' cycles that went for `reason`.
    pub fn share(&self, reason: Reason) -> f64 {
        let own = self.reasons.iter().find(|r| r.0 == reason);
        match self.warp_cycles {
            0 => 0.0,
            all => own.map_or(0, |r| r.1) as f64 / all as f64,
        }
    }

    /// The reason that most cycles were lost for, [`Reason::Issued`] where none were.
    pub fn worst(&self) -> Reason {
        let lost = self.reasons.iter().filter(|r| r.0 != Reason::Issued);
        lost.filter(|r| r.1 > 0)
            .max_by_key(|r| r.1)
            .map_or(Reason::Issued, |r| r.0)
    }
}

/// Those with any, most first.
pub(crate) fn some(cycles: &ByReason, keep: fn(Reason) -> bool) -> Vec<(Reason, u64)> {
    let mut out: Vec<(Reason, u64)> = Reason::ALL
        .into_iter()
        .filter(|r| keep(*r))
        .map(|r| (r, cycles[r as usize]))
        .filter(|r| r.1 > 0)
        .collect();
    out.sort_by_key(|r| std::cmp::Reverse(r.1));
    out
}
