//! Products that were measured on an H100, stage by stage of a recipe in plain PTX, as schedules predict them.
use kernel::{Family, Place, TileProgram};
use layout::{DType, DimBox};
use machine::Machine;
use plan::{Allotment, Plan, Planner as _, Step, StepWork};
use planner::{PlanOptions, Planner};
use shopfloor::Precision;
use std::path::Path;
use std::process::Command;
use tensor::Tensor;
use testkit::lab::{self, SIZES, STAGES, Stage};
use testkit::tools::tool;

/// The plan of a stage's product of `n` by `n` by `n`.
fn planned(s: &Stage, n: i64) -> Plan {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plan/machine/machines");
    let machine = |name: &str| Machine::from_file(&machines.join(name)).expect("a machine");
    let host = (machine("zen4-2core.toml"), cpu::target(cpu::Isa::Avx2));
    let on = vec![
        host,
        (machine("h100.toml"), s.of(emit::ptx::target("sm_90a"))),
    ];
    let planner = Planner::new(on, PlanOptions::default());
    let w = Tensor::zeros(DType::BF16, &[n as usize; 2]).expect("memory");
    let model = lab::model(n, w, Precision::default()).expect("a model");
    planner
        .bind(model.program(), &DimBox::new(), &Allotment::default())
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
/// predicted by.
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
