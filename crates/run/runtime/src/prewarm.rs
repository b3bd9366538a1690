//! Prewarming of a new plan: before a swap, the plan is made ready for the input shapes of recent requests, so
//! that the first request after it is as fast as the hundredth. `slot` uses it; it compiles nothing.
use crate::dims::same_shapes;
use crate::slot::ReadyPlan;
use crate::value::Shaped;

/// Sets of shapes that are prewarmed at most.
const SHAPES: usize = 4;
/// Concurrent requests that are prewarmed at most.
const LANES: usize = 16;

/// One set of input shapes of recent requests.
struct RecentShapes {
    /// As [`ReadyPlan`] has it.
    key: Vec<usize>,
    /// Slots that the plan in use made ready for them.
    slots: usize,
}

/// Prewarmed plans that no slot has taken yet, and the shapes to prewarm next.
#[derive(Default)]
pub(crate) struct PrewarmedPlans {
    /// Most recent first.
    wanted: Vec<RecentShapes>,
    ready: Vec<ReadyPlan>,
}

impl PrewarmedPlans {
    /// Notes that a slot was made ready for these shapes.
    pub fn note(&mut self, key: &[usize]) {
        let known = self.wanted.iter().position(|w| w.key == key);
        match known {
            Some(i) => self.wanted[..=i].rotate_right(1),
            None => {
                self.wanted.truncate(SHAPES - 1);
                let w = RecentShapes {
                    key: key.to_vec(),
                    slots: 0,
                };
                self.wanted.insert(0, w);
            }
        }
        let slots = &mut self.wanted[0].slots;
        *slots = (*slots + 1).min(LANES);
    }

    /// The shapes to prewarm the next plan for, each with a count: as many as requests ran concurrently with the
    /// last plan.
    pub fn wanted(&mut self) -> Vec<(Vec<usize>, usize)> {
        for w in &mut self.wanted {
            let idle = self.ready.iter().filter(|r| r.key() == w.key).count();
            w.slots = w.slots.saturating_sub(idle);
        }
        self.wanted.retain(|w| w.slots > 0);
        let each = self.wanted.iter();
        each.map(|w| (w.key.clone(), w.slots)).collect()
    }

    /// Replaces what is prewarmed; gives what was left of it.
    pub fn replace(&mut self, ready: Vec<ReadyPlan>) -> Vec<ReadyPlan> {
        std::mem::replace(&mut self.ready, ready)
    }

    /// The prewarmed plan of this version for inputs of these shapes.
    pub fn take<T: Shaped>(&mut self, version: u64, inputs: &[Option<&T>]) -> Option<ReadyPlan> {
        let shapes = || inputs.iter().map(|t| t.map_or(&[][..], T::shape));
        let fits = |r: &ReadyPlan| r.version() == version && same_shapes(r.key(), shapes());
        let at = self.ready.iter().position(fits)?;
        Some(self.ready.swap_remove(at))
    }
}
