//! Which tasks of an earlier step made what a task reads, derived from the two accesses.
//!
//! When the outermost axis that a grid cuts steps over everything else that an operand reaches, tasks
//! go through the buffer in blocks: a block of the writer makes a span of elements that no other block
//! touches, and a block of the reader reads a span with a rim.
use super::access::{Prover, Shape};
use crate::{Step, StepWork, TileMap};
use kernel::{Access, AxisId, AxisTile, Kept, Kernel, Schedule, Term, TileProgram, work};
use layout::{Arrange, Dim, DimBox, Inserted};
use std::collections::BTreeMap;

/// How a step goes through a buffer.
struct Walk {
    /// Tasks of a block.
    tasks: Dim,
    /// Elements from a block to the next.
    span: Dim,
    /// Elements from a position of the outermost axis to the next.
    stride: Dim,
    /// Lowest and highest address of position 0.
    rest: (Dim, Dim),
}

fn walk(kernel: &Kernel, schedule: &Schedule, operand: usize, p: &Prover) -> Option<Walk> {
    if schedule.raster != 1 {
        return None;
    }
    let cut = |t: &kernel::AxisTile| {
        let extent = &kernel.axes[t.axis as usize].extent;
        !p.le(extent, &Dim::Known(t.tile))
    };
    let at = schedule.grid.iter().position(cut)?;
    let outer = schedule.grid[at];
    let o = kernel.operands.get(operand)?;
    if !o.access.indexed.is_empty() {
        return None;
    }
    let stride = o.access.term(outer.axis)?.stride()?.clone();
    if !p.le(&Dim::ONE, &stride) {
        return None;
    }
    let inner = Schedule {
        grid: schedule.grid[at + 1..].to_vec(),
        ..schedule.clone()
    };
    let rest = p.beside(&Shape::new(kernel, o), outer.axis)?;
    Some(Walk {
        tasks: work::tasks(kernel, &inner),
        span: stride.clone() * Dim::Known(outer.tile),
        stride,
        rest,
    })
}

/// Something where task `t` of the `n` of `step` reads just what tasks `t`, `t + n`, ... of `earlier` write: the grid of
/// `step` is that of `earlier` without its outermost axis, and both go through the same elements, piece by piece.
fn interleaved(earlier: &Step, written: usize, step: &Step, read: usize) -> Option<()> {
    let (
        StepWork::Kernel {
            kernel: k,
            schedule: s,
            ..
        },
        StepWork::Kernel {
            kernel: l,
            schedule: t,
            ..
        },
    ) = (&earlier.work, &step.work)
    else {
        return None;
    };
    let (outer, rest) = s.grid.split_first()?;
    // An axis of one piece is whole in every task, as is one that no grid cuts.
    let several = |k: &Kernel, c: &&AxisTile| {
        let extent = k.axes[c.axis as usize].extent.known();
        extent.is_none_or(|e| e > c.tile)
    };
    let rest: Vec<&AxisTile> = rest.iter().filter(|c| several(k, c)).collect();
    let mine: Vec<&AxisTile> = t.grid.iter().filter(|c| several(l, c)).collect();
    let (w, r) = (k.operands.get(written)?, l.operands.get(read)?);
    let plain = |a: &Access| a.indexed.is_empty() && a.bounds.is_empty();
    let straight = s.raster == 1 && t.raster == 1 && rest.len() == mine.len();
    let same = w.access.offset == r.access.offset && w.elements == r.elements;
    (straight && outer.tile == 1 && plain(&w.access) && plain(&r.access) && same).then_some(())?;
    let (mut left, mut right) = (terms(k, &w.access), terms(l, &r.access));
    let mut take = |a: AxisId, b: AxisId| {
        let extent = &k.axes[a as usize].extent;
        let (x, y) = (left.remove(&a), right.remove(&b));
        *extent == l.axes[b as usize].extent && x == y
    };
    for (x, y) in rest.iter().zip(mine) {
        (x.tile == y.tile && take(x.axis, y.axis)).then_some(())?;
    }
    let (mut left, mut right) = (
        Vec::from_iter(left.into_values()),
        Vec::from_iter(right.into_values()),
    );
    left.arrange();
    right.arrange();
    (left == right).then_some(())
}

/// CTAs of a cluster whose tasks of `earlier` keep parts of sums for each other, and whose tasks of `step` add them: through
/// these operands, and any others that are kept are of the same buffers.
fn in_cluster(earlier: &Step, written: usize, step: &Step, read: usize) -> Option<u32> {
    let program = |s: &Step| match &s.work {
        StepWork::Kernel {
            kernel,
            schedule,
            args,
        } => Some((kernel.clone(), schedule.clone(), args.clone())),
        StepWork::Host { .. } => None,
    };
    let ((k, s, given), (l, t, taken)) = (program(earlier)?, program(step)?);
    (s.gives_parts() && t.adds_parts()).then_some(())?;
    let first = TileProgram::new(k, s).ok()?;
    let second = TileProgram::new(l, t).ok()?;
    let size = kernel::in_cluster(&first, &second).ok()?;
    let kept = |p: &TileProgram| Kept::all(p.kernel(), p.schedule()).ok();
    let (one, two) = (kept(&first)?, kept(&second)?);
    let mut pairs = one.iter().zip(&two);
    let same =
        |(x, y): (&Kept, &Kept)| given.get(x.operand as usize) == taken.get(y.operand as usize);
    let these = |(x, y): (&Kept, &Kept)| {
        usize::from(x.operand) == written && usize::from(y.operand) == read
    };
    (pairs.clone().any(these) && pairs.all(same)).then_some(size)
}

/// Extents and strides of an access, by axis.
fn terms(k: &Kernel, a: &Access) -> BTreeMap<AxisId, Vec<(Dim, Dim)>> {
    let leaves = |t: &Term| {
        let extent = k.axes[t.axis as usize].extent.clone();
        let first = [(extent, Dim::ZERO)].into_iter();
        let all = t
            .leaves
            .iter()
            .map(|l| (l.extent.clone(), l.stride.clone()));
        (t.axis, first.chain(all).collect())
    };
    a.terms.iter().map(leaves).inserted()
}

/// The tasks of `earlier` that made what `step` reads through operand `read` of what `earlier` writes
/// through operand `written`, both of one buffer.
pub(super) fn derive(
    earlier: &Step,
    written: usize,
    step: &Step,
    read: usize,
    p: &Prover,
) -> Option<TileMap> {
    if interleaved(earlier, written, step, read).is_some() {
        return Some(TileMap::Interleaved);
    }
    if let Some(size) = in_cluster(earlier, written, step, read) {
        return Some(TileMap::Clusters { size });
    }
    let of = |s: &Step, operand| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => walk(kernel, schedule, operand, p),
        StepWork::Host { .. } => None,
    };
    let (w, r) = (of(earlier, written)?, of(step, read)?);
    let last = w.stride.clone() - Dim::ONE;
    if !(p.nonneg(&w.rest.0) && p.le(&w.rest.1, &last)) {
        return None;
    }
    // Whoever is over when all tasks of `step` are must have needed all tasks of `earlier`.
    let blocks = |s: &Step, w: &Walk| s.tasks.exact_div(&w.tasks);
    let (mine, theirs) = (blocks(step, &r)?, blocks(earlier, &w)?);
    let reach = mine * r.span.clone() - (theirs - Dim::ONE) * w.span.clone() - Dim::ONE;
    if !p.nonneg(&reach) {
        return None;
    }
    let most = |d: Dim| d.max_with(&Dim::ZERO);
    Some(TileMap::Spans {
        tasks: r.tasks,
        before: most(-r.rest.0),
        after: most(r.rest.1 - r.stride + Dim::ONE),
        span: r.span,
        earlier_tasks: w.tasks,
        earlier_span: w.span,
    })
}

/// What a `Wait::Tiles` of `step` for `earlier` may say, when operand `read` of the one reads what
/// operand `written` of the other made; `None` when nothing is proved for the box. The verifier
/// accepts exactly this.
pub fn tile_map(
    earlier: &Step,
    written: usize,
    step: &Step,
    read: usize,
    dims: &DimBox,
) -> Option<TileMap> {
    let p = Prover {
        dims,
        equal: None,
        budget: &mut 0,
    };
    derive(earlier, written, step, read, &p)
}
