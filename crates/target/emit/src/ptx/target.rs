//! What the PTX emitter can print, as data for the planner.
use super::arch::{caps, limits};
use crate::simt::forms;
use kernel::{
    Factors, Family, Form, Fragment, GpuTarget, Printer, Swizzle, Target, TargetKind, TileProgram,
};
use layout::DType;
use machine::{Efficiencies, EfficiencyTable};
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
    let of = |(input, k, factors)| Fragment {
        m: 16,
        n: 8,
        k,
        input,
        acc: DType::F32,
        factors,
    };
    [
        (DType::F16, 16, Factors::Whole),
        (DType::BF16, 16, Factors::Whole),
        (DType::F32, 8, Factors::Tf32),
        (DType::F32, 8, Factors::Tf32x3),
    ]
    .map(of)
    .to_vec()
}

/// The target of `arch` (`sm_80`, `sm_90`): legal values of every GPU field of a schedule. For any
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
            tiles: vec![
                (128, 128),
                (128, 64),
                (64, 128),
                (64, 64),
                (32, 64),
                (32, 32),
            ],
            depths: vec![128, 64, 32, 16],
            stages: match caps(arch).copies {
                true => vec![4, 3, 2, 1],
                false => vec![1],
            },
            fragments: match arch {
                "sm_75" => vec![],
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
            unrolls: vec![4, 2, 1],
            rasters: vec![8, 4, 1],
            splits: vec![2, 4, 8, 16, 32, 64],
            printer: Printer {
                prints: Some(prints),
                counts: Some(super::warps),
                counts_code: true,
            },
            limits: limits(arch),
        }),
        // Not measured yet: guesses of what well-pipelined kernels without hardware copies reach.
        tile_waits: true,
        bf16_dots: false,
        efficiencies: EfficiencyTable {
            default: Efficiencies::default()
                .with_level("device", 0.85)
                .with_level("L2", 0.8)
                .with_level("shared", 0.8)
                .with_unit("tensor", 0.7)
                .with_unit("fma", 0.75),
            ..EfficiencyTable::default()
        },
    }
}

/// Whether there is PTX for `program`.
fn prints(program: &TileProgram, target: &Target) -> Result<(), String> {
    let arch = target.gpu.as_ref().map_or("", |g| &g.arch);
    let made = super::emit(program, arch);
    made.map(|_| ()).map_err(|e| e.to_string())
}
