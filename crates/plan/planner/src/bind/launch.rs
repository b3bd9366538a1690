//! What a launch of two steps takes less than two.

use super::ctx::Ctx;
use kernel::{Mapping, Schedule, TargetKind};
use machine::Work;

/// The hand-overs of a step with the work and schedule `second` as part of the launch of `first`, where it takes less
/// so. CTAs of the launch have what either step needs most of, which may not cost the first step a round, and each
/// round of them hands over.
pub(crate) fn handovers(
    ctx: Ctx,
    first: (&Schedule, &Work),
    second: (&Schedule, &Work),
) -> Option<u64> {
    let m = ctx.machine;
    if ctx.target.kind != TargetKind::Ptx || m.way_costs().is_none() {
        return None;
    }
    let file = m.limits.registers_per_sm.as_ref()?.value;
    let most = m.limits.registers_per_thread.as_ref();
    let most = most.map_or(u64::MAX, |v| v.value);
    // Threads, CTAs that a multiprocessor holds, and registers: as many as let so many CTAs in, at most.
    let needs = |(s, w): (&Schedule, &Work)| {
        let Mapping::Gpu(g) = &s.mapping else {
            return None;
        };
        let (threads, held) = (u64::from(g.threads), w.warps.as_ref()?.resident);
        Some((threads, held, (file / (threads * held).max(1)).min(most)))
    };
    let (one, two) = (needs(first)?, needs(second)?);
    let registers = one.0.max(two.0) * one.2.max(two.2);
    let held = (file / registers.max(1)).min(one.1).min(two.1);
    let rounds = |held: u64| first.1.tasks.div_ceil((ctx.workers as u64 * held).max(1));
    let fits = held > 0 && rounds(held) <= rounds(one.1);
    (fits && m.joined_s(rounds(held)) > 0.0).then_some(rounds(held))
}
