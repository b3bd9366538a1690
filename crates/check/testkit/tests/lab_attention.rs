//! Attention that was measured on an H100, as its plans predict it: by matrix instructions of warpgroups.
use kernel::{Family, Fragment, Mapping, TileProgram};
use layout::{DType, DimBox};
use machine::Machine;
use plan::{Allotment, Plan, Planner as _, Step, StepWork};
use planner::{PlanOptions, Planner};
use std::path::Path;
use testkit::lab::{ATTENTIONS, Attention};

/// The plan of an attention of elements of a type, by these matrix instructions.
fn planned(a: &Attention, dtype: DType, by: &dyn Fn(&Fragment) -> bool) -> Plan {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plan/machine/machines");
    let machine = |name: &str| Machine::from_file(&machines.join(name)).expect("a machine");
    let mut target = emit::ptx::target("sm_90a");
    if let Some(gpu) = &mut target.gpu {
        gpu.fragments.retain(by);
    }
    let host = (machine("zen4-2core.toml"), cpu::target(cpu::Isa::Avx2));
    let on = vec![host, (machine("h100.toml"), target)];
    let model = a.model(dtype).expect("a model");
    Planner::new(on, PlanOptions::default())
        .bind(model.program(), &DimBox::new(), &Allotment::default())
        .expect("a plan")
}

/// The steps of a plan.
fn steps(plan: &Plan) -> Vec<&Step> {
    plan.blocks().flat_map(|b| &b.steps).collect()
}

/// What all of them take, in microseconds.
fn predicted(plan: &Plan) -> f64 {
    let all = steps(plan).into_iter().map(|s| s.predicted.time_s);
    all.sum::<f64>() * 1e6
}

/// The program of a plan's attention.
fn program(plan: &Plan) -> TileProgram {
    let found = steps(plan).into_iter().find_map(|s| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } if kernel.family == Family::Attention => {
            TileProgram::new(kernel.clone(), schedule.clone()).ok()
        }
        _ => None,
    });
    found.expect("an attention")
}

#[test]
fn attention_is_planned_for_warpgroups() {
    for a in &ATTENTIONS {
        let best = planned(a, DType::F16, &|_| true);
        let warps = planned(a, DType::F16, &|f| f.warps() == 1);
        let program = program(&best);
        let Mapping::Gpu(g) = &program.schedule().mapping else {
            panic!("not for a GPU");
        };
        let f = g.fragment.expect("a matrix instruction");
        let [own, before] = [&best, &warps].map(predicted);
        println!(
            "{} x {} x {}: predicted {own:.1} us in {} steps by {} and {} warps, {before:.1} by those of warps; measured {} us",
            a.heads,
            a.length,
            a.depth,
            steps(&best).len(),
            f.name(),
            g.warps_text(),
            a.measured_us
        );
        for step in steps(&best) {
            println!(
                "  {} {:.1} us, {:?}",
                step.name,
                step.predicted.time_s * 1e6,
                step.predicted
            );
        }
        println!("{:?}", program.schedule());
    }
}
