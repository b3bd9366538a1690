//! What a backend can do, as data: legal register tiles, CTA limits, families. Backends define their
//! [`Target`]; the planner picks schedules only from it.
use crate::{Family, Form, Fragment, Swizzle, TileProgram};
use layout::DType;
use machine::{EfficiencyTable, Machine, Warps, Work};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Which code a target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)]
pub enum TargetKind {
    Cpu,
    Ptx,
    Wgsl,
}

/// A register tile that a CPU micro-kernel exists for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MicroShape {
    /// Rows.
    pub mr: u32,
    /// Columns.
    pub nr: u32,
    /// Share of the FMA peak that it reaches on L1-resident operands, 0..1.
    pub efficiency: f64,
}

/// What there is for one CTA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CtaLimits {
    /// Threads.
    pub threads: u32,
    /// 32-bit registers per thread.
    pub registers: u32,
    /// 32-bit registers of all its threads together.
    pub register_file: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u64,
}

/// How a target's printer counts what warps do for a program on a machine, with these values of symbols;
/// the work says what crosses the levels, and how many CTAs a multiprocessor holds. The last argument is asked, once
/// instructions are known and before it is found out how long they wait for each other, whether that is still of
/// interest: what it is given, and what is answered where it is not, is what warps take at least.
pub type CountWarps = fn(
    &TileProgram,
    &Machine,
    &Work,
    &dyn Fn(&str) -> Option<i64>,
    &dyn Fn(&Warps) -> bool,
) -> Option<Warps>;

/// Whether a target's code can be printed for a program, or what of it has no form there.
pub type Prints = fn(&TileProgram, &Target) -> Result<(), String>;

/// What a target's printer says of programs; nothing for code of others. It is no part of what a target
/// says of itself: two that differ in it alone are equal, and it is not stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct Printer {
    /// Whether there is code for a program. No plan has a schedule that this refuses.
    pub prints: Option<Prints>,
    /// What the warps of that code do, where its instructions are known.
    pub counts: Option<CountWarps>,
    /// Counting prints the code first: a program that was counted has code.
    pub counts_code: bool,
}

impl PartialEq for Printer {
    fn eq(&self, _: &Printer) -> bool {
        true
    }
}

/// Legal values of the GPU part of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuTarget {
    /// `sm_80`, `sm_90`, ...
    pub arch: String,
    /// Threads per CTA to choose from.
    pub threads: Vec<u32>,
    /// Accumulator tiles (rows, columns) per CTA to choose from.
    pub tiles: Vec<(u32, u32)>,
    /// Depths of a k tile to choose from, in elements.
    pub depths: Vec<u32>,
    /// Pipeline depths to choose from.
    pub stages: Vec<u32>,
    /// Warps to choose from that only copy, beside products of warpgroups; none: all threads copy.
    #[serde(default)]
    pub copiers: Vec<u32>,
    /// Whether CTAs some of whose warps only copy can walk tasks; else each has one task.
    #[serde(default)]
    pub walking: bool,
    /// CTAs of a cluster to choose from, beside 1: such warps copy what all of them read.
    #[serde(default)]
    pub clusters: Vec<u32>,
    /// CTAs of a cluster to choose from that make the parts of one sum and add them from each other's shared memory.
    #[serde(default)]
    pub cluster_parts: Vec<u32>,
    /// Whether such warps can copy boxes of tensors ([`crate::Place::Tensor`]).
    #[serde(default)]
    pub boxes: bool,
    /// Tensor-core instructions.
    pub fragments: Vec<Fragment>,
    /// Swizzles the emitter can print.
    pub swizzles: Vec<Swizzle>,
    /// Bytes per global load instruction to choose from.
    pub load_bytes: Vec<u32>,
    /// Bytes per global store instruction that warpgroups exchange results for; 0: they do not.
    #[serde(default)]
    pub store_bytes: u32,
    /// Times that innermost loops may be written out; none: once.
    #[serde(default)]
    pub unrolls: Vec<u32>,
    /// Raster widths to choose from.
    pub rasters: Vec<u32>,
    /// Parts to choose from that a long sum may be cut into, each a task of its own, with their sum as a
    /// step behind.
    pub splits: Vec<u32>,
    /// Whether a kernel waits for those before it by itself, so that it may be launched before they are over
    /// (programmatic dependent launch).
    #[serde(default)]
    pub dependents: bool,
    /// What a CTA may take; see [`crate::TileProgram::fits`].
    pub limits: CtaLimits,
    /// What its printer says of programs.
    #[serde(skip)]
    pub printer: Printer,
}

/// What a backend of ours can do, as data: the planner picks only from it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// `cpu-avx512`, `ptx-sm_80`, ...
    pub name: String,
    /// Code.
    pub kind: TargetKind,
    /// Families that it runs; others are host steps.
    pub families: Vec<Family>,
    /// Element types that tiles may have.
    pub dtypes: Vec<DType>,
    /// Scalar operations on these types that it has no form for; see [`Target::lacking`].
    #[serde(default)]
    pub lacks: Arc<BTreeSet<Form>>,
    /// Width of a vector register in bytes (a GPU: of one lane).
    pub vector_bytes: u32,
    /// Register tiles (CPU).
    pub micro: Vec<MicroShape>,
    /// GPU part.
    pub gpu: Option<GpuTarget>,
    /// Whether its executor lets a task start when just the tasks that it needs are over
    /// (`Wait::Tiles`); else such a wait is taken for one for the whole step.
    #[serde(default)]
    pub tile_waits: bool,
    /// Whether it sums products of bf16 by an instruction of their own; else they are widened first.
    #[serde(default)]
    pub bf16_dots: bool,
    /// How near each family comes to the machine's roofs.
    pub efficiencies: EfficiencyTable,
}
