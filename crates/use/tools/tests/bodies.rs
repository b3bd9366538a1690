//! Bodies of branches and loops.
use graph::{GraphBuilder, Op, Origin};
use layout::{DType, Dim, DimBox};
use plan::{PlanError, Program};
use shopfloor::{Model, ModelOptions};
use shopfloor_tools::internals::bodies;
use std::sync::Arc;
use tensor::WeightStore;

/// A loop that stacks a row in each round, as often as an input says; `rows` is what is known of how
/// many there are.
fn model(rows: Option<Dim>) -> Model {
    let origin = Origin {
        name: "loop".into(),
        op_type: "Loop".into(),
    };
    let four = vec![Dim::from(4usize)];
    let mut b = GraphBuilder::new("body", Arc::new(WeightStore::new()));
    b.input("round", DType::I64, vec![]);
    let go = b.input("go", DType::Bool, vec![]);
    let row = b.input("row", DType::F32, four.clone());
    let mut e = expr::ExprBuilder::new();
    let x = e.input(0, DType::F32);
    let y = e.add(x, x);
    let double = Op::Map(e.finish(&[y]));
    let y = b.node(double, &[row], &["y"], &origin).unwrap()[0];
    let body = b.finish(&[go, y]);

    let mut g = GraphBuilder::new("stacks", Arc::new(WeightStore::new()));
    let x = g.input("x", DType::F32, vec![Dim::sym("n"), Dim::from(4usize)]);
    let times = g.input("times", DType::I64, vec![]);
    let go = g.input("go", DType::Bool, vec![]);
    let row = g.input("row", DType::F32, four);
    let op = Op::Loop {
        body: Box::new(body),
        carried: 0,
        has_trip: true,
        has_cond: false,
    };
    let stack = ("stack", DType::F32, vec![rows, Some(Dim::from(4usize))]);
    let y = g.node_with_shapes(op, &[times, go, row], &[stack], &origin);
    Model::from_graph("stacks", &g.finish(&[x, y[0]]), &ModelOptions::default()).unwrap()
}

#[test]
fn a_loop_runs_as_often_as_what_it_stacks_is_long() {
    let times = |rows: Option<Dim>| {
        let m = model(rows);
        let mut dims = DimBox::new();
        dims.insert("n", 1, 7);
        let no_plan =
            |_: &Program, _: &DimBox| Err(PlanError::File("nothing is planned here".into()));
        let all = bodies(m.program(), &dims, &no_plan);
        assert_eq!(all.len(), 1);
        assert_eq!(
            (all[0].node.as_str(), all[0].which.as_str()),
            ("loop", "body")
        );
        all[0].times
    };
    assert_eq!(times(Some(Dim::from(5usize))), Some(5));
    // As long as an input, at the top of the box.
    assert_eq!(times(Some(Dim::sym("n"))), Some(7));
    // What only the data gives is not guessed.
    assert_eq!(times(None), None);
}
