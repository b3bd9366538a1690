//! Requests whose steps go to a GPU in graphs: the same bits as launched one by one, whatever sizes come and
//! whichever plan is in use, called off in the middle or refused by the driver.
use crate::emulated_session::Emulated;
use cuda_emulated::{EmulatedGpu, Fault, Happened};
use graph::GraphBuilder;
use layout::{DType, Dim, DimBox};
use runtime::{Call, Cancel, RunError};
use shopfloor::{Error, Launch, Model, ModelOptions, Precision, Tensor};
use shopfloor_testkit::handwritten::{node, product, values};
use std::sync::Arc;
use tensor::WeightStore;

const WIDTH: usize = 32;
const MOST: i64 = 24;

fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let n = shape.iter().product::<usize>();
    let value = |j: usize| ((seed * 31 + j * 7) % 17) as f32 / 128.0 - 0.03;
    let all: Vec<f32> = (0..n).map(value).collect();
    Tensor::from_f32(shape, &all).unwrap()
}

/// `nodes` products in a row, of any number of rows.
fn chain(nodes: usize) -> Model {
    let mut weights = WeightStore::new();
    let ids: Vec<_> = (0..nodes)
        .map(|i| {
            let w = numbers(&[WIDTH, WIDTH], i);
            weights.add_tensor(&format!("w{i}"), w).unwrap()
        })
        .collect();
    let mut b = GraphBuilder::new("chain", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::sym("rows"), Dim::from(WIDTH)]);
    for (i, id) in ids.into_iter().enumerate() {
        let w = b.weight(id).unwrap();
        let (op, name) = (product(&[0, 1], &[1, 2], &[0, 2]), format!("y{i}"));
        x = node(&mut b, op, &[x, w], &name);
    }
    let graph = b.finish(&[x]);
    let mut dims = DimBox::new();
    dims.insert("rows", 1, MOST);
    let options = ModelOptions {
        dims,
        ..ModelOptions::default()
    };
    Model::from_graph("chain", &graph, &options).unwrap()
}

fn bench(launch: Option<Launch>, nodes: usize) -> Emulated {
    let gpu = EmulatedGpu::named("a100").unwrap().with_sms(3);
    Emulated::new("a100", gpu, launch, chain(nodes))
}

impl Emulated {
    fn run(&self, rows: usize, seed: usize) -> Result<Vec<f32>, Error> {
        let x = numbers(&[rows, WIDTH], seed);
        let out = self.session.run(&[("x", &x)])?;
        Ok(out.into_vec().remove(0).1.to_f32().unwrap())
    }

    fn call(&self, rows: usize, off: &Cancel) -> Result<(), RunError> {
        let x = numbers(&[rows, WIDTH], 0);
        let call = Call {
            cancel: Some(off),
            deadline: None,
        };
        match self.session.run_call(&[("x", &x)], call) {
            Ok(_) => Ok(()),
            Err(Error::Run(e)) => Err(e),
            Err(e) => panic!("{e}"),
        }
    }
}

#[test]
fn graphs_give_the_bits_of_launches_for_sizes_that_come_again() {
    let (steps, graph) = (bench(Some(Launch::Steps), 5), bench(Some(Launch::Graph), 5));
    for (n, rows) in [3, 17, 3, 24, 1, 17, 3].into_iter().enumerate() {
        assert_eq!(
            graph.run(rows, n).unwrap(),
            steps.run(rows, n).unwrap(),
            "{rows} rows"
        );
    }
    assert_eq!(steps.calls("cuGraphLaunch"), 0);
    let launched = |b: &Emulated| b.session.runtime().view().launched;
    assert_eq!(launched(&steps), [Launch::Steps].into());
    assert_eq!(launched(&graph), [Launch::Graph].into());
    // The first request of each size goes launch by launch, the second makes the graph.
    assert_eq!(graph.calls("cuGraphLaunch"), 3);
    for rows in [24, 1] {
        graph.run(rows, 9).unwrap();
    }
    let (kept, launched) = (
        graph.calls("cuStreamEndCapture"),
        graph.calls("cuLaunchKernel"),
    );
    for rows in [3, 17, 24, 1] {
        graph.run(rows, 9).unwrap();
    }
    assert_eq!(graph.calls("cuStreamEndCapture"), kept);
    assert_eq!(graph.calls("cuLaunchKernel"), launched);
    assert_eq!(graph.calls("cuGraphLaunch"), 9);
}

#[test]
fn of_its_own_accord_a_device_takes_what_is_predicted_to_take_less() {
    // Launches of two steps each, many enough for a graph to be worth its own price.
    let b = bench(None, 16);
    b.run(8, 0).unwrap();
    b.run(8, 0).unwrap();
    assert_eq!(b.calls("cuGraphLaunch"), 1);
}

#[test]
fn a_plan_that_follows_another_has_graphs_of_its_own() {
    let (steps, graph) = (bench(Some(Launch::Steps), 3), bench(Some(Launch::Graph), 3));
    assert_eq!(graph.run(7, 1).unwrap(), steps.run(7, 1).unwrap());
    let mut dims = DimBox::new();
    dims.insert("rows", 7, 7);
    for b in [&steps, &graph] {
        let plan = b.session.plan(&dims).unwrap();
        b.session.swap_plan(plan).unwrap();
    }
    let want = steps.run(7, 1).unwrap();
    for _ in 0..2 {
        assert_eq!(graph.run(7, 1).unwrap(), want);
    }
    let other = steps.run(20, 2).unwrap();
    assert_eq!(graph.run(20, 2).unwrap(), other);
}

#[test]
fn a_request_that_is_called_off_leaves_the_graphs_behind_it_out() {
    if !testing::turn("a_request_that_is_called_off_leaves_the_graphs_behind_it_out") {
        return;
    }
    // Several run in one launch.
    const NODES: usize = 400;
    let b = bench(Some(Launch::Graph), NODES);
    let want = b.run(4, 0).unwrap();
    assert_eq!(b.run(4, 0).unwrap(), want);
    let all = b.calls("cuGraphLaunch");
    assert!(all >= 3, "{all}");
    // A call that nobody calls off is the same.
    b.call(4, &Cancel::new()).unwrap();
    for k in 1..all {
        let (off, before) = (Cancel::new(), b.calls("cuGraphLaunch"));
        let tell = off.clone();
        b.driver.watch(0, move |h| {
            if h == Happened::Launched(k) {
                tell.cancel();
            }
        });
        assert_eq!(b.call(4, &off), Err(RunError::Cancelled));
        assert_eq!(b.calls("cuGraphLaunch") - before, k);
        assert_eq!(b.run(4, 0).unwrap(), want);
    }
}

#[test]
fn where_a_driver_makes_no_graph_steps_are_launched() {
    let b = bench(Some(Launch::Graph), 4);
    let want = b.run(5, 0).unwrap();
    // In the middle of what is kept for a graph.
    b.driver.inject(0, Fault::Launch { at: 2 });
    for _ in 0..3 {
        assert_eq!(b.run(5, 0).unwrap(), want);
    }
    assert_eq!(b.calls("cuGraphLaunch"), 0);
}

#[test]
fn what_the_driver_refuses_is_the_requests_error_and_the_next_one_is_right() {
    let b = bench(Some(Launch::Graph), 4);
    let want = b.run(5, 0).unwrap();
    assert_eq!(b.run(5, 0).unwrap(), want);
    // Of a graph that is there.
    b.driver.inject(0, Fault::Launch { at: 1 });
    let e = b.run(5, 0).unwrap_err().to_string();
    assert!(e.contains("made to fail"), "{e}");
    assert_eq!(b.run(5, 0).unwrap(), want);
    b.driver.inject(0, Fault::Lost { at: 3 });
    for _ in 0..2 {
        let e = b.run(5, 0).unwrap_err().to_string();
        assert!(e.contains("lost"), "{e}");
    }
}

/// Products in a row with constant weights of a type, of few rows.
fn constants(dtype: DType, precision: Precision) -> Model {
    const DEEP: usize = 256;
    let mut weights = WeightStore::new();
    let ids: Vec<_> = (0..4)
        .map(|i| {
            let w = values(dtype, &[DEEP, DEEP], 7 + i);
            weights.add_tensor(&format!("w{i}"), w).unwrap()
        })
        .collect();
    let mut b = GraphBuilder::new("constants", Arc::new(weights));
    let mut x = b.input("x", dtype, vec![Dim::Known(16), Dim::from(DEEP)]);
    for (i, id) in ids.into_iter().enumerate() {
        let w = b.weight(id).unwrap();
        let (op, name) = (product(&[0, 1], &[1, 2], &[0, 2]), format!("y{i}"));
        x = node(&mut b, op, &[x, w], &name);
    }
    let options = ModelOptions {
        precision,
        ..ModelOptions::default()
    };
    Model::from_graph("constants", &b.finish(&[x]), &options).unwrap()
}

/// Kernels of a graph that copy first stages of their weights before those before them are over: the driver finds no read
/// of what is not written yet, and the bits are those of launches one after the other.
#[test]
fn weights_are_copied_before_the_kernels_before_are_over() {
    if !testing::turn("weights_are_copied_before_the_kernels_before_are_over") {
        return;
    }
    let exact = Precision::default();
    for (dtype, precision) in [
        (DType::BF16, exact),
        (DType::F16, exact),
        (DType::F32, Precision::Tf32),
    ] {
        let on = |name: &str, launch| {
            let gpu = EmulatedGpu::named(name).unwrap().with_sms(4);
            Emulated::new(name, gpu, Some(launch), constants(dtype, precision))
        };
        let (steps, graph) = (on("h100", Launch::Steps), on("h100", Launch::Graph));
        let x = values(dtype, &[16, 256], 3);
        let run = |e: &Emulated| e.answer(&[("x", &x)]);
        let want = run(&steps);
        for _ in 0..3 {
            assert_eq!(run(&graph).bytes(), want.bytes(), "{dtype}");
        }
        assert_eq!(graph.calls("cuGraphLaunch"), 2);
        let ahead = |e: &Emulated| -> Vec<f64> {
            let plan = e.session.plan(&DimBox::new()).unwrap();
            let steps = plan.blocks().flat_map(|b| b.steps.clone());
            let of = |s: plan::Step| match &s.work {
                plan::StepWork::Kernel {
                    kernel, schedule, ..
                } => kernel::work::bytes_ahead(kernel, schedule),
                plan::StepWork::Host { .. } => 0.0,
            };
            steps.map(of).collect()
        };
        let own = ahead(&graph);
        assert!(
            own.iter().filter(|&&n| n > 0.0).count() >= 4,
            "{dtype}: {own:?}"
        );
        assert!(ahead(&on("a100", Launch::Graph)).iter().all(|&n| n == 0.0));
    }
}
