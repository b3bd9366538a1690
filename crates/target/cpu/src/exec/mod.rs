//! Tile programs on the CPU: compiled once into a list of operations on whole tiles, run per task.
//!
//! A tile is a [`View`]: a pointer and one stride per kernel axis, either of scratch memory or of the
//! operand itself. Everything that depends on dims is a parameter number until a task runs.

pub(crate) mod access;
pub(crate) mod calls;
pub(crate) mod compile;
pub(crate) mod contract;
pub(crate) mod copy;
mod ctx;
pub(crate) mod fold;
pub(crate) mod gather;
pub(crate) mod listed;
pub(crate) mod map;
pub(crate) mod nibbles;
pub(crate) mod pool;
mod program;
pub(crate) mod relabel;
pub(crate) mod run;
pub(crate) mod transfer;
mod view;
pub(crate) mod vm;

pub(crate) use ctx::{Ctx, Fault, SPACING, WAY};
pub(crate) use program::{
    Arg, CAccess, CBound, CContract, CEdge, CFold, CIndexed, CKernel, CMap, CNest, CNibbles,
    COperand, CPool, CPost, CRelabel, CTerm, CTile, CWide, Flat, Lift, Op, Simple,
};
pub(crate) use view::{Axes, Block, MAX_AXES, View};
