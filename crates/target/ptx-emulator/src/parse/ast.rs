//! PTX as written: no meaning yet.

/// A scalar type.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ty {
    Pred,
    B8,
    U8,
    S8,
    B16,
    U16,
    S16,
    F16,
    BF16,
    B32,
    U32,
    S32,
    F32,
    TF32,
    F16x2,
    BF16x2,
    U16x2,
    S16x2,
    B64,
    U64,
    S64,
    F64,
    B128,
}

impl Ty {
    /// The type that `name`, without its dot, stands for.
    pub fn parse(name: &str) -> Option<Ty> {
        Some(match name {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "u8" => Ty::U8,
            "s8" => Ty::S8,
            "b16" => Ty::B16,
            "u16" => Ty::U16,
            "s16" => Ty::S16,
            "f16" => Ty::F16,
            "bf16" => Ty::BF16,
            "b32" => Ty::B32,
            "u32" => Ty::U32,
            "s32" => Ty::S32,
            "f32" => Ty::F32,
            "tf32" => Ty::TF32,
            "f16x2" => Ty::F16x2,
            "bf16x2" => Ty::BF16x2,
            "u16x2" => Ty::U16x2,
            "s16x2" => Ty::S16x2,
            "b64" => Ty::B64,
            "u64" => Ty::U64,
            "s64" => Ty::S64,
            "f64" => Ty::F64,
            "b128" => Ty::B128,
            _ => return None,
        })
    }

    /// Bytes of one element; 1 for predicates.
    pub fn bytes(self) -> u32 {
        match self {
            Ty::Pred | Ty::B8 | Ty::U8 | Ty::S8 => 1,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 => 2,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 8,
            Ty::B128 => 16,
            _ => 4,
        }
    }

    /// Whether integers of the type have a sign.
    pub fn signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64 | Ty::S16x2)
    }

    /// Whether it is a floating-point type.
    pub fn float(self) -> bool {
        matches!(
            self,
            Ty::F16 | Ty::BF16 | Ty::F32 | Ty::TF32 | Ty::F64 | Ty::F16x2 | Ty::BF16x2
        )
    }
}

/// A state space.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Const,
    Param,
}

/// A value in text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Imm {
    /// 64 bits, two's complement.
    Int(u64),
    /// Bits of an f32.
    F32(u32),
    /// Bits of an f64.
    F64(u64),
}

/// A part of an initialiser.
#[derive(Debug, Clone, PartialEq)]
pub enum Init {
    /// A number.
    Value(Imm),
    /// The address of a variable, plus bytes; generic when it stood in `generic()`.
    Address(String, i64),
    /// Several.
    List(Vec<Init>),
}

/// A variable in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Var {
    /// Where.
    pub space: Space,
    /// Element type.
    pub ty: Ty,
    /// Bytes in all; 0 for the unsized array of dynamic shared memory.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Its name.
    pub name: String,
    /// Whether it was declared `.extern`.
    pub external: bool,
    /// Its initialiser.
    pub init: Option<Init>,
    /// Line of its declaration.
    pub line: u32,
}

/// A parameter of a kernel or function.
#[derive(Debug, Clone, PartialEq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Element type.
    pub ty: Ty,
    /// Bytes in all.
    pub bytes: u64,
    /// Alignment in bytes.
    pub align: u64,
    /// Whether it is a register rather than `.param` memory.
    pub register: bool,
}

/// An operand as written.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register, variable, label or function.
    Name(String),
    /// A name plus bytes, as in `mov.u64 %rd, table+8`.
    Offset(String, i64),
    /// A number.
    Imm(Imm),
    /// `!p`.
    Not(String),
    /// `[base + offset]`; without a base the offset is the address.
    Mem(Option<String>, i64),
    /// `[base + offset, {a, b}]`.
    Tensor(String, i64, Vec<Operand>),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `p|q`.
    Pair(String, String),
    /// `(a, b)`, of calls.
    Group(Vec<Operand>),
}

/// An instruction as written.
#[derive(Debug, Clone, PartialEq)]
pub struct RawInst {
    /// Its line.
    pub line: u32,
    /// The predicate, and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// Opcode and modifiers, split at dots.
    pub opcode: Vec<String>,
    /// Its operands.
    pub operands: Vec<Operand>,
}

/// A statement of a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Stmt {
    /// A label.
    Label(String, u32),
    /// Registers: type, name, and how many for `name<n>`.
    Reg(Ty, String, Option<u32>, u32),
    /// A variable.
    Var(Var),
    /// `{`.
    Open,
    /// `}`.
    Close,
    /// `label: .branchtargets a, b;`
    Targets(String, Vec<String>),
    /// An instruction.
    Inst(RawInst),
}

/// A kernel or function.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// What it returns (functions only).
    pub returns: Vec<Param>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Its statements; none for a declaration.
    pub body: Option<Vec<Stmt>>,
    /// `.reqntid`.
    pub reqntid: Option<[u32; 3]>,
    /// `.maxntid`.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqnctapercluster`.
    pub cluster: Option<[u32; 3]>,
    /// `.maxnreg`.
    pub maxnreg: Option<u32>,
    /// `.minnctapersm`.
    pub minctas: Option<u32>,
    /// Line of its name.
    pub line: u32,
}

/// A module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ast {
    /// `.version`, major and minor.
    pub version: (u32, u32),
    /// `.target`, the architecture only.
    pub target: String,
    /// Variables of the module.
    pub vars: Vec<Var>,
    /// Kernels and functions.
    pub functions: Vec<Function>,
}
