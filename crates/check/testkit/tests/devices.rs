//! Plans over several devices, evaluated: each device has memory of its own, steps run in any order
//! that their waits allow, tile programs are interpreted by the reference.
use layout::{DType, Dim};
use plan::{Allotment, Plan, PlanSegment, Planner as _, Step};
use planner::{Placement, PlanOptions, Planner};
use reference::run_graph;
use shopfloor::{DimBox, Model, ModelOptions, inputs, machines};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};
use testkit::zoo;

fn check(name: &str, planner: &Planner, batch: i64, seed: u64) -> Plan {
    let path = zoo::find(name)
        .expect("bundled")
        .folder()
        .join("model.onnx");
    let model = Model::open(path, &ModelOptions::default()).expect("model");
    let (mut sizes, _) = inputs::sizes(&model);
    sizes.values_mut().for_each(|v| *v = batch);
    let named = inputs::random_inputs(&model, &sizes).expect("inputs");
    let mut dims = DimBox::new();
    sizes
        .iter()
        .for_each(|(n, &v)| dims.insert(n.as_str(), v, v));
    let tensors: Vec<Tensor> = named.iter().map(|n| n.1.clone()).collect();
    let want = run_graph(model.graph().expect("graph"), &tensors).expect("reference");
    let plan = planner
        .bind(model.program(), &dims, &Allotment::default())
        .expect("plan");
    let [PlanSegment::Block(block)] = plan.segments.as_slice() else {
        panic!("one block")
    };
    let named: Vec<(String, Tensor)> = named
        .iter()
        .map(|(n, t)| (n.to_string(), t.clone()))
        .collect();
    let got = testkit::tiles::evaluate(&model, &plan, &named, &dims, seed)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    for ((port, want), got) in block.outputs.iter().zip(&want).zip(&got) {
        let d = testkit::compare::difference(got, want);
        assert!(d < 1e-4, "{name}, output '{}': {d}", port.name);
    }
    plan
}

fn cpus(n: usize, placement: Placement) -> Planner {
    let machine = machines::find("zen5-2core").expect("machine");
    let target = cpu::target(cpu::isa::Isa::Avx512);
    let options = PlanOptions {
        placement,
        ..PlanOptions::default()
    };
    Planner::new(vec![(machine, target); n], options)
}

#[test]
fn one_plan_over_two_cpus() {
    for (seed, list) in [vec![0, 1], vec![1, 0, 0], vec![1], vec![0, 0, 1, 1]]
        .into_iter()
        .enumerate()
    {
        let plan = check(
            "digits_cnn",
            &cpus(2, Placement::Listed(list)),
            2,
            seed as u64,
        );
        let block = plan.blocks().next().expect("block");
        let copies = |s: &&Step| s.name.starts_with("copy ");
        assert!(block.steps.iter().filter(copies).count() >= 2);
        assert!(block.steps.iter().any(|s| s.device == 1));
        assert!(block.arena(1) > 0);
    }
}

#[test]
fn a_gpu_with_its_host() {
    let machine = machines::find("a100").expect("machine");
    let host = machines::find("zen5-2core").expect("machine");
    let planner = Planner::new(
        vec![
            (host, cpu::target(cpu::isa::Isa::Avx512)),
            (machine, emit::ptx::target("sm_80")),
        ],
        PlanOptions::default(),
    );
    let plan = check("digits_cnn", &planner, 3, 5);
    let block = plan.blocks().next().expect("block");
    let kernels = block.steps.iter().filter(|s| !s.name.starts_with("copy "));
    assert!(kernels.clone().count() > 3 && kernels.clone().all(|s| s.device == 1));
}

/// A GPU of every kind behind its host.
fn gpus() -> Vec<Planner> {
    let host = machines::find("zen5-2core").expect("machine");
    let host = (host, cpu::target(cpu::isa::Isa::Avx512));
    let all = testkit::printed::everywhere().expect("targets");
    let of = |o: testkit::printed::On| {
        Planner::new(
            vec![host.clone(), (o.machine, o.target)],
            PlanOptions::default(),
        )
    };
    all.into_iter().map(of).collect()
}

/// A function of `d` behind one of f32, as a program.
fn function_of(f: expr::Unary, d: DType) -> plan::Program {
    let origin = graph::Origin {
        name: "node".into(),
        op_type: "Function".into(),
    };
    let mut b = graph::GraphBuilder::new("model", Arc::new(WeightStore::new()));
    let x = b.input("x", DType::F32, vec![Dim::from(64usize)]);
    let w = b.input("w", d, vec![Dim::from(64usize)]);
    let map = |f: expr::Unary, d: DType| {
        let mut e = expr::ExprBuilder::new();
        let x = e.input(0, d);
        let y = e.unary(f, x);
        graph::Op::Map(e.finish(&[y]))
    };
    let y = b.node(map(expr::Unary::Abs, DType::F32), &[x], &["y"], &origin);
    let z = b.node(map(f, d), &[w], &["z"], &origin);
    let out = [y.unwrap()[0], z.unwrap()[0]];
    planner::program(&b.finish(&out), &planner::ProgramOptions::default()).expect("program")
}

#[test]
fn what_a_target_has_no_form_for_is_a_step_of_the_host_and_the_plan_says_why() {
    for (f, d, what) in [
        (expr::Unary::Cos, DType::F64, "f64"),
        (expr::Unary::Abs, DType::U64, "u64"),
        (expr::Unary::Sqrt, DType::I32, "sqrt of i32"),
    ] {
        let program = function_of(f, d);
        for planner in gpus() {
            let plan = planner.bind(&program, &DimBox::new(), &Allotment::default());
            let plan = plan.expect("a plan");
            let name = &planner.devices()[1].1.name;
            let on: Vec<u32> = plan
                .blocks()
                .flat_map(|b| &b.steps)
                .filter(|s| !s.name.starts_with("copy "))
                .map(|s| s.device)
                .collect();
            assert!(
                on.contains(&0) && on.contains(&1),
                "{name}, {f} of {d}: {on:?}"
            );
            let why = plan.whys.iter().find(|w| w.pass == "place");
            let why = why.map_or("", |w| w.reason.as_str());
            let told = format!("target {name} has no form for");
            assert!(why.starts_with(&told) && why.contains(what), "{why}");
        }
    }
}

#[test]
fn a_missing_wait_between_devices_is_found() {
    let plan = check("digits_cnn", &cpus(2, Placement::Listed(vec![0, 1])), 1, 9);
    let steps = plan.blocks().next().expect("block").steps.len();
    let mut refused = 0;
    for i in 0..steps {
        let mut p = plan.clone();
        let PlanSegment::Block(b) = &mut p.segments[0] else {
            panic!("a block")
        };
        if b.steps[i].waits.is_empty() {
            continue;
        }
        b.steps[i].waits.clear();
        assert!(p.verify().is_err(), "step {i} without its waits");
        refused += 1;
    }
    assert!(refused >= 4);
}

#[test]
fn a_memory_limit_is_kept_or_the_least_is_named() {
    let path = zoo::find("ppocr_rec")
        .expect("bundled")
        .folder()
        .join("model.onnx");
    let model = Model::open(path, &ModelOptions::default()).expect("model");
    let (mut sizes, _) = inputs::sizes(&model);
    for (i, v) in sizes.values_mut().enumerate() {
        *v = [1, 320][i % 2];
    }
    let mut dims = DimBox::new();
    sizes
        .iter()
        .for_each(|(n, &v)| dims.insert(n.as_str(), v, v));
    let bind = |memory| {
        let mut p = cpus(1, Placement::Last);
        p = Planner::new(
            p.devices().to_vec(),
            PlanOptions {
                memory,
                ..PlanOptions::default()
            },
        );
        p.bind(model.program(), &dims, &Allotment::default())
    };
    let bytes = |p: &Plan| -> u64 {
        let workers = u64::from(p.devices[0].workers);
        p.blocks()
            .map(|b| b.arena_bytes + b.scratch_bytes * workers + b.packed_bytes())
            .sum()
    };
    let free = bytes(&bind(None).expect("plan"));
    // Without packed weights it takes less.
    let tight = bind(Some(free - 1)).expect("a plan below the fastest one's memory");
    assert!(bytes(&tight) < free);
    assert!(
        tight
            .whys
            .iter()
            .any(|w| w.pass == "memory" && w.reason.contains("limit"))
    );
    tight.verify().expect("valid");
    let e = bind(Some(1000)).expect_err("too little").to_string();
    assert!(e.contains("at least") && e.contains("1000 B"), "{e}");
}
