//! The context of one bind: machine, target, dims, workers. Every decision reads it.
use super::known::KnownSteps;
use kernel::{AxisId, Kernel, OperandId, Prints, Role, Schedule, Stmt, Target, TileId};
use layout::Arrange;
use layout::{Dim, DimBox};
use machine::Machine;
use std::sync::Arc;

/// Machine, target, box and workers of a bind.
#[derive(Clone, Copy)]
pub(crate) struct Ctx<'a> {
    pub machine: &'a Machine,
    pub target: &'a Target,
    pub dims: &'a DimBox,
    pub workers: usize,
    /// Candidates tried per step.
    pub effort: usize,
    /// Bytes that everything the program touches takes, about.
    pub footprint: f64,
    /// Whether constants may be packed.
    pub pack: bool,
    /// How exactly products of f32 are computed.
    pub precision: plan::Precision,
    /// What chooses in place of the prediction.
    pub sweep: Option<&'a super::Sweep>,
    /// Tasks that a step is cut into in place of what is wanted, while a sweep lists candidates.
    pub forced: Option<i64>,
    /// Bytes touched between the last use of each operand of the kernel in question and this one;
    /// those that are not listed are as far away as everything together.
    pub far: &'a [f64],
    /// What the bind predicted so far for the device, with these workers.
    pub known: Option<&'a KnownSteps>,
}

impl Ctx<'_> {
    /// Value at the top of the box; 0 when it cannot be evaluated (checked before).
    pub fn top(&self, d: &Dim) -> i64 {
        self.dims.at_top(d).unwrap_or(0)
    }

    /// What says whether there is code for a program, where the target has a printer.
    pub fn prints(&self) -> Option<Prints> {
        self.target.gpu.as_ref()?.printer.prints
    }

    /// How many of a kind of candidates to take: `usual`, or more when a sweep lists them.
    pub fn most(&self, usual: usize) -> usize {
        self.forced.map_or(usual, |_| 2 * usual)
    }

    /// f32 lanes of a vector register.
    pub fn lanes(&self) -> i64 {
        (self.target.vector_bytes as i64 / 4).max(1)
    }

    /// Bytes that one worker may count on at cache level `i` (0: the first beyond registers).
    pub fn cache(&self, i: usize) -> f64 {
        let caches: Vec<f64> = self
            .machine
            .caches()
            .map(|(_, l)| l.capacity_per_worker(self.workers))
            .collect();
        caches
            .get(i)
            .or(caches.last())
            .copied()
            .unwrap_or_else(|| self.machine.memory().capacity())
    }

    /// Half of the largest private cache: what a task's working set may take.
    pub fn share(&self) -> f64 {
        let private = self.machine.caches().filter(|(_, l)| l.is_private()).last();
        private.map_or_else(|| self.cache(0), |(_, l)| l.capacity()) / 2.0
    }
}

/// A kernel with its extents at the top of the box.
pub(crate) struct Space<'a> {
    pub ctx: Ctx<'a>,
    pub kernel: &'a Kernel,
    /// Extents of the axes at the top of the box, at least 1.
    pub extents: Vec<i64>,
    /// How an earlier plan packed an operand.
    pub packings: &'a [&'a [Arc<Kernel>]],
}

impl<'a> Space<'a> {
    pub fn new(ctx: Ctx<'a>, kernel: &'a Kernel) -> Space<'a> {
        let extents = kernel
            .axes
            .iter()
            .map(|a| ctx.top(&a.extent).max(1))
            .collect();
        Space {
            ctx,
            kernel,
            extents,
            packings: &[],
        }
    }

    /// That of `kernel`, another form of the same.
    pub fn of<'k>(&self, kernel: &'k Kernel) -> Space<'k>
    where
        'a: 'k,
    {
        Space {
            packings: self.packings,
            ..Space::new(self.ctx, kernel)
        }
    }

    pub fn extent(&self, a: AxisId) -> i64 {
        self.extents.get(a as usize).copied().unwrap_or(1)
    }

    /// Number of positions along `axes`.
    pub fn points(&self, axes: &[AxisId]) -> i64 {
        axes.iter()
            .fold(1i64, |p, &a| p.saturating_mul(self.extent(a)))
    }

    /// Distance in elements between neighbours along `axis` in `operand` (0: it does not matter).
    pub fn stride(&self, operand: OperandId, axis: AxisId) -> i64 {
        let term = self.kernel.operands[operand as usize].access.term(axis);
        term.and_then(|t| t.leaves.last())
            .map_or(0, |l| self.ctx.top(&l.stride).saturating_abs())
    }

    /// The operand that `tile` is loaded from.
    pub fn source(&self, tile: TileId) -> Option<OperandId> {
        self.kernel.body.iter().find_map(|s| match s {
            Stmt::Load { dst, operand } if *dst == tile => Some(*operand),
            _ => None,
        })
    }

    /// Stored tiles with their operands.
    pub fn stores(&self) -> Vec<(OperandId, TileId)> {
        self.kernel
            .body
            .iter()
            .filter_map(|s| match s {
                Stmt::Store { operand, src } => Some((*operand, *src)),
                _ => None,
            })
            .collect()
    }

    /// The written operand with the most elements.
    pub fn main_output(&self) -> Option<OperandId> {
        let stores = self.stores();
        let mut best: Option<(i64, OperandId)> = None;
        for (o, t) in stores {
            let n = self.points(&self.kernel.tiles[t as usize].axes);
            if best.is_none_or(|b| n > b.0) {
                best = Some((n, o));
            }
        }
        best.map(|b| b.1)
    }

    /// The read operand with the most elements.
    pub fn main_input(&self) -> Option<OperandId> {
        let mut best: Option<(i64, OperandId)> = None;
        for (i, o) in self.kernel.operands.iter().enumerate() {
            let n = self.ctx.top(&o.elements);
            if o.role == Role::Read && best.is_none_or(|b| n > b.0) {
                best = Some((n, i as OperandId));
            }
        }
        best.map(|b| b.1)
    }

    /// Axes that tasks may share out: every task then writes bytes of its own.
    pub fn parallel(&self) -> Vec<AxisId> {
        let stores = self.stores();
        // Two rows of a scatter may name one place; only their order makes the result definite.
        let scattered = |a: AxisId| {
            self.kernel
                .operands
                .iter()
                .filter(|o| o.role == Role::Write)
                .any(|o| {
                    o.access
                        .indexed
                        .iter()
                        .any(|i| self.kernel.operands[i.by as usize].access.term(a).is_some())
                })
        };
        // What is read along another label must be there whole.
        let renamed = |a: AxisId| {
            self.kernel.body.iter().any(|s| match s {
                Stmt::Relabel { labels, .. } => labels.iter().any(|l| l.from == a || l.to == a),
                _ => false,
            })
        };
        (0..self.kernel.axes.len() as AxisId)
            .filter(|a| {
                !renamed(*a)
                    && !self.kernel.body.iter().any(|s| s.over().contains(a))
                    && stores
                        .iter()
                        .all(|(_, t)| self.kernel.tiles[*t as usize].axes.contains(a))
                    && !scattered(*a)
            })
            .collect()
    }

    /// The axis with unit stride in `operand`.
    pub fn unit_axis(&self, operand: OperandId, among: &[AxisId]) -> Option<AxisId> {
        among
            .iter()
            .copied()
            .find(|&a| self.stride(operand, a) == 1)
    }

    /// `axes` from innermost to outermost by their strides in `operand`; axes it does not have last.
    pub fn inner_first(&self, operand: OperandId, axes: &[AxisId]) -> Vec<AxisId> {
        let mut v = axes.to_vec();
        let key = |a: AxisId| match self.stride(operand, a) {
            0 => i64::MAX,
            s => s,
        };
        v.arrange_by_key(|&a| (key(a), std::cmp::Reverse(a)));
        v
    }

    /// Positions of `axis` in one tile.
    pub fn len(&self, schedule: &Schedule, axis: AxisId) -> i64 {
        schedule
            .tile(axis)
            .unwrap_or(i64::MAX)
            .min(self.extent(axis))
            .max(1)
    }

    /// Elements of one piece of `tile`.
    pub fn tile_points(&self, schedule: &Schedule, tile: TileId) -> i64 {
        self.kernel.tiles[tile as usize]
            .axes
            .iter()
            .fold(1i64, |p, &a| p.saturating_mul(self.len(schedule, a)))
    }

    /// Bytes of one piece of `tile`.
    pub fn tile_bytes(&self, schedule: &Schedule, tile: TileId) -> u64 {
        let n = self.tile_points(schedule, tile).max(0) as usize;
        let d = self.kernel.tiles[tile as usize].dtype;
        d.bytes_for(n).map_or(u64::MAX, |b| b as u64)
    }
}
