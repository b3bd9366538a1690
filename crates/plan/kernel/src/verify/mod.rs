//! The verifier of kernels and tile programs.
//!
//! A program that keeps these rules can be executed, emitted and costed without failing, whatever
//! file it came from. Addresses against the sizes of buffers are the plan verifier's business.
//!
//! Kernel
//! - `names`: the kernel, axes, operands and tiles have names; those of one kind are unique.
//! - `size`: at most 64 axes and 4,096 of everything else; at most 16 leaves in a term.
//! - `ids`: every axis, operand and tile that is named exists.
//! - `axes`: a tile's axes are sorted and unique; an `over` list names an axis once.
//! - `access`: at most one term per axis, each with a leaf; a bound names an axis once; `outside`
//!   is no NaN.
//! - `indexed`: only Read operands gather, by an earlier Read operand of integer type that does not
//!   gather itself.
//! - `types`: no operand holds texts or sequences, which only host operators read.
//! - `program`: every program is well typed, its slots have the types of their arguments and its
//!   results those of what they define; coordinates are those of axes that the result has.
//! - `defined`: a tile is defined before it is used; accumulators and states begin with a fill.
//! - `load`: a Read operand is loaded into a tile of its type with exactly the axes of its access.
//! - `store`: a Write operand is stored by exactly one statement, from a tile of its type with
//!   exactly the axes of its access; it is never loaded.
//! - `map`: the result has all axes of the arguments.
//! - `contract`: the accumulator has no summed axis and all others of the factors.
//! - `fold`: the states have the same axes, none of them folded and all others of the arguments.
//! - `rescale`: rescaled tiles have all axes of the state, are neither states nor arguments, and
//!   have the type of the factor.
//! - `relabel`: the result has the type and the axes of the source under their new labels, which
//!   the source lacks, and reads within the source's extents.
//! - `ordered`: a tile that is carried along an axis is carried by one statement; whatever else
//!   defines it stands before and does not touch that axis.
//!
//! Schedule
//! - `tiling`: an axis is cut at most once, into pieces of at least 1; chunk and raster are at
//!   least 1.
//! - `grid`: no grid axis is summed or folded over, and every stored tile has all grid axes, so that
//!   no two tasks write the same element.
//! - `loop`: a tile with a looped axis is used only inside the loop that defines it; what a loop
//!   accumulates is read after the loop, or inside it when everything accumulated from it is
//!   rescaled by the fold that makes it; a fold that counts positions goes through them in order.
//! - `ordered`: axes that something is carried along are the outermost loops, in single positions,
//!   one loop each; axes that get another label are not cut.
//! - `places`: one place per tile; a tile in place is a loaded tile that nothing else writes, or one
//!   that is stored once; pipelines have 1 to 16 stages and swizzles stay within 32 bits.
//! - `stages`: a tile with several stages is made by one load in a loop, which its readers are in too;
//!   all such tiles have as many.
//! - `swizzle`: on a GPU, a swizzle is undone by itself and keeps a tile's elements inside it.
//! - `spread`: axes that lie over threads exist, once each; the directions that threads are numbered
//!   along begin where the one before ends and need no more threads than the CTA has; no two axes
//!   that a statement goes over lie along one direction, but for a sum's axis that lies over the threads of its
//!   result: then every thread goes over all of it, and all of them see the factors.
//! - `code`: code of the user's is launched with sizes in symbols of the kernel.
//! - `mapping`: register tiles and CTA shapes are not empty and name axes that exist, once each; CTAs walk tasks where
//!   some of their warps only copy, and no mask hides pieces of some tasks.
//! - `cluster`: CTAs of a cluster have neighbouring tasks along an axis with a known multiple of so many pieces, and each
//!   can copy its share of what they copy together; there is something to.
//! - `parts in a cluster`: CTAs that make parts of one sum are as many as these, along the last axis of the grid; each keeps
//!   what it stores, once; those that add them have shares of the last axis of their grid, and gather nothing.
//!
//! Target ([`TileProgram::fits`])
//! - `limits`: a CTA has the threads, registers and shared memory that the schedule and its tiles take.
mod blame;
mod body;
mod code;
mod gpu;
mod kernel;
mod parts;
mod relabel;
mod schedule;

use crate::{AxisTile, Kernel, KernelError, Node, Schedule};
pub(crate) use blame::Blame;
pub(crate) use code::code;

/// Checks a schedule of a kernel that was checked, before loops are placed.
pub(crate) fn scheduled(kernel: &Kernel, schedule: &Schedule) -> Result<(), KernelError> {
    schedule::check(kernel, schedule)
}

/// Checks what loops do to the statements; the parts were checked before.
pub(crate) fn placed(
    kernel: &Kernel,
    loops: &[AxisTile],
    body: &[Node],
) -> Result<(), KernelError> {
    body::check(kernel, loops, body)
}

impl Kernel {
    /// Checks every rule that needs no schedule.
    ///
    /// # Errors
    /// [`KernelError::Rule`] with the rule's short name and what is wrong.
    pub fn verify(&self) -> Result<(), KernelError> {
        kernel::check(self)
    }
}
