//! What the ways to run a kernel begin with: facts about it, tasks wanted, places of its tiles.

use crate::bind::ctx::{Ctx, Space};
use crate::bind::predict::busy_seconds;
use crate::bind::prior::Earlier;
use kernel::{
    AxisId, CpuMapping, Family, Given, Kernel, Mapping, OperandId, Place, Role, Schedule, Stmt,
    Term, TileId,
};
use machine::Work;
use std::sync::Arc;

/// Below this many hand-offs between workers a step is not worth sharing out.
pub(super) const WORTH_SHARING: f64 = 64.0;

/// A ticket should be worth this many hand-offs.
pub(super) const WORTH_A_TICKET: f64 = 32.0;

/// What a choice may know of a kernel's operands.
pub(crate) struct Facts<'a> {
    /// Which operands hold constants that may be packed.
    pub constant: &'a dyn Fn(OperandId) -> bool,
    /// How an earlier plan packed an operand.
    pub packings: &'a [&'a [Arc<Kernel>]],
    /// How the nearest box that looked for a schedule of the kernel runs it.
    pub earlier: Option<Earlier<'a>>,
    /// How the kernel is to run, where its text says so.
    pub given: Option<&'a Given>,
    /// Whether the kernel is to be one step: no sum of parts.
    pub whole: bool,
}

impl<'a> Facts<'a> {
    /// How an earlier plan packed operand `o`.
    pub fn packings(&self, o: OperandId) -> &'a [Arc<Kernel>] {
        self.packings.get(o as usize).copied().unwrap_or_default()
    }
}

impl Facts<'_> {
    /// No constants.
    pub const NONE: Facts<'static> = Facts {
        constant: &|_| false,
        packings: &[],
        earlier: None,
        given: None,
        whole: false,
    };
}

/// A ticket takes enough tasks to be worth fetching, and leaves enough tickets for balance.
pub(super) fn set_chunk(ctx: Ctx, schedule: &mut Arc<Schedule>, work: &Work, seconds: f64) {
    let tasks = work.tasks.max(1) as f64;
    let active = (ctx.workers as f64).min(tasks);
    let each = (seconds * active / tasks).max(1e-12);
    let wanted = (WORTH_A_TICKET * ctx.machine.costs.handoff_s.value / each).ceil();
    let most = (tasks / (4.0 * ctx.workers as f64)).floor().max(1.0);
    let chunk = wanted.min(most).max(1.0) as i64;
    if schedule.chunk != chunk {
        Arc::make_mut(schedule).chunk = chunk;
    }
}

/// Tasks that a step of `elements`-like size should have at least: 1 when it is not worth sharing,
/// else several per worker, so that the last one does not leave the others idle for long.
pub(crate) fn wanted_tasks(ctx: Ctx, kernel: &Kernel, whole: &Schedule) -> i64 {
    if let Some(n) = ctx.forced {
        return n.max(1);
    }
    let single = Ctx {
        workers: 1,
        known: None,
        ..ctx
    };
    let busy = busy_seconds(single, kernel, whole).unwrap_or(0.0);
    if ctx.workers <= 1 || busy < WORTH_SHARING * ctx.machine.costs.handoff_s.value {
        1
    } else {
        4 * ctx.workers as i64
    }
}

/// A schedule without cuts but those that the kernel's ordered axes ask for.
pub(crate) fn whole(kernel: &Kernel) -> Schedule {
    Schedule {
        grid: vec![],
        loops: kernel.ordered_loops(),
        places: vec![Place::Register; kernel.tiles.len()],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping::default()),
    }
}

/// Whether a tile is used by contractions only, `b` role or `a` role.
pub(super) fn only_contracted(kernel: &Kernel, tile: TileId) -> bool {
    let mut used = false;
    for s in &kernel.body {
        match s {
            Stmt::Contract { a, b, acc, .. } if *acc != tile && (*a == tile || *b == tile) => {
                used = true
            }
            s if s.reads().contains(&tile) => return false,
            _ => {}
        }
    }
    used
}

/// Places that follow from the accesses alone: loads whose elements can be read where they are, and
/// stored tiles that can be written where they belong. `lanes` is the vector axis.
pub(crate) fn places(space: &Space, lanes: Option<AxisId>) -> Vec<Place> {
    let k = space.kernel;
    let mut out = vec![Place::Register; k.tiles.len()];
    for s in &k.body {
        let Stmt::Load { dst, operand } = s else {
            continue;
        };
        let o = &k.operands[*operand as usize];
        let contracted = only_contracted(k, *dst);
        // Lanes of a product may read a few neighbours in turn, as many as there are such lanes side by side.
        let in_turn = |t: &Term| match t.leaves.as_slice() {
            [outer, inner] => inner.stride.is_zero() && outer.stride == inner.extent && contracted,
            _ => false,
        };
        let plain = |t: &Term| t.leaves.len() == 1 || Some(t.axis) == lanes && in_turn(t);
        let affine = o.access.indexed.is_empty() && o.access.terms.iter().all(plain);
        let bounds = o.access.bounds.is_empty()
            || (contracted && (o.access.outside == 0.0 || o.dtype.bits() == 8));
        // Lanes that lie apart are brought together once instead of at each use.
        let near = lanes.is_none_or(|l| matches!(space.stride(*operand, l), 0 | 1));
        let moved = k.family == Family::Move;
        // What is carried on is no operand's memory.
        let alone = k.body.iter().filter(|s| s.writes().contains(dst)).count() == 1;
        if alone && affine && bounds && (near || contracted || moved) {
            out[*dst as usize] = Place::InPlace;
        }
    }
    for (operand, src) in space.stores() {
        let o = &k.operands[operand as usize];
        let plain = o.access.indexed.is_empty()
            && o.access.bounds.is_empty()
            && o.access.terms.iter().all(|t| t.leaves.len() == 1);
        let near = lanes.is_none_or(|l| space.stride(operand, l) <= 1);
        let tile = &k.tiles[src as usize];
        let covers = tile
            .axes
            .iter()
            .all(|a| space.stride(operand, *a) != 0 || space.extent(*a) == 1);
        let loaded = space.source(src).is_some();
        let readers = k
            .body
            .iter()
            .filter(|s| s.reads().contains(&src) && !s.writes().contains(&src))
            .count();
        let writers = k
            .body
            .iter()
            .filter(|s| s.writes().contains(&src) && s.as_fill().is_none())
            .count();
        let folded = k
            .body
            .iter()
            .any(|s| matches!(s, Stmt::Fold { .. }) && s.writes().contains(&src));
        if plain
            && near
            && covers
            && !loaded
            && readers == 1
            && writers <= 1
            && !folded
            && o.role == Role::Write
        {
            out[src as usize] = Place::InPlace;
        }
    }
    out
}

/// Reorders statements so that those inside loops over `axes` stand together: what they need
/// before them, the rest after. `None` when a statement outside stands between two inside for good
/// reason.
pub(crate) fn gather_loops(kernel: &Kernel, axes: &[AxisId]) -> Option<Vec<Stmt>> {
    let inside: Vec<bool> = kernel
        .body
        .iter()
        .map(|s| {
            axes.iter().any(|x| {
                s.over().contains(x)
                    || s.reads()
                        .iter()
                        .chain(&s.writes())
                        .any(|&t| kernel.tiles[t as usize].axes.contains(x))
            })
        })
        .collect();
    // A statement outside that depends on one inside must come after all of them.
    let depends = |i: usize, j: usize| {
        let (a, b) = (&kernel.body[i], &kernel.body[j]);
        a.reads().iter().any(|t| b.writes().contains(t))
            || a.writes()
                .iter()
                .any(|t| b.writes().contains(t) || b.reads().contains(t))
    };
    let n = kernel.body.len();
    let mut after = vec![false; n];
    for i in 0..n {
        if !inside[i] {
            after[i] = (0..i).any(|j| (inside[j] || after[j]) && depends(i, j));
        } else if (0..i).any(|j| after[j] && depends(i, j)) {
            return None;
        }
    }
    let pick = |f: &dyn Fn(usize) -> bool| {
        (0..n)
            .filter(|&i| f(i))
            .map(|i| kernel.body[i].clone())
            .collect::<Vec<_>>()
    };
    let mut out = pick(&|i| !inside[i] && !after[i]);
    out.extend(pick(&|i| inside[i]));
    out.extend(pick(&|i| after[i]));
    Some(out)
}
