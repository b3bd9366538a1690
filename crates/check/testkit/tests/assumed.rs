//! Sizes that no rule shows to be equal are taken to be, and every request is asked for it.
use expr::ExprBuilder;
use graph::{GraphBuilder, Op, Origin, View};
use layout::{DType, Dim};
use shopfloor::{Model, ModelOptions, Session, Tensor};
use std::sync::Arc;
use tensor::WeightStore;

/// `y * view(x)` over `y: [m, 4]`, where the view gives `[m, 4]` by assumption.
fn session(x: Vec<Dim>, view: View) -> Session {
    let mut b = GraphBuilder::new("assumed", Arc::new(WeightStore::new()));
    let x = b.input("x", DType::F32, x);
    let y = b.input("y", DType::F32, vec![Dim::sym("m"), Dim::Known(4)]);
    let o = Origin {
        name: "n".into(),
        op_type: "Test".into(),
    };
    let v = b.node(Op::View(view), &[x], &["v"], &o).expect("a view")[0];
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let r = e.mul(p, q);
    let map = Op::Map(e.finish(&[r]));
    let z = b.node(map, &[v, y], &["z"], &o).expect("a product");
    let options = ModelOptions::default();
    let model = Model::from_graph("assumed", &b.finish(&z), &options).expect("it is planned");
    Session::builder()
        .with_threads(1)
        .commit(model)
        .expect("it loads")
}

fn run(s: &Session, x: &[usize], m: usize) -> Result<Vec<f64>, String> {
    let tensor = |shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..n).map(|i| i as f32).collect();
        Tensor::from_f32(shape, &values).expect("a tensor")
    };
    let (x, y) = (tensor(x), tensor(&[m, 4]));
    let out = s
        .run(&[("x", &x), ("y", &y)])
        .map_err(|e| e.to_string())?
        .into_vec();
    Ok((0..out[0].1.len()).map(|i| out[0].1.get_f64(i)).collect())
}

#[test]
fn a_reshape_between_unrelated_sizes_runs_where_they_agree() {
    let to = View::Reshape(vec![Dim::sym("m"), Dim::Known(4)]);
    let s = session(vec![Dim::sym("n")], to);
    let squares = |n: usize| (0..n).map(|i| (i * i) as f64).collect::<Vec<_>>();
    assert_eq!(run(&s, &[8], 2), Ok(squares(8)));
    assert_eq!(run(&s, &[12], 3), Ok(squares(12)));
    let e = run(&s, &[9], 2).expect_err("9 elements are no 2 rows of 4");
    assert!(e.contains('8') && e.contains('9'), "{e}");
}

#[test]
fn an_expand_between_unrelated_sizes_runs_where_they_agree() {
    let to = View::Expand(vec![Dim::sym("m"), Dim::Known(4)]);
    let clipped = Dim::sym("n").min_with(&Dim::Known(512));
    let mut b = GraphBuilder::new("cut", Arc::new(WeightStore::new()));
    let x = b.input("x", DType::F32, vec![Dim::sym("n"), Dim::Known(4)]);
    let y = b.input("y", DType::F32, vec![Dim::sym("m"), Dim::Known(4)]);
    let o = Origin {
        name: "n".into(),
        op_type: "Test".into(),
    };
    let cut = View::Slice {
        starts: vec![Dim::ZERO; 2],
        steps: vec![1, 1],
        extents: vec![clipped, Dim::Known(4)],
    };
    let v = b.node(Op::View(cut), &[x], &["v"], &o).expect("a slice");
    let v = b.node(Op::View(to), &v, &["w"], &o).expect("an expand")[0];
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let r = e.mul(p, q);
    let map = Op::Map(e.finish(&[r]));
    let z = b.node(map, &[v, y], &["z"], &o).expect("a product");
    let model = Model::from_graph("cut", &b.finish(&z), &ModelOptions::default());
    let s = Session::builder()
        .with_threads(1)
        .commit(model.expect("it is planned"))
        .expect("it loads");
    let squares = |n: usize| (0..n).map(|i| (i * i) as f64).collect::<Vec<_>>();
    assert_eq!(run(&s, &[3, 4], 3), Ok(squares(12)));
    assert_eq!(run(&s, &[600, 4], 512), Ok(squares(2048)));
    let e = run(&s, &[5, 4], 3).expect_err("5 rows are no 3");
    assert!(e.contains('5') && e.contains('3'), "{e}");
}

/// A table of `n mod 2` rows and columns: bounds do not show that this is never negative for a whole range of `n`.
#[test]
fn sizes_that_are_proved_one_by_one_are_planned_one_by_one() {
    let n = Dim::sym("n");
    let odd = n.clone() - n.floor_div(&Dim::Known(2)) * Dim::Known(2);
    let mut b = GraphBuilder::new("odd", Arc::new(WeightStore::new()));
    b.input("x", DType::F32, vec![n]);
    let mut e = ExprBuilder::new();
    let two = e.constant(2.0, DType::F32);
    let shape = vec![Some(odd.clone()), Some(odd)];
    let outs = [("y", DType::F32, shape)];
    let o = Origin {
        name: "n".into(),
        op_type: "Test".into(),
    };
    let y = b.node_with_shapes(Op::Map(e.finish(&[two])), &[], &outs, &o);
    let model = Model::from_graph("odd", &b.finish(&y), &ModelOptions::default()).unwrap();
    let s = Session::builder().with_threads(1).commit(model).unwrap();
    for n in [12, 10, 66, 33, 5, 7, 40] {
        let x = Tensor::zeros(DType::F32, &[n]).unwrap();
        let y = s.run(&[("x", &x)]).unwrap().into_vec().remove(0).1;
        assert_eq!(y.shape(), [n % 2, n % 2]);
    }
}
