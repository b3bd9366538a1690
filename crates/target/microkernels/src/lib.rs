//! CPU micro-kernels: raw loops over f32 in memory, behind tables chosen at run time by [`crate::isa::Isa`].
//!
//! They know nothing of plans or tile programs. A caller owns the loops over macro tiles, picks a register shape
//! from [`shapes`], and calls:
//!
//! - [`GemmKernel::gemm`] and [`GemmKernel::indirect`] for contractions and convolutions;
//! - the pointers of [`Kernels`] for everything else: elementwise functions, rows, packing, dot, depthwise.
//!
//! Results depend on the instruction set and the operands' extents, never on timing or alignment.
//!
//! Each kernel is one function generic over [`simd::Simd`], wrapped once per instruction set. [`math`] holds the
//! elementary functions on single vectors for use in further fused loops.

#![allow(
    clippy::needless_range_loop,
    reason = "constant ranges over register arrays read best as indices"
)]

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
pub mod columns;
pub mod depthwise;
pub mod depthwise8;
pub mod dot;
pub mod gemm;
mod grouped;
pub mod groups;
pub mod isa;
pub mod kernels;
pub mod lines;
#[allow(
    clippy::missing_safety_doc,
    reason = "the CPU must have the instruction set, as for every function of Simd"
)]
pub mod math;
pub mod nibbles;
pub mod pack;
pub mod picks;
pub mod portable;
#[allow(
    clippy::missing_safety_doc,
    reason = "the CPU must have the instruction set, as for every function of Simd"
)]
pub mod pow;
pub mod quant;
mod row;
pub mod simd;
mod slice;
#[cfg(target_arch = "x86_64")]
pub mod sse2;
pub mod take;
pub use columns::Columns;
pub use depthwise::Depthwise;
pub use depthwise8::Depthwise8;
pub use dot::Dot;
pub use gemm::{Gemm, GemmKernel, Indirect, MAX_MR, Panels, Post, gemm_kernel, shapes};
pub use groups::{bf16_kernel, has_bf16_dots, pair_kernel, quad_kernel};
pub use kernels::{BinaryFn, Kernels, ReduceFn, ScalarFn, UnaryFn, kernels};
pub use lines::{Line, Lines, Taps};
pub use nibbles::Nibbles;
pub use pack::copy_strided;
pub use picks::{Nan, Pick, Picks};
pub use take::Ranks;
