//! What a launch of two steps takes less than two.

use super::ctx::Ctx;
use kernel::TargetKind;
use machine::Work;

/// Seconds that a step with the work and threads `second` takes less as part of the launch of `first`, if it is
/// less. CTAs of the launch have what either step needs most of, and each hands over; neither may cost the first
/// step a round.
pub(crate) fn gain(ctx: Ctx, first: (u64, &Work), second: (u64, &Work)) -> Option<f64> {
    let m = ctx.machine;
    if ctx.target.kind != TargetKind::Ptx || m.way_costs().is_none() {
        return None;
    }
    let file = m.limits.registers_per_sm.as_ref()?.value;
    let (one, two) = (first.1.warps.as_ref()?, second.1.warps.as_ref()?);
    // As many as let so many CTAs in, at most.
    let per_thread = m
        .limits
        .registers_per_thread
        .as_ref()
        .map_or(u64::MAX, |v| v.value);
    let registers = |(threads, held): (u64, u64)| (file / (threads * held).max(1)).min(per_thread);
    let most = registers((first.0, one.resident)).max(registers((second.0, two.resident)));
    let threads = first.0.max(second.0);
    let held = (file / (most * threads).max(1))
        .min(one.resident)
        .min(two.resident);
    let rounds = |held: u64| first.1.tasks.div_ceil((ctx.workers as u64 * held).max(1));
    if held == 0 || rounds(held) > rounds(one.resident) {
        return None;
    }
    let costs = &m.costs;
    let less = costs.step_s.value - rounds(held) as f64 * costs.handoff_s.value;
    (less > 0.0).then_some(less)
}
