//! The data of scalar programs: instructions, their classes, [`Expr`], and the rules that make one valid. Every
//! file of this crate reads it; evaluation, text and simplification are elsewhere.
use layout::{DType, Dim};
use serde::{Deserialize, Serialize};

/// Index of an earlier instruction of the same [`Expr`].
pub type Ref = u32;

/// Functions of one argument; argument and result have one type.
///
/// f16 and bf16 are computed in f32 and rounded once more. A function that is defined on floats
/// only is computed in f64 for an integer argument and converted back as [`Inst::Cast`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // The names are the functions'.
pub enum Unary {
    Neg,
    Abs,
    Sqrt,
    Rsqrt,
    Reciprocal,
    Exp,
    Log,
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    Tanh,
    Erf,
    Sigmoid,
    Floor,
    Ceil,
    /// To nearest, ties to even.
    Round,
    /// 1, 0 or -1; a NaN for a NaN.
    Sign,
    /// Logical not of a `Bool`.
    Not,
    /// Bitwise complement of an integer.
    BitNot,
    /// `Bool` result: argument is a NaN.
    IsNan,
    /// `Bool` result: argument is an infinity.
    IsInf,
}

/// Functions of two arguments of one type, result of the same type.
///
/// Arithmetic on `Bool`s is done on the integers 0 and 1 and is true when the result is not 0.
/// Bit functions on floats work on truth (`!= 0`) and give 0 or 1; shifts of floats work on the
/// truncated values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binary {
    /// Sum; integers wrap.
    Add,
    /// Difference; integers wrap.
    Sub,
    /// Product; integers wrap.
    Mul,
    /// Quotient; integers truncate toward zero, division by 0 gives 0.
    Div,
    /// Power; an integer to a negative power truncates (0 unless the base is 1 or -1).
    Pow,
    /// The smaller; a NaN wins.
    Min,
    /// The larger; a NaN wins.
    Max,
    /// Remainder with the sign of the divisor (Python's `%`); by 0 gives 0 for integers.
    Mod,
    /// Remainder with the sign of the dividend (C's `fmod`); by 0 gives 0 for integers.
    Fmod,
    /// Logical and bitwise and.
    And,
    /// Logical and bitwise or.
    Or,
    /// Logical and bitwise exclusive or.
    Xor,
    /// Left shift; 0 when the count is negative or not below the width.
    Shl,
    /// Logical right shift; 0 when the count is negative or not below the width.
    Shr,
    /// Angle of the point (second, first).
    Atan2,
}

/// Comparisons; the result is a `Bool`, false when an argument is a NaN (`Ne`: true).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// One instruction; its result is referred to by its position.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inst {
    /// Argument `slot` of the program, of type `dtype`.
    Input {
        /// Which argument.
        slot: u32,
        /// Its type.
        dtype: DType,
    },
    /// A float constant; bits are kept exactly (`value` is the f64 that rounds to it).
    Float {
        /// Bit pattern of the f64.
        bits: u64,
        /// Type after rounding.
        dtype: DType,
    },
    /// An integer or boolean constant.
    Int {
        /// Value.
        value: i64,
        /// Type.
        dtype: DType,
    },
    /// Coordinate along axis `axis` of the enclosing kernel or, in a graph's `Map`, along output
    /// dimension `axis`; type I64.
    Index {
        /// Axis number.
        axis: u32,
    },
    /// Value of a dimension expression; type I64.
    Dim(Dim),
    /// Function of one argument.
    Unary(Unary, Ref),
    /// Function of two arguments.
    Binary(Binary, Ref, Ref),
    /// Comparison.
    Compare(Compare, Ref, Ref),
    /// `if 0 then 1 else 2`; the first is a `Bool`.
    Select(Ref, Ref, Ref),
    /// Conversion: float to integer truncates and saturates, to `Bool` is `!= 0`, float to float
    /// rounds to nearest even, integer to narrower integer keeps the low bits.
    Cast(Ref, DType),
}

/// How dear an instruction is: the classes that the cost model counts apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Costs nothing (inputs, constants, dims).
    Free,
    /// Add, multiply, compare, select, min, max, cast.
    Simple,
    /// Division and square root.
    Divide,
    /// exp, log, tanh, erf, sin, pow and the like.
    Transcendental,
}

/// A scalar program in SSA form. `outputs` are the instructions whose values it gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expr {
    /// Instructions; each refers to earlier ones only.
    pub insts: Vec<Inst>,
    /// Results.
    pub outputs: Vec<Ref>,
}

/// What is wrong with an [`Expr`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExprError {
    /// A reference to a later or missing instruction.
    #[error("instruction {at} refers to %{to}, which is not before it; order the program")]
    Order {
        /// Position.
        at: usize,
        /// Target.
        to: Ref,
    },
    /// Types do not fit.
    #[error("instruction {at} gets {got} where {want} is needed; insert a cast")]
    Type {
        /// Position.
        at: usize,
        /// What the instruction needs.
        want: String,
        /// What it gets.
        got: String,
    },
    /// A text form that cannot be read.
    #[error("line {line} of the program cannot be read: {why}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// Reason.
        why: String,
    },
    /// A formula that cannot be read.
    #[error("the formula cannot be read at column {column}: {why}")]
    Formula {
        /// Column, from 1.
        column: usize,
        /// Reason.
        why: String,
    },
}

impl Inst {
    /// The instructions that this one reads.
    pub fn args(&self) -> impl Iterator<Item = Ref> {
        let (a, n) = match *self {
            Inst::Unary(_, a) | Inst::Cast(a, _) => ([a, 0, 0], 1),
            Inst::Binary(_, a, b) | Inst::Compare(_, a, b) => ([a, b, 0], 2),
            Inst::Select(a, b, c) => ([a, b, c], 3),
            _ => ([0; 3], 0),
        };
        a.into_iter().take(n)
    }

    /// Cost class.
    pub fn class(&self) -> Class {
        match self {
            Inst::Input { .. }
            | Inst::Float { .. }
            | Inst::Int { .. }
            | Inst::Index { .. }
            | Inst::Dim(_) => Class::Free,
            Inst::Compare(..) | Inst::Select(..) | Inst::Cast(..) => Class::Simple,
            Inst::Binary(b, ..) => match b {
                Binary::Div | Binary::Mod | Binary::Fmod => Class::Divide,
                Binary::Pow | Binary::Atan2 => Class::Transcendental,
                _ => Class::Simple,
            },
            Inst::Unary(u, _) => match u {
                Unary::Neg
                | Unary::Abs
                | Unary::Not
                | Unary::BitNot
                | Unary::IsNan
                | Unary::IsInf
                | Unary::Floor
                | Unary::Ceil
                | Unary::Round
                | Unary::Sign => Class::Simple,
                Unary::Sqrt | Unary::Rsqrt | Unary::Reciprocal => Class::Divide,
                _ => Class::Transcendental,
            },
        }
    }
}

impl Expr {
    /// The program that gives its only argument back.
    pub fn identity(dtype: DType) -> Expr {
        Expr {
            insts: vec![Inst::Input { slot: 0, dtype }],
            outputs: vec![0],
        }
    }

    /// Number of arguments: one more than the highest slot used.
    pub fn arity(&self) -> usize {
        self.insts
            .iter()
            .filter_map(|i| match i {
                Inst::Input { slot, .. } => Some(*slot as usize + 1),
                _ => None,
            })
            .max()
            .unwrap_or(0)
    }

    /// Type of every instruction's value; an error when references or types do not fit. A program
    /// for which this is Ok can be evaluated, emitted and compiled without failing.
    pub fn types(&self) -> Result<Vec<DType>, ExprError> {
        let mut t: Vec<DType> = Vec::with_capacity(self.insts.len());
        for (at, inst) in self.insts.iter().enumerate() {
            for to in inst.args() {
                if to as usize >= at {
                    return Err(ExprError::Order { at, to });
                }
            }
            let ty = |r: &Ref| t[*r as usize];
            let same = |a: &Ref, b: &Ref| {
                if ty(a) == ty(b) {
                    Ok(ty(a))
                } else {
                    Err(ExprError::Type {
                        at,
                        want: ty(a).to_string(),
                        got: ty(b).to_string(),
                    })
                }
            };
            let d = match inst {
                Inst::Input { dtype, .. } | Inst::Float { dtype, .. } | Inst::Int { dtype, .. } => {
                    *dtype
                }
                Inst::Index { .. } | Inst::Dim(_) => DType::I64,
                Inst::Unary(Unary::IsNan | Unary::IsInf, _) => DType::Bool,
                Inst::Unary(_, a) => ty(a),
                Inst::Binary(_, a, b) => same(a, b)?,
                Inst::Compare(_, a, b) => same(a, b).map(|_| DType::Bool)?,
                Inst::Select(c, a, b) => {
                    if ty(c) != DType::Bool {
                        return Err(ExprError::Type {
                            at,
                            want: "bool".into(),
                            got: ty(c).to_string(),
                        });
                    }
                    same(a, b)?
                }
                Inst::Cast(_, d) => *d,
            };
            t.push(d);
        }
        for &to in &self.outputs {
            if to as usize >= self.insts.len() {
                return Err(ExprError::Order {
                    at: self.insts.len(),
                    to,
                });
            }
        }
        Ok(t)
    }

    /// Types of the results. The program must be valid.
    pub fn output_types(&self) -> Result<Vec<DType>, ExprError> {
        let t = self.types()?;
        Ok(self.outputs.iter().map(|&o| t[o as usize]).collect())
    }

    /// Number of instructions per cost class (simple, divide, transcendental), per element.
    pub fn counts(&self) -> [(Class, u64); 3] {
        let n = |c| self.insts.iter().filter(|i| i.class() == c).count() as u64;
        [Class::Simple, Class::Divide, Class::Transcendental].map(|c| (c, n(c)))
    }
}
