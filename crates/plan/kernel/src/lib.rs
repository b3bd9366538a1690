//! Kernels, schedules and tile programs: what a step computes and how, said once for every reader.
//!
//! A [`Kernel`] says what is computed, over labelled axes. A [`Schedule`] says how, completely. The
//! two make a [`TileProgram`] ([`TileProgram::new`]): a grid, loops over tiles, and statements
//! whose operands are whole tiles. The CPU runs it, emitters print it, the reference evaluates it,
//! [`work`] reads operations and traffic off it. No thread index appears in it.
//! The crate knows neither operators nor devices.
#![forbid(unsafe_code)]

mod build;
mod bytes;
mod call;
mod cluster;
mod code;
mod error;
mod factors;
mod fits;
mod forms;
mod given;
mod kernel;
mod lower;
mod paired;
mod parse;
mod read;
mod recompute;
mod schedule;
mod seen;
mod shape;
mod staging;
mod target;
mod tensors;
mod text;
mod tile;
mod verify;
pub mod work;

pub use build::KernelBuilder;
pub use bytes::whole_bytes;
pub use call::{Called, Declared, Number, Template};
pub use cluster::{Kept, KeptAxis, kept_bytes};
pub use code::Code;
pub use error::KernelError;
pub use factors::{NEAR_BF16, NEAR_TF32, PARTS_DEPTH, PARTS_SCALE};
pub use forms::Form;
pub use given::Given;
pub use kernel::{
    Access, Axis, AxisId, AxisTile, Bound, Family, Indexed, Kernel, Label, Node, Operand,
    OperandId, Rescale, Role, Stmt, Term, Tile, TileId, TileIds,
};
pub use paired::in_cluster;
pub use recompute::{recomputable, scaled};
pub use schedule::{
    Combined, CpuMapping, Factors, Fragment, GpuMapping, Mapping, MicroKernel, Place, Schedule,
    Spread, Swizzle, WARP_ROWS, ctas,
};
pub use seen::{Edge, Seen};
pub use shape::Shape;
pub use staging::MOST_NEIGHBOURS;
pub use target::{
    CountWarps, CtaLimits, GpuTarget, MicroShape, Printer, Prints, Target, TargetKind,
};
pub use tensors::{TensorDim, TensorView};
pub use tile::{TileProgram, VerifiedKernel};
