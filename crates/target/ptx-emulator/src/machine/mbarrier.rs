//! A barrier object in shared memory: arrivals and bytes of asynchronous copies, phase by phase.

use crate::clocks::{Stamp, Vc, join};
use std::sync::Arc;

/// Most arrivals of a phase, and most bytes that may be expected.
pub(crate) const MOST: u32 = (1 << 20) - 1;

#[derive(Debug)]
pub(crate) struct Mbarrier {
    /// Arrivals of every phase, and those that this one lacks.
    pub expected: u32,
    pub pending: u32,
    /// Bytes that copies are to bring yet.
    pub tx: i64,
    /// Phases that are complete.
    pub phase: u32,
    /// Who writes for copies that count here: bulk copies, and those of `cp.async`.
    pub agents: [u32; 2],
    /// Who made it, and the instruction.
    pub made: (Stamp, u32),
    /// What those know who arrived in this phase, and in those before it.
    arriving: Arc<Vc>,
    pub done: Arc<Vc>,
}

impl Mbarrier {
    pub fn new(count: u32, agents: [u32; 2], made: (Stamp, u32)) -> Mbarrier {
        Mbarrier {
            expected: count,
            pending: count,
            tx: 0,
            phase: 0,
            agents,
            made,
            arriving: Arc::default(),
            done: Arc::default(),
        }
    }

    /// So many arrive, with what they know; whether the phase is complete, none when they are too many.
    pub fn arrive(&mut self, count: u32, knows: Option<&Arc<Vc>>) -> Option<bool> {
        self.pending = self.pending.checked_sub(count)?;
        if let Some(vc) = knows {
            join(&mut self.arriving, vc);
        }
        Some(self.turn())
    }

    /// Bytes have come; whether the phase is complete.
    pub fn brought(&mut self, bytes: u32) -> bool {
        self.tx -= i64::from(bytes);
        self.turn()
    }

    fn turn(&mut self) -> bool {
        if self.pending > 0 || self.tx != 0 {
            return false;
        }
        self.phase += 1;
        self.pending = self.expected;
        let arrived = std::mem::take(&mut self.arriving);
        join(&mut self.done, &arrived);
        let vc = Arc::make_mut(&mut self.done);
        for agent in self.agents {
            vc.set_thread(agent, self.phase);
        }
        true
    }

    /// How it stands, in words.
    pub fn stands(&self) -> String {
        format!(
            "in phase {}, in which {} of {} arrivals and {} bytes are to come",
            self.phase, self.pending, self.expected, self.tx
        )
    }
}
