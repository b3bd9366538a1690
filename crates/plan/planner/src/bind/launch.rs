//! What a launch of several steps takes less than one of each.

use super::ctx::Ctx;
use kernel::{Mapping, Schedule, TargetKind};
use machine::Work;

/// A step of a launch.
pub(crate) type Part<'a> = (&'a Schedule, &'a Work);

/// Whether steps on a device may be part of the launch before them.
pub(crate) fn joins(ctx: Ctx) -> bool {
    ctx.target.kind == TargetKind::Ptx && ctx.machine.way_costs().is_some()
}

/// The hand-overs of a step `next` as part of the launch of the steps `launch`, behind the last of them, where it takes
/// less so. CTAs of the launch have what any of its steps needs most of, which may not cost the first step a round, and
/// each round of the step before hands over. None are taken where the CTAs of a cluster add what they keep, which costs what
/// clusters do.
pub(crate) fn handovers(ctx: Ctx, launch: &[Part], next: Part) -> Option<u64> {
    let m = ctx.machine;
    let (first, before) = (launch.first()?, launch.last()?);
    if !joins(ctx) {
        return None;
    }
    let cluster = matches!(launch, [one] if one.0.gives_parts()) && next.0.adds_parts();
    // What follows such a sum may be part of its launch.
    let behind = matches!(launch, [one, two, ..] if one.0.gives_parts() && two.0.adds_parts());
    let behind = behind && next.0.cluster() == 1;
    let file = m.limits.registers_per_sm.as_ref()?.value;
    let most = m.limits.registers_per_thread.as_ref();
    let most = most.map_or(u64::MAX, |v| v.value);
    // Threads, registers and CTAs that a multiprocessor holds. Registers are as many as let so many CTAs in, at most.
    let (mut threads, mut registers, mut held) = (0, 0, u64::MAX);
    for (s, w) in launch.iter().chain([&next]) {
        // Other clusters have a launch for themselves.
        let Mapping::Gpu(g) = &s.mapping else {
            return None;
        };
        if g.cluster > 1 && !cluster && !behind {
            return None;
        }
        let (own, resident) = (u64::from(g.threads), w.warps.as_ref()?.resident);
        threads = threads.max(own);
        registers = registers.max((file / (own * resident).max(1)).min(most));
        held = held.min(resident);
    }
    let held = held.min(file / (threads * registers).max(1));
    let rounds = |tasks: u64, held: u64| tasks.div_ceil((ctx.workers as u64 * held).max(1));
    let alone = first.1.warps.as_ref()?.resident;
    let fits = held > 0 && rounds(first.1.tasks, held) <= rounds(first.1.tasks, alone);
    let times = if cluster {
        0
    } else {
        rounds(before.1.tasks, held)
    };
    (fits && m.joined_s(times) > 0.0).then_some(times)
}
