//! Values of 4-bit elements, two of which share a byte, moved to outputs of odd and even sizes.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use graph::{Graph, GraphBuilder, Op, View};
use layout::{DType, Dim};
use shopfloor::{Model, ModelOptions, Session, Tensor};
use std::sync::Arc;
use tensor::WeightStore;
use testkit::handwritten::node;

/// The matrix as it is, turned, and without its first column.
fn moved(dtype: DType, rows: Dim, columns: Dim) -> Graph {
    let mut b = GraphBuilder::new("moved", Arc::new(WeightStore::default()));
    let x = b.input("x", dtype, vec![rows.clone(), columns.clone()]);
    let same = Op::View(View::Reshape(vec![rows.clone(), columns.clone()]));
    let turned = Op::View(View::Permute(vec![1, 0]));
    let part = Op::View(View::Slice {
        starts: vec![Dim::ZERO, Dim::ONE],
        steps: vec![1, 1],
        extents: vec![rows, columns - Dim::ONE],
    });
    let outs = [(same, "same"), (turned, "turned"), (part, "part")]
        .map(|(op, name)| node(&mut b, op, &[x], name));
    b.finish(&outs)
}

fn numbers(dtype: DType, rows: usize, columns: usize) -> Tensor {
    let mut t = Tensor::zeros(dtype, &[rows, columns]).unwrap();
    (0..t.len()).for_each(|i| {
        t.set_i64(
            i,
            (i * 7 % 16) as i64 - if dtype == DType::I4 { 8 } else { 0 },
        )
    });
    t
}

fn check(x: &Tensor, outputs: &shopfloor::Outputs) {
    let [rows, columns] = *x.shape() else {
        panic!("a matrix")
    };
    let at = |i: usize, j: usize| x.get_i64(i * columns + j);
    for i in 0..rows {
        for j in 0..columns {
            assert_eq!(
                outputs["same"].get_i64(i * columns + j),
                at(i, j),
                "{x:?} at {i}, {j}"
            );
            assert_eq!(
                outputs["turned"].get_i64(j * rows + i),
                at(i, j),
                "{x:?} turned at {i}, {j}"
            );
            if j > 0 {
                assert_eq!(
                    outputs["part"].get_i64(i * (columns - 1) + j - 1),
                    at(i, j),
                    "{x:?} cut at {i}, {j}"
                );
            }
        }
    }
}

const SIZES: [(usize, usize); 7] = [(1, 1), (1, 3), (3, 5), (2, 4), (7, 1), (4, 3), (33, 65)];

#[test]
fn elements_of_four_bits_reach_outputs_of_any_size() {
    for dtype in [DType::U4, DType::I4] {
        let graph = moved(dtype, Dim::sym("r"), Dim::sym("c"));
        let open = Model::from_graph("moved", &graph, &ModelOptions::default()).unwrap();
        let open = Session::builder().with_threads(2).commit(open).unwrap();
        for (r, c) in SIZES {
            let x = numbers(dtype, r, c);
            check(&x, &open.run(shopfloor::inputs!["x" => &x]).unwrap());
            let graph = moved(dtype, Dim::from(r), Dim::from(c));
            let fixed = Model::from_graph("moved", &graph, &ModelOptions::default()).unwrap();
            let fixed = Session::builder().with_threads(2).commit(fixed).unwrap();
            check(&x, &fixed.run(shopfloor::inputs!["x" => &x]).unwrap());
        }
    }
}

#[test]
fn beside_a_gpu_too() {
    for (r, c) in SIZES {
        let graph = moved(DType::U4, Dim::from(r), Dim::from(c));
        let model = Model::from_graph("moved", &graph, &ModelOptions::default()).unwrap();
        let bench = Emulated::new("h100", EmulatedGpu::named("h100").unwrap(), None, model);
        let x = numbers(DType::U4, r, c);
        check(
            &x,
            &bench.session.run(shopfloor::inputs!["x" => &x]).unwrap(),
        );
    }
}
