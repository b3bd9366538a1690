//! What the WGSL printer can print, as data for the planner.
use crate::ptx;
use crate::simt::{Caps, forms};
use kernel::{CtaLimits, Family, Form, GpuTarget, Printer, Target, TargetKind, TileProgram};
use layout::DType;
use machine::{Efficiencies, EfficiencyTable, Machine, MachineError, Warps, Work};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// What an adapter allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Invocations per workgroup.
    pub threads: u32,
    /// Bytes of workgroup memory; 0 where there is none to speak of.
    pub shared_bytes: u32,
    /// 64-bit integers in shaders.
    pub int64: bool,
}

/// What WebGPU asks of every adapter, and 64-bit integers, which most have.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            threads: 256,
            shared_bytes: 16 << 10,
            int64: true,
        }
    }
}

/// A stand-in for whatever GPU answers: its name and limits are replaced by the adapter's.
///
/// # Errors
/// The description does not read, which is a fault of this build.
pub fn machine() -> Result<Machine, MachineError> {
    Machine::from_toml(include_str!("machine.toml"), "machine.toml")
}

/// Element types that WGSL has values of.
fn types() -> Vec<DType> {
    forms::types().filter(|&d| super::print::held(d)).collect()
}

/// Scalar operations without WGSL, or without one that 32-bit integers are enough for.
fn lacks(int64: bool) -> Arc<BTreeSet<Form>> {
    static ALL: [OnceLock<Arc<BTreeSet<Form>>>; 2] = [OnceLock::new(), OnceLock::new()];
    let text: fn(forms::ThreadOp) -> Result<String, String> = match int64 {
        true => super::print::alone,
        false => super::print::alone_in_32_bits,
    };
    let all = || forms::lacking(&types(), text).into();
    ALL[usize::from(int64)].get_or_init(all).clone()
}

/// The target of an adapter with these limits.
pub fn target(limits: Limits) -> Target {
    let threads = [64, 128, 256];
    let there = |d: &DType| *d != DType::I64 || limits.int64;
    Target {
        name: "wgsl".into(),
        kind: TargetKind::Wgsl,
        families: Family::ALL.to_vec(),
        dtypes: types().into_iter().filter(there).collect(),
        lacks: lacks(limits.int64),
        vector_bytes: 16,
        micro: vec![],
        gpu: Some(GpuTarget {
            arch: "wgsl".into(),
            threads: threads
                .into_iter()
                .filter(|&t| t <= limits.threads)
                .collect(),
            tiles: vec![(64, 64), (32, 64), (64, 32), (32, 32), (16, 32)],
            depths: vec![16, 8],
            stages: vec![1],
            copiers: vec![],
            walking: false,
            clusters: vec![],
            cluster_parts: vec![],
            boxes: false,
            store_bytes: 0,
            fragments: vec![],
            swizzles: vec![kernel::Swizzle::default()],
            load_bytes: vec![4],
            // Its compilers unroll as they like.
            unrolls: vec![1],
            rasters: vec![1],
            splits: vec![4, 16],
            dependents: false,
            printer: Printer {
                prints: Some(prints),
                counts: Some(warps),
                counts_code: false,
            },
            limits: CtaLimits {
                threads: limits.threads,
                // Unknown here, and the driver's to spill: as many as any GPU of today has.
                registers: 255,
                register_file: 65_536,
                shared_bytes: limits.shared_bytes.into(),
            },
        }),
        tile_waits: false,
        bf16_dots: false,
        // Not measured: what simple kernels reach on most GPUs.
        efficiencies: EfficiencyTable {
            default: Efficiencies::default()
                .with_level("device", 0.7)
                .with_unit("fma", 0.4),
            ..EfficiencyTable::default()
        },
    }
}

/// What the warps of `program` do on `machine`: as [`crate::ptx::warps`], by the PTX of the same program of threads,
/// as what a driver makes of WGSL is not known.
fn warps(
    program: &TileProgram,
    machine: &Machine,
    work: &Work,
    dims: &dyn Fn(&str) -> Option<i64>,
    below: &dyn Fn(&Warps) -> bool,
) -> Option<Warps> {
    let code = ptx::Code {
        arch: ptx::ARCHS[1],
        caps: Caps::default(),
        shared_bytes: u64::MAX,
    };
    ptx::counted(program, machine, work, dims, below, code)
}

/// Whether there is WGSL for `program` in the memory that `target` shares.
fn prints(program: &TileProgram, target: &Target) -> Result<(), String> {
    program.fits(target).map_err(|e| e.to_string())?;
    let arrays = vec![super::Array::Work; program.kernel().operands.len()];
    let made = super::emit(program, &arrays).map_err(|e| e.to_string())?;
    let most = target.gpu.as_ref().map_or(0, |g| g.limits.shared_bytes);
    match made.shared_bytes <= most {
        true => Ok(()),
        false => Err(format!(
            "tiles and what threads exchange take {} bytes of shared memory; {} has {most}",
            made.shared_bytes, target.name
        )),
    }
}
