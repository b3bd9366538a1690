//! What a launch of several steps takes less than one of each.

use super::ctx::Ctx;
use kernel::{Kernel, Mapping, Schedule, TargetKind, work};
use machine::Work;

/// A step of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub kernel: &'a Kernel,
    pub schedule: &'a Schedule,
    pub work: &'a Work,
}

impl Part<'_> {
    /// Whether it has one task, whatever sizes it is for.
    fn is_alone(&self) -> bool {
        work::tasks(self.kernel, self.schedule).is_one()
    }

    /// Threads of a CTA.
    pub fn threads(&self) -> u32 {
        match &self.schedule.mapping {
            Mapping::Gpu(g) => g.threads,
            Mapping::Cpu(_) => 0,
        }
    }
}

/// Whether steps on a device may be part of the launch before them.
pub(crate) fn joins(ctx: Ctx) -> bool {
    ctx.target.kind == TargetKind::Ptx && ctx.machine.way_costs().is_some()
}

/// The hand-overs of a step `next` as part of the launch of the steps `launch`, behind the last of them, where it takes
/// less so. CTAs of the launch have what any of its steps needs most of, which may not cost the first step a round, and
/// each round of the step before hands over. None are taken where the CTAs of a cluster add what they keep, which costs what
/// clusters do, nor from one task to one task, where the CTA goes on.
pub(crate) fn handovers(ctx: Ctx, launch: &[Part], next: Part) -> Option<u64> {
    let m = ctx.machine;
    let (first, before) = (launch.first()?, launch.last()?);
    if !joins(ctx) {
        return None;
    }
    let cluster =
        matches!(launch, [one] if one.schedule.gives_parts()) && next.schedule.adds_parts();
    // What follows such a sum may be part of its launch.
    let behind =
        matches!(launch, [one, two, ..] if one.schedule.gives_parts() && two.schedule.adds_parts());
    let behind = behind && next.schedule.cluster() == 1;
    // All threads of a cluster meet.
    if behind && next.threads() > first.threads() {
        return None;
    }
    let file = m.limits.registers_per_sm.as_ref()?.value;
    let most = m.limits.registers_per_thread.as_ref();
    let most = most.map_or(u64::MAX, |v| v.value);
    // Threads, registers and CTAs that a multiprocessor holds. Registers are as many as let so many CTAs in, at most.
    let (mut threads, mut registers, mut held) = (0, 0, u64::MAX);
    for p in launch.iter().chain([&next]) {
        // Other clusters have a launch for themselves.
        let Mapping::Gpu(g) = &p.schedule.mapping else {
            return None;
        };
        if g.cluster > 1 && !cluster && !behind {
            return None;
        }
        let (own, resident) = (u64::from(g.threads), p.work.warps.as_ref()?.resident);
        threads = threads.max(own);
        registers = registers.max((file / (own * resident).max(1)).min(most));
        held = held.min(resident);
    }
    let held = held.min(file / (threads * registers).max(1));
    let rounds = |tasks: u64, held: u64| tasks.div_ceil((ctx.workers as u64 * held).max(1));
    let alone = first.work.warps.as_ref()?.resident;
    let fits = held > 0 && rounds(first.work.tasks, held) <= rounds(first.work.tasks, alone);
    let times = match cluster || before.is_alone() && next.is_alone() {
        true => 0,
        false => rounds(before.work.tasks, held),
    };
    (fits && m.joined_s(times) > 0.0).then_some(times)
}
