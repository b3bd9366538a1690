//! Rims that repeat the input as gathers, against the oracle's own padding, on random sizes.
use graph::*;
use layout::{DType, Dim};
use shopfloor_rewrite::{Options, run};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

#[test]
fn rims_that_repeat_are_gathers() {
    let mut r = fastrand::Rng::with_seed(11);
    for case in 0..400 {
        let rank = 1 + r.usize(..4);
        let sizes: Vec<usize> = (0..rank).map(|_| [1, 2, 3, 5, 7][r.usize(..5)]).collect();
        let mode = [PadMode::Reflect, PadMode::Edge, PadMode::Wrap][r.usize(..3)];
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for n in &sizes {
            // Also rims wider than the input, and cuts.
            let mut rim = || match r.usize(..3) {
                0 => 0,
                1 => r.usize(..4) as i64,
                _ => -(r.usize(..(*n).div_ceil(2)) as i64),
            };
            before.push(Dim::Known(rim()));
            after.push(Dim::Known(rim()));
        }
        let symbolic = case % 3 == 0;
        let mut b = GraphBuilder::new("pads", Arc::new(WeightStore::new()));
        let shape: Vec<Dim> = sizes
            .iter()
            .enumerate()
            .map(|(d, n)| match symbolic && d != 0 {
                true => Dim::sym(format!("i{d}").as_str()),
                false => Dim::from(*n),
            })
            .collect();
        let x = b.input("x", DType::F32, shape);
        let origin = Origin {
            name: "pad".into(),
            op_type: "Pad".into(),
        };
        let op = Op::Pad {
            before: before.clone(),
            after: after.clone(),
            mode,
        };
        let y = b.node(op, &[x], &["y"], &origin).unwrap()[0];
        let g = b.finish(&[y]);
        let whole = sizes
            .iter()
            .zip(before.iter().zip(&after))
            .all(|(n, (a, b))| *n as i64 + a.known().unwrap_or(0) + b.known().unwrap_or(0) > 0);
        if !whole {
            continue;
        }
        g.verify().unwrap();
        let n: usize = sizes.iter().product();
        let v: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let t = Tensor::from_f32(&sizes, &v).unwrap();
        let want = reference::run_graph(&g, std::slice::from_ref(&t)).unwrap();
        let options = Options {
            fuel: None,
            verify: true,
        };
        let after = run(&g, &options).unwrap().0;
        let left = |n: &Node| matches!(n.op, Op::Pad { .. });
        assert!(!after.nodes.iter().any(left), "case {case}");
        let got = reference::run_graph(&after, &[t]).unwrap();
        assert_eq!(want[0].shape(), got[0].shape(), "case {case}");
        for i in 0..want[0].len() {
            let (a, b) = (want[0].get_f64(i), got[0].get_f64(i));
            assert_eq!(a, b, "case {case} {mode:?} {sizes:?} at {i}");
        }
    }
}
