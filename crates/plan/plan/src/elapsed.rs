//! Predicted time of a block whose steps may overlap: steps are assigned to workers as they become free.
use crate::{Block, Wait};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How many times as fast a plan must be with several workers as with one for a request to be given several.
pub const WORKERS_PAY: f64 = 1.25;

/// Rounds of tasks of one step that are told apart: of more, each worker takes as many.
const ROUNDS: u64 = 4;

impl Block {
    /// Seconds from the start of the first step to the end of the last, where `workers` go through the steps in
    /// order: each takes the next task that nobody has, first waiting for what its step waits for, and goes on
    /// to the next step when none is left. `seconds` is what a step takes by itself on all of them.
    ///
    /// Where steps follow each other whatever they wait for, as on a GPU's stream, `workers` is 1, and this is
    /// the sum.
    pub fn elapsed_s(&self, workers: u32, seconds: impl Fn(usize) -> f64) -> f64 {
        // Times of 0 or more are ordered as their bits are.
        let bits = |s: f64| Reverse(s.max(0.0).to_bits());
        let mut free: BinaryHeap<Reverse<u64>> = (0..workers.max(1)).map(|_| bits(0.0)).collect();
        let mut done: Vec<f64> = Vec::with_capacity(self.steps.len());
        let mut last = 0.0f64;
        for (i, step) in self.steps.iter().enumerate() {
            let ready = step.waits.iter().map(|w| match w {
                Wait::Step(s) | Wait::Tiles { step: s, .. } => {
                    done.get(*s as usize).copied().unwrap_or(0.0)
                }
            });
            let ready = ready.fold(0.0, f64::max);
            let tasks = step.cost_work.tasks.max(1);
            let each = u64::from(workers.max(1));
            let rounds = tasks.div_ceil(each).min(ROUNDS);
            let task = seconds(i) / rounds as f64;
            let mut end = ready;
            for _ in 0..tasks.min(rounds * each) {
                let now = free.pop().map_or(0.0, |Reverse(b)| f64::from_bits(b));
                let then = now.max(ready) + task;
                free.push(bits(then));
                end = end.max(then);
            }
            done.push(end);
            last = last.max(end);
        }
        last
    }
}
