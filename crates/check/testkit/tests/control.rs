//! Control flow: branches that do not fit the sizes a model is loaded with, loops that hold more than they may.
use graph::{GraphBuilder, Op};
use layout::{DType, Dim};
use shopfloor::{Model, ModelOptions, Session, Tensor};
use std::sync::Arc;
use tensor::WeightStore;
use testkit::handwritten::node;
use testkit::zoo;

#[test]
fn a_branch_that_does_not_fit_is_refused_when_it_is_taken() {
    let Some(model) = zoo::find("silero_vad") else {
        zoo::skip(&["silero_vad"]);
        return;
    };
    let prepared = model.prepare_temporary().expect("the model is whole");
    let inputs = model.inputs().expect("the inputs are whole");
    let mut builder = Session::builder().with_threads(1);
    for (n, t) in &inputs {
        builder = builder.with_shape(n, t.shape());
    }
    let session = builder
        .commit_from_file(&prepared.model)
        .expect("one branch fits these sizes");
    let run = |rate: i64| {
        let rate = Tensor::from_i64(&[], &[rate]).expect("a number");
        let named: Vec<(&str, &Tensor)> = inputs
            .iter()
            .map(|(n, t)| (n.as_str(), if n == "sr" { &rate } else { t }))
            .collect();
        session.run(&named)
    };
    run(16_000).expect("the branch for 16 kHz fits 576 samples");
    // The branch for 8 kHz takes 288 samples.
    let e = run(8_000).expect_err("the other branch does not fit");
    let e = e.to_string();
    assert!(
        e.contains("If_0") && e.contains("does not fit the sizes"),
        "{e}"
    );
    run(16_000).expect("a refused request leaves the session as it was");
}

/// A loop over `turns` whose body doubles what it carries, and gives every turn's `kept` values.
fn growing(kept: usize) -> Model {
    let mut weights = WeightStore::new();
    let row = Tensor::zeros(DType::F32, &[kept]).unwrap();
    let row = weights.add_tensor("row", row).unwrap();
    let mut b = GraphBuilder::new("growing", Arc::new(weights));
    let turns = b.input("turns", DType::I64, vec![]);
    let x = b.input("x", DType::F32, vec![Dim::sym("n")]);
    let on = b
        .constant("on", Tensor::from_bytes(DType::Bool, &[], vec![1]).unwrap())
        .unwrap();
    let mut body = GraphBuilder::new("body", b.graph().weights.clone());
    body.input("i", DType::I64, vec![]);
    let go = body.input("go", DType::Bool, vec![]);
    let carried = body.input("carried", DType::F32, vec![Dim::sym("m")]);
    let twice = node(
        &mut body,
        Op::Concat { axis: 0 },
        &[carried, carried],
        "twice",
    );
    let row = body.weight(row).unwrap();
    let next = if kept == 0 { twice } else { carried };
    let op = Op::Loop {
        body: Box::new(body.finish(&[go, next, row])),
        carried: 1,
        has_trip: true,
        has_cond: true,
    };
    let types = [
        ("grown", DType::F32, vec![None]),
        (
            "stacked",
            DType::F32,
            vec![None, Some(Dim::Known(kept as i64))],
        ),
    ];
    let outs = b.node_with_shapes(
        op,
        &[turns, on, x],
        &types,
        &testkit::handwritten::origin("loop"),
    );
    Model::from_graph("growing", &b.finish(&outs), &ModelOptions::default()).unwrap()
}

#[test]
fn what_a_loop_gathers_or_grows_counts_against_the_memory_limit() {
    for kept in [0, 1 << 16] {
        let session = Session::builder()
            .with_threads(1)
            .with_memory_limit(8 << 20)
            .commit(growing(kept))
            .unwrap();
        let run = |turns: i64| {
            let turns = Tensor::from_i64(&[], &[turns]).unwrap();
            let x = Tensor::from_f32(&[4], &[1.0; 4]).unwrap();
            session.run(&[("turns", &turns), ("x", &x)])
        };
        let out = run(4).unwrap();
        assert_eq!(out["stacked"].shape(), [4, kept]);
        let long = if kept == 0 { 4 << 4 } else { 4 };
        assert_eq!(out["grown"].shape(), [long]);
        // 4 * 4 bytes doubled 30 times, or 300 rows of 256 KiB.
        let e = run(if kept == 0 { 30 } else { 300 })
            .unwrap_err()
            .to_string();
        assert!(e.contains("memory limit is 8388608 B"), "{e}");
        run(4).unwrap();
    }
}

/// A model of the operators' cases and what it is fed, but for `late`.
fn operator_case(name: &str, late: &str) -> (Session, Vec<(String, Tensor)>) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/operators");
    let path = path.join(name);
    let arrays = data::read_npz(path.with_extension("npz")).expect("the case is whole");
    let inputs = arrays.into_iter().filter_map(|(k, t)| {
        let k = k.strip_prefix("in:")?;
        (k != late).then(|| (k.to_string(), t))
    });
    let session = Session::builder()
        .with_threads(1)
        .commit_from_file(path.with_extension("onnx"))
        .expect("it loads");
    (session, inputs.collect())
}

/// The shape of what a request with the number `late` gives, or its error.
fn with_number(
    (session, inputs): &(Session, Vec<(String, Tensor)>),
    late: &str,
    n: i64,
) -> Result<Vec<usize>, String> {
    let n = Tensor::from_i64(&[], &[n]).expect("a number");
    let mut named: Vec<(&str, &Tensor)> = inputs.iter().map(|(k, t)| (k.as_str(), t)).collect();
    named.push((late, &n));
    let outs = session.run(&named).map_err(|e| e.to_string())?;
    Ok(outs["y0"].shape().to_vec())
}

#[test]
fn requests_of_one_session_run_loops_of_other_ranks() {
    let case = operator_case("loop_ranks_trip_1", "t");
    let run = |n: i64| with_number(&case, "t", n);
    let ranked = |n: usize| [vec![1; n], vec![2, 3]].concat();
    for n in [3, 0, 1, 20, 3, 0] {
        assert_eq!(run(n), Ok(ranked(n as usize)), "{n} rounds");
    }
    // Rounds end with the dimensions that a tensor may have.
    assert_eq!(run(50), Ok(ranked(50)));
    let e = run(70).expect_err("no tensor has 72 dimensions");
    assert!(e.contains("65 dimensions are more than 64"), "{e}");
    assert_eq!(run(1), Ok(ranked(1)));
}

#[test]
fn requests_of_one_session_take_items_of_other_ranks() {
    let case = operator_case("sequence_ranks_at_0", "at");
    let run = |n: i64| with_number(&case, "at", n);
    for (at, want) in [
        (2, vec![2, 2, 3]),
        (1, vec![3]),
        (-3, vec![2, 3]),
        (2, vec![2, 2, 3]),
    ] {
        assert_eq!(run(at), Ok(want), "item {at}");
    }
    let e = run(3).expect_err("there are three");
    assert!(
        e.contains("position 3 is outside a sequence of 3 items"),
        "{e}"
    );
    assert_eq!(run(1), Ok(vec![3]));
}

#[test]
fn requests_of_one_session_find_places_of_other_lengths() {
    let (session, inputs) = operator_case("gather_nd_by_non_zero", "x");
    let run = |marks: &[f32]| {
        let marks = Tensor::from_f32(&[4], marks).expect("four marks");
        let mut named: Vec<(&str, &Tensor)> = inputs.iter().map(|(k, t)| (k.as_str(), t)).collect();
        named.push(("x", &marks));
        let outs = session.run(&named).map_err(|e| e.to_string())?;
        Ok::<_, String>(outs["y"].shape().to_vec())
    };
    for _ in 0..2 {
        assert_eq!(run(&[0.0, 1.0, 2.0, 0.0]), Ok(vec![1, 4]));
        assert_eq!(run(&[0.0, 1.0, 0.0, 0.0]), Ok(vec![1, 4, 4]));
        assert_eq!(run(&[1.0, 1.0, 1.0, 0.0]), Ok(vec![1]));
    }
    let e = run(&[1.0; 4]).expect_err("the data has three dimensions");
    assert!(e.contains("indexes 4 dimensions"), "{e}");
    assert_eq!(run(&[0.0, 1.0, 2.0, 0.0]), Ok(vec![1, 4]));
}
