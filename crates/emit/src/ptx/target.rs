//! What the PTX emitter can print, as data for the planner.
use kernel::{Counts, CtaLimits, Family, Fragment, GpuTarget, Swizzle, Target, TargetKind};
use layout::DType;
use machine::{Efficiencies, EfficiencyTable};

/// What a CTA has on `arch`, as the vendor's table of compute capabilities says; shared memory with the
/// opt-in for more than 48 KiB.
pub fn limits(arch: &str) -> CtaLimits {
    let kib = match arch {
        "sm_75" => 64,
        "sm_80" => 163,
        "sm_90" => 227,
        _ => 48,
    };
    CtaLimits {
        threads: 1024,
        registers: 255,
        register_file: 65_536,
        shared_bytes: kib << 10,
    }
}

/// Registers that a thread of a CTA can have at most, whose `threads` share the file.
pub(super) fn registers_for(threads: u32) -> u32 {
    let most = limits("sm_80");
    let warps = threads.max(1).next_multiple_of(32);
    (most.register_file / warps / 8 * 8).min(most.registers)
}

/// The target of `arch` (`sm_80`, `sm_90`): legal values of every GPU field of a schedule. For any
/// other name it has no families, so that nothing is planned for it.
pub fn target(arch: &str) -> Target {
    let known = super::ARCHS.contains(&arch);
    Target {
        name: format!("ptx-{arch}"),
        kind: TargetKind::Ptx,
        families: if known { Family::ALL.to_vec() } else { vec![] },
        dtypes: DType::ALL.to_vec(),
        vector_bytes: 16,
        micro: vec![],
        gpu: Some(GpuTarget {
            arch: arch.into(),
            threads: vec![64, 128, 256],
            tiles: vec![(128, 128), (128, 64), (64, 128), (64, 64), (32, 64)],
            depths: vec![64, 32, 16],
            stages: vec![4, 3, 2, 1],
            fragments: if arch == "sm_75" {
                vec![]
            } else {
                [DType::F16, DType::BF16]
                    .into_iter()
                    .map(|input| Fragment {
                        m: 16,
                        n: 8,
                        k: 16,
                        input,
                        acc: DType::F32,
                    })
                    .collect()
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
            splits: vec![2, 4, 8, 16, 32],
            counts: Counts(Some(super::warps)),
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
