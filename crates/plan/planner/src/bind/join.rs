//! Steps without a launch of their own: those of one task, and sums of parts, behind the step that makes what they
//! read. The CTA that ends last of those that a task needs runs it, which takes a hand-over where a launch takes what
//! a step takes to begin. A step that would have several tasks is made one of one task where it is predicted to take less
//! like that.
use super::block::BlockBuilder;
use super::launch::{Part, handovers, joins};
use super::schedule::{Asked, Choice};
use kernel::{Kernel, Role};
use machine::units;
use plan::{Alternative, BufferId, Step, StepWork, Why};
use std::collections::BTreeMap;

/// A step that is a kernel.
fn printed(s: &Step) -> Option<Part<'_>> {
    match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => Some(Part {
            kernel,
            schedule,
            work: &s.cost_work,
        }),
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

    /// Where the launch begins that the last step so far is expected to be part of.
    fn last_launch(&self) -> Option<usize> {
        let mut from = self.block.steps.len().checked_sub(1)?;
        while from > 0 && (self.behind.contains(&from) || self.sums.contains(&from)) {
            from -= 1;
        }
        Some(from)
    }

    /// The choice of one task for `asked`, which is to read and write `buffers`, in the launch of the step before it,
    /// where it reads what a step of that launch writes and takes less than `own`.
    pub(super) fn in_launch(
        &mut self,
        asked: &Asked,
        buffers: &[BufferId],
        own: &Choice,
    ) -> Option<Choice> {
        let ctx = asked.ctx;
        let (before, launch) = (self.block.steps.last()?, self.last_launch()?);
        let written = |b: &BufferId| self.touches[launch..].iter().any(|t| t.writes.contains(b));
        let reads = |k: &Kernel| {
            let mut all = k.operands.iter().zip(buffers);
            all.any(|(o, b)| o.role == Role::Read && written(b))
        };
        let follows = before.device == asked.place && !self.block.is_transfer(before);
        if !joins(ctx) || !follows || !reads(asked.kernel) {
            return None;
        }
        let name = before.name.clone();
        let parts: Option<Vec<Part>> = self.block.steps[launch..].iter().map(printed).collect();
        let parts = parts?;
        let times = |c: &Choice| {
            let part = Part {
                kernel: &c.kernel,
                schedule: &c.schedule,
                work: &c.work,
            };
            handovers(ctx, &parts, part)
        };
        // A step of one task needs no other choice where it is part of the launch as it is.
        let several = own.parts.is_some() || own.work.tasks > 1;
        if !several && times(own).is_some() {
            self.behind.push(self.block.steps.len());
            return None;
        }
        let was = own.parts.as_ref().map_or(own.cost.time_s, |p| p.seconds);
        let least = u64::from(before.cost_work.tasks > 1);
        let limit = was + ctx.machine.joined_s(least);
        // As many threads as it likes, or no more than the launch has.
        let widest = parts.iter().map(Part::threads).max();
        let mut ways = [None, widest].into_iter();
        let (choice, what, seconds) = ways.find_map(|most| {
            let (choice, what) = self.memo.one_task(asked, limit, most)?;
            let seconds = choice.cost.time_s - ctx.machine.joined_s(times(&choice)?);
            (seconds < was).then_some((choice, what, seconds))
        })?;
        let subject = &asked.kernel.name;
        let said = |w: &Why| w.pass == "schedule" && w.subject == *subject;
        let mut alternatives = vec![];
        if let Some(w) = self.whys.pop_if(|w| said(w)) {
            alternatives.push(Alternative {
                what: w.choice,
                predicted_s: was,
            });
            alternatives.extend(w.alternatives);
        }
        self.whys.push(Why {
            pass: "schedule".into(),
            subject: subject.clone(),
            choice: what,
            reason: format!(
                "predicted {} as one task in the launch of '{name}'",
                units::seconds(seconds)
            ),
            alternatives,
        });
        self.behind.push(self.block.steps.len());
        Some(choice)
    }

    /// Joins steps to those before them where that takes less time.
    pub(super) fn join(&mut self) {
        let mut first = 0;
        for i in 1..self.block.steps.len() {
            let launch = std::mem::replace(&mut first, i);
            let (before, s) = (&self.block.steps[i - 1], &self.block.steps[i]);
            let copies = [before, s].iter().any(|s| self.block.is_transfer(s));
            let ctx = self.ctxs[s.device as usize];
            if copies || !s.may_join(before, i, self.ctx.dims) {
                continue;
            }
            let steps = self.block.steps[launch..i].iter().map(printed);
            let all = steps.collect::<Option<Vec<_>>>().zip(printed(s));
            let Some(times) = all.and_then(|(launch, s)| handovers(ctx, &launch, s)) else {
                continue;
            };
            first = launch;
            let sums = printed(s).is_some_and(|p| p.schedule.adds_parts());
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
                reason: match (sums, times) {
                    (true, _) => "the CTAs of each cluster add what they keep, which takes a meeting where a launch takes what a step takes to begin".into(),
                    (_, 0) => "the CTA that ran the one task before goes on with it".into(),
                    _ => "the CTA that ends last of those that a task needs runs it, which takes a hand-over where a launch takes what a step takes to begin".into(),
                },
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
