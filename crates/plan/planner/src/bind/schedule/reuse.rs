//! The schedule of another box, taken without looking for another where it is predicted to be as
//! good here as it was there; as it is, cut into as many tasks as there, or into more, since what another
//! size changes first is how tasks share out among the workers.
//!
//! As good is: no more time for its size than there, where the boxes are near; or about as close to the
//! least that its work can take; or next to nothing beyond that least. From a box far away no product is
//! taken that had too few rows, lanes or sums there to fill registers.
use super::candidate::Choice;
use super::form::{Facts, WORTH_SHARING, set_chunk};
use super::tiles;
use crate::bind::ctx::{Ctx, Space};
use crate::bind::predict::{least_seconds, predict_program, predict_step};
use crate::bind::prior::Earlier;
use kernel::{AxisId, AxisTile, CpuMapping, Mapping, Schedule};
use layout::Arrange;
use layout::DimBox;
use machine::{Bound, Cost, Work, units};
use plan::Why;
use std::sync::Arc;

/// Axes that a schedule is cut along to make more tasks of it, one at a time.
const CUTS: usize = 3;

/// What a step may take of the time that its work in the earlier box leads to expect.
const SLACK: f64 = 1.1;
/// Differences below this are nothing, seconds.
const NOTHING: f64 = 1e-6;
/// How much farther from the least that its work can take a step may be here: what no longer fits a
/// cache moves all schedules away from it, and searches seldom find one that is closer.
const FARTHER: f64 = 1.4;
/// Tasks per worker beyond which more of them do not share out better.
const ENOUGH: u64 = 4;
/// Rows, lanes or sums that fill registers in every way that a search would try.
const LONG: i64 = 32;

/// Operations and bytes of a step.
fn size(w: &Work) -> (f64, f64) {
    let ops = w.ops.iter().map(|o| o.2).sum();
    (ops, w.unique_read + w.unique_written)
}

/// Time that grows with a step's size.
fn busy(c: &Cost) -> f64 {
    (c.time_s - c.launch_s - c.latency_s).max(0.0)
}

/// The earlier choice with what it costs in this box; `None` where another may be better.
pub(super) fn take(ctx: Ctx, name: &str, facts: &Facts, whys: &mut Vec<Why>) -> Option<Choice> {
    let e = facts.earlier.as_ref()?;
    if ctx.target.gpu.is_some() || ctx.sweep.is_some() || ctx.forced.is_some() {
        return None;
    }
    if e.packed.iter().any(|p| !(facts.constant)(p.1.of)) {
        return None;
    }
    // One that is worth sharing out now must be cut into tasks for all workers, unless a search just beside,
    // for as many, found nothing to cut.
    let workers = ctx.workers as u64;
    let worth = WORTH_SHARING * ctx.machine.costs.handoff_s.value;
    let cut = |w: &Work, c: &Cost| w.tasks >= workers || busy(c) <= worth;
    let whole = e.near && e.same_devices && !cut(e.work, e.cost);
    let shared = |w: &Work, c: &Cost| whole || cut(w, c);
    let least = |w: &Work| least_seconds(ctx, e.kernel.family, w);
    // All that another schedule could gain is not worth a search.
    let enough = |c: &Cost, least: f64| busy(c) <= least + NOTHING;
    let as_long = |w: &Work, c: &Cost| {
        let ((ops, bytes), (ops_then, bytes_then)) = (size(w), size(e.work));
        let grown = |now: f64, then: f64| if then > 0.0 { now / then } else { 1.0 };
        let growth = grown(ops, ops_then).max(grown(bytes, bytes_then));
        // Where tasks cost more than what they do, it is their number that grows with the size.
        let launches = [c, e.cost].iter().all(|c| c.bound == Bound::Launch);
        let time = |c: &Cost| if launches { c.time_s } else { busy(c) };
        e.near && time(c) <= SLACK * growth * time(e.cost) + NOTHING
    };
    let alike = |w: &Work, c: &Cost| {
        let (least, least_then) = (least(w), least(e.work));
        as_long(w, c)
            || enough(c, least)
            || busy(c) * least_then <= FARTHER * least * busy(e.cost) + NOTHING * least_then
    };
    let (mut work, mut cost) = match e.unchanged {
        true => (e.work.clone(), e.cost.clone()),
        false => predict_program(ctx, e.program)?,
    };
    let mut schedule = e.schedule.clone();
    let mut how = format!("that of {}", e.dims);
    if !e.unchanged && !e.near && !enough(&cost, least(&work)) && outgrown(ctx, e) {
        return None;
    }
    let good = |w: &Work, c: &Cost| shared(w, c) && alike(w, c);
    // Tiles of the same size make a small task behind the others of what is a little longer here.
    if e.near
        && !e.unchanged
        && !as_long(&work, &cost)
        && let Some(s) = as_many_tasks(ctx, e)
        && let Some((w, c)) = predict_step(ctx, e.kernel, &s)
        && good(&w, &c)
        && c.time_s < cost.time_s
    {
        (schedule, work, cost) = (s, w, c);
        how.push_str(", in as many tasks");
    }
    if !e.unchanged && !good(&work, &cost) {
        if shared(&work, &cost) && work.tasks >= ENOUGH * workers {
            return None;
        }
        // The first that is as good: to predict the others takes longer than what they could still gain.
        let costed = cut_further(ctx, e).find_map(|s| {
            if !may_gain(ctx, e, &s, &work, &cost) {
                return None;
            }
            let (w, c) = predict_step(ctx, e.kernel, &s)?;
            (good(&w, &c) && c.time_s < cost.time_s).then_some((s, w, c))
        });
        match costed {
            Some(cut) => {
                (schedule, work, cost) = cut;
                how.push_str(", in more tasks");
            }
            // To hand out more tasks takes longer than what they share.
            None if cost.bound == Bound::Launch && alike(&work, &cost) => {}
            None => return None,
        }
    }
    set_chunk(ctx, &mut schedule, &work, cost.time_s);
    whys.push(Why {
        pass: "schedule".into(),
        subject: name.into(),
        choice: how,
        reason: format!(
            "predicted {}, bound by {}; as good for its size as there",
            units::seconds(cost.time_s),
            cost.bound
        ),
        alternatives: vec![],
    });
    Some(Choice {
        kernel: e.kernel.clone(),
        schedule,
        packed: e.packed.clone(),
        parts: None,
        work,
        cost,
        taken: true,
    })
}

/// Whether a product's rows, lanes or sums were few in the earlier box and are not in this one.
fn outgrown(ctx: Ctx, e: &Earlier) -> bool {
    let Mapping::Cpu(c) = &e.schedule.mapping else {
        return true;
    };
    if c.micro.is_none() {
        return false;
    }
    let points = |dims: &DimBox, axes: &[AxisId]| {
        let each = axes.iter().map(|&a| &e.kernel.axes[a as usize].extent);
        each.fold(1i64, |n, d| {
            n.saturating_mul(dims.at_top(d).unwrap_or(0).max(1))
        })
    };
    let over: Vec<AxisId> = e
        .kernel
        .body
        .iter()
        .flat_map(|s| s.over().to_vec())
        .collect();
    let lanes: Vec<AxisId> = c.lanes.into_iter().collect();
    [&c.rows, &lanes, &over].into_iter().any(|axes| {
        let (then, now) = (points(e.dims, axes), points(ctx.dims, axes));
        then < LONG && now >= 2 * then
    })
}

/// Whether `cut`, one task in several, could take less time: each of them is handed out, waits and begins
/// as the one did, and they share what it does at best evenly.
fn may_gain(ctx: Ctx, e: &Earlier, cut: &Schedule, work: &Work, cost: &Cost) -> bool {
    let tasks = ctx.dims.at_top(&kernel::work::tasks(e.kernel, cut));
    let Some(tasks) = tasks.filter(|_| work.tasks == 1) else {
        return true;
    };
    let workers = ctx.workers.max(1) as f64;
    let turns = (tasks as f64 / workers).ceil();
    turns * cost.launch_s + busy(cost) / workers < cost.time_s
}

/// The earlier schedule with every axis of the grid cut into as many pieces as there; `None` where that is
/// the same.
fn as_many_tasks(ctx: Ctx, e: &Earlier) -> Option<Arc<Schedule>> {
    let Mapping::Cpu(c) = &e.schedule.mapping else {
        return None;
    };
    let mut schedule = Schedule::clone(e.schedule);
    for t in &mut schedule.grid {
        let extent = &e.kernel.axes[t.axis as usize].extent;
        let (then, now) = (e.dims.at_top(extent)?, ctx.dims.at_top(extent)?);
        if now == then {
            continue;
        }
        let ceil = |n: i64, by: i64| n.max(1).saturating_add(by - 1).checked_div(by);
        let pieces = ceil(then, t.tile)?;
        t.tile = tiles::even(now, ceil(now, pieces)?, multiple(ctx, c, t.axis));
    }
    (schedule.grid != e.schedule.grid).then(|| schedule.into())
}

/// What a tile along `axis` is a multiple of: lanes stay in whole registers.
fn multiple(ctx: Ctx, c: &CpuMapping, axis: AxisId) -> i64 {
    match c.lanes == Some(axis) {
        true => c.micro.map_or(ctx.lanes(), |m| i64::from(m.nr)),
        false => 1,
    }
}

/// The earlier schedule with the tasks halved and quartered along one axis, one after the other.
fn cut_further<'a>(ctx: Ctx<'a>, e: &'a Earlier) -> impl Iterator<Item = Arc<Schedule>> + 'a {
    let found = match &e.schedule.mapping {
        Mapping::Cpu(c) => Some((c, Space::new(ctx, e.kernel))),
        _ => None,
    };
    found.into_iter().flat_map(move |(c, space)| {
        let mut axes: Vec<_> = space
            .parallel()
            .into_iter()
            .map(|a| (space.len(e.schedule, a), a))
            .filter(|a| a.0 > 1 && !e.schedule.loops.iter().any(|l| l.axis == a.1))
            .collect();
        axes.arrange_by(|a, b| b.cmp(a));
        let mut out = Vec::new();
        for &(len, axis) in axes.iter().take(CUTS) {
            let multiple = multiple(ctx, c, axis);
            for parts in [2, 4] {
                let most = (len / parts).max(1);
                let tile = tiles::even(space.extent(axis), most, multiple);
                if tile < len {
                    out.push(AxisTile { axis, tile });
                }
            }
        }
        out.into_iter().map(move |cut| {
            let mut schedule = Schedule::clone(e.schedule);
            match schedule.grid.iter_mut().find(|t| t.axis == cut.axis) {
                Some(t) => t.tile = cut.tile,
                // What was whole lies inside what was cut.
                None => schedule.grid.push(cut),
            }
            schedule.into()
        })
    })
}
