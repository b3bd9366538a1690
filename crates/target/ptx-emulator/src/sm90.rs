//! Operations of sm_90: products of warpgroups, and what belongs to asynchronous memory.

use crate::program::{Access, Addr, MmaTy, R};

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

/// `cp.async.bulk.tensor`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TensorCopy {
    pub map: Addr,
    pub coordinates: Vec<R>,
    pub shared: Addr,
    /// Where bytes are counted that come to shared memory, and the ranks that get them, as of bulk copies.
    pub barrier: Addr,
    pub ranks: R,
}

/// `mbarrier.arrive` and its like.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MbarrierArrive {
    pub addr: Addr,
    /// A 64-bit register, or nowhere.
    pub state: R,
    pub count: R,
    /// Bytes to expect, or [`crate::program::SINK`].
    pub tx: R,
    /// Whether later phases expect as many arrivals less.
    pub drops: bool,
    pub release: bool,
}

/// An operation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Sm90 {
    Wgmma(Wgmma),
    WgmmaFence,
    WgmmaCommit,
    /// All but so many of the newest groups are to be complete.
    WgmmaWait(u32),
    /// `griddepcontrol.wait`.
    DependencyWait,
    /// `griddepcontrol.launch_dependents`.
    LaunchDependents,
    /// `fence.proxy.async`.
    ProxyFence,
    /// `fence.mbarrier_init`.
    InitFence,
    /// Address and number of arrivals.
    MbarrierInit(Addr, R),
    MbarrierInval(Addr),
    MbarrierArrive(MbarrierArrive),
    /// Address and bytes.
    MbarrierExpect(Addr, R),
    /// Predicate, address, parity or state; whether it is a parity, and acquires.
    MbarrierWait(R, Addr, R, bool, bool),
    /// `cp.async.mbarrier.arrive`: the address, and whether `.noinc`.
    CpArrive(Addr, bool),
    /// More (true) or fewer registers.
    SetRegisters(bool, u32),
    /// To shared memory: where to, where from, bytes, barrier; the ranks that get it, a bit each, or
    /// [`crate::program::SINK`].
    BulkLoad(Addr, Addr, R, Addr, R),
    /// From shared memory to that of another CTA: where to, where from, bytes, barrier.
    BulkPut(Addr, Addr, R, Addr),
    /// `st.async`: what a store is, and the barrier.
    StoreAsync(Access, Addr),
    /// Whether 64 bits wide, destination, address, rank.
    Mapa(bool, R, R, R),
    /// Whether the address is 64 bits wide, destination, address.
    CtaRank(bool, R, R),
    /// Whether all lanes of a warp come together; whether it releases.
    ClusterArrive(bool, bool),
    /// The same; whether it acquires.
    ClusterWait(bool, bool),
    /// To global memory: where to, where from, bytes.
    BulkStore(Addr, Addr, R),
    TensorLoad(TensorCopy),
    TensorStore(TensorCopy),
    BulkCommit,
    /// All but so many of the newest groups; whether only what they read.
    BulkWait(u32, bool),
}

impl Sm90 {
    /// Whether sm_80 has it already.
    pub fn since_sm_80(&self) -> bool {
        matches!(
            self,
            Sm90::MbarrierInit(..)
                | Sm90::MbarrierInval(_)
                | Sm90::MbarrierArrive(_)
                | Sm90::MbarrierWait(..)
                | Sm90::CpArrive(..)
        )
    }
}
