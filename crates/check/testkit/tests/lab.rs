//! Products that were measured on an H100, stage by stage of a recipe in plain PTX, as schedules predict them.
use graph::{GraphBuilder, Op};
use kernel::{Family, Fragment, Place, Target, TileProgram};
use layout::{DType, Dim, DimBox};
use machine::Machine;
use plan::{Allotment, Plan, Planner as _, Step, StepWork};
use planner::{PlanOptions, Planner};
use shopfloor::{Model, ModelOptions};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testkit::handwritten::{node, product};
use testkit::tools::tool;

/// Rows, columns and depth of the products.
const SIZES: [i64; 4] = [1024, 2048, 4096, 8192];

/// What was measured: a stage, what a schedule may have, and TFLOPS for products of [`SIZES`].
struct Stage {
    name: &'static str,
    tile: (u32, u32),
    stages: u32,
    /// Warps of its matrix instruction.
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
        warps: 1,
        copiers: 0,
        measured: [121.5, 304.9, 364.5, 356.5],
    },
    Stage {
        name: "s3a 128x128 5st",
        tile: (128, 128),
        stages: 5,
        warps: 4,
        copiers: 4,
        measured: [220.9, 466.0, 571.5, 598.4],
    },
    Stage {
        name: "s3b 128x256 4st",
        tile: (128, 256),
        stages: 4,
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
    gpu.threads = vec![256];
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

/// The plan of a stage's product of `n` by `n` by `n`.
fn planned(s: &Stage, n: i64) -> Plan {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plan/machine/machines");
    let machine = |name: &str| Machine::from_file(&machines.join(name)).expect("a machine");
    let host = (machine("zen4-2core.toml"), cpu::target(cpu::Isa::Avx2));
    let on = vec![host, (machine("h100.toml"), target(s))];
    let planner = Planner::new(on, PlanOptions::default());
    planner
        .bind(square(n).program(), &DimBox::new(), &Allotment::default())
        .expect("a plan")
}

/// Its step, with kernel and schedule.
fn product_of(plan: &Plan) -> (&Step, TileProgram) {
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let mut product = steps.filter_map(|s| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } if kernel.family == Family::Contract => {
            let program = TileProgram::new(kernel.clone(), schedule.clone());
            Some((s, program.expect("a program")))
        }
        _ => None,
    });
    product.next().expect("a product")
}

/// How far a prediction may be from what was measured.
const WITHIN: f64 = 0.15;

/// That kernels whose warps copy reach 0.95 of the L2 is chosen by the last two stages; all else is what other kernels are
/// predicted by. The stage with bulk copies by threads that multiply too is none that a schedule has.
#[test]
fn products_take_what_was_measured_of_their_stage() {
    let mut wrong = String::new();
    for s in &STAGES {
        for (n, measured) in SIZES.into_iter().zip(s.measured) {
            let seconds = 2.0 * (n as f64).powi(3) / (measured * 1e12);
            let plan = planned(s, n);
            let share = product_of(&plan).0.predicted.time_s / seconds;
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

/// Warps that copy, barriers, bulk copies and registers that are handed over are in the machine code, nothing is spilled,
/// and products are not put in a row.
#[test]
fn warps_that_copy_are_assembled_to_hoppers_instructions() {
    let text = |plan: &Plan| {
        let program = product_of(plan).1;
        let image = |p: &Place| matches!(p, Place::Image { .. });
        let bulk = program.schedule().places.iter().any(image);
        (
            bulk,
            emit::ptx::emit(&program, "sm_90a").expect("a text").text,
        )
    };
    let all = SIZES.map(|n| text(&planned(&STAGES[2], n)));
    let (_, text) = all.iter().find(|t| t.0).expect("a factor as it lies");
    let (assembler, disassembler) = match (tool("ptxas"), tool("nvdisasm")) {
        (Ok(a), Ok(d)) => (a, d),
        (Err(why), _) => return testing::skip("ptxas: warps that copy", &why),
        (_, Err(why)) => return testing::skip("nvdisasm: warps that copy", &why),
    };
    let folder = tempfile::tempdir().expect("a folder");
    let [from, to] = ["product.ptx", "product.cubin"].map(|f| folder.path().join(f));
    std::fs::write(&from, text).expect("a file");
    let mut command = Command::new(assembler);
    command
        .args(["-v", "--gpu-name", "sm_90a", "-o"])
        .args([&to, &from]);
    let out = command.output().expect("the assembler");
    let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && said.contains(" 0 bytes spill stores"),
        "{said}"
    );
    assert!(
        !said.contains("(C75") && !said.contains("warning"),
        "{said}"
    );
    let out = Command::new(disassembler).arg("-c").arg(&to).output();
    let code = String::from_utf8_lossy(&out.expect("machine code").stdout).to_string();
    for what in [
        "HGMMA.64x256x16.F32",
        "UBLKCP",
        "USETMAXREG",
        "SYNCS.PHASECHK",
        "LDGSTS",
    ] {
        assert!(code.contains(what), "no {what} in\n{code}");
    }
}
