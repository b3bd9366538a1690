//! Ways to run a kernel, and the one chosen.

use kernel::{Access, AxisId, Kernel, Operand, OperandId, Role, Schedule, TileId, TileProgram};
use layout::DType;
use machine::{Cost, Work};
use std::sync::Arc;

/// A way to run a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Short description.
    pub what: String,
    /// The kernel with accesses as this way wants them.
    pub kernel: Arc<Kernel>,
    /// How.
    pub schedule: Arc<Schedule>,
    /// Operands that are read from a packed copy.
    pub packed: Vec<(OperandId, Packed)>,
}

/// Differences that a name tells.
const TOLD: usize = 3;

impl Candidate {
    /// What it is called beside `chosen`: where both have one name, with what its tile program says otherwise.
    pub fn beside(&self, chosen: &Candidate) -> String {
        if self.what != chosen.what {
            return self.what.clone();
        }
        let parts = |c: &Candidate| -> Vec<String> {
            let program = TileProgram::new(c.kernel.clone(), c.schedule.clone());
            let text = program.map_or_else(|_| String::new(), |p| p.to_string());
            let all = text.lines().flat_map(|l| l.split(", "));
            all.map(|part| part.trim().to_string()).collect()
        };
        let known = parts(chosen);
        let mut other = parts(self);
        other.retain(|part| !known.contains(part));
        other.dedup();
        other.truncate(TOLD);
        match other.is_empty() {
            true => self.what.clone(),
            false => format!("{}, with {}", self.what, other.join(", ")),
        }
    }

    /// Tasks must not share bytes: where they would, one task does all that they did, in their order.
    pub fn bytes_of_one_task(&mut self) {
        let shared = |o: &Operand| {
            let writes = o.role == Role::Write && o.dtype.bits() < 8;
            writes && !kernel::whole_bytes(&self.kernel, &self.schedule, o)
        };
        if self.kernel.operands.iter().any(shared) {
            let s = Arc::make_mut(&mut self.schedule);
            let tasks = std::mem::take(&mut s.grid);
            s.loops.splice(0..0, tasks);
        }
    }
}

/// The way chosen, with its prediction.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub kernel: Arc<Kernel>,
    pub schedule: Arc<Schedule>,
    pub packed: Vec<(OperandId, Packed)>,
    /// The step before it, where the kernel is the sum of parts.
    pub parts: Option<Box<Parts>>,
    pub work: Work,
    pub cost: Cost,
    /// The schedule is that of another box.
    pub taken: bool,
}

/// What is compared, the candidate's number in `list`, its work and its cost.
pub(super) type Rank = (f64, usize, Work, Cost);

/// One of the two steps.
#[derive(Clone, Debug)]
pub(crate) struct Half {
    pub kernel: Arc<Kernel>,
    pub schedule: Arc<kernel::Schedule>,
    pub work: Work,
    pub cost: Cost,
}

/// What runs before a step that adds up parts.
#[derive(Clone, Debug)]
pub(crate) struct Parts {
    /// What is summed, in parts.
    pub first: Half,
    /// The axis that was cut, and into how many.
    pub(super) cut: (AxisId, i64),
    /// Operands of the first and of the second step.
    pub args: [Vec<Arg>; 2],
    /// Elements and type of each tensor between them.
    pub between: Vec<(i64, DType)>,
    /// Seconds that both steps take, in one launch where that is less.
    pub seconds: f64,
}

/// An operand of one of two steps.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arg {
    /// This operand of the whole kernel.
    Whole(OperandId),
    /// This one of the tensors between the two.
    Between(usize),
}

/// A packed copy of an operand.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    /// The operand of the kernel as it is given that holds what is copied; several copies may be of one.
    pub of: OperandId,
    /// Addressing of the copy, by the axes of the reading kernel.
    pub access: Access,
    /// Elements of the copy, padding included.
    pub elements: i64,
    /// The move that makes it: operand 0 is the constant, operand 1 the copy.
    pub kernel: Arc<Kernel>,
    /// How that move runs.
    pub schedule: Arc<Schedule>,
}

impl Packed {
    /// The type of the copy's elements.
    pub fn dtype(&self) -> DType {
        self.kernel.operands[1].dtype
    }
}

/// A factor that is to be an image of so many lines, or what it is made of is.
#[derive(Clone, Copy)]
pub(super) struct Image {
    /// What products read.
    pub tile: TileId,
    pub lines: i64,
    /// The summed axis along which its lines lie.
    pub along: AxisId,
}

/// A right factor that threads make of numbers of 4 bits, in registers, for matrix instructions.
#[derive(Clone, Copy)]
pub(super) struct Widened {
    /// What products read.
    pub tile: TileId,
    /// The summed axis along which the numbers and the left factor lie.
    pub along: AxisId,
}

impl Image {
    /// Whether `tile` is copied as it lies: the factor, or a part of it.
    pub fn has(&self, kernel: &Kernel, tile: TileId) -> bool {
        kernel.made_of_part(tile) == self.tile
    }
}
