//! State of streams in odd forms: what may lie in place, what may not, and what is refused.
use expr::{ExprBuilder, functions};
use graph::{GraphBuilder, Op, ValueId, View};
use layout::DType;
use shopfloor::{Dim, DimBox, Model, ModelOptions, Session, Tensor};
use shopfloor_testkit::compare::difference;
use shopfloor_testkit::handwritten::{node, values};
use shopfloor_testkit::onnx_file::{self, Msg};
use std::sync::Arc;
use tensor::WeightStore;

const F: DType = DType::F32;

fn builder() -> GraphBuilder {
    GraphBuilder::new("states", Arc::new(WeightStore::new()))
}

fn map(
    b: &mut GraphBuilder,
    of: &[ValueId],
    name: &str,
    f: &dyn Fn(&mut ExprBuilder, &[u32]) -> u32,
) -> ValueId {
    let mut e = ExprBuilder::new();
    let own: Vec<u32> = (0..of.len()).map(|i| e.input(i as u32, F)).collect();
    let r = f(&mut e, &own);
    node(b, Op::Map(e.finish(&[r])), of, name)
}

fn model(b: GraphBuilder, outputs: &[ValueId], states: &[(&str, &str)]) -> Model {
    let pairs = states.iter().map(|(i, o)| (i.to_string(), o.to_string()));
    let options = ModelOptions {
        states: pairs.collect(),
        ..ModelOptions::default()
    };
    Model::from_graph("states", &b.finish(outputs), &options).expect("a model")
}

/// A kernel that writes a head that is new where the past of another head lies: `y`, which reads the past, comes behind it.
#[test]
fn what_is_new_in_one_row_is_not_written_over_the_past_of_another() {
    let make = |states: &[(&str, &str)]| {
        let mut b = builder();
        let known = |s: [i64; 4]| s.map(Dim::Known).to_vec();
        let past = b.input("past", F, known([1, 2, 5, 8]));
        let x = b.input("x", F, known([1, 1, 1, 8]));
        let other = b.input("other", F, known([1, 1, 6, 8]));
        let slice = View::Slice {
            starts: known([0; 4]),
            steps: vec![1; 4],
            extents: known([1, 1, 5, 8]),
        };
        let first = node(&mut b, Op::View(slice), &[past], "first");
        let x = map(&mut b, &[x], "turned", &|e, v| functions::relu(e, v[0], F));
        let first = node(&mut b, Op::Concat { axis: 2 }, &[first, x], "longer");
        let second = map(&mut b, &[other], "second", &|e, v| {
            functions::sigmoid(e, v[0])
        });
        let present = node(&mut b, Op::Concat { axis: 1 }, &[first, second], "present");
        let y = map(&mut b, &[past], "y", &|e, v| e.add(v[0], v[0]));
        model(b, &[y, present], states)
    };
    let session = |m| {
        Session::builder()
            .with_threads(2)
            .commit(m)
            .expect("a session")
    };
    let streamed = session(make(&[("past", "present")]));
    let mut stream = streamed.stream(&DimBox::new()).expect("a stream");
    let (x, other) = (values(F, &[1, 1, 1, 8], 1), values(F, &[1, 1, 6, 8], 2));
    let got = stream
        .run(&[("x", &x), ("other", &other)])
        .expect("an answer");
    let past = Tensor::zeros(F, &[1, 2, 5, 8]).expect("memory");
    let all = [("past", &past), ("x", &x), ("other", &other)];
    let want = session(make(&[])).run(&all).expect("an answer").into_vec();
    let y = |list: &[(String, Tensor)]| list.iter().find(|o| o.0 == "y").expect("y").1.clone();
    assert_eq!(difference(&y(&got), &y(&want)), 0.0);
}

/// What is beside a cache that grows by rows.
#[derive(Clone, Copy, PartialEq)]
enum Beside {
    Nothing,
    /// What only the data gives the size of.
    Late,
    /// Its last row, as exporters write it, for which no size is proved over every range.
    Last,
}

/// A cache that grows by rows.
fn growing(beside: Beside) -> Model {
    const FLOAT: u64 = 1;
    let concat = onnx_file::node("Concat", &["past", "x"], &["present"]);
    let concat = concat.sub(5, &onnx_file::int_attribute("axis", 0));
    let sizes = |name, rows| onnx_file::value(name, FLOAT, &[rows, "4"]);
    let mut graph = Msg::default()
        .sub(1, &concat)
        .text(2, "growing")
        .sub(11, &sizes("past", "P"))
        .sub(11, &sizes("x", "1"))
        .sub(12, &sizes("present", "Q"));
    const I64: u64 = 7;
    if beside == Beside::Late {
        graph = graph
            .sub(1, &onnx_file::node("NonZero", &["x"], &["found"]))
            .sub(12, &onnx_file::value("found", I64, &["2", "N"]));
    }
    if beside == Beside::Last {
        for (name, v) in [("from", -1i64), ("to", 1_000_000), ("axis", 0)] {
            let t = Msg::default().int(1, 1).int(2, I64).text(8, name);
            graph = graph.sub(5, &t.bytes(9, &v.to_le_bytes()));
        }
        let inputs = ["present", "from", "to", "axis"];
        graph = graph
            .sub(1, &onnx_file::node("Slice", &inputs, &["last"]))
            .sub(12, &sizes("last", "L"));
    }
    let opset = Msg::default().text(1, "").int(2, 18);
    let file = Msg::default().int(1, 9).sub(7, &graph).sub(8, &opset);
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("model.onnx");
    std::fs::write(&path, file.0).expect("a file");
    let options = ModelOptions {
        states: vec![("past".into(), "present".into())],
        ..ModelOptions::default()
    };
    Model::open(&path, &options).expect("a model")
}

/// Of a plan of several blocks state goes from output to input.
#[test]
fn a_stream_whose_sizes_come_from_data_carries_its_state() {
    for beside in [Beside::Nothing, Beside::Late] {
        let late = beside == Beside::Late;
        let session = Session::builder().with_threads(2);
        let session = session.commit(growing(beside));
        let session = session.expect("a session");
        let mut dims = DimBox::new();
        dims.insert("P", 0, 4);
        let mut stream = session.stream(&dims).expect("a stream");
        assert_eq!(stream.in_place().is_empty(), late);
        for message in 0..4 {
            let x = values(F, &[1, 4], message);
            stream.run(&[("x", &x)]).expect("an answer");
        }
    }
}

/// A stream begins at the bottom of what it asked for, or is refused: not at that of what could be planned.
#[test]
fn a_stream_begins_where_it_was_asked_to() {
    let session = Session::builder().with_threads(2);
    let session = session.commit(growing(Beside::Last)).expect("a session");
    let mut dims = DimBox::new();
    dims.insert("P", 0, 9);
    let stream = session.stream(&dims);
    let begins = stream.map(|mut s| {
        let x = values(F, &[1, 4], 1);
        let out = s.run(&[("x", &x)]).expect("an answer");
        let last = out.iter().find(|o| o.0 == "last").expect("a row");
        assert_eq!(difference(&last.1, &x), 0.0);
    });
    if let Err(e) = begins {
        assert!(e.to_string().contains("no plan covers P=0..9"), "{e}");
    }
}

/// A request by itself has no stream's state.
#[test]
fn requests_without_a_stream_say_what_they_lack() {
    let session = Session::builder().commit(growing(Beside::Nothing));
    let session = session.expect("a session");
    let (past, x) = (values(F, &[2, 4], 1), values(F, &[1, 4], 2));
    let e = session.run(&[("past", &past), ("x", &x)]).unwrap_err();
    assert!(e.to_string().contains("open a stream"), "{e}");
}

/// Two inputs have no output in common as their state.
#[test]
fn an_output_is_the_state_of_one_input() {
    let mut b = builder();
    let [p, q] = ["p", "q"].map(|n| b.input(n, F, vec![Dim::sym("P"), Dim::Known(4)]));
    let present = node(&mut b, Op::Concat { axis: 0 }, &[p, q], "present");
    let options = ModelOptions {
        states: ["p", "q"].map(|n| (n.into(), "present".into())).to_vec(),
        ..ModelOptions::default()
    };
    let e = Model::from_graph("states", &b.finish(&[present]), &options).unwrap_err();
    assert!(
        e.to_string().contains("'present' is part of another state"),
        "{e}"
    );
}
