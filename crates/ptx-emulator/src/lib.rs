//! Runs PTX text, as written, without a GPU, and says what is wrong with it.
//!
//! A [`Machine`] has memory and loads modules; a [`Launch`] says which kernel, how many CTAs and
//! threads, and with what. Warps execute with all their lanes in registers side by side; lanes that
//! branch apart come together at the immediate post-dominator. CTAs are interleaved by a seeded
//! scheduler, or run on several threads where they do not communicate. Findings carry the line of
//! the text, counters are kept by line, and the host may use the same memory between slices of a
//! run ([`Running`]).
//!
//! Never in here: any type of the rest of the workspace, timing, files.
#![deny(unsafe_op_in_unsafe_fn)]
// Lanes are indices into several rows at once.
#![allow(clippy::needless_range_loop)]
// Shifts of products and fields stand as the instruction set's manual has them.
#![allow(clippy::precedence)]

mod checks;
mod clocks;
mod counters;
mod decode;
mod error;
mod exec;
mod machine;
mod memory;
mod parse;
mod program;
mod text;

pub use checks::{Checks, Kind as Finding, Report};
pub use counters::{Class, Counters, Counts};
pub use error::PtxError;
pub use machine::{HostOrder, Launch, Machine, Module, Outcome, Running, Status};
pub use memory::{Kind as MemoryKind, Memory};
pub use program::KernelParam;
pub use text::counters_table;
