//! What a target's CTAs have no room for, each with its figure.
use crate::common;
use shopfloor_kernel as kernel;

use common::*;
use kernel::{
    CtaLimits, Family, Fragment, GpuMapping, GpuTarget, Kernel, Mapping, Place, Schedule, Spread,
    Swizzle, Target, TargetKind, TileProgram,
};
use layout::{DType, Dim};
use machine::EfficiencyTable;

fn target(kind: TargetKind, shared_bytes: u64) -> Target {
    Target {
        name: "a target".into(),
        kind,
        families: vec![Family::Contract],
        dtypes: DType::ALL.to_vec(),
        lacks: Default::default(),
        vector_bytes: 16,
        micro: vec![],
        gpu: Some(GpuTarget {
            arch: "sm_80".into(),
            threads: vec![256],
            tiles: vec![],
            depths: vec![],
            stages: vec![],
            copiers: vec![],
            walking: false,
            clusters: vec![],
            cluster_parts: vec![],
            boxes: false,
            store_bytes: 0,
            fragments: vec![],
            swizzles: vec![],
            load_bytes: vec![],
            unrolls: vec![],
            rasters: vec![],
            splits: vec![],
            dependents: false,
            printer: kernel::Printer::default(),
            limits: CtaLimits {
                threads: 1024,
                registers: 255,
                register_file: 65_536,
                shared_bytes,
            },
        }),
        tile_waits: false,
        bf16_dots: false,
        efficiencies: EfficiencyTable::default(),
    }
}

fn gemm() -> Kernel {
    let [m, n, k] = [1024, 1024, 512].map(Dim::Known);
    common::gemm(m, n, k, DType::F16)
}

fn map(s: &mut Schedule) -> &mut GpuMapping {
    match &mut s.mapping {
        Mapping::Gpu(g) => g,
        Mapping::Cpu(_) => panic!("not for a GPU"),
    }
}

/// What is said of the product's schedule after `change`.
fn refused(t: &Target, change: impl FnOnce(&mut Schedule)) -> Option<String> {
    let mut s = gemm_gpu();
    change(&mut s);
    let p = TileProgram::new(gemm(), s).unwrap();
    p.fits(t).err().map(|e| e.to_string())
}

#[test]
fn a_schedule_within_the_limits_passes() {
    let t = target(TargetKind::Ptx, 163 << 10);
    assert_eq!(refused(&t, |_| {}), None);
    let p = TileProgram::new(gemm(), gemm_gpu()).unwrap();
    // Three stages of two tiles of 128 x 32 halves; 128 x 128 sums and as many halves over 256 threads.
    assert_eq!(p.shared_bytes(TargetKind::Ptx), 3 * 2 * 128 * 32 * 2);
    assert_eq!(p.held_registers(), 64 + 32 + 1);
}

#[test]
fn what_is_over_a_limit_is_named_with_its_figure() {
    let t = target(TargetKind::Ptx, 163 << 10);
    let says = |change: &dyn Fn(&mut Schedule), parts: &[&str]| {
        let e = refused(&t, change).expect("it is over a limit");
        for p in ["kernel 'gemm'", "rule limits"].iter().chain(parts) {
            assert!(e.contains(p), "no '{p}' in: {e}");
        }
    };
    // Eleven stages.
    let deep = |s: &mut Schedule| {
        for p in &mut s.places {
            if let Place::Shared { stages, .. } = p {
                *stages = 11;
            }
        }
    };
    says(&deep, &["180224 bytes", "166912"]);
    // 512 threads of 168 registers.
    let wide = |s: &mut Schedule| {
        map(s).threads = 512;
        map(s).warps = [4, 4];
    };
    says(&wide, &["512 threads of 168 registers take 86016", "65536"]);
    // 256 x 256 sums over 256 threads, and as many halves.
    let large = |s: &mut Schedule| {
        s.grid = vec![at(0, 256), at(1, 256)];
        map(s).registers = 255;
    };
    says(&large, &["take 385 registers", "255"]);
    let small = Target {
        gpu: t.gpu.clone().map(|mut g| {
            g.limits.registers = 128;
            g.limits.threads = 128;
            g
        }),
        ..t.clone()
    };
    let e = refused(&small, |_| {}).unwrap();
    assert!(e.contains("256 threads in a CTA; a target has 128"), "{e}");
    let e = refused(&small, |s| {
        map(s).threads = 128;
        map(s).warps = [2, 2];
    });
    let e = e.unwrap();
    assert!(
        e.contains("168 registers per thread; a target has 128"),
        "{e}"
    );
}

#[test]
fn threads_without_fragments_hold_what_lies_over_them() {
    let spread = |axis, stride, count, each| Spread {
        axis,
        stride,
        count,
        each,
    };
    let mut s = gemm_gpu();
    for p in &mut s.places {
        if let Place::Shared { swizzle, stages } = p {
            (*swizzle, *stages) = (Swizzle::default(), 1);
        }
    }
    map(&mut s).fragment = None::<Fragment>;
    map(&mut s).spread = vec![spread(1, 1, 16, 4), spread(0, 16, 16, 1)];
    let p = TileProgram::new(gemm(), s.clone()).unwrap();
    // 8 x 8 sums and as many results, and 8 of the other operand.
    assert_eq!(p.held_registers(), 64 + 64 + 8);
    assert!(p.fits(&target(TargetKind::Ptx, 163 << 10)).is_ok());
    // Words in WGSL.
    assert_eq!(p.shared_bytes(TargetKind::Wgsl), 2 * 128 * 32 * 4);
    let e = p.fits(&target(TargetKind::Wgsl, 16 << 10)).unwrap_err();
    assert!(e.to_string().contains("32768 bytes"), "{e}");
    map(&mut s).spread = vec![spread(1, 1, 16, 4)];
    let p = TileProgram::new(gemm(), s).unwrap();
    let e = p.fits(&target(TargetKind::Ptx, 163 << 10)).unwrap_err();
    assert!(e.to_string().contains("registers of every thread"), "{e}");
}
