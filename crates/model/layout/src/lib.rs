//! Element types, symbolic dimensions and the algebra of hierarchical layouts.
//!
//! Everything above this crate speaks of sizes as [`Dim`]s (numbers or expressions over named
//! symbols) and of placements as [`Layout`]s (functions from coordinates to bit addresses).
//! The crate knows no tensors and no operators.
#![forbid(unsafe_code)]

mod arrange;
mod dim;
mod dimbox;
mod dtype;
mod few;
mod layout;
mod parse;
mod program;
mod serial;
mod shared;
mod text;

pub use arrange::{Arrange, Inserted};
pub use dim::{Atom, Dim, DimExpr, Sym};
pub use dimbox::{DimBox, Range};
pub use dtype::{DType, to_odd_f32};
pub use few::Few;
pub use layout::{Layout, Leaf, Mode};
pub use parse::ParseError;
pub use program::{DimProgram, EvalError};
pub use serial::{nested, reading};
pub use shared::{DimMap, DimPool, Symbols};
