//! Scalar programs: the element-wise part of every kernel, in one form that every reader uses.
//!
//! An [`Expr`] is a list of instructions in SSA form over typed scalars. A [`Monoid`] is a
//! reduction given by Exprs (lift, combine, finish) with an identity state. The crate knows no
//! operators and no tensors.
#![forbid(unsafe_code)]

mod build;
mod dequantise;
mod eval;
mod expr;
mod formula;
pub mod functions;
mod monoid;
mod monoids;
mod names;
mod patterns;
mod pretty;
mod scalar;
mod simplify;
mod symbolic;
mod text;

pub use build::{ExprBuilder, IndexMap};
pub use dequantise::{Dequantise, Zero};
pub use eval::{CompiledExpr, EvalContext, EvalError};
pub use expr::{Binary, Class, Compare, Expr, ExprError, Inst, Ref, Unary};
pub use formula::Names;
pub use monoid::Monoid;
pub use patterns::{changed_exp, shifted_exp};
pub use scalar::Scalar;
