//! What the PTX emitter can print, as data for the planner.
use super::arch::{caps, limits};
use crate::simt::forms;
use kernel::{
    Factors, Family, Form, Fragment, GpuTarget, Printer, Swizzle, Target, TargetKind, TileProgram,
};
use layout::DType;
use machine::{COPIED, EXCHANGED, Efficiencies, EfficiencyTable};
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

/// Scalar operations without PTX, the same on every architecture.
fn lacks() -> Arc<BTreeSet<Form>> {
    static ALL: OnceLock<Arc<BTreeSet<Form>>> = OnceLock::new();
    let all = || {
        let types: Vec<DType> = forms::types().collect();
        forms::lacking(&types, super::threads::alone).into()
    };
    ALL.get_or_init(all).clone()
}

/// Matrix instructions from sm_80 on.
fn fragments() -> Vec<Fragment> {
    let of = |(input, right, k, acc, factors)| Fragment {
        m: 16,
        n: 8,
        k,
        input,
        acc,
        factors,
        right,
    };
    kinds().into_iter().map(of).collect()
}

/// Types of factors, depth of an instruction, type of its sums, and what it multiplies.
type Kind = (DType, Option<DType>, u32, DType, Factors);

/// What matrix instructions multiply: floats, and integers of 8 bits with signs or without on either side.
fn kinds() -> Vec<Kind> {
    let floats = [
        (DType::F16, 16, Factors::Whole),
        (DType::BF16, 16, Factors::Whole),
        (DType::F32, 8, Factors::Tf32),
        (DType::F32, 8, Factors::Tf32x3),
        (DType::F32, 16, Factors::Bf16),
        (DType::F32, 16, Factors::Bf16x3),
    ];
    let integers = [
        (DType::I8, None),
        (DType::U8, Some(DType::I8)),
        (DType::I8, Some(DType::U8)),
        (DType::U8, None),
    ];
    let float = |(d, k, factors)| (d, None, k, DType::F32, factors);
    let integer = |(d, right)| (d, right, 32, DType::I32, Factors::Whole);
    let floats = floats.into_iter().map(float);
    floats.chain(integers.into_iter().map(integer)).collect()
}

/// Columns of the sums that a warpgroup's instructions have; they can have any multiple of 8 up to 256.
const COLUMNS: [u32; 5] = [256, 128, 64, 32, 16];

/// Matrix instructions of warpgroups, from sm_90a on.
fn warpgroup_fragments() -> Vec<Fragment> {
    let of = |n: u32| {
        let one = move |(input, right, k, acc, factors): Kind| Fragment {
            m: 64,
            n,
            k,
            input,
            acc,
            factors,
            right,
        };
        kinds().into_iter().map(one)
    };
    COLUMNS.into_iter().flat_map(of).collect()
}

/// Accumulator tiles of a CTA.
fn tiles(arch: &str) -> Vec<(u32, u32)> {
    let mut all = vec![
        (128, 128),
        (128, 64),
        (64, 128),
        (64, 64),
        (32, 64),
        (32, 32),
        (16, 64),
        (16, 32),
    ];
    if caps(arch).warpgroups {
        all.splice(0..0, [(128, 256), (64, 256)]);
        all.extend([(128, 32), (64, 32), (128, 16), (64, 16)]);
    }
    all
}

/// The target of `arch` (`sm_80`, `sm_90a`): legal values of every GPU field of a schedule. For any
/// other name it has no families, so that nothing is planned for it.
pub fn target(arch: &str) -> Target {
    let known = super::ARCHS.contains(&arch);
    Target {
        name: format!("ptx-{arch}"),
        kind: TargetKind::Ptx,
        families: if known { Family::ALL.to_vec() } else { vec![] },
        dtypes: forms::types().collect(),
        lacks: lacks(),
        vector_bytes: 16,
        micro: vec![],
        gpu: Some(GpuTarget {
            arch: arch.into(),
            threads: vec![64, 128, 256],
            tiles: tiles(arch),
            depths: vec![128, 64, 32, 16],
            stages: match caps(arch).copies {
                true => vec![4, 3, 2, 1],
                false => vec![1],
            },
            copiers: match caps(arch).warpgroups {
                true => vec![0, 4],
                false => vec![],
            },
            walking: caps(arch).warpgroups,
            clusters: match caps(arch).warpgroups {
                true => vec![2],
                false => vec![],
            },
            cluster_parts: match caps(arch).warpgroups {
                true => vec![2, 4, 8],
                false => vec![],
            },
            boxes: caps(arch).warpgroups,
            store_bytes: match caps(arch).warpgroups {
                true => 16,
                false => 0,
            },
            fragments: match arch {
                "sm_75" => vec![],
                _ if caps(arch).warpgroups => [warpgroup_fragments(), fragments()].concat(),
                _ => fragments(),
            },
            swizzles: vec![
                Swizzle::default(),
                Swizzle {
                    bits: 1,
                    base: 3,
                    shift: 3,
                },
                Swizzle {
                    bits: 2,
                    base: 3,
                    shift: 3,
                },
                Swizzle {
                    bits: 3,
                    base: 3,
                    shift: 3,
                },
                Swizzle {
                    bits: 3,
                    base: 3,
                    shift: 4,
                },
                Swizzle {
                    bits: 3,
                    base: 3,
                    shift: 5,
                },
            ],
            load_bytes: vec![16, 8, 4, 2],
            unrolls: vec![8, 4, 2, 1],
            rasters: vec![8, 4, 1],
            splits: vec![2, 4, 8, 16, 32, 64],
            dependents: caps(arch).dependents,
            printer: Printer {
                prints: Some(prints),
                counts: Some(super::warps),
                counts_code: true,
            },
            limits: limits(arch),
        }),
        tile_waits: true,
        bf16_dots: false,
        efficiencies: efficiencies(),
    }
}

/// Shares of bandwidths and rates: guesses of what well-pipelined kernels without hardware copies reach, and, for those
/// whose warps copy, the share of the L2 that products on an H100 were measured to reach (shared/gpu/h100-lab.txt, tiles
/// read in the measured time by 9.7 TB/s: squares of 4096 and 8192 in stage s3a 0.92 and 0.96; in s5, which writes whole
/// sectors, 0.97 and 0.98, and all of it in the rounds in which every multiprocessor has a tile).
fn efficiencies() -> EfficiencyTable {
    let default = Efficiencies::default()
        .with_level("L2", 0.8)
        .with_level("shared", 0.8)
        .with_unit("tensor", 0.7)
        .with_unit("fma", 0.75);
    let copied = default.clone().with_level("L2", 0.95);
    let exchanged = default.clone().with_level("L2", 1.0);
    EfficiencyTable {
        default,
        families: [
            (COPIED.to_string(), copied),
            (EXCHANGED.to_string(), exchanged),
        ]
        .into(),
        ..EfficiencyTable::default()
    }
}

/// Whether there is PTX for `program`.
fn prints(program: &TileProgram, target: &Target) -> Result<(), String> {
    let arch = target.gpu.as_ref().map_or("", |g| &g.arch);
    let made = super::emit(program, arch);
    made.map(|_| ()).map_err(|e| e.to_string())
}
