//! The `vendor` Target: what the vendor's library would launch on a machine, and how near it comes to the
//! machine's roofs. Data like any other [`Target`], so a plan can be made with it as well.

use crate::Constants;
use crate::constants::{Generation, Tiles};
use kernel::{
    CtaLimits, Factors, Family, Fragment, GpuTarget, Printer, Swizzle, Target, TargetKind,
};
use layout::DType;
use machine::{
    Efficiencies, EfficiencyTable, Machine, MachineKind, NumType, ProductCosts, UnitClass,
};

/// The vendor's library on `machine`, with the published constants; `None` for a CPU, whose libraries
/// nothing here was compared with.
pub fn vendor(machine: &Machine) -> Option<Target> {
    vendor_with(machine, Constants::published())
}

/// [`vendor`] with other constants.
pub fn vendor_with(machine: &Machine, c: &Constants) -> Option<Target> {
    if machine.kind != MachineKind::Gpu {
        return None;
    }
    let limit = |v: Option<machine::Sourced<u64>>, or: u64| v.map_or(or, |s| s.value);
    let l = &machine.limits;
    let kind = match machine.isa.name.as_str() {
        "wgsl" => TargetKind::Wgsl,
        _ => TargetKind::Ptx,
    };
    let mut swizzles = vec![Swizzle::default()];
    swizzles.extend([3, 4, 5].map(|shift| Swizzle {
        bits: 3,
        base: 3,
        shift,
    }));
    Some(Target {
        name: format!("vendor-{}", machine.name.to_lowercase()),
        kind,
        families: Family::ALL.to_vec(),
        dtypes: DType::ALL.to_vec(),
        lacks: Default::default(),
        vector_bytes: 16,
        micro: vec![],
        gpu: Some(GpuTarget {
            arch: machine.isa.features.first().cloned().unwrap_or_default(),
            threads: vec![64, 128, 256],
            tiles: c.tables.products.tiles.clone(),
            depths: vec![64, 32, 16],
            stages: vec![4, 3, 2, 1],
            copiers: vec![],
            walking: false,
            clusters: vec![],
            cluster_parts: vec![],
            boxes: false,
            store_bytes: 0,
            fragments: fragments(machine),
            swizzles,
            load_bytes: vec![16, 8, 4, 2],
            unrolls: vec![],
            rasters: vec![8, 4, 1],
            splits: c.tables.products.parts.clone(),
            dependents: false,
            printer: Printer::default(),
            limits: CtaLimits {
                threads: limit(l.threads_per_cta, 1024) as u32,
                registers: limit(l.registers_per_thread, 255) as u32,
                register_file: limit(l.registers_per_sm, 65_536).min(1 << 20) as u32,
                shared_bytes: limit(l.shared_per_cta, 48 << 10),
            },
        }),
        tile_waits: false,
        bf16_dots: false,
        efficiencies: efficiencies(machine, c),
    })
}

/// Tiles of the library's kernels for batched f32 products, where it has few.
pub(crate) fn batched_tiles(m: &Machine, c: &Constants) -> Option<Tiles> {
    let own = |g: &&Generation| (g.from..g.below).contains(&m.limits.cc);
    c.tables
        .batched
        .of
        .iter()
        .find(own)
        .map(|g| g.tiles.clone())
}

/// The matrix units' instructions, by the types that tensors have; f32 in TF32 or bf16 is for who asks for it.
fn fragments(m: &Machine) -> Vec<Fragment> {
    let types = [
        (DType::F16, DType::F32, Factors::Whole),
        (DType::BF16, DType::F32, Factors::Whole),
        (DType::I8, DType::I32, Factors::Whole),
        (DType::F32, DType::F32, Factors::Whole),
        (DType::F32, DType::F32, Factors::Tf32),
        (DType::F32, DType::F32, Factors::Bf16),
        (DType::F64, DType::F64, Factors::Whole),
    ];
    let one = |(input, acc, factors): (DType, DType, Factors)| {
        let mut found = Fragment {
            m: 1,
            n: 1,
            k: 1,
            input,
            acc,
            factors,
            right: None,
        };
        // Whose instructions are a warp's or a warpgroup's is the library's own affair: shapes are those of a warp's.
        let warp = m.matrix_unit(found.number(), 16);
        let unit = warp.or(m.unit(UnitClass::Tensor, found.number()))?;
        let size = |n: u64| u32::try_from(n).ok().map(|n| n.max(1));
        (found.m, found.n, found.k) = (size(unit.tile.0)?, size(unit.tile.1)?, size(unit.tile.2)?);
        Some(found)
    };
    types.into_iter().filter_map(one).collect()
}

/// Share of the bus that streams reach, by who made the memory system: see `constants.toml`.
pub fn bandwidth_share(m: &Machine, c: &Constants) -> f64 {
    let memory = m.memory().bus.as_ref().map_or("", |b| &b.memory);
    if m.vendor.eq_ignore_ascii_case("amd") && memory.starts_with("HBM") {
        c.get("bandwidth_cdna")
    } else if (1..70).contains(&m.limits.cc) {
        c.get("bandwidth_before_volta")
    } else {
        c.get("bandwidth_stream")
    }
}

/// Share of the f32 multiply-add rate that the power cap leaves to a long product.
pub fn power_share(m: &Machine, c: &Constants) -> f64 {
    let (Some(power), Some(fma)) = (m.power_w, m.unit(UnitClass::Fma, NumType::F32)) else {
        return 1.0;
    };
    let each = match m.limits.cc {
        60..=75 => c.get("watts_per_tflops_finfet"),
        80..=87 => c.get("watts_per_tflops_7nm"),
        89..=121 => c.get("watts_per_tflops_4nm"),
        _ => return 1.0,
    };
    // A faster clock takes voltage: what an operation takes grows with it.
    let each = each * m.workers.clock_hz.value / 1.4e9;
    let need = each * fma.all.value * 1e-12 * issue_share(m, c);
    (power.value / need).min(1.0).powf(c.get("power_exponent"))
}

/// Share of the f32 multiply-add peak that the schedulers can issue.
fn issue_share(m: &Machine, c: &Constants) -> f64 {
    if m.limits.cc >= 80 && m.workers.lanes.value >= 128 {
        c.get("single_issue_share")
    } else {
        1.0
    }
}

fn efficiencies(m: &Machine, c: &Constants) -> EfficiencyTable {
    // A level's share is of what the catalog says it reads, which holds an assumption of its own.
    let device = m.memory();
    let share = bandwidth_share(m, c) * device.peak() / device.read.all.value.max(1.0);
    let default = Efficiencies::default()
        .with_level(&device.name, share)
        .with_level("L2", c.get("l2_share"))
        .with_level("shared", c.get("shared_share"));
    let fma = c.get("fma_share") * issue_share(m, c) * power_share(m, c);
    let product = default
        .clone()
        .with_unit("fma", fma)
        .with_unit("tensor", c.get("tensor_share"));
    let families = ["contract", "conv", "attention"];
    let before_volta = (1..70).contains(&m.limits.cc);
    EfficiencyTable {
        default,
        families: families.map(|f| (f.to_string(), product.clone())).into(),
        products: Some(ProductCosts {
            matrix_rim: c.get("tensor_overhead"),
            thread_rim: c.get("issue_overhead"),
            far_row: before_volta.then(|| c.get("far_row_kb") * 1e3),
            windows: c.get("conv_share"),
            fewer: c.get("winograd_gain"),
            round_s: c.get("cta_us") * 1e-6,
        }),
    }
}
