//! Products in bf16 when they are asked for, and only then: within the bound of the rounded factors.

use graph::{ContractSpec, ConvSpec, Graph, GraphBuilder, Op, Origin};
use layout::{DType, Dim};
use shopfloor::{Model, ModelOptions, Precision, Session};
use std::sync::Arc;
use tensor::{Tensor, WeightStore};

/// Values in -1..1, by seed.
struct Rng(fastrand::Rng);

impl Rng {
    fn values(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| 2.0 * self.0.f32() - 1.0).collect()
    }
}

fn tensor(shape: &[usize], v: &[f32]) -> Tensor {
    let mut t = Tensor::zeros(DType::F32, shape).unwrap();
    for (i, x) in v.iter().enumerate() {
        t.set_f64(i, f64::from(*x));
    }
    t
}

/// A graph of one product of input `x` and a constant.
fn product(op: Op, x: &[usize], w: &[usize], values: &[f32]) -> Graph {
    let mut weights = WeightStore::new();
    let id = weights.add_tensor("w", tensor(w, values)).unwrap();
    let mut b = GraphBuilder::new("product", Arc::new(weights));
    let dims: Vec<Dim> = x.iter().map(|&n| Dim::from(n)).collect();
    let x = b.input("x", DType::F32, dims);
    let w = b.weight(id).unwrap();
    let origin = Origin {
        name: "product".into(),
        op_type: "product".into(),
    };
    let y = b.node(op, &[x, w], &["y"], &origin).unwrap();
    b.finish(&y)
}

fn run(g: &Graph, precision: Precision, x: &Tensor) -> (Vec<f64>, bool) {
    let options = ModelOptions {
        precision,
        ..Default::default()
    };
    let model = Model::from_graph("product", g, &options).unwrap();
    let named = model.program().whys.iter().any(|w| w.pass == "precision");
    let s = Session::builder().with_threads(1).commit(model).unwrap();
    let y = s.run(&[("x", x)]).unwrap().into_vec();
    let y = &y[0].1;
    ((0..y.len()).map(|i| y.get_f64(i)).collect(), named)
}

/// Compares with sums in f64; `terms` gives the products of one result.
fn check(what: &str, g: &Graph, x: &Tensor, terms: &dyn Fn(usize) -> Vec<f64>) {
    let (exact, named) = run(g, Precision::F32, x);
    assert!(!named, "{what}: bf16 without being asked for");
    let (rounded, named) = run(g, Precision::Bf16, x);
    assert!(named, "{what}: no decision names bf16");
    let mut differs = false;
    for i in 0..exact.len() {
        let t = terms(i);
        let (want, size): (f64, f64) = (t.iter().sum(), t.iter().map(|v| v.abs()).sum());
        let f32s = 1e-5 * size + 1e-12;
        assert!(
            (exact[i] - want).abs() <= f32s,
            "{what} at {i}: {} for {want}",
            exact[i]
        );
        // Each factor is rounded by at most one part in 2^9.
        let bound = size * (2.0 * 2f64.powi(-9) + 2f64.powi(-18)) + f32s;
        assert!(
            (rounded[i] - want).abs() <= bound,
            "{what} at {i}: {} for {want}",
            rounded[i]
        );
        differs |= rounded[i] != exact[i];
    }
    assert!(differs, "{what}: nothing was rounded");
}

#[test]
fn matrix_products_stay_within_the_bound_of_bf16() {
    let mut r = Rng(fastrand::Rng::with_seed(5));
    for (m, k, n) in [
        (1, 8, 5),
        (7, 64, 33),
        (20, 128, 48),
        (3, 7, 4),
        (50, 30, 17),
        (1, 256, 1),
    ] {
        let (a, b) = (r.values(m * k), r.values(k * n));
        let spec = ContractSpec {
            a: vec![0, 1],
            b: vec![1, 2],
            out: vec![0, 2],
        };
        let g = product(Op::Contract(spec), &[m, k], &[k, n], &b);
        let what = format!("{m}x{k}x{n}");
        check(&what, &g, &tensor(&[m, k], &a), &|i| {
            let (row, column) = (i / n, i % n);
            (0..k)
                .map(|p| f64::from(a[row * k + p]) * f64::from(b[p * n + column]))
                .collect()
        });
    }
}

#[test]
fn convolutions_stay_within_the_bound_of_bf16() {
    let mut r = Rng(fastrand::Rng::with_seed(6));
    for (c, h, oc, stride) in [(16, 9, 24, 1), (3, 11, 5, 2), (8, 6, 3, 1), (5, 7, 17, 1)] {
        let (x, w) = (r.values(c * h * h), r.values(oc * c * 9));
        let spec = ConvSpec {
            kernel: vec![3, 3],
            strides: vec![stride as i64; 2],
            dilations: vec![1, 1],
            before: vec![Dim::ONE; 2],
            after: vec![Dim::ONE; 2],
            groups: 1,
            transposed: false,
            outside: 0,
        };
        let g = product(Op::Conv(spec), &[1, c, h, h], &[oc, c, 3, 3], &w);
        let out = (h - 1) / stride + 1;
        let what = format!("{c}x{h} by {oc}, stride {stride}");
        check(&what, &g, &tensor(&[1, c, h, h], &x), &|i| {
            let (o, y0, x0) = (i / (out * out), i / out % out, i % out);
            let mut t = Vec::new();
            for ch in 0..c {
                for tap in 0..9 {
                    let (y, x1) = (y0 * stride + tap / 3, x0 * stride + tap % 3);
                    let inside = (1..=h).contains(&y) && (1..=h).contains(&x1);
                    if inside {
                        let at = (ch * h + y - 1) * h + x1 - 1;
                        t.push(f64::from(x[at]) * f64::from(w[(o * c + ch) * 9 + tap]));
                    }
                }
            }
            t
        });
    }
}
