//! Plans over the CPU and a GPU, cut where the predicted time is least: what the cut promises, where
//! steps go when the link between the two is slow or fast, and that such plans are right.
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim, DimBox};
use machine::{Source, Sourced};
use plan::{Allotment, Plan, PlanSegment, Planner as _};
use planner::{Placement, PlanOptions, Planner};
use shopfloor::{Machine, Model, ModelOptions, Session, Tensor, engine_on, inputs, machines};
use shopfloor_tools::planview;
use shopfloor_tools::targets::{Machines, Planning};
use std::sync::Arc;
use tensor::WeightStore;
use testkit::zoo;

/// The A100 with the link to its host `factor` times as fast, latency included.
fn a100(factor: f64) -> Machine {
    let mut m = machines::find("a100").expect("machine");
    for l in &mut m.links {
        l.bandwidth = Sourced::new(l.bandwidth.value * factor, Source::Assumed);
        l.latency_s = Sourced::new(l.latency_s.value / factor, Source::Assumed);
    }
    m
}

/// The same, whose kernels start at once.
fn eager(factor: f64) -> Machine {
    let mut m = a100(factor);
    m.costs.launch_s = Sourced::new(0.0, Source::Assumed);
    m.costs.step_s = Sourced::new(0.0, Source::Assumed);
    m
}

fn host() -> Machine {
    machines::find("zen5-2core").expect("machine")
}

fn origin(name: &str) -> Origin {
    Origin {
        name: name.into(),
        op_type: String::new(),
    }
}

fn product() -> Op {
    Op::Contract(ContractSpec {
        a: vec![0, 1],
        b: vec![1, 2],
        out: vec![0, 2],
    })
}

fn known(n: &[usize]) -> Vec<Dim> {
    n.iter().map(|&n| Dim::from(n)).collect()
}

/// Three products of 1024^3 in a row, and a product of 8^3 beside them.
fn large_and_small() -> Model {
    let mut weights = WeightStore::new();
    let mut matrix = |name: &str, n: usize| {
        let value = |j: usize| (j * 7 % 17) as f32 / (68.0 * n as f32) - 0.001;
        let values: Vec<f32> = (0..n * n).map(value).collect();
        let t = Tensor::from_f32(&[n, n], &values).expect("a matrix");
        weights.add_tensor(name, t).expect("a weight")
    };
    let large: Vec<tensor::WeightId> = (0..3).map(|i| matrix(&format!("w{i}"), 1024)).collect();
    let small = matrix("v", 8);
    let mut b = GraphBuilder::new("large_and_small", Arc::new(weights));
    let mut x = b.input("x", DType::F32, known(&[1024, 1024]));
    let y = b.input("y", DType::F32, known(&[8, 8]));
    for (i, &w) in large.iter().enumerate() {
        let (w, name) = (b.weight(w).expect("a weight"), format!("large{i}"));
        let made = b.node(product(), &[x, w], &[&name], &origin(&name));
        x = made.expect("a node")[0];
    }
    let v = b.weight(small).expect("a weight");
    let made = b.node(product(), &[y, v], &["small"], &origin("small"));
    let y = made.expect("a node")[0];
    let graph = b.finish(&[x, y]);
    Model::from_graph("large_and_small", &graph, &ModelOptions::default()).expect("model")
}

fn cut(model: &Model, gpu: &Machine, dims: &DimBox) -> Plan {
    let both = Machines::Pair(Box::new([host(), gpu.clone()]));
    planview::plan_on(model, &both, &Planning::default(), dims).expect("a plan")
}

/// Devices of the steps of a model's nodes, copies left out.
fn places(plan: &Plan) -> Vec<(String, u32)> {
    let blocks = plan.blocks();
    let all = blocks.flat_map(|b| b.steps.iter().filter(|s| !b.is_transfer(s)));
    all.map(|s| (s.name.clone(), s.device)).collect()
}

#[test]
fn small_steps_stay_and_large_ones_go_where_the_road_allows_it() {
    let model = large_and_small();
    let none = DimBox::new();
    let at = |gpu: &Machine| -> Vec<u32> {
        let plan = cut(&model, gpu, &none);
        plan.clone().verify().expect("a valid plan");
        places(&plan).iter().map(|p| p.1).collect()
    };
    // The small product ends before its operands could be on the GPU.
    assert_eq!(at(&a100(1.0)), [1, 1, 1, 0]);
    // A link of 3 MB/s carries no matrix.
    assert_eq!(at(&a100(1e-4)), [0, 0, 0, 0]);
    // A link, and launches, that take no time: a GPU is the faster one for everything.
    assert_eq!(at(&eager(1e6)), [1, 1, 1, 1]);
    let plan = cut(&model, &a100(1.0), &none);
    let why = plan.whys.iter().find(|w| w.pass == "cut").expect("a why");
    assert_eq!(why.subject, "large_and_small");
    assert!(
        why.choice
            .starts_with("1 steps on zen5-2core, 3 on A100-SXM4-80GB, 2 copies"),
        "{}",
        why.choice
    );
    assert_eq!(why.alternatives.len(), 2);
    let small = plan.whys.iter().find(|w| w.subject == "small");
    assert!(small.is_some());
    let told = |w: &&plan::Why| w.pass == "cut" && w.alternatives.len() == 1;
    assert_eq!(plan.whys.iter().filter(told).count(), 4);
    // None of it is for want of a form.
    assert!(planview::fallbacks_of(&plan).is_empty());
}

/// The A100 as if its memory were the host's.
fn unified() -> Machine {
    let mut m = a100(1.0);
    let memory = m.memory().name.clone();
    let own = m.levels.iter_mut().find(|l| l.name == memory);
    own.expect("its memory").same_place_as = Some("host".into());
    m
}

#[test]
fn no_copies_are_predicted_where_memory_is_one() {
    let model = large_and_small();
    let none = DimBox::new();
    let link = |m: &Machine| -> (usize, f64) {
        let plan = cut(&model, m, &none);
        plan.clone().verify().expect("a valid plan");
        let blocks = plan.blocks();
        let all = blocks.flat_map(|b| b.steps.iter().filter(|s| b.is_transfer(s)));
        let times: Vec<f64> = all.map(|s| s.predicted.time_s).collect();
        (times.len(), times.iter().sum())
    };
    let (copies, seconds) = link(&a100(1.0));
    assert!(copies > 0 && seconds > 0.0);
    let (copies, seconds) = link(&unified());
    assert!(copies > 0 && seconds == 0.0, "{copies} {seconds}");
    let plan = cut(&model, &unified(), &none);
    let why = plan.whys.iter().find(|w| w.pass == "cut").expect("a why");
    assert!(why.reason.contains("of which 0 copying"), "{}", why.reason);
}

/// A model of the zoo with all symbols at `size`; `None` where it is not at hand, which is said.
fn of_zoo(name: &str, size: i64) -> Option<(Model, DimBox)> {
    let Some(found) = zoo::find(name) else {
        testing::skip(&format!("zoo: {name} cut"), "there is no ../shared/zoo");
        return None;
    };
    let prepared = found.prepare_temporary().expect("weights");
    let model = Model::open(&prepared.model, &ModelOptions::default()).expect("model");
    let (sizes, _) = inputs::sizes(&model);
    let mut dims = DimBox::new();
    for name in sizes.keys() {
        dims.insert(name.as_str(), size, size);
    }
    Some((model, dims))
}

#[test]
fn no_cut_is_predicted_to_take_longer_than_a_device_alone() {
    if !testing::turn("no_cut_is_predicted_to_take_longer_than_a_device_alone") {
        return;
    }
    let mut mixed = 0;
    for (name, size) in [
        ("digits_cnn", 1),
        ("digits_cnn", 64),
        ("digits_cnn", 4096),
        ("skl_mlp", 1000),
        ("silero_vad", 1),
    ] {
        let Some((model, dims)) = of_zoo(name, size) else {
            continue;
        };
        let seconds = |p: &Plan| p.predicted.time_s;
        let mut before = f64::INFINITY;
        for factor in [1e-3, 1e-1, 1.0, 10.0, 1e3] {
            let gpu = a100(factor);
            let both = cut(&model, &gpu, &dims);
            both.clone().verify().expect("a valid plan");
            // The same steps in one place: those that their readers make for themselves are only where all are placed
            // at once (`bind::recomputed`), and may take less than every cut.
            let over = |devices: Vec<_>| {
                let options = PlanOptions {
                    placement: Placement::Listed(vec![devices.len() as u32 - 1]),
                    ..PlanOptions::default()
                };
                let p = Planner::new(devices, options);
                let plan = p.bind(model.program(), &dims, &Allotment::default());
                seconds(&plan.expect("a plan"))
            };
            let own = || (host(), cpu::target(cpu::Isa::Avx512));
            let cpu = over(vec![own()]);
            let far = over(vec![own(), (gpu.clone(), emit::ptx::target("sm_80"))]);
            let got = seconds(&both);
            let rounding = 1e-9;
            assert!(
                got <= cpu + rounding && got <= far + rounding,
                "{name} of {size}, link {factor}: {got} s, CPU alone {cpu}, GPU {far}"
            );
            // A faster link never makes the best cut worse.
            assert!(got <= before + rounding, "{name} {factor}");
            before = got;
            let list = places(&both);
            let there = list.iter().filter(|p| p.1 == 1).count();
            mixed += usize::from(there > 0 && there < list.len());
            // What the why says is what the plan adds up to.
            let parts = both.blocks().flat_map(|b| &b.steps);
            let sum: f64 = parts.map(|s| s.predicted.time_s).sum();
            assert!((sum - got).abs() < 1e-9);
        }
    }
    assert!(mixed >= 3, "{mixed} plans use both");
}

/// Whether `plan` of the model gives what the graph's oracle gives.
fn evaluated(model: &Model, plan: &Plan, dims: &DimBox, seed: u64) {
    let sizes = dims.iter().map(|(n, r)| (n.to_string(), r.hi)).collect();
    let named = inputs::random_inputs(model, &sizes).expect("inputs");
    let tensors: Vec<Tensor> = named.iter().map(|n| n.1.clone()).collect();
    let want = reference::run_graph(model.graph().expect("graph"), &tensors).expect("oracle");
    let named: Vec<(String, Tensor)> = named
        .iter()
        .map(|(n, t)| (n.to_string(), t.clone()))
        .collect();
    let got = testkit::tiles::evaluate(model, plan, &named, dims, seed);
    for (want, got) in want.iter().zip(got.unwrap_or_else(|e| panic!("{e}"))) {
        let d = testkit::compare::difference(&got, want);
        assert!(d < 1e-4, "seed {seed}: {d}");
    }
}

/// Two maps that write into what a concatenation joins, readers of its parts and of the whole.
fn joined() -> Model {
    let mut b = GraphBuilder::new("joined", Arc::new(WeightStore::default()));
    let map = |f: fn(&mut expr::ExprBuilder, expr::Ref) -> expr::Ref| {
        let mut e = expr::ExprBuilder::new();
        let x = e.input(0, DType::F32);
        let y = f(&mut e, x);
        Op::Map(e.finish(&[y]))
    };
    let double = map(|e, x| e.add(x, x));
    let square = map(|e, x| e.mul(x, x));
    let x = b.input("x", DType::F32, known(&[3, 5]));
    let mut node = |op: &Op, of: &[graph::ValueId], name: &str| {
        let made = b.node(op.clone(), of, &[name], &origin(name));
        made.expect("a node")[0]
    };
    let first = node(&double, &[x], "first");
    let early = node(&square, &[first], "early");
    let second = node(&square, &[x], "second");
    let all = node(&Op::Concat { axis: 1 }, &[first, second, early], "all");
    let whole = node(&double, &[all], "whole");
    let late = node(&double, &[first], "late");
    let graph = b.finish(&[all, whole, late]);
    Model::from_graph("joined", &graph, &ModelOptions::default()).expect("model")
}

#[test]
fn what_several_steps_write_together_is_in_one_place() {
    let model = joined();
    let (none, own) = (DimBox::new(), || (host(), cpu::target(cpu::Isa::Avx512)));
    for seed in 0..24u64 {
        let list = (0..6).map(|i| (seed >> (i % 5)) as u32 & 1).collect();
        let options = PlanOptions {
            placement: Placement::Listed(list),
            ..PlanOptions::default()
        };
        let planner = Planner::new(vec![own(), own()], options);
        let plan = planner.bind(model.program(), &none, &Allotment::default());
        evaluated(&model, &plan.expect("a plan"), &none, seed);
    }
    let plan = cut(&model, &eager(1e6), &none);
    evaluated(&model, &plan, &none, 1);
}

#[test]
fn the_cut_of_a_model_is_right() {
    let (model, dims) = of_zoo("digits_cnn", 3).expect("it is bundled");
    for (i, factor) in [1e-4, 1.0, 100.0].into_iter().enumerate() {
        evaluated(&model, &cut(&model, &eager(factor), &dims), &dims, i as u64);
    }
}

#[test]
fn both_devices_run_their_steps() {
    if !testing::turn("both_devices_run_their_steps") {
        return;
    }
    let mut both = 0;
    for (name, machine) in [
        ("digits_cnn", None),
        ("digits_cnn", Some(eager(0.3))),
        ("silero_vad", Some(eager(0.3))),
        ("ppocr_cls", Some(eager(0.1))),
    ] {
        let Some(model) = zoo::find(name) else {
            testing::skip(
                &format!("zoo: {name} over two devices"),
                "there is no ../shared/zoo",
            );
            continue;
        };
        let prepared = model.prepare_temporary().expect("weights");
        let engine = engine_on("cpu+emulated:a100", None, None, machine).expect("devices");
        let session = Session::builder()
            .with_engine(engine)
            .commit_from_file(&prepared.model)
            .expect("session");
        let given = model.inputs().expect("inputs");
        let named: Vec<(&str, &Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t)).collect();
        for _ in 0..2 {
            let outputs = session.run(&named).expect("a request").into_vec();
            let report = model.check(&outputs).expect("references");
            assert!(report.passed(), "{name}: {report}");
        }
        let shares = planview::shares(&session);
        println!("{name}: {shares:?}");
        both += usize::from(shares.steps_by_device.len() == 2);
        let plans = session.runtime().plans();
        let mut blocks = plans.iter().flat_map(|p| p.plan().segments.iter());
        assert!(blocks.any(|s| matches!(s, PlanSegment::Block(_))));
    }
    assert!(both >= 1, "{both}");
}

#[test]
fn pairs_that_are_none_are_refused() {
    for on in [
        "cpu+cpu",
        "cuda+wgpu",
        "cpu+cuda+wgpu",
        "cpu+",
        "+cuda",
        "cpu+tpu",
    ] {
        let e = engine_on(on, None, None, None).map(drop).expect_err(on);
        let text = e.to_string();
        assert!(
            text.contains("cpu+cuda") || text.contains("there is no device"),
            "{on}: {text}"
        );
    }
}
