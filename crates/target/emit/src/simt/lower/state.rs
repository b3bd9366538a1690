//! What a lowering knows while it goes through a tile program.

use super::groups::Group;
use crate::EmitError;
use crate::simt::build::Build;
use crate::simt::ir::{Buffer, Reg, SharedArray, Tensor, Var};
use expr::Scalar;
use kernel::{
    AxisId, AxisTile, GpuMapping, Kernel, OperandId, Schedule, Spread, Stmt, Swizzle, TileId,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(crate) type Result<T> = std::result::Result<T, EmitError>;

/// What a target can do beyond the common ground.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caps {
    /// Threads that can exchange values directly: aligned groups of this size; 0 for none.
    pub shuffle: u32,
    /// Whether copies to shared memory go on beside what follows.
    pub copies: bool,
    /// Whether four warps multiply factors that lie in shared memory.
    pub warpgroups: bool,
    /// Whether a kernel waits for those before it by itself, and says when the one behind it may be launched.
    pub dependents: bool,
}

/// By tile and axis what elements beyond the axis' end are.
pub(super) type Known = BTreeMap<(TileId, AxisId), Scalar>;

/// What is known beyond the end of axes.
#[derive(Default)]
pub(super) struct Beyond {
    pub(super) known: Known,
    /// Tiles whose maker sets it.
    pub(super) set: BTreeMap<TileId, (AxisId, f64)>,
}

/// An axis in the task at hand.
#[derive(Clone)]
pub(super) struct Axis {
    /// Positions of a piece at most, when known.
    pub(super) bound: Option<i64>,
    /// Whether every piece has exactly that many.
    pub(super) full: bool,
    /// Coordinate of the piece's first position.
    pub(super) base: Reg,
    /// Positions of the piece.
    pub(super) len: Reg,
    pub(super) spread: Spread,
    /// This thread's number along the axis.
    pub(super) thread: Reg,
    /// The group that it is in: then lanes of matrix instructions have its positions.
    pub(super) group: Option<usize>,
}

/// A loop over pieces of an axis: those from the first that the task's rows see on.
#[derive(Clone, Copy)]
pub(super) struct Cut {
    pub(super) tile: AxisTile,
    /// Number of the first piece.
    pub(super) first: Reg,
    /// How many there are.
    pub(super) count: Reg,
}

impl Axis {
    /// Positions that a thread has, when known.
    pub(super) fn own(&self) -> Option<i64> {
        let (count, each) = (i64::from(self.spread.count), i64::from(self.spread.each));
        self.bound
            .map(|b| (b + count * each - 1) / (count * each) * each)
    }
}

pub(super) struct Lower<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) schedule: &'a Schedule,
    /// As for the threads that compute, without those that only copy.
    pub(super) map: &'a GpuMapping,
    /// Warps that only copy, and registers of each thread that computes and of each of these.
    pub(super) copiers: u32,
    /// The task at hand, where a CTA walks tasks.
    pub(super) walk: Option<Reg>,
    pub(super) shared_out: [u32; 2],
    /// This thread's number in its warp, where that copies by itself.
    pub(super) copier: Option<Reg>,
    pub(super) caps: Caps,
    pub(super) buffers: Vec<Buffer>,
    pub(super) b: Build,
    pub(super) axes: Vec<Axis>,
    pub(super) groups: Vec<Group>,
    pub(super) homes: Vec<Rc<TileStorage>>,
    /// Of each operand how the CTAs of a cluster keep it, where they do.
    pub(super) kept: Vec<Option<KeptArray>>,
    /// Axes that each operand's accesses depend on.
    pub(super) depends: Vec<Vec<AxisId>>,
    pub(super) shared: Vec<SharedArray>,
    /// Operands as tensors, of which boxes are copied.
    pub(super) tensors: Vec<Tensor>,
    pub(super) thread: Reg,
    /// Whether copies to shared memory go on beside what follows, where the target has such.
    pub(super) ahead: bool,
    /// Shared tiles that are 0 where positions do not exist.
    pub(super) zeroed: BTreeSet<TileId>,
    /// What is known of elements at positions that do not exist.
    pub(super) beyond: Beyond,
    /// The stage that is read in the loop at hand.
    pub(super) stage: Option<Reg>,
    /// Whether the products of a piece are under way while the next one's begin.
    pub(super) products_ahead: bool,
    /// Whether there are copies under way that are not those of a ring of stages.
    pub(super) copying: bool,
    /// Shared arrays written, and read, since the last barrier.
    pub(super) written: BTreeSet<u32>,
    pub(super) read: BTreeSet<u32>,
    pub(super) faults: Vec<String>,
    /// The statement at hand, for errors.
    pub(super) at: String,
}

/// An operand of which each CTA of a cluster keeps a part.
pub(super) struct KeptArray {
    pub array: u32,
    /// The axis of the parts.
    pub part: AxisId,
    /// The element, of the operand as it is kept, of the first position that the cluster has, where it is not 0.
    pub first: Option<Reg>,
}

/// A position: per axis its coordinate, its number among the thread's own positions where that is
/// known, and whether it exists where that is not certain.
#[derive(Clone)]
pub(super) struct At {
    pub coord: Vec<Reg>,
    pub slot: Vec<Option<i64>>,
    pub valid: Vec<Option<Reg>>,
    /// The neighbours that it is one of, along each axis that has some.
    pub runs: Vec<Run>,
}

/// Which of a thread's neighbours along an axis a position is.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub axis: AxisId,
    /// Its number among them.
    pub number: i64,
    /// How many there are.
    pub of: i64,
    /// Coordinate of the first, and whether that exists where it is not certain.
    pub first: (Reg, Option<Reg>),
    /// Whether they are gone through one after the other, with nothing in between.
    pub innermost: bool,
}

/// Where a tile is.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // A kernel has a handful of tiles.
pub(super) enum TileStorage {
    /// No statement makes it.
    None,
    /// The operand's own memory.
    Memory(OperandId),
    /// Variables, one per element that this thread has; positions per axis.
    Held { vars: Vec<Var>, own: Vec<i64> },
    /// A shared array.
    Shared(Rc<SharedTile>),
    /// What this statement gives.
    Formula(Stmt),
}

impl SharedTile {
    /// How many lines follow each other along the last axes.
    pub(super) fn panels(&self) -> i64 {
        let inner = self.axes.last().map_or(1, |a| a.1);
        (inner / self.line.max(1)).max(1)
    }

    /// Lines of a panel.
    pub(super) fn lines(&self) -> i64 {
        self.elements / (self.line * self.panels()).max(1)
    }

    /// Its axes' positions as elements follow each other, outermost first: with the panels in front where there are some.
    pub(super) fn sizes(&self) -> Vec<i64> {
        let mut sizes: Vec<i64> = self.axes.iter().map(|a| a.1).collect();
        if let (n @ 2.., Some(last)) = (self.panels(), sizes.last_mut()) {
            *last = self.line;
            sizes.insert(0, n);
        }
        sizes
    }

    /// Whether the swizzle changes places within lines that are one axis, by bits of the line's number alone.
    pub(super) fn moves_in_lines(&self) -> bool {
        let s = self.swizzle;
        let one = self.axes.last().is_some_and(|a| a.1 == self.line);
        let below = 1i64
            .checked_shl(s.base + s.bits)
            .is_some_and(|n| n <= self.line);
        let above = 1i64
            .checked_shl(s.base + s.shift)
            .is_some_and(|n| self.line <= n);
        s.bits > 0 && one && below && above && self.line.count_ones() == 1
    }
}

/// How a tile lies in shared memory.
pub(super) struct SharedTile {
    pub array: u32,
    /// Its axes with their positions, outermost first.
    pub axes: Vec<(AxisId, i64)>,
    /// Elements of a line: of the last axes that a contraction sees as one. Where these have more of them than warpgroups
    /// read in a line, the lines of all positions of the others stand behind each other, and behind these the next ones.
    pub line: i64,
    pub swizzle: Swizzle,
    /// How many of it there are, for copies that run ahead, and the elements of one.
    pub stages: u32,
    pub elements: i64,
    /// Whether it lies as its operand does, in lines of 16 bytes ([`kernel::Access::image`]).
    pub image: bool,
    /// Whether a warp brings it by copies of boxes ([`kernel::Access::tensor`]).
    pub boxes: bool,
}
