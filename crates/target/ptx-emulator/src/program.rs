//! What a warp executes: a compact array of instructions with every name resolved.

use crate::counters::Class;
use crate::parse::ast::{Space, Ty};
use crate::sm90::Sm90;

/// A register or constant row: an index, [`CONST`] set for constants.
pub(crate) type R = u32;
/// Marks an index into the constant rows.
pub(crate) const CONST: u32 = 1 << 31;
/// No register: results go nowhere.
pub(crate) const SINK: u32 = u32::MAX;
/// No guard.
pub(crate) const ALWAYS: u32 = u32::MAX;

/// Two-operand integer functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum I2 {
    Add,
    Sub,
    Mul,
    MulHiU,
    MulHiS,
    DivU,
    DivS,
    RemU,
    RemS,
    MinU,
    MinS,
    MaxU,
    MaxS,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
    AddSat,
    SubSat,
    Mul24U,
    Mul24S,
    Mul24HiU,
    Mul24HiS,
}

/// One-operand integer functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum I1 {
    Not,
    Neg,
    Abs,
    Cnot,
    Popc,
    Clz,
    Brev,
    FindU,
    FindS,
    FindShiftU,
    FindShiftS,
}

/// Three-operand integer functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum I3 {
    MadLo,
    MadHiU,
    MadHiS,
    MadHiSat,
    Mad24U,
    Mad24S,
    SadU,
    SadS,
    BfeU,
    BfeS,
    Lop3(u8),
    Prmt(Prmt),
    ShfLeftWrap,
    ShfLeftClamp,
    ShfRightWrap,
    ShfRightClamp,
    Dp4a(bool, bool),
    Slct,
}

/// Modes of `prmt`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prmt {
    Index,
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// Roundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rnd {
    /// To nearest, ties to even.
    #[default]
    Near,
    /// Towards zero.
    Zero,
    /// Towards minus infinity.
    Down,
    /// Towards plus infinity.
    Up,
    /// To nearest, ties away from zero.
    Away,
}

/// How a floating-point instruction rounds and clips.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Mode {
    pub rnd: Rnd,
    pub ftz: bool,
    pub sat: bool,
    /// `.relu` of fma and cvt.
    pub relu: bool,
    /// `.NaN` of min and max.
    pub nan: bool,
    /// `.abs` of min and max.
    pub abs: bool,
    /// `.xorsign` of min and max.
    pub xorsign: bool,
}

/// Two-operand floating-point functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum F2 {
    Add,
    Sub,
    Mul,
    Div,
    Min,
    Max,
    Copysign,
}

/// One-operand floating-point functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum F1 {
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Rcp,
    Ex2,
    Lg2,
    Sin,
    Cos,
    Tanh,
}

/// Questions of `testp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

/// Formats of floating-point registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fmt {
    F16,
    BF16,
    F32,
    F64,
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

/// Operations on predicates, and how `setp` combines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

/// How far a synchronising operation reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Threads of one CTA.
    Cta,
    /// Threads of the device.
    Gpu,
    /// Threads of the device and the host.
    Sys,
}

/// Memory semantics of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sem {
    /// An ordinary access.
    Weak,
    /// Strong without order.
    Relaxed,
    /// A read that later accesses stay behind.
    Acquire,
    /// A write that earlier accesses stay before.
    Release,
    /// Both.
    AcqRel,
}

impl Sem {
    pub(crate) fn acquires(self) -> bool {
        matches!(self, Sem::Acquire | Sem::AcqRel)
    }
    pub(crate) fn releases(self) -> bool {
        matches!(self, Sem::Release | Sem::AcqRel)
    }
}

/// Where an address comes from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Base {
    None,
    R32(R),
    R64(R),
}

/// An address operand.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Addr {
    pub base: Base,
    pub offset: i64,
}

/// Files of registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    P,
    W16,
    W32,
    W64,
}

/// A load or store.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Access {
    pub space: Space,
    /// Bytes of one element.
    pub bytes: u32,
    pub lanes: u32,
    pub signed: bool,
    /// Destinations of a load, sources of a store.
    pub regs: [R; 8],
    pub width: Width,
    pub addr: Addr,
    pub sem: Sem,
    pub scope: Scope,
}

/// Operations of `atom` and `red`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtomOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

/// An atomic operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Atom {
    pub op: AtomOp,
    pub ty: Ty,
    pub space: Space,
    /// [`SINK`] for `red`.
    pub d: R,
    pub addr: Addr,
    pub a: R,
    pub b: R,
    pub sem: Sem,
    pub scope: Scope,
}

/// Modes of `shfl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShflMode {
    Up,
    Down,
    Bfly,
    Idx,
}

/// Modes of `vote`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VoteMode {
    All,
    Any,
    Uni,
    Ballot,
}

/// What a warp-wide instruction does with the lanes in its mask.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Gather {
    /// `bar.warp.sync`.
    Sync,
    /// Destination, predicate, source, lane operand, clamp operand.
    Shfl(ShflMode, R, R, R, R, R),
    /// Destination (a predicate, or a register for ballot), source, negated.
    Vote(VoteMode, R, R, bool),
    /// Destination, predicate (`.all` only), source, 64 bits wide, `.all`.
    Match(R, R, R, bool, bool),
    /// Destination, source.
    Redux(AtomOp, bool, R, R),
    /// Destination (a register), predicate.
    Elect(R, R),
}

/// What a CTA barrier instruction does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum BarKind {
    Sync,
    Arrive,
    /// Destination register, source predicate, negated.
    Popc(R, R, bool),
    /// Destination predicate, source predicate, negated; and (true) or or.
    Vote(R, R, bool, bool),
}

/// Element types of `mma`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MmaTy {
    F16,
    BF16,
    TF32,
    S8,
    U8,
}

/// `mma.sync`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mma {
    /// The shape is m16n8 with this k.
    pub k: u32,
    pub a_ty: MmaTy,
    pub b_ty: MmaTy,
    /// Accumulators in f16 rather than f32 or s32: those of D and of C.
    pub d_half: bool,
    pub c_half: bool,
    pub sat: bool,
    pub a: [R; 4],
    pub b: [R; 2],
    pub c: [R; 4],
    pub d: [R; 4],
}

/// `cvt`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cvt {
    pub to: Ty,
    pub from: Ty,
    /// Rounding to an integer value (`.rni` and its like) for floats of one size.
    pub integer: bool,
    pub mode: Mode,
    pub d: R,
    pub a: R,
    pub d_width: Width,
    pub a_width: Width,
}

/// A source or destination of `mov` between vectors: its file and row.
pub(crate) type Piece = (Width, R);

/// Registers that change while a warp runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Clock,
    Clock64,
    GlobalTimer,
    GlobalTimerHi,
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Op {
    Nop,
    I1(Width, I1, R, R),
    I2(Width, I2, R, R, R),
    /// 64-bit shifts take a 32-bit amount.
    Shift64(I2, R, R, R),
    I3(Width, I3, R, R, R, R),
    Bfi(Width, R, R, R, R, R),
    Bfe64(bool, R, R, R, R),
    /// signed, source width, destination, a, b
    MulWide(bool, Width, R, R, R),
    MadWide(bool, Width, R, R, R, R),
    /// subtract, carry in, carry out, width, d, a, b
    Carry(bool, bool, bool, Width, R, R, R),
    /// high half, signed, carry in, carry out, d, a, b, c
    MadCarry(bool, bool, bool, bool, R, R, R, R),
    /// Two 16-bit integers in a register.
    Pair16(I2, R, R, R),
    F1(Fmt, F1, Mode, R, R),
    F2(Fmt, F2, Mode, R, R, R),
    Fma(Fmt, Mode, R, R, R, R),
    /// Pairs of halves.
    H1(Fmt, F1, Mode, R, R),
    H2(Fmt, F2, Mode, R, R, R),
    HFma(Fmt, Mode, R, R, R, R),
    Testp(Fmt, Test, R, R),
    /// type, comparison, ftz, p, q, a, b, combination with (register, negated)
    Setp(Ty, Cmp, bool, R, R, R, R, Option<(Logic, R, bool)>),
    /// source type, comparison, ftz, true value, destination width, d, a, b, combination
    Set(Box<SetOp>),
    /// width, d, a, b, p, negated
    Selp(Width, R, R, R, R, bool),
    Mov(Width, R, R),
    /// Predicates: d, a, a negated, b, b negated.
    Pred(Logic, R, R, bool, R, bool),
    /// Many to one (true) or one to many.
    Pack(Box<(bool, Piece, Vec<Piece>)>),
    ReadSpecial(Special, R),
    Cvt(Cvt),
    /// Two f32 to a pair of halves: format, mode, d, high, low.
    CvtPair(Fmt, Mode, R, R, R),
    /// Adds (true) or subtracts the base of the space's window.
    Cvta(bool, Space, Width, Width, R, R),
    /// Predicate, space, address.
    IsSpace(Space, R, Width, R),
    Ld(Box<Access>),
    St(Box<Access>),
    Atom(Box<Atom>),
    /// Scope.
    Fence(Scope),
    /// shared address, global address, bytes, bytes read (register)
    CpAsync(Box<(Addr, Addr, u32, R)>),
    CpCommit,
    CpWait(u32),
    /// store, transposed, registers, address
    Matrix(Box<(bool, bool, Vec<R>, Addr)>),
    Mma(Box<Mma>),
    Warp(Box<(Gather, R)>),
    ActiveMask(R),
    /// aligned, kind, barrier, threads
    Bar(bool, BarKind, R, R),
    Bra(u32, u32),
    /// Targets, index register, reconvergence.
    Brx(Box<(Vec<u32>, R, u32)>),
    Call(u32),
    /// Back to the caller: stands once, at the end of each function.
    Return,
    Exit,
    Trap,
    Nanosleep,
    /// Lanes of local memory copied: destination, source, bytes.
    CopyLocal(u32, u32, u32),
    Sm90(Box<Sm90>),
}

/// `set`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SetOp {
    pub from: Ty,
    pub to: Ty,
    pub cmp: Cmp,
    pub ftz: bool,
    pub d: R,
    pub a: R,
    pub b: R,
    pub with: Option<(Logic, R, bool)>,
}

/// An instruction.
#[derive(Debug, Clone)]
pub(crate) struct Inst {
    pub op: Op,
    /// Predicate register times two, plus one when negated; or [`ALWAYS`].
    pub guard: u32,
    pub line: u32,
    pub class: Class,
    /// `.approx` or `.full`: an assembler makes few instructions of it.
    pub approx: bool,
    /// Where its registers read begin in [`Kernel::reads`], and how many.
    pub reads: (u32, u16),
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelParam {
    /// Its name in the text.
    pub name: String,
    /// Bytes.
    pub bytes: u32,
    /// Where it starts in the block of parameters.
    pub offset: u32,
}

/// A kernel, ready to run.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub name: String,
    pub params: Vec<KernelParam>,
    pub param_bytes: u32,
    pub code: Vec<Inst>,
    /// Registers read, by instruction: file and index.
    pub reads: Vec<(Width, u32)>,
    pub rows32: u32,
    pub rows64: u32,
    pub preds: u32,
    pub const32: Vec<[u32; 32]>,
    pub const64: Vec<[u64; 32]>,
    /// Row of each register that is set when a warp starts: which, row.
    pub start32: Vec<(Start, u32)>,
    pub start64: Vec<(Start, u32)>,
    pub shared_static: u32,
    pub dynamic_shared: bool,
    pub local_bytes: u32,
    pub reqntid: Option<[u32; 3]>,
    pub maxntid: Option<[u32; 3]>,
    /// CTAs of a cluster, where it says.
    pub cluster: Option<[u32; 3]>,
    /// Whether CTAs may depend on each other, so that they must be interleaved.
    pub communicates: bool,
    /// Whether threads wait for earlier kernels.
    pub waits: bool,
    /// Text of the names of registers, for reports: of 32-bit, 64-bit and predicate files.
    pub names: [Vec<String>; 3],
    /// Registers of a thread at entry, 0 where nothing says.
    pub registers: u32,
    /// 32-bit registers written, by instruction; empty where no `wgmma` is.
    pub hazards: Vec<Box<[R]>>,
}

/// Registers that are known when a warp starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Start {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    Lane,
    Warp,
    Nwarp,
    Smid,
    Nsmid,
    Gridid,
    MaskEq,
    MaskLt,
    MaskLe,
    MaskGt,
    MaskGe,
    DynamicShared,
    TotalShared,
    Zero,
    ClusterRank,
    ClusterSize,
    ClusterId(usize),
    ClusterCount(usize),
    ClusterCtaid(usize),
    ClusterNctaid(usize),
}
