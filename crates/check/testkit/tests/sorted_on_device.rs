//! Sorting on GPUs, whatever is kept of whatever there is: two kernels, the same bits as the host's plain
//! code, ties in their order and NaNs where they belong.
use cuda::{CudaDevice, CudaOptions};
use cuda_emulated::{EmulatedDriver, EmulatedGpu};
use device::Device;
use graph::{GraphBuilder, Op};
use layout::{DType, Dim, DimBox};
use plan::{Allotment, Planner as _};
use planner::{PlanOptions, Planner};
use runtime::Engine;
use shopfloor::{Machine, Model, ModelOptions, Session, Tensor};
use shopfloor_testkit::handwritten::{self, origin};
use shopfloor_tools::planview;
use std::sync::Arc;
use std::time::Duration;
use tensor::WeightStore;

fn model(d: DType, shape: &[usize], axis: usize, k: usize, descending: bool) -> Model {
    let mut b = GraphBuilder::new("top", Arc::new(WeightStore::default()));
    let dims: Vec<Dim> = shape.iter().map(|&n| Dim::from(n)).collect();
    let x = b.input("x", d, dims);
    let op = Op::Sort {
        axis,
        k: Dim::from(k),
        descending,
    };
    let ys = b
        .node(op, &[x], &["values", "indices"], &origin("top"))
        .unwrap();
    let graph = b.finish(&ys);
    Model::from_graph("top", &graph, &ModelOptions::default()).unwrap()
}

fn on_gpu(resident: bool) -> Arc<Engine> {
    let gpu = EmulatedGpu::named("a100").unwrap().with_sms(4);
    let driver = EmulatedDriver::new(vec![gpu]);
    let options = CudaOptions {
        launch: Some(match resident {
            true => machine::Way::Resident,
            false => machine::Way::Steps,
        }),
        watchdog: Duration::from_secs(600),
        ..CudaOptions::default()
    };
    let machine = Machine::load("a100").unwrap();
    let gpu = CudaDevice::open("emulated:a100", &driver, 0, machine, options).unwrap();
    let own = (gpu.machine().clone(), gpu.target().clone());
    let planner = Planner::new(vec![own], PlanOptions::default());
    Engine::new(Arc::new(gpu), Arc::new(planner))
}

/// Few different numbers, and for floats some that are none.
fn input(d: DType, shape: &[usize], seed: u64) -> Tensor {
    let mut t = Tensor::zeros(d, shape).unwrap();
    let drawn = handwritten::values(DType::F64, shape, seed);
    for i in 0..t.len() {
        let v = (11.5 * (drawn.get_f64(i) + 1.0)).floor() as u32;
        t.set_f64(
            i,
            match (d.is_float(), v) {
                (true, 0) => f64::NAN,
                (true, 1) => f64::NEG_INFINITY,
                (true, 2) => -0.0,
                (true, 3) => f64::INFINITY,
                _ => f64::from(v) - 11.0,
            },
        );
    }
    t
}

#[test]
fn any_number_of_elements_is_sorted_as_on_the_host() {
    let cases: [(DType, &[usize], usize, usize); 10] = [
        (DType::F32, &[3, 40], 1, 7),
        (DType::F32, &[300], 0, 300),
        (DType::F32, &[2, 33, 5], 1, 16),
        (DType::F16, &[5, 67], 1, 67),
        (DType::BF16, &[4, 31], 1, 5),
        (DType::I32, &[129, 3], 0, 20),
        (DType::I64, &[1, 90], 1, 50),
        (DType::F32, &[6, 5], 1, 5),
        (DType::F32, &[1, 1000], 1, 100),
        (DType::F32, &[7, 9], 1, 6),
    ];
    for (i, (d, shape, axis, k)) in cases.into_iter().enumerate() {
        let (descending, resident) = (i % 2 == 0, i % 3 == 0);
        let engine = on_gpu(resident);
        let gpu = Session::builder().with_engine(engine);
        let gpu = gpu.commit(model(d, shape, axis, k, descending)).unwrap();
        let cpu = Session::builder().with_threads(1);
        let cpu = cpu.commit(model(d, shape, axis, k, descending)).unwrap();
        for seed in 0..2 {
            let x = input(d, shape, 1 + seed + i as u64 * 7);
            let run = |s: &Session| s.run(&[("x", &x)]).unwrap().into_vec();
            let (got, want) = (run(&gpu), run(&cpu));
            for ((name, g), (_, w)) in got.iter().zip(&want) {
                let what = format!("case {i}, seed {seed}: {name} of {d} {shape:?}, {k} kept");
                assert_eq!((g.dtype(), g.shape()), (w.dtype(), w.shape()), "{what}");
                for n in 0..w.len() {
                    let (g, w) = (g.get_f64(n), w.get_f64(n));
                    let same = g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan());
                    assert!(same, "{what}, place {n}: {g} instead of {w}");
                }
            }
        }
        assert!(planview::fallbacks(&gpu).is_empty(), "case {i}");
    }
}

#[test]
fn who_is_predicted_to_be_sooner_sorts() {
    let gpu = on_gpu(false);
    let own = (
        gpu.device().machine().clone(),
        gpu.device().target().clone(),
    );
    let planner = Planner::new(vec![own], PlanOptions::default());
    for (n, choice) in [
        (1000, "two kernels"),
        (5_000, "two kernels"),
        (400_000, "a host step"),
    ] {
        let model = model(DType::F32, &[1, n], 1, n, false);
        let (dims, all) = (DimBox::new(), Allotment::default());
        let plan = planner.bind(model.program(), &dims, &all).unwrap();
        let why = plan.whys.iter().find(|w| w.pass == "rank");
        let why = why.unwrap_or_else(|| panic!("no reason for {n} elements"));
        assert_eq!(why.choice, choice, "{n} elements: {}", why.reason);
        let steps = plan.blocks().flat_map(|b| &b.steps);
        let hosts = steps.filter(|s| matches!(s.work, plan::StepWork::Host { .. }));
        assert_eq!(hosts.count(), usize::from(choice == "a host step"));
    }
}

#[test]
fn the_host_sorts_as_before() {
    let s = Session::builder().with_threads(1);
    let s = s.commit(model(DType::F32, &[3, 40], 1, 7, true)).unwrap();
    let x = input(DType::F32, &[3, 40], 3);
    s.run(&[("x", &x)]).unwrap();
    let shares = planview::shares(&s);
    assert_eq!(shares.steps_by_device.values().sum::<usize>(), 1);
}
