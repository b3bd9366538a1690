//! Steps that have no launch of their own: what the CTAs of the step before them that end last run. The same bits as
//! with a launch each, whatever sizes come, and as often as they come.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use emit::ptx;
use expr::{ExprBuilder, Monoid, functions};
use graph::{GraphBuilder, Op, View};
use kernel::{Schedule, TileProgram};
use layout::{DType, Dim, DimBox};
use plan::{Plan, PlanSegment, Step, StepWork, Timeline, Wait};
use shopfloor::{Launch, Model, ModelOptions, Session, Tensor};
use shopfloor_testkit::handwritten::{node, product, values};
use shopfloor_testkit::tools::tool;
use std::process::Command;
use std::sync::Arc;
use tensor::WeightStore;

/// y = relu(x w + c) of up to `rows` rows, and y by the sum of its row, which has few tasks.
fn model(rows: Dim, top: i64, (k, n): (usize, usize)) -> Model {
    let mut weights = WeightStore::new();
    let w = weights
        .add_tensor("w", values(DType::F32, &[k, n], 1))
        .unwrap();
    let c = weights
        .add_tensor("c", values(DType::F32, &[n], 2))
        .unwrap();
    let mut b = GraphBuilder::new("sums", Arc::new(weights));
    let x = b.input("x", DType::F32, vec![rows, Dim::from(k)]);
    let (w, c) = (b.weight(w).unwrap(), b.weight(c).unwrap());
    let y = node(
        &mut b,
        product(&[0, 2], &[2, 1], &[0, 1]),
        &[x, w],
        "product",
    );
    let map = |f: &dyn Fn(&mut ExprBuilder, u32, u32) -> u32| {
        let mut e = ExprBuilder::new();
        let (p, q) = (e.input(0, DType::F32), e.input(1, DType::F32));
        let r = f(&mut e, p, q);
        Op::Map(e.finish(&[r]))
    };
    let relu = map(&|e, p, q| {
        let s = e.add(p, q);
        functions::relu(e, s, DType::F32)
    });
    let y = node(&mut b, relu, &[y, c], "y");
    let sum = Op::Reduce {
        monoid: Monoid::sum(DType::F32, DType::F32),
        axes: vec![1],
        keep: true,
    };
    let s = node(&mut b, sum, &[y], "sum");
    let share = node(&mut b, map(&|e, p, q| e.div(p, q)), &[y, s], "share");
    let graph = b.finish(&[share]);
    let mut dims = DimBox::new();
    dims.insert("rows", 1, top);
    let options = ModelOptions {
        dims,
        ..ModelOptions::default()
    };
    Model::from_graph("sums", &graph, &options).unwrap()
}

fn bench(gpu: &str, launch: Launch, model: Model) -> Emulated {
    let own = EmulatedGpu::named(gpu).unwrap();
    Emulated::new(gpu, own, Some(launch), model)
}

impl Emulated {
    fn launches(&self) -> u64 {
        self.calls("cuLaunchKernel")
    }

    /// The output, and how many launches it took.
    fn counted(&self, x: &Tensor) -> (Vec<f32>, u64) {
        let before = self.launches();
        let out = self.session.run(&[("x", x)]).unwrap();
        (of(out.into_vec()), self.launches() - before)
    }

    fn plan(&self) -> Plan {
        self.session
            .plan(&self.session.model().dims().clone())
            .unwrap()
    }
}

fn of(mut out: Vec<(String, Tensor)>) -> Vec<f32> {
    out.remove(0).1.to_f32().unwrap()
}

/// Numbers of the steps that are joined to the one before them, and of all.
fn joined(plan: &Plan) -> (usize, usize) {
    let steps: Vec<bool> = plan
        .blocks()
        .flat_map(|b| &b.steps)
        .map(|s| s.joined)
        .collect();
    (steps.iter().filter(|j| **j).count(), steps.len())
}

/// Texts of the launches of several steps.
fn texts(plan: &Plan, arch: &str) -> Vec<String> {
    let steps: Vec<&Step> = plan.blocks().flat_map(|b| &b.steps).collect();
    let program = |s: &Step| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => TileProgram::new(kernel.clone(), schedule.clone()).unwrap(),
        StepWork::Host { .. } => panic!("a kernel"),
    };
    let mut launches: Vec<Vec<TileProgram>> = vec![];
    for s in steps {
        match launches.last_mut().filter(|_| s.joined) {
            Some(launch) => launch.push(program(s)),
            None => launches.push(vec![program(s)]),
        }
    }
    launches.retain(|l| l.len() > 1);
    let text = |l: &Vec<TileProgram>| {
        let all: Vec<&TileProgram> = l.iter().collect();
        ptx::joined(&all, arch).unwrap().text
    };
    launches.iter().map(text).collect()
}

/// x times what two small products make of the means of its columns: as networks weigh channels.
fn gated(pixels: Dim, top: i64, channels: usize, few: usize) -> Model {
    let mut weights = WeightStore::new();
    let mut weight = |name: &str, shape: &[usize], seed: u64| {
        let t = values(DType::F32, shape, seed);
        weights.add_tensor(name, t).unwrap()
    };
    let (down, up) = (
        weight("down", &[channels, few], 1),
        weight("up", &[few, channels], 2),
    );
    let mut b = GraphBuilder::new("gated", Arc::new(weights));
    let x = b.input("x", DType::F32, vec![pixels, Dim::from(channels)]);
    let (down, up) = (b.weight(down).unwrap(), b.weight(up).unwrap());
    let sum = Op::Reduce {
        monoid: Monoid::sum(DType::F32, DType::F32),
        axes: vec![0],
        keep: true,
    };
    let pooled = node(&mut b, sum, &[x], "pool");
    let product = || product(&[0, 2], &[2, 1], &[0, 1]);
    let map = |f: &dyn Fn(&mut ExprBuilder, &[u32]) -> u32, inputs: u32| {
        let mut e = ExprBuilder::new();
        let own: Vec<u32> = (0..inputs).map(|i| e.input(i, DType::F32)).collect();
        let r = f(&mut e, &own);
        Op::Map(e.finish(&[r]))
    };
    let h = node(&mut b, product(), &[pooled, down], "down");
    let relu = map(&|e, v| functions::relu(e, v[0], DType::F32), 1);
    let h = node(&mut b, relu, &[h], "relu");
    let gate = node(&mut b, product(), &[h, up], "up");
    let gate_of = map(&|e, v| functions::sigmoid(e, v[0]), 1);
    let gate = node(&mut b, gate_of, &[gate], "gate");
    let out = node(&mut b, map(&|e, v| e.mul(v[0], v[1]), 2), &[x, gate], "out");
    // Somebody else reads the gate, too: it is a step.
    let graph = b.finish(&[out, gate]);
    let mut dims = DimBox::new();
    dims.insert("pixels", 1, top);
    let options = ModelOptions {
        dims,
        ..ModelOptions::default()
    };
    Model::from_graph("gated", &graph, &options).unwrap()
}

/// What a product of one row makes, and three sums of rows that each read it: its parts as `rows` rows, its squares as
/// half as many, and what lies above zero.
fn branches(rows: usize, columns: usize) -> Model {
    let mut weights = WeightStore::new();
    let (k, n) = (64, rows * columns);
    let w = weights.add_tensor("w", values(DType::F32, &[k, n], 1));
    let mut b = GraphBuilder::new("branches", Arc::new(weights));
    let x = b.input("x", DType::F32, vec![Dim::ONE, Dim::from(k)]);
    let w = b.weight(w.unwrap()).unwrap();
    let y = node(&mut b, product(&[0, 2], &[2, 1], &[0, 1]), &[x, w], "y");
    let map = |f: &dyn Fn(&mut ExprBuilder, u32) -> u32| {
        let mut e = ExprBuilder::new();
        let v = e.input(0, DType::F32);
        let r = f(&mut e, v);
        Op::Map(e.finish(&[r]))
    };
    let kinds = [
        map(&|e, v| e.add(v, v)),
        map(&|e, v| e.mul(v, v)),
        map(&|e, v| functions::relu(e, v, DType::F32)),
    ];
    let mut outputs = vec![];
    for (i, (kind, rows)) in kinds.into_iter().zip([rows, rows / 2, rows]).enumerate() {
        let shape = [rows, n / rows].map(Dim::from).to_vec();
        let seen = node(
            &mut b,
            Op::View(View::Reshape(shape)),
            &[y],
            &format!("seen{i}"),
        );
        let v = node(&mut b, kind, &[seen], &format!("v{i}"));
        let sum = Op::Reduce {
            monoid: Monoid::sum(DType::F32, DType::F32),
            axes: vec![1],
            keep: true,
        };
        outputs.push(node(&mut b, sum, &[v], &format!("sum{i}")));
    }
    let graph = b.finish(&outputs);
    Model::from_graph("branches", &graph, &ModelOptions::default()).unwrap()
}

/// Steps that read what a step of a launch writes are part of it, also where the step before them is another reader.
#[test]
fn readers_of_one_value_are_part_of_one_launch() {
    for (launch, rows, columns) in [
        (Launch::Steps, 16, 24),
        (Launch::Graph, 8, 40),
        (Launch::Resident, 16, 24),
    ] {
        let b = bench("h100", launch, branches(rows, columns));
        let plan = b.plan();
        let steps: Vec<&Step> = plan.blocks().flat_map(|b| &b.steps).collect();
        let beside = (1..steps.len()).any(|i| {
            let waits = &steps[i].waits;
            let before = |w: &Wait| matches!(w, Wait::Step(s) if *s as usize + 1 == i);
            steps[i].joined && !waits.iter().any(before)
        });
        assert!(beside, "{:?}", joined(&plan));
        let reference = Session::builder().commit(branches(rows, columns)).unwrap();
        for seed in 3..6 {
            let x = values(DType::F32, &[1, 64], seed);
            let got = b.session.run(&[("x", &x)]).unwrap().into_vec();
            let want = reference.run(&[("x", &x)]).unwrap().into_vec();
            for ((name, a), (_, b)) in got.iter().zip(&want) {
                let d = shopfloor_testkit::compare::difference(a, b);
                assert!(d <= 1e-5, "{name}: {d:.2e} apart");
            }
        }
    }
}

/// Steps that would have several tasks have one, and a launch has several of them in a row.
#[test]
fn small_products_in_a_row_are_part_of_one_launch() {
    if !testing::turn("small_products_in_a_row_are_part_of_one_launch") {
        return;
    }
    for (gpu, arch, pixels, channels, few) in [
        ("h100", "sm_90a", 196, 96, 24),
        ("a100", "sm_80", 49, 64, 16),
        ("t4", "sm_75", 196, 96, 24),
    ] {
        let make = |pixels| gated(pixels, 200, channels, few);
        let b = bench(gpu, Launch::Steps, make(Dim::Known(pixels)));
        let plan = b.plan();
        let steps: Vec<&Step> = plan.blocks().flat_map(|b| &b.steps).collect();
        let in_a_row = steps.windows(2).any(|w| w[0].joined && w[1].joined);
        assert!(in_a_row, "{gpu}: {:?}", joined(&plan));
        let reference = make(Dim::Known(pixels));
        let x = values(DType::F32, &[pixels as usize, channels], 3);
        let (got, launches) = b.counted(&x);
        let (few_steps, all) = joined(&plan);
        assert_eq!(launches, (all - few_steps) as u64, "{gpu}");
        agrees(&reference, &x, &got);
        let mut clock = Timeline::default();
        let timed = b.session.run_timed(&[("x", &x)], &mut clock).unwrap();
        assert_eq!(of(timed.into_vec()), got);
        assembled(arch, &texts(&plan, arch));
        let b = bench(gpu, Launch::Graph, make(Dim::sym("pixels")));
        for (seed, pixels) in [3, 200, 3, 1].into_iter().enumerate() {
            let x = values(DType::F32, &[pixels, channels], seed as u64);
            agrees(&reference_of(&make, pixels), &x, &b.counted(&x).0);
        }
    }
}

/// The model for so many pixels.
fn reference_of(make: &dyn Fn(Dim) -> Model, pixels: usize) -> Model {
    make(Dim::from(pixels))
}

/// ptxas takes all of `texts`, without spills.
pub fn assembled(arch: &str, texts: &[String]) {
    let ptxas = match tool("ptxas") {
        Ok(tool) => tool,
        Err(why) => return testing::skip("ptxas: launches of several steps", &why),
    };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kernel.ptx");
    for text in texts {
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(&ptxas);
        command.args([&format!("-arch={arch}"), "-Werror", "-warn-spills"]);
        let out = command
            .args(["-o", "/dev/null"])
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{arch}: {said}\n{text}");
    }
}

#[test]
fn their_launches_are_assembled_without_spills() {
    for (gpu, arch, rows, size) in [
        ("h100", "sm_90a", 1, (4096, 64)),
        ("h100", "sm_90a", 40, (4096, 96)),
        ("a100", "sm_80", 4, (2048, 192)),
        ("t4", "sm_75", 1, (4096, 64)),
    ] {
        let b = bench(gpu, Launch::Steps, model(Dim::Known(rows), 1, size));
        assembled(arch, &texts(&b.plan(), arch));
    }
}

fn agrees(model: &Model, x: &Tensor, got: &[f32]) {
    let want = reference::run_graph(model.graph().unwrap(), std::slice::from_ref(x)).unwrap();
    let want = want[0].to_f32().unwrap();
    assert_eq!(want.len(), got.len());
    for (i, (w, g)) in want.iter().zip(got).enumerate() {
        assert!(
            (w - g).abs() <= 1e-5 + 1e-5 * w.abs(),
            "element {i}: {g}, want {w}"
        );
    }
}

/// One launch holds a sum of parts, or a single task, with what it reads; with a clock every step has its own.
#[test]
fn they_give_the_bits_of_launches_of_their_own() {
    if !testing::turn("they_give_the_bits_of_launches_of_their_own") {
        return;
    }
    let mut all = 0;
    for (gpu, rows, size) in [
        ("h100", 1, (4096, 64)),
        ("a100", 4, (2048, 192)),
        ("h100", 40, (4096, 96)),
        ("a100", 3, (64, 48)),
    ] {
        let make = || model(Dim::Known(rows), 1, size);
        let b = bench(gpu, Launch::Steps, make());
        let plan = b.plan();
        let (few, steps) = joined(&plan);
        all += few;
        let reference = make();
        // Constants are laid out before the first request.
        b.counted(&values(DType::F32, &[rows as usize, size.0], 0));
        for seed in 0..2 {
            let x = values(DType::F32, &[rows as usize, size.0], seed);
            let (got, launches) = b.counted(&x);
            assert_eq!(launches, (steps - few) as u64, "{gpu}, {rows} x {size:?}");
            agrees(&reference, &x, &got);
            let (mut clock, before) = (Timeline::default(), b.launches());
            let timed = b.session.run_timed(&[("x", &x)], &mut clock).unwrap();
            assert_eq!(of(timed.into_vec()), got);
            assert_eq!(b.launches() - before, steps as u64);
        }
        // A plan that takes steps from the one in use says the same of them.
        assert_eq!(b.plan().predicted, plan.predicted);
    }
    assert!(all >= 4, "{all} of all plans' steps are joined");
}

/// Words for arrivals are zeros again behind every launch, also where sizes change from request to request.
#[test]
fn sizes_may_change_from_request_to_request() {
    if !testing::turn("sizes_may_change_from_request_to_request") {
        return;
    }
    let make = || model(Dim::sym("rows"), 40, (1024, 512));
    for launch in [Launch::Steps, Launch::Graph] {
        let b = bench("h100", launch, make());
        assert!(joined(&b.plan()).0 > 0);
        let reference = make();
        for (seed, rows) in [3, 40, 3, 1, 3].into_iter().enumerate() {
            let x = values(DType::F32, &[rows, 1024], seed as u64);
            agrees(&reference, &x, &b.counted(&x).0);
        }
    }
}

/// A plan that says it of another step, or whose tasks are others than those that it names, is refused.
#[test]
fn a_plan_that_is_wrong_about_them_is_refused() {
    // Behind tasks along several axes, which bands would put into another order.
    let behind = |plan: &Plan| {
        let steps = &plan.blocks().next()?.steps;
        let grid = |s: &Step| match &s.work {
            StepWork::Kernel { schedule, .. } => schedule.grid.len(),
            StepWork::Host { .. } => 0,
        };
        (1..steps.len())
            .find(|&i| steps[i].joined && grid(&steps[i - 1]) > 1 && grid(&steps[i]) > 0)
    };
    let sizes = [(40, (1024, 512)), (8, (1024, 512)), (3, (4096, 96))];
    let made = sizes
        .map(|(rows, size)| bench("h100", Launch::Steps, model(Dim::Known(rows), 1, size)).plan());
    let good = made.iter().find(|p| behind(p).is_some()).unwrap();
    good.clone().verify().unwrap();
    let changed = |change: &dyn Fn(&mut [Step])| {
        let mut plan = good.clone();
        match &mut plan.segments[0] {
            PlanSegment::Block(b) => change(&mut b.steps),
            _ => panic!("a block"),
        }
        plan.verify().map(drop).map_err(|e| e.to_string())
    };
    let steps = &good.blocks().next().unwrap().steps;
    let at = behind(good).unwrap();
    let may = |i: usize| i > 0 && steps[i].may_join(&steps[i - 1], i, &good.dims);
    for i in (0..steps.len()).filter(|&i| !may(i)) {
        let e = changed(&|s| s[i].joined = true).unwrap_err();
        assert!(e.contains("joined"), "{e}");
    }
    let of = |s: &mut Step| match &mut s.work {
        StepWork::Kernel { schedule, .. } => Arc::make_mut(schedule).clone(),
        StepWork::Host { .. } => panic!("a kernel"),
    };
    let with = |s: &mut Step, new: Schedule| {
        if let StepWork::Kernel { schedule, .. } = &mut s.work {
            *schedule = Arc::new(new);
        }
    };
    // Bands of tasks on one side, and pieces of another size.
    for (step, tile) in [(at - 1, None), (at, None), (at, Some(32))] {
        let e = changed(&|s| {
            let mut new = of(&mut s[step]);
            match tile {
                None => new.raster = 2,
                Some(t) => new.grid.last_mut().unwrap().tile = t,
            }
            with(&mut s[step], new);
        });
        assert!(e.is_err(), "step {step}, tile {tile:?}");
    }
}
