//! The form between tile programs and the text of a GPU: what one thread of a CTA does, in values,
//! variables, loops and barriers, and what the threads of a warp or a CTA do together, without any
//! target's words.
use expr::{Binary, Compare, Unary};
use kernel::{Fragment, OperandId, Swizzle, TensorView};
use layout::{DType, Dim};

/// A value: defined once, seen in the rest of its block.
pub type Reg = u32;
/// A variable: zero at the start of a task, set anywhere.
pub type Var = u32;

/// What a value is held as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Ty {
    Bool,
    I32,
    U32,
    I64,
    F32,
    F64,
}

impl Ty {
    /// How an element of type `d` is held: narrow floats in f32, narrow integers in 32 bits; `None` for what
    /// no thread holds.
    pub fn of(d: DType) -> Option<Ty> {
        Some(match d {
            DType::F32 | DType::F16 | DType::BF16 => Ty::F32,
            DType::F64 => Ty::F64,
            DType::I4 | DType::I8 | DType::I16 | DType::I32 => Ty::I32,
            DType::U4 | DType::U8 | DType::U16 | DType::U32 => Ty::U32,
            DType::I64 => Ty::I64,
            DType::Bool => Ty::Bool,
            // Order, quotients and conversions of these differ from those of i64.
            DType::U64 => return None,
            DType::Str | DType::Host => return None,
        })
    }

    /// True for f32 and f64.
    pub fn is_float(self) -> bool {
        matches!(self, Ty::F32 | Ty::F64)
    }
}

/// What makes a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Bits of a constant: of an f64 for floats, else of an i64.
    Const(u64),
    /// Thread of the CTA, from 0 (I32).
    Thread,
    /// Task (I32); the first one where a CTA walks tasks.
    Task,
    /// Value of [`Program::dims`] number so and so (I32 or I64).
    Dim(u32),
    /// The variable's present value.
    Get(Var),
    /// A function; argument and result are of one type, `IsNan` and `IsInf` give a Bool.
    Unary(Unary, Reg),
    /// `2^x` of an F32, within `2^-22` of it; what is no normal number may be 0.
    Power(Reg),
    /// A function of two values of the result's type; shifts are by less than the width, right
    /// ones logical; divisors are not 0.
    Binary(Binary, Reg, Reg),
    /// A comparison of two values of one type; the result is a Bool.
    Compare(Compare, Reg, Reg),
    /// `if 0 then 1 else 2`.
    Select(Reg, Reg, Reg),
    /// `0 * 1 + 2`, rounded once or twice as the target likes.
    MulAdd(Reg, Reg, Reg),
    /// Conversion to the result's type: floats to integers truncate and saturate, integers keep
    /// their low bits.
    Convert(Reg),
    /// The bits as the result's type of the same width.
    Bits(Reg),
    /// The value rounded to f16 or bf16, or wrapped to a narrow integer, held as before.
    Narrow(DType, Reg),
    /// An element of an operand; 0 where the guard is false.
    Load {
        /// Operand.
        operand: OperandId,
        /// Element (I32).
        index: Reg,
        /// Bool.
        guard: Option<Reg>,
    },
    /// An element of a shared array.
    LoadShared {
        /// Index into [`Program::shared`].
        array: u32,
        /// Element (I32).
        index: Reg,
    },
    /// The value that the thread has whose number differs by `mask`, of the same warp.
    Shuffle(Reg, u32),
    /// Whether the truth value holds in any thread of the warp. Stands where whole warps come by, and asks for what
    /// is rare.
    AnyLane(Reg),
    /// Two f32 values rounded to f16 or bf16 in one word (U32), the first in its lower half.
    Pack(DType, Reg, Reg),
    /// Numbers of bf16 near two f32 values in one word (U32), the first in its lower half: one of the two on either side,
    /// in the mean the f32 itself. What is finite stays finite.
    PackNear(Reg, Reg),
    /// One of the two f16 of a word (U32), the first or the second, as an f32.
    Half(Reg, bool),
    /// The difference or the product of two words (U32) of two f16 each, rounded once.
    Halves(Binary, Reg, Reg),
}

/// A factor of a warpgroup's product in shared memory: blocks of eight lines that lie along the depth, of one
/// instruction's depth or more, or of 16 bytes, without a swizzle, several of which follow each other. The lines of a
/// right factor of 16 bits may lie across the depth: each has columns of one depth, and several that follow each other
/// have all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lines {
    /// Index into [`Program::shared`].
    pub array: u32,
    /// First element, without the swizzle (I32), the same for all threads of a warpgroup.
    pub index: Reg,
    /// Elements of a line: 16, 32, 64 or 128 bytes.
    pub line: u32,
    /// Elements between the first ones of neighbouring blocks.
    pub pitch: u32,
    /// Elements between the first ones of lines that follow each other: along the depth where a line is 16 bytes, along
    /// the columns of lines across the depth.
    pub beyond: u32,
    /// Whether lines lie across the depth.
    pub across: bool,
    /// How elements of the array change places.
    pub swizzle: Swizzle,
}

/// Where the left factor of a warpgroup's product is.
#[derive(Clone, Debug, PartialEq)]
pub enum LeftFactor {
    /// In shared memory, in lines that are its rows.
    Lines(Lines),
    /// Words (U32) that this thread has of its warp's 16 rows: f32 of which the lower 13 bits are as if they were 0, of
    /// rows `lane / 4` and the eighth further on at depth `lane % 4`, then of both at the fourth depth further on. Words
    /// of elements of 16 bits have two neighbours in place of each. They stay as they are until the warpgroup has waited
    /// for the product.
    Words([Reg; 4]),
}

/// Products of warpgroups, which go on beside what follows. They stand where whole warpgroups come by.
#[derive(Clone, Debug, PartialEq)]
pub enum Warpgroup {
    /// What the thread wrote to shared memory, itself or by copies that it waited for, is seen by products behind the
    /// next barrier. Stands anywhere.
    ProxyFence,
    /// Sums, as they were written before, are seen by products.
    Fence,
    /// Begins to add the product of two factors to sums: they are there, and the factors may be written, when the
    /// warpgroup has waited for the group that the product is in.
    Multiply {
        /// Shape and types.
        fragment: Fragment,
        /// Sums of this thread (F32): two neighbours of row `lane / 4` of its warp's 16 rows, two of the eighth row
        /// further on, and so for every eight columns.
        sums: Vec<Var>,
        /// Whether the sums are those of this product alone, whatever they were.
        fresh: bool,
        /// The left factor, which has the rows.
        a: LeftFactor,
        /// Lines of the right factor, which are columns.
        b: Lines,
    },
    /// The products since the last such instruction are a group.
    Commit,
    /// Waits until at most so many groups of products are under way.
    Wait(u32),
}

/// Pieces that pass through stages of shared memory: the last warps of the CTA copy them in turns
/// ([`Pipeline::turns`]), each piece as soon as its stage is free; all other threads compute with them, one piece after the other, as soon as it
/// is there.
///
/// The body begins with values of all threads; it has two [`Inst::Side`]s, the first of those that copy. What follows
/// that, between the sides and to the end of the body, is of the threads that compute alone: where it says
/// [`Inst::Barrier`] those meet.
///
/// Where a CTA walks tasks ([`Pipeline::walk`]) the body is gone through for one task after the other, by those that copy
/// and by those that compute at a pace of their own: stages, and the order of the warps that copy, go on from task to
/// task, so that pieces of the next task come while the last one's results are stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline {
    /// The task at hand (I32), which the body sees, where CTAs walk tasks as far apart as there are CTAs.
    pub walk: Option<Reg>,
    /// Number of pieces of a task (I32), the same for all threads and all tasks.
    pub pieces: Reg,
    /// Stages: the piece that is copied as number `n` by the CTA is in the one of number `n` modulo these.
    pub stages: u32,
    /// Pieces whose products may be under way when the products of the next one have begun: a stage is free again so
    /// many pieces later, or at [`Inst::Freed`].
    pub behind: u32,
    /// Warps that copy.
    pub copiers: u32,
    /// Index into [`Program::shared`]: for each stage what is counted until it is there, then for each stage what is
    /// counted until it is free.
    pub barriers: u32,
    /// Registers of each thread that computes and of each that copies, from here on.
    pub registers: [u32; 2],
    /// CTAs of a cluster that copy to each other's stages: one is free when the threads that compute of all of them say so.
    pub among: u32,
}

impl Pipeline {
    /// Warps that copy in turns: no more than there are stages. A barrier says which of two phases it is in; a warp whose
    /// next piece lies two rounds of stages further on would take the phase before the one that it waits for for it.
    pub fn turns(&self) -> u32 {
        self.copiers.min(self.stages).max(1)
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Inst {
    /// Defines a value.
    Let(Reg, Op),
    /// Sets a variable.
    Set(Var, Reg),
    /// Several neighbouring elements of an operand from `index` on, at once.
    LoadRun {
        /// Defined values.
        dst: Vec<Reg>,
        /// Operand.
        operand: OperandId,
        /// First element, on a multiple of their number.
        index: Reg,
        /// All or none; 0 where it is false.
        guard: Option<Reg>,
    },
    /// Several neighbouring elements of a shared array from `index` on, at once.
    LoadSharedRun {
        /// Defined values.
        dst: Vec<Reg>,
        /// Index into [`Program::shared`].
        array: u32,
        /// First element, on a multiple of their number.
        index: Reg,
    },
    /// Writes neighbouring elements of an operand where the guard holds.
    Store {
        /// Operand.
        operand: OperandId,
        /// First element (I32), on a multiple of their number.
        index: Reg,
        /// What is written: one value, or as many as are written at once, or words (U32) of two floats of 16 bits.
        values: Vec<Reg>,
        /// Bool.
        guard: Option<Reg>,
    },
    /// Writes neighbouring elements of a shared array.
    StoreShared {
        /// Index into [`Program::shared`].
        array: u32,
        /// First element (I32), on a multiple of their number.
        index: Reg,
        /// What is written.
        values: Vec<Reg>,
    },
    /// Several neighbouring elements of a shared array of a CTA of the cluster, from `index` on, at once.
    LoadPart {
        /// Defined values.
        dst: Vec<Reg>,
        /// Index into [`Program::shared`].
        array: u32,
        /// The CTA's number in the cluster (I32).
        rank: Reg,
        /// First element, on a multiple of their number.
        index: Reg,
        /// All or none; 0 where it is false.
        guard: Option<Reg>,
    },
    /// `for i in (from..to).step_by(step)`, all I32.
    For {
        /// The counter.
        i: Reg,
        /// First value.
        from: Reg,
        /// End, exclusive.
        to: Reg,
        /// At least 1.
        step: Reg,
        /// Body.
        body: Vec<Inst>,
    },
    /// Runs `body` where `cond` holds.
    If {
        /// Bool.
        cond: Reg,
        /// Body.
        body: Vec<Inst>,
    },
    /// Copies neighbouring elements of an operand to a shared array of its type, beside what follows: they
    /// are there when the thread has waited for the group that the copy is in.
    Copy {
        /// Index into [`Program::shared`].
        array: u32,
        /// First element there (I32), on a multiple of their number.
        to: Reg,
        /// Operand.
        operand: OperandId,
        /// First element (I32), on a multiple of their number.
        index: Reg,
        /// Their number: 4, 8 or 16 bytes.
        elements: u32,
        /// All or none; zeros where it is false.
        guard: Option<Reg>,
    },
    /// One thread of the warp copies a run of elements of an operand to a shared array of its type, beside what follows:
    /// they are there when the stage is that the [`Inst::Side`] around it fills.
    Bulk {
        /// Index into [`Program::shared`].
        array: u32,
        /// First element there (I32), on a multiple of 16 bytes.
        to: Reg,
        /// Operand.
        operand: OperandId,
        /// First element (I32), on a multiple of 16 bytes.
        index: Reg,
        /// Their number, a multiple of 16 bytes.
        elements: u32,
        /// CTAs of a cluster that copy it together: each its share, in the order of their ranks, to all of them; 1: each CTA
        /// copies all of it for itself.
        among: u32,
    },
    /// One thread of the warp copies a box of an operand as a tensor to a shared array of its type, beside what follows:
    /// it is there when the stage is that the [`Inst::Side`] around it fills. Elements outside of the tensor are zeros.
    Box {
        /// Index into [`Program::shared`].
        array: u32,
        /// First element there (I32), on a multiple of 128 bytes.
        to: Reg,
        /// Operand.
        operand: OperandId,
        /// Index into [`Program::tensors`], of that operand.
        tensor: u32,
        /// The box' first coordinate along each dimension, the innermost first (I32).
        at: Vec<Reg>,
    },
    /// The thread's copies since the last such instruction are a group.
    Commit,
    /// Waits until at most so many of the thread's groups are under way.
    Wait(u32),
    /// Four blocks of eight lines of 16 bytes of a shared array, as a warp's fragments: the lines begin where lanes
    /// 0 to 7, 8 to 15, 16 to 23 and 24 to 31 say. Lane `l` gets word `l % 4` of line `l / 4` of each block, or,
    /// transposed, which is for elements of 16 bits, elements `2 (l % 4)` and the next of that column.
    LoadMatrix {
        /// Defined words (U32), one per block.
        dst: [Reg; 4],
        /// Index into [`Program::shared`].
        array: u32,
        /// First element of this lane's line (I32).
        index: Reg,
        /// Whether lines become columns.
        transposed: bool,
    },
    /// A warp adds the product of two fragments to its sums. Stands where whole warps come by.
    Multiply {
        /// Shape and types.
        fragment: Fragment,
        /// Sums of this thread (F32).
        sums: [Var; 4],
        /// Words of the left factor (U32): pairs of elements of 16 bits, or f32 of which the lower 13 bits are as if
        /// they were 0.
        a: [Reg; 4],
        /// Words of the right factor (U32).
        b: [Reg; 2],
    },
    /// What a warpgroup does together, beside what follows.
    Warpgroup(Warpgroup),
    /// Copies ahead by warps of their own. Stands where all come by; all meet before it.
    Pipeline {
        /// How.
        pipeline: Pipeline,
        /// What all do, both sides, and what follows.
        body: Vec<Inst>,
    },
    /// What is done for each piece of the [`Inst::Pipeline`] around it, by a warp that copies or by all others.
    Side {
        /// Number of the piece among those of the task (I32).
        piece: Reg,
        /// The stage that it is in (I32).
        stage: Reg,
        /// Body.
        body: Vec<Inst>,
    },
    /// No product of the task's pieces is under way any more: the stages that were kept are free for the next task's.
    /// Stands behind the second side, where CTAs walk tasks.
    Freed,
    /// All threads of the CTA meet; shared memory is seen by all. Stands where all come by.
    Barrier,
    /// Says that the thread is here to all that compute of the cluster's CTAs: what it wrote to shared memory before is seen
    /// by those that have waited, and what it read of others' is read. Stands where all that compute come by, in a program
    /// twice.
    ClusterArrive,
    /// Waits until all of those are where [`Inst::ClusterArrive`] says so.
    ClusterWait,
    /// The thread waits until the kernels before this one are over, and then sees what they wrote. Before it, threads
    /// touch only constants ([`Buffer::constant`]). All threads, or all of a side, execute it.
    DependencyWait,
    /// This CTA allows the next kernel to start. Follows [`Inst::DependencyWait`], so that all kernels before this one are
    /// over when the next one starts: at most two kernels run at once, and a kernel that has waited may
    /// overwrite what was read or written two kernels ago.
    LaunchDependents,
    /// Says that the request is wrong where `cond` holds: fault number `code` of
    /// [`Program::faults`].
    Fault {
        /// Bool.
        cond: Reg,
        /// Which.
        code: u32,
    },
}

impl Program {
    /// Elements of an operand that each of `values` is in an [`Inst::Store`].
    pub fn in_each(&self, operand: OperandId, values: &[Reg]) -> usize {
        let d = self.operands.get(operand as usize).map(|o| o.dtype);
        let ty = values.first().and_then(|&r| self.regs.get(r as usize));
        match (d, ty) {
            (Some(DType::F16 | DType::BF16), Some(Ty::U32)) => 2,
            _ => 1,
        }
    }
}

impl Op {
    /// Calls `f` with the values that it reads, and whether each is an element's number.
    pub fn reads(&self, f: &mut impl FnMut(Reg, bool)) {
        match *self {
            Op::Const(_) | Op::Thread | Op::Task | Op::Dim(_) | Op::Get(_) => {}
            Op::Unary(_, x)
            | Op::Power(x)
            | Op::Convert(x)
            | Op::Bits(x)
            | Op::Narrow(_, x)
            | Op::AnyLane(x)
            | Op::Half(x, _)
            | Op::Shuffle(x, _) => f(x, false),
            Op::Binary(_, x, y)
            | Op::Compare(_, x, y)
            | Op::Pack(_, x, y)
            | Op::PackNear(x, y)
            | Op::Halves(_, x, y) => {
                f(x, false);
                f(y, false);
            }
            Op::Select(x, y, z) | Op::MulAdd(x, y, z) => {
                f(x, false);
                f(y, false);
                f(z, false);
            }
            Op::Load { index, guard, .. } => {
                f(index, true);
                guard.iter().for_each(|&g| f(g, false));
            }
            Op::LoadShared { index, .. } => f(index, true),
        }
    }
}

impl Inst {
    /// Calls `f` with the values that it reads itself, without those of its body, and whether each is an
    /// element's number.
    pub fn reads(&self, f: &mut impl FnMut(Reg, bool)) {
        let all = |list: &[Reg], f: &mut dyn FnMut(Reg, bool)| {
            list.iter().for_each(|&r| f(r, false));
        };
        match self {
            Inst::Let(_, op) => op.reads(f),
            Inst::Set(_, r) => f(*r, false),
            Inst::LoadRun { index, guard, .. } => {
                f(*index, true);
                all(guard.as_slice(), f);
            }
            Inst::LoadSharedRun { index, .. } | Inst::LoadMatrix { index, .. } => f(*index, true),
            Inst::LoadPart {
                rank, index, guard, ..
            } => {
                f(*index, true);
                f(*rank, false);
                all(guard.as_slice(), f);
            }
            Inst::Store {
                index,
                values,
                guard,
                ..
            } => {
                f(*index, true);
                all(values, f);
                all(guard.as_slice(), f);
            }
            Inst::StoreShared { index, values, .. } => {
                f(*index, true);
                all(values, f);
            }
            Inst::Copy {
                to, index, guard, ..
            } => {
                f(*to, true);
                f(*index, true);
                all(guard.as_slice(), f);
            }
            Inst::Bulk { to, index, .. } => {
                f(*to, true);
                f(*index, true);
            }
            Inst::Box { to, at, .. } => {
                f(*to, true);
                all(at, f);
            }
            Inst::Multiply { a, b, .. } => {
                all(a, f);
                all(b, f);
            }
            Inst::Warpgroup(Warpgroup::Multiply { a, b, .. }) => {
                match a {
                    LeftFactor::Lines(a) => f(a.index, true),
                    LeftFactor::Words(a) => all(a, f),
                }
                f(b.index, true);
            }
            Inst::For { from, to, step, .. } => all(&[*from, *to, *step], f),
            Inst::If { cond, .. } | Inst::Fault { cond, .. } => f(*cond, false),
            Inst::Pipeline { pipeline, .. } => f(pipeline.pieces, false),
            Inst::Commit
            | Inst::Wait(_)
            | Inst::Warpgroup(_)
            | Inst::Barrier
            | Inst::ClusterArrive
            | Inst::ClusterWait
            | Inst::DependencyWait
            | Inst::LaunchDependents
            | Inst::Freed
            | Inst::Side { .. } => {}
        }
    }

    /// Calls `f` with the variables that it reads or sets, and those of its body.
    pub fn vars(&self, f: &mut impl FnMut(Var)) {
        match self {
            Inst::Let(_, Op::Get(v)) | Inst::Set(v, _) => f(*v),
            Inst::Multiply { sums, .. } => sums.iter().for_each(|&v| f(v)),
            Inst::Warpgroup(Warpgroup::Multiply { sums, .. }) => sums.iter().for_each(|&v| f(v)),
            i => i.body().iter().for_each(|i| i.vars(f)),
        }
    }

    /// Its body; nothing where it has none.
    pub fn body(&self) -> &[Inst] {
        match self {
            Inst::For { body, .. }
            | Inst::If { body, .. }
            | Inst::Pipeline { body, .. }
            | Inst::Side { body, .. } => body,
            _ => &[],
        }
    }

    /// The instructions inside this one, where it has a body.
    pub fn body_mut(&mut self) -> Option<&mut Vec<Inst>> {
        match self {
            Inst::For { body, .. }
            | Inst::If { body, .. }
            | Inst::Pipeline { body, .. }
            | Inst::Side { body, .. } => Some(body),
            _ => None,
        }
    }
}

/// Memory shared by a CTA.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedArray {
    /// Name for people.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Number of its elements.
    pub elements: u32,
}

/// An operand as memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    /// Name for people.
    pub name: String,
    /// Type of its elements.
    pub dtype: DType,
    /// Whether it is stored to.
    pub written: bool,
    /// Whether nothing writes it while requests run.
    pub constant: bool,
}

/// An operand as a tensor, boxes of which are copied. All extents and strides are known numbers or among
/// [`Program::dims`].
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Operand.
    pub operand: OperandId,
    /// Its dimensions, with those of a box.
    pub view: TensorView,
    /// How a box' elements change places in shared memory.
    pub swizzle: Swizzle,
    /// CTAs of a cluster that copy a box together, as those of an [`Inst::Bulk`] do ([`TensorView::share`]).
    pub among: u32,
}

/// What every thread of every CTA does.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Name for people.
    pub name: String,
    /// Threads per CTA.
    pub threads: u32,
    /// Registers per thread that the schedule asks for; `None`: as many as it takes.
    pub registers: Option<u32>,
    /// Type of every value.
    pub regs: Vec<Ty>,
    /// Type of every variable.
    pub vars: Vec<Ty>,
    /// Shared memory.
    pub shared: Vec<SharedArray>,
    /// Numbers given at launch.
    pub dims: Vec<Dim>,
    /// Operands in the kernel's order.
    pub operands: Vec<Buffer>,
    /// Operands as tensors, of which boxes are copied.
    pub tensors: Vec<Tensor>,
    /// Number of tasks.
    pub tasks: Dim,
    /// CTAs of a launch at most, each of which walks tasks so many apart; 0: one per task.
    pub walkers: u32,
    /// CTAs of a cluster, which have neighbouring tasks and as many pieces of each; 1: none.
    pub cluster: u32,
    /// Reasons of faults.
    pub faults: Vec<String>,
    /// Instructions.
    pub body: Vec<Inst>,
}
