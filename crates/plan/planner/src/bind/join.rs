//! Steps without a launch of their own: those of one task, and sums of parts, behind the step that makes what they
//! read. The CTA that ends last of those that a task needs runs it, which takes a hand-over where a launch takes what
//! a step takes to begin.
use super::block::BlockBuilder;
use super::launch::handovers;
use kernel::Schedule;
use machine::Work;
use plan::{Alternative, BufferId, Step, StepWork, Why};
use std::collections::BTreeMap;

/// Schedule and work of a kernel.
fn printed(s: &Step) -> Option<(&Schedule, &Work)> {
    match &s.work {
        StepWork::Kernel { schedule, .. } => Some((schedule, &s.cost_work)),
        StepWork::Host { .. } => None,
    }
}

impl BlockBuilder<'_> {
    /// A sum of parts may be made while others of the step before it still read: what they read stays as long.
    pub(super) fn beside_sums(&self, lives: &mut BTreeMap<BufferId, (u32, u32)>) {
        for &i in &self.sums {
            for b in &self.touches[i - 1].reads {
                if let Some(life) = lives.get_mut(b) {
                    life.1 = life.1.max(i as u32);
                }
            }
        }
    }

    /// Joins steps to those before them where that takes less time.
    pub(super) fn join(&mut self) {
        for i in 1..self.block.steps.len() {
            let (before, s) = (&self.block.steps[i - 1], &self.block.steps[i]);
            let copies = [before, s].iter().any(|s| self.block.is_road(s));
            let ctx = self.ctxs[s.device as usize];
            if copies || !s.may_join(before, i, self.ctx.dims) {
                continue;
            }
            let both = printed(before).zip(printed(s));
            let Some(times) = both.and_then(|(a, b)| handovers(ctx, a, b)) else {
                continue;
            };
            let name = before.name.clone();
            let s = &mut self.block.steps[i];
            s.joined = true;
            let was = s.predicted.time_s;
            s.predicted.joined(&mut s.cost_work, ctx.machine, times);
            let less = was - s.predicted.time_s;
            self.whys.push(Why {
                pass: "launch".into(),
                subject: s.name.clone(),
                choice: format!("in the launch of '{name}'"),
                reason: "the CTA that ends last of those that a task needs runs it, which takes a hand-over where a launch takes what a step takes to begin".into(),
                alternatives: vec![Alternative {
                    what: "a launch of its own".into(),
                    predicted_s: was,
                }],
            });
            let whole = &mut self.block.predicted;
            whole.time_s -= less;
            whole.launch_s -= less;
        }
    }
}
