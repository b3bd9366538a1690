//! Steps made ready once against the plain code that they replace, on random operands.
use layout::{DType, Dim};
use shopfloor_hostops::{In, Out, prepare, run_step};
use tensor::{Attr, Attrs, Tensor};

struct Rng(fastrand::Rng);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(fastrand::Rng::with_seed(seed))
    }

    fn below(&mut self, n: usize) -> usize {
        self.0.usize(..n.max(1))
    }

    /// Few distinct values, so that ties are common; now and then something odd.
    fn float(&mut self) -> f32 {
        match self.below(24) {
            0 => f32::NAN,
            1 => -0.0,
            2 => f32::INFINITY,
            3 => f32::NEG_INFINITY,
            _ => (self.below(17) as f32 - 8.0) / 4.0,
        }
    }

    fn tame(&mut self) -> f32 {
        (self.below(2001) as f32 - 1000.0) / 500.0
    }

    fn floats(&mut self, shape: &[usize], wild: bool) -> Tensor {
        let n = shape.iter().product();
        let v: Vec<f32> = (0..n)
            .map(|_| if wild { self.float() } else { self.tame() })
            .collect();
        Tensor::from_f32(shape, &v).unwrap()
    }
}

/// Runs both and compares: bit by bit, NaNs as one, or within `near`.
fn same(name: &str, attrs: &Attrs, inputs: &[&Tensor], near: f64) -> Vec<Tensor> {
    let some: Vec<Option<&Tensor>> = inputs.iter().map(|t| Some(*t)).collect();
    // Outputs' shapes as a plan would have them come from the plain code itself.
    let shapes = match name {
        "core.sort" => vec![sort_shape(attrs, inputs[0]); 2],
        _ => vec![inputs[0].shape().to_vec()],
    };
    let want = run_step(name, attrs, &some, &shapes);
    let ins: Vec<Option<In>> = inputs
        .iter()
        .map(|t| {
            Some(In {
                dtype: t.dtype(),
                shape: t.shape(),
                bytes: t.bytes(),
            })
        })
        .collect();
    let ready = prepare(name, attrs);
    let Ok(want) = want else {
        let mut none: Vec<Tensor> = shapes
            .iter()
            .map(|s| Tensor::zeros(inputs[0].dtype(), s).unwrap())
            .collect();
        let mut outs: Vec<Out> = none
            .iter_mut()
            .zip(&shapes)
            .map(|(t, s)| Out {
                dtype: t.dtype(),
                shape: s,
                bytes: t.bytes_mut(),
            })
            .collect();
        assert!(ready.run(&ins, &mut outs).is_err(), "{name} of {inputs:?}");
        return Vec::new();
    };
    let mut got: Vec<Tensor> = want
        .iter()
        .map(|t| Tensor::zeros(t.dtype(), t.shape()).unwrap())
        .collect();
    // Whatever was there before must not matter.
    got.iter_mut().for_each(|t| t.bytes_mut().fill(0x5a));
    let mut outs: Vec<Out> = got
        .iter_mut()
        .zip(&want)
        .map(|(t, w)| Out {
            dtype: t.dtype(),
            shape: w.shape(),
            bytes: t.bytes_mut(),
        })
        .collect();
    ready.run(&ins, &mut outs).unwrap();
    for (w, g) in want.iter().zip(&got) {
        for i in 0..w.len() {
            let (x, y) = (w.get_f64(i), g.get_f64(i));
            let fine =
                x.is_nan() && y.is_nan() || x == y || (x - y).abs() <= near * x.abs().max(1.0);
            assert!(fine, "{name} {attrs:?} of {inputs:?}: {x} and {y} at {i}");
        }
    }
    want
}

fn sort_shape(attrs: &Attrs, x: &Tensor) -> Vec<usize> {
    let Some(Attr::Str(spec)) = attrs.get("spec") else {
        panic!()
    };
    let Ok(graph::Op::Sort { axis, k, .. }) = serde_json::from_str(spec) else {
        panic!()
    };
    let mut s = x.shape().to_vec();
    s[axis] = k.known().unwrap() as usize;
    s
}

fn spec(op: &graph::Op) -> Attrs {
    Attrs::from([(
        "spec".to_string(),
        Attr::Str(serde_json::to_string(op).unwrap()),
    )])
}

#[test]
fn sorting() {
    let mut r = Rng::new(1);
    for case in 0..400 {
        let rank = 1 + r.below(3);
        let shape: Vec<usize> = (0..rank).map(|_| [0, 1, 2, 3, 7, 31][r.below(6)]).collect();
        let axis = r.below(rank);
        let k = r.below(shape[axis] + 1);
        let op = graph::Op::Sort {
            axis,
            k: Dim::from(k),
            descending: r.below(2) == 0,
        };
        let x = r.floats(&shape, true);
        let x = match case % 4 {
            0 => {
                let v: Vec<i64> = (0..x.len()).map(|_| r.below(9) as i64 - 4).collect();
                Tensor::from_i64(&shape, &v).unwrap()
            }
            1 => {
                let v: Vec<i32> = (0..x.len()).map(|_| r.below(9) as i32 - 4).collect();
                Tensor::from_i32(&shape, &v).unwrap()
            }
            _ => x,
        };
        same("core.sort", &spec(&op), &[&x], 0.0);
    }
}

#[test]
fn scattering() {
    use graph::ScatterReduce::*;
    let mut r = Rng::new(2);
    let mut refused = 0;
    for case in 0..600 {
        let rank = 1 + r.below(3);
        let shape: Vec<usize> = (0..rank).map(|_| [1, 2, 3, 7][r.below(4)]).collect();
        let depth = 1 + r.below(rank);
        let n = [0, 1, 5, 13][r.below(4)];
        let how = [Replace, Add, Mul, Max, Min][r.below(5)];
        // Now and then one outside.
        let reach = if case % 9 == 0 { 1 } else { 0 };
        let ix: Vec<i64> = (0..n * depth)
            .map(|i| {
                let e = shape[i % depth];
                r.below(2 * e + reach) as i64 - e as i64
            })
            .collect();
        let indices = if case % 2 == 0 {
            Tensor::from_i64(&[n, depth], &ix).unwrap()
        } else {
            let ix: Vec<i32> = ix.iter().map(|x| *x as i32).collect();
            Tensor::from_i32(&[n, depth], &ix).unwrap()
        };
        let inner: Vec<usize> = [&[n], &shape[depth..]].concat();
        let (x, u) = (r.floats(&shape, true), r.floats(&inner, true));
        let (x, u) = match case % 5 {
            0 => {
                let cast = |t: &Tensor| {
                    let v: Vec<i64> = (0..t.len()).map(|i| t.get_i64(i) % 100).collect();
                    Tensor::from_i64(t.shape(), &v).unwrap()
                };
                (cast(&x), cast(&u))
            }
            1 => {
                let cast = |t: &Tensor| {
                    let mut h = Tensor::zeros(DType::F16, t.shape()).unwrap();
                    (0..t.len()).for_each(|i| h.set_f64(i, t.get_f64(i)));
                    h
                };
                (cast(&x), cast(&u))
            }
            _ => (x, u),
        };
        let out = same(
            "core.scatter_nd",
            &spec(&graph::Op::ScatterNd(how)),
            &[&x, &indices, &u],
            0.0,
        );
        refused += usize::from(out.is_empty());
    }
    assert!((1..60).contains(&refused), "{refused} were refused");
}

#[test]
fn scattering_elements() {
    let mut r = Rng::new(7);
    let mut refused = 0;
    for case in 0..600 {
        let rank = 1 + r.below(3);
        let shape: Vec<usize> = (0..rank).map(|_| [1, 2, 3, 7][r.below(4)]).collect();
        let axis = r.below(rank);
        let mut few: Vec<usize> = shape.iter().map(|n| 1 + r.below(*n)).collect();
        few[axis] = [0, 1, 5, 13][r.below(4)];
        let reach = if case % 9 == 0 { 1 } else { 0 };
        let ix: Vec<i64> = (0..few.iter().product())
            .map(|_| r.below(2 * shape[axis] + reach) as i64 - shape[axis] as i64)
            .collect();
        let indices = if case % 2 == 0 {
            Tensor::from_i64(&few, &ix).unwrap()
        } else {
            let ix: Vec<i32> = ix.iter().map(|x| *x as i32).collect();
            Tensor::from_i32(&few, &ix).unwrap()
        };
        let (x, u) = (r.floats(&shape, true), r.floats(&few, true));
        let (x, u) = match case % 5 {
            0 => (as_type(&x, DType::I64), as_type(&u, DType::I64)),
            1 => (as_type(&x, DType::F16), as_type(&u, DType::F16)),
            2 => (as_type(&x, DType::Bool), as_type(&u, DType::Bool)),
            _ => (x, u),
        };
        let how = ["none", "add", "mul", "max", "min"][r.below(5)];
        let how = if x.dtype() == DType::Bool {
            "none"
        } else {
            how
        };
        let axis = if case % 3 == 0 {
            axis as i64 - rank as i64
        } else {
            axis as i64
        };
        let attrs = Attrs::from([
            ("axis".to_string(), Attr::Int(axis)),
            ("reduction".to_string(), Attr::Str(how.into())),
        ]);
        let out = same("ScatterElements", &attrs, &[&x, &indices, &u], 0.0);
        refused += usize::from(out.is_empty());
    }
    assert!((1..60).contains(&refused), "{refused} were refused");
}

/// Tame numbers of another type.
fn as_type(x: &Tensor, d: DType) -> Tensor {
    let mut y = Tensor::zeros(d, x.shape()).unwrap();
    for i in 0..x.len() {
        match d.is_float() {
            true => y.set_f64(i, x.get_f64(i)),
            false => y.set_i64(i, x.get_i64(i) % 2),
        }
    }
    y
}

#[test]
fn running_sums() {
    let mut r = Rng::new(8);
    for case in 0..400 {
        let rank = 1 + r.below(3);
        let shape: Vec<usize> = (0..rank).map(|_| [0, 1, 2, 3, 17][r.below(5)]).collect();
        let x = r.floats(&shape, case % 7 == 0);
        let d = [DType::F32, DType::F64, DType::I64, DType::I32, DType::F16][case % 5];
        let x = if d == DType::F32 { x } else { as_type(&x, d) };
        let op = graph::Op::Scan {
            monoid: expr::Monoid::sum(d, d),
            axis: r.below(rank),
            exclusive: r.below(2) == 0,
            reverse: r.below(2) == 0,
        };
        same("core.scan", &spec(&op), &[&x], 0.0);
    }
}

/// Random trees in breadth-first order.
fn trees(r: &mut Rng, kind: &str, columns: usize, outputs: usize, modes: &[&str]) -> Attrs {
    let mut a: [Vec<i64>; 6] = Default::default();
    let (mut values, mut names) = (Vec::new(), Vec::new());
    let (mut owner, mut node, mut target, mut weight) = (vec![], vec![], vec![], vec![]);
    for tree in 0..1 + r.below(7) as i64 {
        let branches = r.below(12) as i64;
        for id in 0..2 * branches + 1 {
            let leaf = id >= branches;
            a[0].push(tree);
            a[1].push(id);
            a[2].push(r.below(columns) as i64);
            a[3].push(if leaf { 0 } else { 2 * id + 1 });
            a[4].push(if leaf { 0 } else { 2 * id + 2 });
            a[5].push(r.below(2) as i64);
            values.push(((r.below(17) as f32 - 8.0) / 4.0) as f64);
            names.push(
                if leaf {
                    "LEAF"
                } else {
                    modes[r.below(modes.len())]
                }
                .to_string(),
            );
            for _ in 0..if leaf { r.below(3) } else { 0 } {
                owner.push(tree);
                node.push(id);
                target.push(r.below(outputs) as i64);
                weight.push(r.tame() as f64);
            }
        }
    }
    let fields = [
        "treeids",
        "nodeids",
        "featureids",
        "truenodeids",
        "falsenodeids",
        "missing_value_tracks_true",
    ];
    let mut out: Attrs = fields
        .iter()
        .zip(a)
        .map(|(n, v)| (format!("nodes_{n}"), Attr::Ints(v)))
        .collect();
    out.insert("nodes_values".into(), Attr::Floats(values));
    out.insert("nodes_modes".into(), Attr::Strs(names));
    out.insert(format!("{kind}_treeids"), Attr::Ints(owner));
    out.insert(format!("{kind}_nodeids"), Attr::Ints(node));
    out.insert(format!("{kind}_ids"), Attr::Ints(target));
    out.insert(format!("{kind}_weights"), Attr::Floats(weight));
    out
}

#[test]
fn tree_ensembles() {
    let mut r = Rng::new(3);
    let modes: [&[&str]; 4] = [
        &["BRANCH_LEQ"],
        &["BRANCH_LT", "BRANCH_GTE"],
        &["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"],
        &["BRANCH_EQ", "BRANCH_NEQ", "BRANCH_GT"],
    ];
    let posts = ["NONE", "LOGISTIC", "SOFTMAX"];
    for case in 0..300 {
        let (columns, k) = (1 + r.below(5), 1 + r.below(3));
        let rows = [0, 1, 7, 8, 9, 20][r.below(6)];
        let x = r.floats(&[rows, columns], true);
        let classes = case % 2 == 0;
        let kind = if classes { "class" } else { "target" };
        let mut a = trees(&mut r, kind, columns, k, modes[case % 4]);
        if case % 3 == 0 {
            a.insert("base_values".into(), Attr::Floats(vec![0.25; k]));
        }
        a.insert("post_transform".into(), Attr::Str(posts[r.below(3)].into()));
        let name = if classes {
            a.insert(
                "classlabels_int64s".into(),
                Attr::Ints((10..10 + k as i64).collect()),
            );
            "ml.TreeEnsembleClassifier"
        } else {
            a.insert("n_targets".into(), Attr::Int(k as i64));
            let how = ["SUM", "AVERAGE", "MIN", "MAX"][r.below(4)];
            a.insert("aggregate_function".into(), Attr::Str(how.into()));
            "ml.TreeEnsembleRegressor"
        };
        same(name, &a, &[&x], 1e-6);
    }
}

#[test]
fn a_tree_with_a_cycle_is_an_error_and_no_hang() {
    let mut r = Rng::new(4);
    let mut a = trees(&mut r, "target", 1, 1, &["BRANCH_LEQ"]);
    for (n, v) in [
        ("treeids", 0),
        ("nodeids", 0),
        ("featureids", 0),
        ("truenodeids", 0),
        ("falsenodeids", 0),
    ] {
        a.insert(format!("nodes_{n}"), Attr::Ints(vec![v]));
    }
    a.remove("nodes_missing_value_tracks_true");
    a.insert("nodes_values".into(), Attr::Floats(vec![0.0]));
    a.insert("nodes_modes".into(), Attr::Strs(vec!["BRANCH_LEQ".into()]));
    for n in ["treeids", "nodeids", "ids"] {
        a.insert(format!("target_{n}"), Attr::Ints(vec![]));
    }
    a.insert("target_weights".into(), Attr::Floats(vec![]));
    let x = Tensor::from_f32(&[1, 1], &[1.0]).unwrap();
    assert!(same("ml.TreeEnsembleRegressor", &a, &[&x], 0.0).is_empty());
}

#[test]
fn regions() {
    let mut r = Rng::new(5);
    for case in 0..80 {
        let (n, c) = (1 + r.below(2), 1 + r.below(5));
        let (h, w) = (1 + r.below(6), 1 + r.below(6));
        let regions = [0, 1, 5][r.below(3)];
        let x = r.floats(&[n, c, h, w], false);
        let rois = r.floats(&[regions, 4], false);
        let rois: Vec<f32> = rois.to_f32().unwrap().iter().map(|v| v * 6.0).collect();
        let rois = Tensor::from_f32(&[regions, 4], &rois).unwrap();
        let batch: Vec<i64> = (0..regions).map(|_| r.below(n) as i64).collect();
        let batch = Tensor::from_i64(&[regions], &batch).unwrap();
        let a = Attrs::from([
            (
                "output_height".to_string(),
                Attr::Int(1 + r.below(3) as i64),
            ),
            ("output_width".to_string(), Attr::Int(1 + r.below(3) as i64)),
            ("sampling_ratio".to_string(), Attr::Int(r.below(3) as i64)),
            ("spatial_scale".to_string(), Attr::Float(0.5)),
            (
                "opset".to_string(),
                Attr::Int(if case % 2 == 0 { 10 } else { 22 }),
            ),
            (
                "mode".to_string(),
                Attr::Str(if case % 5 == 0 { "max" } else { "avg" }.into()),
            ),
        ]);
        same("RoiAlign", &a, &[&x, &rois, &batch], 1e-5);
    }
}
