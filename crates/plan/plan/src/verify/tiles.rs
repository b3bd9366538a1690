//! Which tasks of an earlier step made what a task reads, derived from the two accesses.
//!
//! When the outermost axis that a grid cuts steps over everything else that an operand reaches, tasks
//! go through the buffer in blocks: a block of the writer makes a span of elements that no other block
//! touches, and a block of the reader reads a span with a rim.
use super::access::{Prover, Shape};
use crate::{Step, StepWork, TileMap};
use kernel::{Kernel, Schedule, work};
use layout::{Dim, DimBox};

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

/// The tasks of `earlier` that made what `step` reads through operand `read` of what `earlier` writes
/// through operand `written`, both of one buffer.
pub(super) fn derive(
    earlier: &Step,
    written: usize,
    step: &Step,
    read: usize,
    p: &Prover,
) -> Option<TileMap> {
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
