//! Runs PTX text, as written, without a GPU, and says what is wrong with it.
//!
//! A [`Machine`] has memory and loads modules; a [`Launch`] says which kernel, how many CTAs and
//! threads, and with what. Warps execute with all their lanes in registers side by side; lanes that
//! branch apart come together at the immediate post-dominator. CTAs are interleaved by a seeded
//! scheduler, or run on several threads where they do not communicate. Findings carry the line of
//! the text, counters are kept by line, and the host may use the same memory between slices of a
//! run ([`Running`]).
//!
//! # What is found
//!
//! Bounds and alignment are always checked and end the kernel, as on a device. The other checks
//! ([`Checks`]) can be switched off: reads of bytes and registers that nothing wrote, races in shared
//! and global memory, barriers that only part of a warp reaches. Races are judged by happens-before:
//! program order, barriers of CTA and warp, and release to acquire as far as both scopes reach, the
//! host included. Every thread's accesses are told apart; of the reads since a word's last write,
//! two are remembered, so that a third unordered reader can be missed. Lanes of a warp are not
//! ordered by running in step: that takes a `bar.warp.sync`. Products of warpgroups and bulk copies
//! are judged as threads of their own; a thread is ordered after them when it has waited for them. They may read
//! what ordinary instructions wrote after a `fence.proxy.async` of the writer, and a warp may not use the
//! registers of its products until `wgmma.wait_group`.
//!
//! # What differs from a device
//!
//! Memory is sequentially consistent: a missing fence is reported, but changes no result. Numbers are
//! those of IEEE 754 with the rounding asked for; `.approx` functions are computed in f64 and rounded
//! once, more exactly than on any device; `mma` and `wgmma` add their products one by one in f32, in the order of
//! k. `wgmma` reads its factors when the last warp of its warpgroup reaches it. Clocks count the warp's
//! instructions. A group of lanes that only re-reads the same words is parked until one of them is
//! written. Bulk copies end at a step that the seed chooses. The scope of a cluster reaches as far as that
//! of the device. Tensor maps are those of [`tensor_map`]. Textures, im2col, calls through registers and
//! recursion are refused by line.
//!
//! # Cost
//!
//! A 512^3 product of f16 (`tests/suite/ptx/gemm.ptx`, 235 thousand instructions of warps) takes about
//! half a second with every check and half of that without; checking races takes 32 bytes for every
//! word touched. CTAs that use no atomics and no strong accesses or fences beyond their own run on all
//! cores; if something wrong is found, the run is repeated on one core, in the order of its
//! seed.
//!
//! In launches whose CTAs wait for each other or for the host, an [`InstructionTimes`] says how long instructions,
//! sectors and reads of other CTAs' words take; without one, clocks count instructions.
//!
//! [`Machine::time`] goes further: on a GPU described by plain numbers it says where the cycles of each warp
//! go, by reason and by line.
//!
//! Never in here: any type of the rest of the workspace, figures of a GPU, files.
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
mod sm90;
pub mod tensor_map;
mod text;
mod timing;
mod writes;

pub use checks::{Checks, Kind as Finding, Report};
pub use counters::{Class, Counters, Counts, Request};
pub use error::PtxError;
pub use machine::{
    HostOrder, InstructionTimes, KernelInfo, Launch, Machine, Module, Outcome, Running, Status,
    Unfinished,
};
pub use memory::{Kind as MemoryKind, Memory};
pub use program::KernelParam;
pub use text::counters_table;
pub use timing::{
    Interval, Level, LineStalls, MatrixRates, Reason, Stalls, Timing, WarpStalls, stalls_table,
};

/// For the tests of this crate; no part of its API.
#[doc(hidden)]
pub mod internals {
    pub use crate::exec::round::to_bf16;
    pub use crate::program::Rnd;
    pub use crate::timing::cache::Cache;
}
