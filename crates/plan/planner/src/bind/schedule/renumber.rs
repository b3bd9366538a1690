//! Kernels and schedules with other orders of their axes and statements.

use kernel::{AxisId, CpuMapping, Kernel, Mapping, Place, Schedule, Stmt, TileId};
use layout::Arrange;
use std::sync::Arc;

/// The kernel with every fill and load right before the first statement that needs it, fills first:
/// a product then stands behind its two factors, which lets an executor take the three as one.
pub(super) fn ordered(kernel: &Kernel) -> Kernel {
    let mut out = kernel.clone();
    out.body.clear();
    let mut waiting: Vec<Stmt> = Vec::new();
    let late = |s: &Stmt| s.as_fill().is_some() || matches!(s, Stmt::Load { .. });
    for s in &kernel.body {
        // A tile that is defined a second time keeps its order.
        let defined = |t: &TileId| {
            kernel
                .body
                .iter()
                .filter(|s| late(s) && s.writes().contains(t))
                .count()
        };
        if late(s) && s.writes().iter().all(|t| defined(t) == 1) {
            waiting.push(s.clone());
            continue;
        }
        let needs = |w: &Stmt| {
            w.writes()
                .iter()
                .any(|t| s.reads().contains(t) || s.writes().contains(t))
        };
        let (now, later): (Vec<Stmt>, Vec<Stmt>) = waiting.into_iter().partition(needs);
        waiting = later;
        let (fills, loads): (Vec<Stmt>, Vec<Stmt>) =
            now.into_iter().partition(|s| s.as_fill().is_some());
        out.body.extend(fills);
        out.body.extend(loads);
        out.body.push(s.clone());
    }
    out.body.extend(waiting);
    out
}

/// The axes numbered so that the vector axis is the last one of every tile that has memory of its
/// own: tiles are stored in the order of their axes. `None` where it is already.
pub(super) fn lanes_last(
    kernel: &Arc<Kernel>,
    schedule: &Arc<Schedule>,
) -> Option<(Arc<Kernel>, Arc<Schedule>)> {
    let Mapping::Cpu(CpuMapping {
        lanes: Some(lane), ..
    }) = schedule.mapping
    else {
        return None;
    };
    let wrong = |t: usize| {
        let axes = &kernel.tiles[t].axes;
        let loaded = kernel
            .body
            .iter()
            .any(|s| matches!(s, Stmt::Load { dst, .. } if *dst as usize == t));
        axes.contains(&lane)
            && axes.last() != Some(&lane)
            && !(loaded && schedule.place(t as TileId) == Place::InPlace)
    };
    if !(0..kernel.tiles.len()).any(wrong) {
        return None;
    }
    let new = moved_last(kernel.axes.len(), lane);
    Some((
        with_lanes_last(Kernel::clone(kernel), lane).into(),
        renumbered_schedule(Schedule::clone(schedule), &new).into(),
    ))
}

/// New numbers of `axes` axes, of which `lane` comes last.
pub(super) fn moved_last(axes: usize, lane: AxisId) -> impl Fn(AxisId) -> AxisId {
    let last = axes.saturating_sub(1) as AxisId;
    move |a| match a {
        a if a == lane => last,
        a if a > lane => a - 1,
        a => a,
    }
}

/// `kernel` with its axes numbered as those of `chosen`, the same kernel under a schedule that may have
/// moved its lanes; `None` where no axis was moved so.
pub fn numbered_as(kernel: &Kernel, chosen: &Kernel) -> Option<Kernel> {
    let n = kernel.axes.len();
    let alike = |&lane: &AxisId| {
        let new = moved_last(n, lane);
        let mut axes = kernel.axes.iter().enumerate();
        axes.all(|(i, a)| chosen.axes.get(new(i as AxisId) as usize) == Some(a))
    };
    let lane = (0..n as AxisId).find(alike)?;
    (chosen.axes.len() == n).then(|| with_lanes_last(kernel.clone(), lane))
}

/// `kernel` with its axes numbered so that `lane` is the last.
pub fn with_lanes_last(kernel: Kernel, lane: AxisId) -> Kernel {
    let new = moved_last(kernel.axes.len(), lane);
    renumbered(kernel, &new)
}

/// `kernel` with its last axis as the first: tiles are stored in the order of their axes.
pub(super) fn with_last_first(kernel: Kernel) -> Kernel {
    let last = kernel.axes.len().saturating_sub(1) as AxisId;
    renumbered(kernel, &|a| if a == last { 0 } else { a + 1 })
}

pub(super) fn renumbered(mut k: Kernel, new: &dyn Fn(AxisId) -> AxisId) -> Kernel {
    let old = k.axes.clone();
    for (i, a) in old.into_iter().enumerate() {
        k.axes[new(i as AxisId) as usize] = a;
    }
    let all = |v: &mut Vec<AxisId>| v.iter_mut().for_each(|a| *a = new(*a));
    for o in &mut k.operands {
        o.access.terms.iter_mut().for_each(|t| t.axis = new(t.axis));
        o.access.terms.arrange_by_key(|t| t.axis);
        o.access
            .bounds
            .iter_mut()
            .flat_map(|b| &mut b.terms)
            .for_each(|t| t.0 = new(t.0));
    }
    for t in &mut k.tiles {
        all(&mut t.axes);
        t.axes.arrange();
    }
    for s in &mut k.body {
        match s {
            Stmt::Map { expr, .. } => {
                for i in &mut expr.insts {
                    if let expr::Inst::Index { axis } = i {
                        *axis = u32::from(new(*axis as AxisId));
                    }
                }
            }
            // A fold's own index counts its reduced axes, whose order stays.
            Stmt::Contract { over, .. } | Stmt::Fold { over, .. } => all(over),
            Stmt::Relabel { labels, along, .. } => {
                labels.iter_mut().for_each(|l| {
                    l.from = new(l.from);
                    l.to = new(l.to);
                });
                *along = along.map(new);
            }
            Stmt::Load { .. } | Stmt::Store { .. } => {}
        }
    }
    k
}

pub(super) fn renumbered_schedule(mut s: Schedule, new: &dyn Fn(AxisId) -> AxisId) -> Schedule {
    s.grid
        .iter_mut()
        .chain(&mut s.loops)
        .for_each(|t| t.axis = new(t.axis));
    if let Mapping::Cpu(m) = &mut s.mapping {
        m.rows.iter_mut().for_each(|a| *a = new(*a));
        m.lanes = m.lanes.map(new);
    }
    s
}
