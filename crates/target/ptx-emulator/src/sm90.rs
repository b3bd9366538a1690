//! Operations of sm_90: products of warpgroups, and what belongs to asynchronous memory.

use crate::program::{MmaTy, R};

/// Where `wgmma` finds A.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FactorA {
    /// In shared memory, by a descriptor in a 64-bit register.
    Descriptor(R),
    Registers([R; 4]),
}

/// `wgmma.mma_async`: m64 by `n` by `k`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wgmma {
    pub n: u32,
    pub k: u32,
    pub a_ty: MmaTy,
    pub b_ty: MmaTy,
    /// Accumulators in f16 rather than f32 or s32.
    pub d_half: bool,
    pub sat: bool,
    pub d: Vec<R>,
    pub a: FactorA,
    /// The descriptor of B.
    pub b: R,
    /// Whether D is added to: a predicate and whether it is negated.
    pub scale_d: (R, bool),
    pub negated: [bool; 2],
    /// Whether A and B lie with m and n in a row rather than k.
    pub transposed: [bool; 2],
}

impl Wgmma {
    /// Bytes of an element.
    pub fn bytes(&self) -> u32 {
        match self.a_ty {
            MmaTy::TF32 => 4,
            MmaTy::S8 | MmaTy::U8 => 1,
            _ => 2,
        }
    }

    /// Whether it multiplies integers.
    pub fn integer(&self) -> bool {
        matches!(self.a_ty, MmaTy::S8 | MmaTy::U8)
    }
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sm90 {
    Wgmma(Wgmma),
    WgmmaFence,
    WgmmaCommit,
    /// All but so many of the newest groups are to be complete.
    WgmmaWait(u32),
    /// `fence.proxy.async`.
    ProxyFence,
}
