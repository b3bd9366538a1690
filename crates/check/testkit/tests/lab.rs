//! Products that were measured on an H100, stage by stage of a recipe in plain PTX, as schedules predict them.
use graph::{GraphBuilder, Op};
use kernel::{Fragment, Target};
use layout::{DType, Dim, DimBox};
use machine::Machine;
use plan::{Allotment, Planner as _, StepWork};
use planner::{PlanOptions, Planner};
use shopfloor::{Model, ModelOptions};
use std::path::Path;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testkit::handwritten::{node, product};

/// Rows, columns and depth of the products.
const SIZES: [i64; 4] = [1024, 2048, 4096, 8192];

/// What was measured: a stage, what a schedule may have, and TFLOPS for products of [`SIZES`].
struct Stage {
    name: &'static str,
    tile: (u32, u32),
    stages: u32,
    threads: u32,
    warps: u32,
    copiers: u32,
    measured: [f64; 4],
}

/// Of `../shared/gpu/h100-lab.txt`.
const STAGES: [Stage; 3] = [
    Stage {
        name: "s1 mma.sync 128x128x64 3st",
        tile: (128, 128),
        stages: 3,
        threads: 256,
        warps: 1,
        copiers: 0,
        measured: [121.5, 304.9, 364.5, 356.5],
    },
    Stage {
        name: "s3a 128x128 5st",
        tile: (128, 128),
        stages: 5,
        threads: 256,
        warps: 4,
        copiers: 4,
        measured: [220.9, 466.0, 571.5, 598.4],
    },
    Stage {
        name: "s3b 128x256 4st",
        tile: (128, 256),
        stages: 4,
        threads: 256,
        warps: 4,
        copiers: 4,
        measured: [129.5, 495.7, 704.7, 760.5],
    },
];

/// The target with the schedules of a stage alone.
fn target(s: &Stage) -> Target {
    let mut t = emit::ptx::target("sm_90a");
    let gpu = t.gpu.as_mut().expect("a GPU");
    gpu.tiles = vec![s.tile];
    gpu.stages = vec![s.stages];
    gpu.depths = vec![64];
    gpu.threads = vec![s.threads];
    gpu.copiers = vec![s.copiers];
    gpu.rasters = vec![8];
    gpu.splits = vec![];
    let own = |f: &Fragment| f.warps() == s.warps;
    gpu.fragments.retain(own);
    t
}

fn square(n: i64) -> Model {
    let mut weights = WeightStore::new();
    let w = Tensor::zeros(DType::BF16, &[n as usize; 2]).expect("memory");
    let w = weights.add_tensor("w", w).expect("a weight");
    let mut b = GraphBuilder::new("product", Arc::new(weights));
    let x = b.input("x", DType::BF16, vec![Dim::Known(n); 2]);
    let w = b.weight(w).expect("a weight");
    let op: Op = product(&[0, 1], &[1, 2], &[0, 2]);
    let y = node(&mut b, op, &[x, w], "y");
    Model::from_graph("product", &b.finish(&[y]), &ModelOptions::default()).expect("a model")
}

/// Seconds that a stage's product of `n` by `n` by `n` is predicted to take.
fn predicted(s: &Stage, n: i64) -> f64 {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plan/machine/machines");
    let machine = |name: &str| Machine::from_file(&machines.join(name)).expect("a machine");
    let host = (machine("zen4-2core.toml"), cpu::target(cpu::Isa::Avx2));
    let on = vec![host, (machine("h100.toml"), target(s))];
    let model = square(n);
    let planner = Planner::new(on, PlanOptions::default());
    let plan = planner
        .bind(model.program(), &DimBox::new(), &Allotment::default())
        .expect("a plan");
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let product = steps.filter(|s| match &s.work {
        StepWork::Kernel { kernel, .. } => kernel.family == kernel::Family::Contract,
        StepWork::Host { .. } => false,
    });
    product.map(|s| s.predicted.time_s).sum()
}

/// How far a prediction may be from what was measured.
const WITHIN: f64 = 0.15;

/// The stage with bulk copies by threads that multiply too is none that a schedule has.
#[test]
fn products_take_what_was_measured_of_their_stage() {
    let mut wrong = String::new();
    for s in &STAGES {
        for (n, measured) in SIZES.into_iter().zip(s.measured) {
            let seconds = 2.0 * (n as f64).powi(3) / (measured * 1e12);
            let share = predicted(s, n) / seconds;
            let line = format!(
                "{} at {n}: measured {:.1} us, predicted {share:.2} of it\n",
                s.name,
                seconds * 1e6
            );
            print!("{line}");
            if (share - 1.0).abs() > WITHIN {
                wrong += &line;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}
