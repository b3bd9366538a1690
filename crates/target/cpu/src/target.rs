//! What the CPU backend can do, as data for the planner.
use crate::isa::Isa;
use crate::ukr::shapes;
use kernel::{Family, MicroShape, Target, TargetKind};
use layout::DType;
use layout::Inserted;
use machine::{Efficiencies, EfficiencyTable};

/// The target of an instruction set.
pub fn target(isa: Isa) -> Target {
    let lanes = isa.lanes() as u32;
    let micro = shapes(isa)
        .iter()
        .map(|&(mr, nr)| MicroShape {
            mr: mr as u32,
            nr: nr as u32,
            efficiency: efficiency(mr as f64, nr as f64, lanes as f64),
        })
        .collect();
    // Programs of scalar instructions pass their values through memory, row by row.
    let program = |fma: f64| {
        Efficiencies::default()
            .with_unit("fma", fma)
            .with_unit("simple", 0.5)
            .with_unit("divsqrt", 0.7)
            .with_unit("transcendental", 0.9)
    };
    let families = [
        ("contract", program(0.96)),
        ("conv", program(0.96)),
        // Products without register tiles of rows and columns.
        ("depthwise", program(0.5)),
        ("attention", program(0.9)),
    ];
    Target {
        name: format!("cpu-{isa}"),
        kind: TargetKind::Cpu,
        families: vec![
            Family::Contract,
            Family::Conv,
            Family::Map,
            Family::Row,
            Family::Select,
            Family::Pool,
            Family::Move,
            Family::Attention,
            Family::Recurrent,
        ],
        dtypes: DType::ALL.to_vec(),
        lacks: Default::default(),
        vector_bytes: lanes * 4,
        micro,
        gpu: None,
        tile_waits: true,
        bf16_dots: crate::ukr::has_bf16_dots() && isa == Isa::Avx512,
        efficiencies: EfficiencyTable {
            default: program(0.96),
            families: families
                .into_iter()
                .map(|(n, e)| (n.to_string(), e))
                .inserted(),
            products: None,
        },
    }
}

/// Share of the FMA peak of a register tile: FMA takes four cycles and two start per cycle, so eight
/// accumulators must be in flight (small tiles split their sums to get there), and each step loads
/// `nr / lanes` vectors and broadcasts `mr` numbers through two load ports.
fn efficiency(mr: f64, nr: f64, lanes: f64) -> f64 {
    let vectors = nr / lanes;
    let fmas = mr * vectors;
    // Broadcasts are folded into the multiply-add where it has a memory operand.
    let loads = mr + vectors;
    let cycles = (fmas / 2.0).max(loads / 2.0).max(1.0);
    let latency: f64 = if fmas < 8.0 { 0.9 } else { 1.0 };
    (fmas / 2.0 / cycles * latency * 0.98).min(0.98)
}
