//! Steps that their one reader makes for itself on a GPU: as right as both steps, whatever sizes come.
use crate::emulated_session::Emulated;
use crate::joined_steps::assembled;
use cuda_emulated::EmulatedGpu;
use emit::ptx;
use expr::{ExprBuilder, Monoid, functions};
use graph::{ConvSpec, Graph, GraphBuilder, Op};
use kernel::{Family, TileProgram};
use layout::{DType, Dim, DimBox};
use plan::{Plan, StepWork};
use shopfloor::{Launch, Model, ModelOptions, Tensor};
use shopfloor_testkit::handwritten::{node, product, values};
use shopfloor_tools::planview::plan_for;
use shopfloor_tools::targets::{Kernels, Planning};
use std::sync::Arc;
use tensor::WeightStore;

/// What is done to the left factor of a product.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Before {
    /// Its columns are multiplied by gates, which are given.
    Gate,
    /// Its rows are divided by the root of their mean square.
    Norm,
}

/// relu of the product of what is made of x [rows, k] and a weight [k, n].
fn model(before: Before, rows: Dim, (k, n): (usize, usize)) -> Model {
    let mut weights = WeightStore::new();
    let w = weights
        .add_tensor("w", values(DType::F32, &[k, n], 1))
        .unwrap();
    let mut b = GraphBuilder::new("made", Arc::new(weights));
    let x = b.input("x", DType::F32, vec![rows, Dim::from(k)]);
    let g = b.input("g", DType::F32, vec![Dim::ONE, Dim::from(k)]);
    let w = b.weight(w).unwrap();
    let map = |f: &dyn Fn(&mut ExprBuilder, &[u32]) -> u32, inputs: u32| {
        let mut e = ExprBuilder::new();
        let own: Vec<u32> = (0..inputs).map(|i| e.input(i, DType::F32)).collect();
        let r = f(&mut e, &own);
        Op::Map(e.finish(&[r]))
    };
    let gated = |e: &mut ExprBuilder, v: &[u32]| {
        let gate = functions::sigmoid(e, v[1]);
        e.mul(v[0], gate)
    };
    let made = match before {
        Before::Gate => node(&mut b, map(&gated, 2), &[x, g], "gated"),
        Before::Norm => {
            let square = node(&mut b, map(&|e, v| e.mul(v[0], v[0]), 1), &[x], "square");
            let sum = Op::Reduce {
                monoid: Monoid::sum(DType::F32, DType::F32),
                axes: vec![1],
                keep: true,
            };
            let sum = node(&mut b, sum, &[square], "sum");
            let norm = map(
                &|e, v| {
                    let root = e.unary(expr::Unary::Sqrt, v[1]);
                    e.div(v[0], root)
                },
                2,
            );
            let normed = node(&mut b, norm, &[x, sum], "normed");
            node(&mut b, map(&gated, 2), &[normed, g], "weighed")
        }
    };
    let y = node(&mut b, product(&[0, 2], &[2, 1], &[0, 1]), &[made, w], "y");
    let relu = map(&|e, v| functions::relu(e, v[0], DType::F32), 1);
    let out = node(&mut b, relu, &[y], "out");
    let graph = b.finish(&[out]);
    opened(&graph)
}

fn opened(graph: &Graph) -> Model {
    let mut dims = DimBox::new();
    dims.insert("rows", 1, 24);
    let options = ModelOptions {
        dims,
        ..ModelOptions::default()
    };
    Model::from_graph("made", graph, &options).unwrap()
}

fn kernels(plan: &Plan, arch: &str) -> Vec<String> {
    let steps = plan.blocks().flat_map(|b| &b.steps);
    let gpus = steps.filter(|s| s.device == 1 || plan.devices.len() == 1);
    let texts = gpus.filter_map(|s| match &s.work {
        StepWork::Kernel {
            kernel, schedule, ..
        } => {
            let p = TileProgram::new(kernel.clone(), schedule.clone()).unwrap();
            Some(ptx::emit(&p, arch).unwrap().text)
        }
        StepWork::Host { .. } => None,
    });
    texts.collect()
}

/// A convolution of `channels` channels by themselves, and of 1x1 behind it, of a picture of `side` by `side`.
fn depthwise(batch: Dim, (channels, out, side): (usize, usize, usize), stride: i64) -> Model {
    let mut weights = WeightStore::new();
    let mut weight = |name: &str, shape: &[usize], seed: u64| {
        let t = values(DType::F32, shape, seed);
        weights.add_tensor(name, t).unwrap()
    };
    let each = weight("each", &[channels, 1, 3, 3], 1);
    let across = weight("across", &[out, channels, 1, 1], 2);
    let mut b = GraphBuilder::new("made", Arc::new(weights));
    let shape = [channels, side, side].map(Dim::from);
    let shape = [batch].into_iter().chain(shape).collect();
    let x = b.input("x", DType::F32, shape);
    let (each, across) = (b.weight(each).unwrap(), b.weight(across).unwrap());
    let conv = |kernel: i64, stride: i64, groups: usize| {
        Op::Conv(ConvSpec {
            kernel: vec![kernel; 2],
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            before: vec![Dim::Known(kernel / 2); 2],
            after: vec![Dim::Known(kernel / 2); 2],
            groups: groups as i64,
            transposed: false,
            outside: 0,
        })
    };
    let relu = || {
        let mut e = ExprBuilder::new();
        let v = e.input(0, DType::F32);
        let r = functions::relu(&mut e, v, DType::F32);
        Op::Map(e.finish(&[r]))
    };
    let y = node(&mut b, conv(3, stride, channels), &[x, each], "each one");
    let y = node(&mut b, relu(), &[y], "relu");
    let y = node(&mut b, conv(1, 1, 1), &[y, across], "across all");
    let y = node(&mut b, relu(), &[y], "out");
    let graph = b.finish(&[y]);
    opened(&graph)
}

/// Threads make in common what the product sums.
#[test]
fn what_a_convolution_of_1x1_reads_is_made_by_it() {
    if !testing::turn("what_a_convolution_of_1x1_reads_is_made_by_it") {
        return;
    }
    let mut together = 0;
    for (gpu, arch, sizes, stride) in [
        ("h100", "sm_90a", (72, 24, 28), 2),
        ("h100", "sm_90a", (21, 10, 15), 1),
        ("a100", "sm_80", (40, 24, 9), 2),
        ("t4", "sm_75", (16, 33, 7), 1),
    ] {
        for (dim, batches) in [(Dim::Known(1), vec![1]), (Dim::sym("rows"), vec![1, 3])] {
            let own = EmulatedGpu::named(gpu).unwrap();
            let b = Emulated::new(gpu, own, Some(Launch::Steps), depthwise(dim, sizes, stride));
            let plan = b.session.plan(&b.session.model().dims().clone()).unwrap();
            let steps = plan.blocks().flat_map(|b| &b.steps);
            let names: Vec<&str> = steps.map(|s| s.name.as_str()).collect();
            let has = |n: &&str| ["each one", "across all"].iter().all(|p| n.contains(p));
            together += usize::from(names.iter().any(has));
            println!("{gpu}, {sizes:?}, {stride}: {names:?}");
            assembled(arch, &kernels(&plan, arch));
            for n in batches {
                let x = values(DType::F32, &[n, sizes.0, sizes.2, sizes.2], n as u64);
                let got = b.answer(&[("x", &x)]);
                let same = depthwise(Dim::from(n), sizes, stride);
                agrees(&same, std::slice::from_ref(&x), &got);
            }
        }
    }
    assert!(together > 0, "no plan has one step for both");
}

fn agrees(model: &Model, given: &[Tensor], got: &Tensor) {
    let want = reference::run_graph(model.graph().unwrap(), given).unwrap();
    let (want, got) = (want[0].to_f32().unwrap(), got.to_f32().unwrap());
    assert_eq!(want.len(), got.len());
    for (i, (w, g)) in want.iter().zip(&got).enumerate() {
        let fine = (w - g).abs() <= 2e-5 + 2e-5 * w.abs();
        assert!(fine, "element {i}: {g}, want {w}");
    }
}

/// A library's products read their factors: what is predicted of them has a step for whoever makes those.
#[test]
fn a_librarys_products_make_no_factors() {
    let h100 = shopfloor::machines::find("h100").unwrap();
    let gated = model(Before::Gate, Dim::Known(49), (72, 24));
    let windows = depthwise(Dim::ONE, (72, 24, 28), 2);
    for model in [gated, windows] {
        for (kernels, wanted) in [(Kernels::Ours, 1), (Kernels::Vendor, 2)] {
            let planning = Planning {
                kernels,
                ..Planning::default()
            };
            let plan = plan_for(&model, &h100, &planning, &DimBox::new()).unwrap();
            let steps = plan.blocks().flat_map(|b| &b.steps);
            let names: Vec<&str> = steps
                .filter(|s| matches!(&s.work, StepWork::Kernel { kernel, .. } if kernel.family != Family::Move))
                .map(|s| s.name.as_str())
                .collect();
            assert_eq!(names.len(), wanted, "{kernels:?}: {names:?}");
        }
    }
}

#[test]
fn what_one_product_reads_is_made_by_it() {
    if !testing::turn("what_one_product_reads_is_made_by_it") {
        return;
    }
    let mut seed = 0;
    for (gpu, arch, before, rows, size) in [
        ("h100", "sm_90a", Before::Gate, 49, (72, 24)),
        ("h100", "sm_90a", Before::Norm, 1, (96, 64)),
        ("a100", "sm_80", Before::Gate, 7, (33, 17)),
        ("a100", "sm_80", Before::Norm, 2, (64, 40)),
        ("t4", "sm_75", Before::Gate, 16, (40, 9)),
    ] {
        let fixed = model(before, Dim::Known(rows), size);
        for (open, sizes) in [(false, vec![rows]), (true, vec![3, 24, 1])] {
            let dim = match open {
                true => Dim::sym("rows"),
                false => Dim::Known(rows),
            };
            let own = EmulatedGpu::named(gpu).unwrap();
            let b = Emulated::new(gpu, own, Some(Launch::Steps), model(before, dim, size));
            let plan = b.session.plan(&b.session.model().dims().clone()).unwrap();
            let texts = kernels(&plan, arch);
            if !open {
                assert_eq!(texts.len(), 1, "{gpu}, {before:?}, {rows} x {size:?}");
            }
            assembled(arch, &texts);
            for rows in sizes {
                seed += 1;
                let x = values(DType::F32, &[rows as usize, size.0], seed);
                let g = values(DType::F32, &[1, size.0], seed + 100);
                let out = b.session.run(&[("x", &x), ("g", &g)]).unwrap();
                let got = out.into_vec().remove(0).1;
                let same = match open {
                    false => &fixed,
                    true => &model(before, Dim::Known(rows), size),
                };
                agrees(same, &[x, g], &got);
            }
        }
    }
}
