//! Reductions of everything in two stages, against the same in one.
use expr::Monoid;
use graph::*;
use layout::{DType, Dim};
use shopfloor_rewrite::{Options, run};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

fn graph(shape: &[Dim], m: &Monoid, keep: bool) -> Graph {
    let mut b = GraphBuilder::new("stages", Arc::new(WeightStore::new()));
    let x = b.input("x", DType::F32, shape.to_vec());
    let origin = Origin {
        name: "r".into(),
        op_type: "Reduce".into(),
    };
    let op = Op::Reduce {
        monoid: m.clone(),
        axes: (0..shape.len()).collect(),
        keep,
    };
    let y = b.node(op, &[x], &["y"], &origin).unwrap();
    b.finish(&y)
}

fn reductions(g: &Graph) -> usize {
    let is = |n: &&Node| matches!(n.op, Op::Reduce { .. });
    g.nodes.iter().filter(is).count()
}

#[test]
fn both_stages_find_what_one_finds() {
    let f = DType::F32;
    let sym = |n: &str| Dim::sym(n);
    let k = Dim::Known;
    let shapes: [(Vec<Dim>, bool); 6] = [
        (vec![sym("b"), sym("s"), k(384)], true),
        (vec![sym("b"), k(40), k(7), k(64)], true),
        (vec![k(3), k(90), k(100)], true),
        // Few elements, one dimension, and an inner one of unknown length.
        (vec![k(4), k(512)], false),
        (vec![k(1), k(40000)], false),
        (vec![k(512), sym("s")], false),
    ];
    let mut drawn = fastrand::Rng::with_seed(5);
    for (shape, splits) in &shapes {
        let count = Dim::product(shape);
        for m in [
            Monoid::sum(f, f),
            Monoid::mean(f, f, &count),
            Monoid::max(f, f),
            Monoid::min(f, f),
            Monoid::sum_square(f, f),
            Monoid::l1(f, f),
            Monoid::l2(f, f),
            Monoid::any(f),
            Monoid::log_sum_exp(f, f),
            Monoid::argmax(f, 0, false),
            Monoid::welford(f, f, 0),
        ] {
            let g = graph(shape, &m, drawn.bool());
            let (after, _) = run(&g, &Options::default()).unwrap();
            let one = m.state_len() == 1;
            let want = if *splits && one { 2 } else { 1 };
            assert_eq!(reductions(&after), want, "{} of {shape:?}", m.name);
            let sizes: Vec<usize> = shape
                .iter()
                .map(|d| d.eval(&|n| Some(if n == "b" { 2 } else { 33 })).unwrap() as usize)
                .collect();
            let mut draw = || drawn.f32() - 0.5;
            let v: Vec<f32> = (0..sizes.iter().product()).map(|_| draw()).collect();
            let x = [Tensor::from_f32(&sizes, &v).unwrap()];
            let (a, b) = (
                reference::run_graph(&g, &x).unwrap(),
                reference::run_graph(&after, &x).unwrap(),
            );
            for (a, b) in a.iter().zip(&b) {
                assert_eq!((a.shape(), a.dtype()), (b.shape(), b.dtype()));
                let (a, b) = (a.get_f64(0), b.get_f64(0));
                // Sums in f32 in another order; a mean of 10,000 numbers is near 0.
                let near = (a - b).abs() <= 1e-3 * a.abs().max(1.0);
                assert!(near, "{} of {shape:?}: {a} in one, {b} in two", m.name);
            }
        }
    }
}
