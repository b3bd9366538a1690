//! Phases of barrier objects: when they are complete, by what is to come.

use super::Reason;
use super::trace::{Touch, Trace};
use std::collections::HashMap;

/// A barrier's address and its phase.
pub(crate) type Key = (u32, u32);

#[derive(Debug, Clone, Copy)]
struct Phase {
    /// Arrivals and copies that are to come.
    left: u32,
    /// When the last so far is there, and which level it waited for.
    at: f64,
    why: Reason,
}

/// The phases of a CTA's barriers.
#[derive(Debug, Default)]
pub(crate) struct Phases(HashMap<Key, Phase>);

impl Phases {
    /// Those that the CTA's warps go through.
    pub fn of(traces: &[Trace]) -> Phases {
        let mut all = HashMap::new();
        for t in traces.iter().flat_map(Trace::all) {
            if let Touch::Comes { barrier, phase } = *t {
                let p = all.entry((barrier, phase)).or_insert(Phase {
                    left: 0,
                    at: 0.0,
                    why: Reason::Barrier,
                });
                p.left += 1;
            }
        }
        Phases(all)
    }

    /// Something comes at `at`; whether the phase is complete with it.
    pub fn comes(&mut self, key: Key, at: f64, why: Reason) -> bool {
        let Some(p) = self.0.get_mut(&key) else {
            return false;
        };
        p.left = p.left.saturating_sub(1);
        if at > p.at {
            (p.at, p.why) = (at, why);
        }
        p.left == 0
    }

    /// When the phase is complete, and what it waited for last; none while something is to come. What
    /// other CTAs bring is taken to be there.
    pub fn done(&self, key: Key) -> Option<(f64, Reason)> {
        match self.0.get(&key) {
            Some(p) if p.left > 0 => None,
            Some(p) => Some((p.at, p.why)),
            None => Some((0.0, Reason::Barrier)),
        }
    }
}
