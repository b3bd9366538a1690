//! Planned products and windows whose factors come as boxes of tensors, on an emulated H100: launched, in graphs, and in a
//! kernel that stays, whose threads copy.
use crate::emulated_session::Emulated;
use cuda_emulated::EmulatedGpu;
use expr::{ExprBuilder, Monoid, Unary};
use graph::{ConvSpec, GraphBuilder, Op};
use kernel::Place;
use layout::{DType, Dim, DimBox};
use plan::StepWork;
use shopfloor::{Launch, Model, ModelOptions, Tensor};
use shopfloor_testkit::handwritten::{node, product, values};
use std::sync::Arc;
use tensor::WeightStore;

/// A product of [rows, 256] and [256, 128], or two convolutions of [rows, 64, 14, 14] and [64, 64, 3, 3] with padding.
fn model(windows: bool, rows: Dim, d: DType) -> Model {
    let mut weights = WeightStore::new();
    let sizes: &[usize] = if windows {
        &[64, 64, 3, 3]
    } else {
        &[256, 128]
    };
    let w = weights.add_tensor("w", values(d, sizes, 1)).unwrap();
    let mut b = GraphBuilder::new("boxes", Arc::new(weights));
    let inner: &[usize] = if windows { &[64, 14, 14] } else { &[256] };
    let shape = [rows]
        .into_iter()
        .chain(inner.iter().copied().map(Dim::from));
    let x = b.input("x", d, shape.collect());
    let w = b.weight(w).unwrap();
    let op = match windows {
        false => product(&[0, 2], &[2, 1], &[0, 1]),
        true => Op::Conv(ConvSpec {
            kernel: vec![3; 2],
            strides: vec![1; 2],
            dilations: vec![1; 2],
            before: vec![Dim::ONE; 2],
            after: vec![Dim::ONE; 2],
            groups: 1,
            transposed: false,
            outside: 0,
        }),
    };
    let mut y = node(&mut b, op.clone(), &[x, w], "y");
    if windows {
        y = node(&mut b, op, &[y, w], "z");
    }
    let mut dims = DimBox::new();
    dims.insert("rows", 1, if windows { 2 } else { 64 });
    let options = ModelOptions {
        dims,
        ..ModelOptions::default()
    };
    Model::from_graph("boxes", &b.finish(&[y]), &options).unwrap()
}

fn agrees(model: &Model, x: &Tensor, got: &Tensor, d: DType) {
    let want = reference::run_graph(model.graph().unwrap(), std::slice::from_ref(x)).unwrap();
    let want = &want[0];
    assert_eq!(want.shape(), got.shape());
    // Both round to the type, sums in another order, and sum what was rounded so: by as much as the largest are rounded.
    let all: Vec<f64> = (0..want.len()).map(|i| want.get_f64(i)).collect();
    let largest = all.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let step = if d == DType::F16 { 1e-3 } else { 8e-3 };
    for (i, w) in all.iter().enumerate() {
        let g = got.get_f64(i);
        let fine = (w - g).abs() <= step * largest;
        assert!(fine, "element {i}: {g}, want {w} of {largest} at most");
    }
}

#[test]
fn planned_factors_come_as_boxes_of_tensors() {
    for (windows, d) in [(false, DType::BF16), (true, DType::F16)] {
        // A kernel that stays takes long to emulate.
        let ways = [Launch::Steps, Launch::Graph, Launch::Resident];
        for launch in ways.into_iter().take(if windows { 2 } else { 3 }) {
            let own = EmulatedGpu::named("h100").unwrap().with_sms(8);
            let b = Emulated::new(
                "h100",
                own,
                Some(launch),
                model(windows, Dim::sym("rows"), d),
            );
            let plan = b.session.plan(&b.session.model().dims().clone()).unwrap();
            let steps = plan.blocks().flat_map(|b| &b.steps);
            let boxed = steps.filter(|s| match &s.work {
                StepWork::Kernel { schedule, .. } => {
                    let boxes = |p: &Place| matches!(p, Place::Tensor { .. });
                    schedule.places.iter().any(boxes)
                }
                StepWork::Host { .. } => false,
            });
            assert!(boxed.count() > 0, "{windows}, {launch:?}: no boxes");
            for rows in if windows { [1, 2] } else { [3, 64] } {
                let inner: &[usize] = if windows { &[64, 14, 14] } else { &[256] };
                let shape = [&[rows], inner].concat();
                let x = values(d, &shape, rows as u64);
                let got = b.answer(&[("x", &x)]);
                agrees(&model(windows, Dim::from(rows), d), &x, &got, d);
            }
            let described = b.calls("cuTensorMapEncodeTiled") > 0;
            assert_eq!(
                described,
                launch != Launch::Resident,
                "{windows}, {launch:?}"
            );
        }
    }
}

/// A product in front of a softmax of its rows, which is part of the product's launch.
#[test]
fn a_product_with_boxes_begins_a_launch_of_several_steps() {
    let d = DType::F16;
    let mut weights = WeightStore::new();
    let w = weights.add_tensor("w", values(d, &[64, 64], 1)).unwrap();
    let mut b = GraphBuilder::new("rows", Arc::new(weights));
    let x = b.input("x", d, vec![Dim::Known(16), Dim::Known(64)]);
    let w = b.weight(w).unwrap();
    let map = |inputs: &[DType], f: &dyn Fn(&mut ExprBuilder, &[u32]) -> u32| {
        let mut e = ExprBuilder::new();
        let args: Vec<u32> = (0..).zip(inputs).map(|(s, &d)| e.input(s, d)).collect();
        let out = f(&mut e, &args);
        Op::Map(e.finish(&[out]))
    };
    let along = |monoid: Monoid| Op::Reduce {
        monoid,
        axes: vec![1],
        keep: true,
    };
    let f = DType::F32;
    let y = node(&mut b, product(&[0, 2], &[2, 1], &[0, 1]), &[x, w], "y");
    let y = node(&mut b, map(&[d], &|e, a| e.cast(a[0], f)), &[y], "wide");
    let most = node(&mut b, along(Monoid::max(f, f)), &[y], "most");
    let apart = |e: &mut ExprBuilder, a: &[u32]| {
        let by = e.sub(a[0], a[1]);
        e.unary(Unary::Exp, by)
    };
    let each = node(&mut b, map(&[f, f], &apart), &[y, most], "each");
    let all = node(&mut b, along(Monoid::sum(f, f)), &[each], "all");
    let shares = map(&[f, f], &|e, a| e.div(a[0], a[1]));
    let out = node(&mut b, shares, &[each, all], "out");
    let graph = b.finish(&[out]);
    let made = || Model::from_graph("rows", &graph, &ModelOptions::default()).unwrap();
    let own = EmulatedGpu::named("h100").unwrap().with_sms(8);
    let b = Emulated::new("h100", own, Some(Launch::Steps), made());
    let plan = b.session.plan(&b.session.model().dims().clone()).unwrap();
    assert!(plan.blocks().flat_map(|b| &b.steps).any(|s| s.joined));
    let x = values(d, &[16, 64], 3);
    let got = b.answer(&[("x", &x)]);
    agrees(&made(), &x, &got, d);
}
