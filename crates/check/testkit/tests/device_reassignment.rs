//! A plan over the CPU and an emulated GPU whose description promises what is not there: the supervisor finds
//! it while requests are answered, and steps go to the other device.
use graph::{ContractSpec, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use shopfloor::{
    Machine, Model, ModelOptions, Session, SuperviseOptions, Supervision, Tensor, engine_on,
    machines,
};
use shopfloor_tools::supervisor::supervise::Mode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tensor::WeightStore;

const N: usize = 32;
/// An A100 of which the file says that kernels start at once, that its clock is many times as fast, and that
/// the link to it takes no time.
fn promised() -> Machine {
    let mut m = machines::find("a100").expect("machine");
    for text in [
        "clock=8x",
        "pcie=64x",
        "pcie.latency=0.01x",
        "launch=0.01x",
        "step=0.01x",
    ] {
        let change: machine::Change = text.parse().expect("a change");
        change.apply(&mut m).expect("it applies");
    }
    m
}

/// Three products of N^3 in a row: little work, which ends on the CPU before it is on the GPU.
fn little() -> Model {
    let mut weights = WeightStore::new();
    let mut ids = vec![];
    for i in 0..3 {
        let value = |j: usize| ((j * 7 + i) % 17) as f32 / 64.0 - 0.1;
        let values: Vec<f32> = (0..N * N).map(value).collect();
        let t = Tensor::from_f32(&[N, N], &values).expect("a matrix");
        ids.push(weights.add_tensor(&format!("w{i}"), t).expect("a weight"));
    }
    let mut b = GraphBuilder::new("little", Arc::new(weights));
    let mut x = b.input("x", DType::F32, vec![Dim::from(N), Dim::from(N)]);
    for (i, w) in ids.into_iter().enumerate() {
        let (w, name) = (b.weight(w).expect("a weight"), format!("product {i}"));
        let origin = Origin {
            name: name.clone(),
            op_type: String::new(),
        };
        let product = Op::Contract(ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        });
        x = b.node(product, &[x, w], &[&name], &origin).expect("a node")[0];
    }
    Model::from_graph("little", &b.finish(&[x]), &ModelOptions::default()).expect("a model")
}

#[test]
fn steps_go_to_the_other_device_beside_traffic() {
    if !testing::turn("steps_go_to_the_other_device_beside_traffic") {
        return;
    }
    let engine = engine_on("cpu+emulated:a100", None, None, Some(promised())).expect("two devices");
    let session = Session::builder()
        .with_engine(engine.clone())
        .commit(little())
        .expect("session");
    let values: Vec<f32> = (0..N * N).map(|j| (j % 13) as f32 / 13.0).collect();
    let x = Tensor::from_f32(&[N, N], &values).expect("a matrix");
    let named = [("x", &x)];
    let far = |s: &Session| -> usize {
        let plans = s.runtime().plans();
        let plan = plans.first().expect("a plan");
        let steps = plan.plan().blocks().flat_map(|b| &b.steps);
        steps.filter(|s| s.device == 1).count()
    };
    let run = || {
        let outputs = session.run(&named).expect("a request").into_vec();
        outputs[0].1.to_f32().expect("floats")
    };
    let want = run();
    let right = || {
        for (g, w) in run().iter().zip(&want) {
            assert!((g - w).abs() <= 1e-5 * w.abs().max(1.0), "{g} {w}");
        }
    };
    let before = far(&session);
    assert!(before > 0, "nothing is on the GPU");
    let options = SuperviseOptions {
        window: Duration::from_millis(50),
        ..SuperviseOptions::of(Mode::On)
    };
    let supervision = Supervision::start(&engine, options).expect("a supervisor");
    // Planning steps aside for requests, and the supervisor rests longer after planning that took long.
    let until = Instant::now() + Duration::from_secs(400);
    let promoted = || engine.decisions().iter().any(|d| d.why.pass == "promoted");
    while !promoted() {
        right();
        assert!(Instant::now() < until, "{:#?}", engine.decisions());
    }
    supervision.finish().expect("an end");
    right();
    let decisions = engine.decisions();
    let tried = decisions.iter().find(|d| d.why.pass == "trying");
    let choice = &tried.expect("a trial").why.choice;
    println!("{choice}");
    assert!(choice.contains("another"), "{choice}");
    assert!(far(&session) < before, "{decisions:#?}");
}
