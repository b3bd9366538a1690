//! What kernels print is read back as the same kernels, with the schedules of their steps: those of whole
//! models, of their plans, and of random graphs. `SHOPFLOOR_SEED` runs one of the graphs.
use kernel::{Declared, Given, Kernel, Schedule, Stmt};
use machine::Machine;
use plan::{Allotment, ItemWork, Plan, Planner as _, Program, Segment, StepWork};
use planner::{PlanOptions, Planner};
use shopfloor::{Model, ModelOptions, Session, inputs};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;
use testing::Share;
use testkit::cores::on_all_cores;
use testkit::random::{Case, Engines};
use testkit::zoo;

/// `k` with the instructions of its maps in the order in which they are asked for, which is how a formula
/// says them.
fn ordered(k: &Kernel) -> Kernel {
    let mut k = k.clone();
    for s in &mut k.body {
        if let Stmt::Map { expr, .. } = s {
            *expr = expr.in_order();
        }
    }
    k
}

/// A kernel, with the schedule of its step where it has one.
type Known = (Kernel, Option<Schedule>);

fn round_trip((k, schedule): &Known) -> Result<(), String> {
    let given = Given {
        schedules: schedule.iter().cloned().collect(),
        code: None,
    };
    let text = given.to_text(k);
    let read = Declared::parse(&text).map_err(|e| format!("{e} in\n{text}"))?;
    read.kernel
        .verify()
        .and_then(|()| read.given.verify(&read.kernel))
        .map_err(|e| format!("{e} in\n{text}"))?;
    if read.given != given {
        return Err(format!(
            "its schedule is read back as another:\n{text}\n{:?}\n{given:?}",
            read.given
        ));
    }
    let (back, k) = (ordered(&read.kernel), ordered(k));
    match back == k {
        true => Ok(()),
        false => Err(format!(
            "it is read back as another kernel:\n{text}\n{back}\n{k:?}\n{back:?}"
        )),
    }
}

/// Kernels of a program, branches included.
fn of_program(p: &Program, out: &mut Vec<Known>) {
    let mut items: Vec<_> = p.init.iter().collect();
    for s in &p.segments {
        match s {
            Segment::Straight(all) => items.extend(all),
            Segment::Late(i) => items.push(i),
            Segment::If {
                then_branch,
                else_branch,
                ..
            } => {
                of_program(then_branch, out);
                of_program(else_branch, out);
            }
            Segment::Loop { body, .. } => of_program(body, out),
        }
    }
    out.extend(items.iter().filter_map(|i| match &i.work {
        ItemWork::Kernel { kernel, .. } => Some((Kernel::clone(kernel), None)),
        ItemWork::Host { .. } => None,
    }));
}

/// Those of a plan's steps: packing, parts and whatever else the planner adds are among them.
fn of_plan(p: &Plan, out: &mut Vec<Known>) {
    let steps = p.blocks().flat_map(|b| b.init.iter().chain(&b.steps));
    out.extend(steps.filter_map(|s| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => Some((Kernel::clone(kernel), Some(Schedule::clone(schedule)))),
        StepWork::Host { .. } => None,
    }));
}

/// The kernels among these that were not looked at before and are not read back.
fn failures(all: &[Known], seen: &Mutex<BTreeSet<String>>) -> Vec<String> {
    let new = all.iter().filter(|k| {
        let text = format!("{k:?}");
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(text)
    });
    new.filter_map(|k| round_trip(k).err()).collect()
}

/// One processor and one GPU, neither of which has to be here.
fn planners() -> [Planner; 2] {
    let machines = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plan/machine/machines");
    let machine = |name: &str| Machine::from_file(&machines.join(name)).expect("a machine");
    let host = || (machine("zen4-2core.toml"), cpu::target(cpu::Isa::Avx2));
    let gpu = (machine("a100.toml"), emit::ptx::target("sm_80"));
    [vec![host()], vec![host(), gpu]].map(|on| Planner::new(on, PlanOptions::default()))
}

/// Every kernel of a model and of its plans: what its weights hold does not matter, so that those of a
/// generated one are zeros that take no room.
fn of_model(name: &str, planners: &[Planner]) -> Vec<Known> {
    let model = zoo::find(name).expect("a model that is listed");
    let dir = tempfile::tempdir().expect("folder");
    let mut path = model.folder().join("model.onnx");
    if model.is_generated() {
        let copy = dir.path().join("model.onnx");
        std::fs::copy(path, &copy).expect("a copy");
        let weights = std::fs::File::create(dir.path().join("weights.bin")).expect("a file");
        weights.set_len(8 << 30).expect("a file with a hole");
        path = copy;
    }
    let given = model.inputs().expect("inputs");
    let model = match Model::open(&path, &ModelOptions::default()) {
        Ok(m) => m,
        Err(e) => panic!("{name}: {e}"),
    };
    let mut all = vec![];
    of_program(model.program(), &mut all);
    let dims = inputs::box_of(&model, &inputs::sizes_of(&model, &given));
    for p in planners {
        match p.bind(model.program(), &dims, &Allotment::default()) {
            Ok(plan) => of_plan(&plan, &mut all),
            Err(e) => panic!("{name}: {e}"),
        }
    }
    all
}

#[test]
fn kernels_of_models_and_their_plans_are_read_back() {
    if !testing::turn("kernels_of_models_and_their_plans_are_read_back") {
        return;
    }
    let share = Share::of_run(24);
    let names: Vec<String> = (0..)
        .zip(zoo::names())
        .filter_map(|(i, n)| share.picks(i).then_some(n))
        .collect();
    println!("{share}");
    let planners = planners();
    let seen = Mutex::new(BTreeSet::new());
    let all = on_all_cores(&names, |name| {
        let began = Instant::now();
        let all = of_model(name, &planners);
        let bad = failures(&all, &seen);
        println!(
            "{name}: {} kernels, {} not read back, {:.1} s",
            all.len(),
            bad.len(),
            began.elapsed().as_secs_f64()
        );
        let said = bad.into_iter().map(|e| format!("{name}: {e}"));
        said.collect::<Vec<_>>()
    });
    let failed: Vec<String> = all.into_iter().flatten().collect();
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} different kernels of {} models", seen.len(), names.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    // Where only the bundled models are, a share may have none.
    assert!(names.is_empty() || !seen.is_empty(), "no kernel was seen");
}

#[test]
fn kernels_of_random_plans_are_read_back() {
    if !testing::turn("kernels_of_random_plans_are_read_back") {
        return;
    }
    let seeds = match std::env::var("SHOPFLOOR_SEED").map(|s| s.parse::<u64>()) {
        Ok(Ok(s)) => s..s + 1,
        _ => {
            let own = Share::cases(40, 100);
            1 + own.start..1 + own.end
        }
    };
    let engines = Engines::start().expect("engines");
    let one = seeds.end - seeds.start == 1;
    let (seen, mut failed) = (Mutex::new(BTreeSet::new()), vec![]);
    for seed in seeds {
        let Ok(case) = Case::new(seed) else { continue };
        let options = ModelOptions {
            dims: case.dims.clone(),
            ..Default::default()
        };
        let Ok(model) = Model::from_graph("random", &case.graph, &options) else {
            continue;
        };
        let mut all = vec![];
        of_program(model.program(), &mut all);
        let dims = inputs::box_of(&model, &inputs::sizes_of(&model, &case.inputs));
        let session: Session = Session::builder()
            .with_engine(engines.of(&case).1.clone())
            .with_model_options(options)
            .commit(model)
            .expect("session");
        if let Ok(plan) = session.plan(&dims) {
            of_plan(&plan, &mut all);
        }
        let bad = failures(&all, &seen);
        failed.extend(bad.into_iter().map(|e| format!("seed {seed}: {e}")));
    }
    let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} different kernels", seen.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(one || seen.len() > 100, "{}", seen.len());
}
