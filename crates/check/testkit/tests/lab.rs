//! Products that were measured on an H100, stage by stage of a recipe in plain PTX, as schedules predict them.
use kernel::{Family, Mapping, Place, TileProgram};
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

/// That kernels whose warps copy reach 0.95 of the L2, and all of it where lanes exchange what they store, is chosen by
/// the last three stages; all else is what other kernels are predicted by.
#[test]
fn products_take_what_was_measured_of_their_stage() {
    let mut wrong = String::new();
    for s in &STAGES {
        for (n, measured) in SIZES.into_iter().zip(s.measured) {
            let seconds = 2.0 * (n as f64).powi(3) / (measured * 1e12);
            let plan = planned(s, n);
            let (step, program) = product_of(&plan);
            // A stage whose CTAs walk is one where there are more tasks than CTAs that fit.
            let walks = matches!(&program.schedule().mapping, Mapping::Gpu(g) if g.walkers > 0);
            if walks != s.walking {
                continue;
            }
            let share = step.predicted.time_s / seconds;
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
/// and products are not put in a row, for one task per CTA and for CTAs that walk.
#[test]
fn warps_that_copy_are_assembled_to_hoppers_instructions() {
    for (stage, walk) in [(&STAGES[2], false), (&STAGES[3], true)] {
        let text = |n: i64| {
            let program = product_of(&planned(stage, n)).1;
            let image = |p: &Place| matches!(p, Place::Image { .. });
            let bulk = program.schedule().places.iter().any(image);
            let ptx = emit::ptx::emit(&program, "sm_90a").expect("a text");
            (bulk && (ptx.walkers > 0) == walk).then_some(ptx.text)
        };
        let text = SIZES.into_iter().find_map(text);
        let text = text.expect("a factor as it lies");
        let Some(code) = assembled(&text) else { return };
        for what in [
            "HGMMA.64x256x16.F32",
            "UBLKCP",
            "USETMAXREG",
            "SYNCS.PHASECHK",
            "LDGSTS",
        ] {
            assert!(code.contains(what), "no {what} in\n{code}");
        }
        // Lanes exchange what they store.
        assert_eq!(code.contains("SHFL"), walk, "{code}");
        assert_eq!(code.contains("STG.E.128"), walk, "{code}");
    }
}

/// The machine code of a text, in which nothing is spilled and no product waits for another; nothing where there is no
/// assembler.
fn assembled(text: &str) -> Option<String> {
    let (assembler, disassembler) = match (tool("ptxas"), tool("nvdisasm")) {
        (Ok(a), Ok(d)) => (a, d),
        (Err(why), _) => {
            testing::skip("ptxas: warps that copy", &why);
            return None;
        }
        (_, Err(why)) => {
            testing::skip("nvdisasm: warps that copy", &why);
            return None;
        }
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
    Some(String::from_utf8_lossy(&out.expect("machine code").stdout).to_string())
}
