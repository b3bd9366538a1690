//! WGSL from programs of threads.
//!
//! Memory is two arrays of 32-bit words, one for what requests change and one for what stays, and a
//! list of numbers: [`Wgsl::numbers`] says what stands where. Elements narrower than a word are
//! taken out of it; those that are written change it by atomic operations, so that neighbours may
//! belong to other threads. 64-bit integers need the device's `SHADER_INT64`.
mod print;
mod target;

use crate::EmitError;
use crate::simt::{Caps, Program, lower};
use kernel::{OperandId, TileProgram};
use layout::Dim;
pub use target::{Limits, machine, target};

/// Which of the two arrays an operand lies in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Array {
    /// Ports, arena, states.
    Work,
    /// Weights and what is made of them once.
    Kept,
}

/// One of the numbers that a dispatch is given, in the order of the list.
#[derive(Clone, Debug, PartialEq)]
pub enum Number {
    /// End of the dispatch's tasks; workgroups beyond do nothing.
    Tasks,
    /// First of the dispatch's tasks: a step of many tasks goes out in several dispatches.
    First,
    /// Word of the work array that takes the number of a fault, counted from 1.
    Fault,
    /// First word of an operand's buffer.
    Operand(OperandId),
    /// Value of a dimension, which must fit 32 bits.
    Dim(Dim),
}

/// A shader module with one entry.
#[derive(Clone, Debug, PartialEq)]
pub struct Wgsl {
    /// The module.
    pub text: String,
    /// Name of the entry.
    pub entry: &'static str,
    /// Invocations per workgroup, all along x.
    pub threads: u32,
    /// Bytes of workgroup memory.
    pub shared_bytes: u64,
    /// What the list of numbers holds.
    pub numbers: Vec<Number>,
    /// Reasons of faults.
    pub faults: Vec<String>,
    /// Whether the device must have 64-bit integers.
    pub int64: bool,
}

/// Prints `program`, whose operand `i` lies in `arrays[i]`. Workgroup (x, y) takes task
/// `First + y * num_workgroups.x + x`.
///
/// # Errors
/// What the schedule asks for, or an element type, has no WGSL form.
pub fn emit(program: &TileProgram, arrays: &[Array]) -> Result<Wgsl, EmitError> {
    print(&lower(program, Caps::default())?, arrays)
}

/// Prints a lowered program.
///
/// # Errors
/// As [`emit`].
pub fn print(program: &Program, arrays: &[Array]) -> Result<Wgsl, EmitError> {
    print::print(program, arrays)
}
