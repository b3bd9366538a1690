//! One entry under construction.

use super::group::Group;
use super::params::{Num, Params};
use super::text::{Reg, Text};
use crate::EmitError;
use kernel::{AxisId, GpuMapping, Kernel, OperandId, Schedule, TileId};
use std::collections::BTreeMap;

/// Registers that say which thread this is.
pub(crate) struct Ids {
    pub tid: Reg,
    pub lane: Reg,
    /// Warp's number along the rows and the columns.
    pub warp: [Reg; 2],
    /// lane / 4: the row of a fragment.
    pub quad: Reg,
    /// 2 * (lane % 4): the first column of a fragment.
    pub pair: Reg,
}

/// One entry under construction.
pub(crate) struct Emitter<'a> {
    pub kernel: &'a Kernel,
    pub schedule: &'a Schedule,
    pub map: &'a GpuMapping,
    pub t: Text,
    pub params: Params,
    pub ids: Ids,
    /// Coordinate at which the current piece of a cut axis begins.
    pub base: BTreeMap<AxisId, Reg>,
    /// The accumulators' rows.
    pub rows: Group,
    pub tiles: BTreeMap<TileId, Value>,
    pub staged: BTreeMap<TileId, Staged>,
    pub cache: Cache,
    /// Address of the CTA's shared memory.
    pub shared: Reg,
    /// Bytes of it given away.
    pub shared_bytes: u32,
    /// Stage that is read in the current loop.
    pub read_stage: Option<Reg>,
    /// Copies outside loops that nobody waited for.
    pub unwaited: bool,
    /// The statement at hand, for errors.
    pub at: String,
}

pub(crate) type Result<T> = std::result::Result<T, EmitError>;

pub(super) type Column = Option<(Group, u32)>;

/// Values that hold until the coordinates of a piece change.
#[derive(Default)]
pub(crate) struct Cache {
    pub(super) start: BTreeMap<Group, Reg>,
    pub(super) parts: BTreeMap<(Group, u32), Vec<Reg>>,
    pub(super) inside: BTreeMap<(Group, u32), Option<Reg>>,
    pub(super) rows: BTreeMap<(OperandId, Option<u32>), Reg>,
    pub(super) columns: BTreeMap<(OperandId, Group, u32), Option<Reg>>,
    pub(super) both: BTreeMap<(OperandId, Option<u32>, Group, u32), Reg>,
    /// Loaded elements by operand, row and column (left out where they do not matter).
    pub elements: BTreeMap<(OperandId, Option<u32>, Column), Reg>,
}

impl Cache {
    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Cache::default();
    }
}

/// Where a tile's elements are.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// In shared memory.
    Staged,
    /// In the operand's own memory: read where it is used.
    Loaded(OperandId),
    /// Registers of accumulator fragments: element `((mi * NI + ni) * 4 + h * 2 + j)`.
    Frag { columns: Group, regs: Vec<Reg> },
    /// One register per 8-row half (`mi * 2 + h`), the same in the four lanes of a row.
    Row(Vec<Reg>),
    /// One register.
    One(Reg),
}

/// A tile in shared memory: `outer` lines of `inner` f16 elements. The tile's last axis is the
/// innermost, so `inner` is the group that holds it: depth (k) or rows or columns (mn). An element
/// `outer * inner + i` of a stage lies at that number with the swizzle applied.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    /// Depth is innermost.
    pub k_inner: bool,
    pub inner: u32,
    pub stage_bytes: u32,
    pub stages: u32,
    /// Shared address of the line that this lane gives to ldmatrix, in stage 0.
    pub line: Reg,
    /// Byte within the line, swizzled.
    pub within: Reg,
}

/// One vector that a thread copies per piece.
pub(super) struct Vector {
    /// Global address for loop coordinates of 0.
    pub(super) from: Reg,
    /// Shared address in stage 0.
    pub(super) to: Reg,
    /// The thread takes part (a tile need not have a multiple of the threads' vectors).
    pub(super) part: Option<Reg>,
    /// Bounds that do not depend on loops.
    pub(super) always: Option<Reg>,
    /// In-tile parts of looped axes whose extent may end inside a piece.
    pub(super) ragged: Vec<(AxisId, Reg)>,
    /// For every bound of the access that depends on loops: its sum for loop coordinates of 0.
    pub(super) sums: Vec<(usize, Reg)>,
}

/// The copy of one operand's piece by all threads of the CTA.
pub(crate) struct Copy {
    pub(super) operand: OperandId,
    pub stages: u32,
    pub(super) stage_bytes: u32,
    pub(super) bytes: u32,
    pub(super) vectors: Vec<Vector>,
    /// Strides of looped axes, in elements.
    pub(super) looped: Vec<(AxisId, Num)>,
}
