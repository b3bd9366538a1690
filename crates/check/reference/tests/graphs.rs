//! Core ops on hand-computed cases and against brute force.
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Unary};
use graph::*;
use layout::{DType, Dim};
use shopfloor_reference::{first_difference, run_graph, run_graph_named};
use std::sync::Arc;
use tensor::{Attrs, Tensor, WeightStore};

fn origin() -> Origin {
    Origin {
        name: "n".into(),
        op_type: "T".into(),
    }
}

fn f(shape: &[usize], v: &[f32]) -> Tensor {
    Tensor::from_f32(shape, v).unwrap()
}

fn i(shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_i64(shape, v).unwrap()
}

fn random(shape: &[usize], seed: u64) -> Tensor {
    let mut drawn = fastrand::Rng::with_seed(seed);
    let v: Vec<f32> = (0..shape.iter().product())
        .map(|_| 2.0 * drawn.f32() - 1.0)
        .collect();
    f(shape, &v)
}

fn dims(shape: &[usize]) -> Vec<Dim> {
    shape.iter().map(|n| Dim::from(*n)).collect()
}

/// Runs one op whose outputs have the given types.
fn one(op: Op, inputs: &[&Tensor], outputs: &[(DType, Vec<Dim>)]) -> Vec<Tensor> {
    let mut b = GraphBuilder::new("g", Arc::new(WeightStore::new()));
    let ids: Vec<ValueId> = inputs
        .iter()
        .enumerate()
        .map(|(k, t)| b.input(&format!("x{k}"), t.dtype(), dims(t.shape())))
        .collect();
    let types: Vec<(&str, DType, Vec<Option<Dim>>)> = outputs
        .iter()
        .map(|(d, s)| ("", *d, s.iter().cloned().map(Some).collect()))
        .collect();
    let out = b.node_with_shapes(op, &ids, &types, &origin());
    let g = b.finish(&out);
    let inputs: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    run_graph(&g, &inputs).unwrap()
}

fn close(a: &Tensor, b: &[f64]) {
    assert_eq!(a.len(), b.len());
    for (k, v) in b.iter().enumerate() {
        assert!(
            (a.get_f64(k) - v).abs() <= 1e-5 * v.abs().max(1.0),
            "{k}: {} {v}",
            a.get_f64(k)
        );
    }
}

#[test]
fn maps_broadcast_and_see_coordinates_and_symbols() {
    let mut e = ExprBuilder::new();
    let (x, y) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let s = e.add(x, y);
    let c = e.index(1);
    let n = e.dim(&(Dim::sym("n") - Dim::ONE));
    let last = e.compare(Compare::Eq, c, n);
    let neg = e.unary(Unary::Neg, s);
    let r = e.select(last, neg, s);
    let mut b = GraphBuilder::new("g", Arc::new(WeightStore::new()));
    let x = b.input("x", DType::F32, vec![Dim::Known(2), Dim::sym("n")]);
    let y = b.input("y", DType::F32, vec![Dim::Known(2), Dim::ONE]);
    let o = b
        .node(Op::Map(e.finish(&[r])), &[x, y], &["o"], &origin())
        .unwrap();
    let g = b.finish(&o);
    let r = run_graph(
        &g,
        &[
            f(&[2, 3], &[1., 2., 3., 4., 5., 6.]),
            f(&[2, 1], &[10., 20.]),
        ],
    )
    .unwrap();
    assert_eq!(r[0], f(&[2, 3], &[11., 12., -13., 24., 25., -26.]));
    let e = run_graph(&g, &[f(&[2, 3], &[0.; 6]), f(&[1, 1], &[0.])])
        .unwrap_err()
        .to_string();
    assert!(e.contains("'y'"), "{e}");
}

#[test]
fn views_with_symbols() {
    let mut b = GraphBuilder::new("g", Arc::new(WeightStore::new()));
    let n = Dim::sym("n");
    let x = b.input("x", DType::F32, vec![n.clone(), Dim::Known(2)]);
    let p = b
        .node(Op::View(View::Permute(vec![1, 0])), &[x], &["p"], &origin())
        .unwrap()[0];
    let last = View::Slice {
        starts: vec![Dim::ZERO, n.clone() - Dim::ONE],
        steps: vec![1, -1],
        extents: vec![Dim::Known(2), n.clone()],
    };
    let s = b.node(Op::View(last), &[p], &["s"], &origin()).unwrap()[0];
    let r = b
        .node(
            Op::View(View::Reshape(vec![n.clone() * Dim::Known(2)])),
            &[s],
            &["r"],
            &origin(),
        )
        .unwrap()[0];
    let e = b
        .node(
            Op::View(View::Expand(vec![Dim::Known(2), n * Dim::Known(2)])),
            &[r],
            &["e"],
            &origin(),
        )
        .unwrap()[0];
    let g = b.finish(&[r, e]);
    let out = run_graph(&g, &[f(&[3, 2], &[1., 2., 3., 4., 5., 6.])]).unwrap();
    assert_eq!(out[0], f(&[6], &[5., 3., 1., 6., 4., 2.]));
    assert_eq!(out[1].shape(), [2, 6]);
    let t = run_graph_named(&g, &[f(&[3, 2], &[0.; 6])]).unwrap();
    assert_eq!(
        t.iter().map(|v| v.0).collect::<Vec<_>>(),
        ["x", "p", "s", "r", "e"]
    );
}

#[test]
fn contractions() {
    let (a, b) = (random(&[3, 5, 7], 1), random(&[3, 7, 6], 2));
    let spec = ContractSpec {
        a: vec![0, 1, 2],
        b: vec![0, 2, 3],
        out: vec![0, 1, 3],
    };
    let y = one(
        Op::Contract(spec),
        &[&a, &b],
        &[(DType::F32, dims(&[3, 5, 6]))],
    );
    let mut want = vec![0.0; 90];
    for n in 0..3 {
        for p in 0..5 {
            for q in 0..6 {
                for k in 0..7 {
                    want[(n * 5 + p) * 6 + q] +=
                        a.get_f64((n * 5 + p) * 7 + k) * b.get_f64((n * 7 + k) * 6 + q);
                }
            }
        }
    }
    close(&y[0], &want);
    // The output transposed, and both factors' labels in other orders.
    let spec = ContractSpec {
        a: vec![0, 1, 2],
        b: vec![0, 2, 3],
        out: vec![3, 0, 1],
    };
    let t = one(
        Op::Contract(spec),
        &[&a, &b],
        &[(DType::F32, dims(&[6, 3, 5]))],
    );
    for n in 0..15 {
        for q in 0..6 {
            assert_eq!(t[0].get_f64(q * 15 + n), y[0].get_f64(n * 6 + q));
        }
    }
    // i8 by u8 into i32, more than i8 holds.
    let a = Tensor::from_i8(&[1, 300], &[-128; 300]).unwrap();
    let b = Tensor::from_u8(&[300, 1], &[255; 300]).unwrap();
    let spec = ContractSpec {
        a: vec![0, 1],
        b: vec![1, 2],
        out: vec![0, 2],
    };
    let y = one(
        Op::Contract(spec),
        &[&a, &b],
        &[(DType::I32, dims(&[1, 1]))],
    );
    assert_eq!(y[0].to_i32().unwrap(), [-128 * 255 * 300]);
}

struct Case {
    groups: usize,
    stride: usize,
    dilation: usize,
    pad: usize,
}

#[test]
fn convolutions_against_brute_force() {
    let cases = [
        Case {
            groups: 1,
            stride: 1,
            dilation: 1,
            pad: 1,
        },
        Case {
            groups: 2,
            stride: 2,
            dilation: 1,
            pad: 1,
        },
        Case {
            groups: 4,
            stride: 1,
            dilation: 2,
            pad: 2,
        },
        Case {
            groups: 2,
            stride: 3,
            dilation: 2,
            pad: 0,
        },
    ];
    for c in cases {
        let (n, ic, oc, h, w, k) = (2, 4, 8, 9, 7, 3);
        let reach = (k - 1) * c.dilation + 1;
        let (oh, ow) = (
            (h + 2 * c.pad - reach) / c.stride + 1,
            (w + 2 * c.pad - reach) / c.stride + 1,
        );
        let spec = |transposed| ConvSpec {
            kernel: vec![k as i64; 2],
            strides: vec![c.stride as i64; 2],
            dilations: vec![c.dilation as i64; 2],
            before: vec![Dim::from(c.pad); 2],
            after: vec![Dim::from(c.pad); 2],
            groups: c.groups as i64,
            transposed,
            outside: 0,
        };
        let x = random(&[n, ic, h, w], 3);
        let wt = random(&[oc, ic / c.groups, k, k], 4);
        let y = one(
            Op::Conv(spec(false)),
            &[&x, &wt],
            &[(DType::F32, dims(&[n, oc, oh, ow]))],
        );
        // The transposed convolution is the adjoint: it has weights [oc as input, ic / groups].
        let back = one(
            Op::Conv(spec(true)),
            &[&y[0], &wt],
            &[(DType::F32, dims(&[n, ic, h, w]))],
        );
        let mut want = vec![0.0; n * oc * oh * ow];
        let mut adjoint = vec![0.0; n * ic * h * w];
        for b in 0..n {
            for o in 0..oc {
                for r in 0..oh {
                    for s in 0..ow {
                        let to = ((b * oc + o) * oh + r) * ow + s;
                        for q in 0..ic / c.groups {
                            let ch = o / (oc / c.groups) * (ic / c.groups) + q;
                            for u in 0..k {
                                for v in 0..k {
                                    let p = (r * c.stride + u * c.dilation) as i64 - c.pad as i64;
                                    let t = (s * c.stride + v * c.dilation) as i64 - c.pad as i64;
                                    if p < 0 || t < 0 || p >= h as i64 || t >= w as i64 {
                                        continue;
                                    }
                                    let from = ((b * ic + ch) * h + p as usize) * w + t as usize;
                                    let weight =
                                        wt.get_f64(((o * (ic / c.groups) + q) * k + u) * k + v);
                                    want[to] += weight * x.get_f64(from);
                                    adjoint[from] += weight * y[0].get_f64(to);
                                }
                            }
                        }
                    }
                }
            }
        }
        close(&y[0], &want);
        close(&back[0], &adjoint);
    }
}

#[test]
fn convolution_in_one_and_three_dimensions() {
    let spec = |n: usize| ConvSpec {
        kernel: vec![2; n],
        strides: vec![1; n],
        dilations: vec![1; n],
        before: vec![Dim::ZERO; n],
        after: vec![Dim::ZERO; n],
        groups: 1,
        transposed: false,
        outside: 0,
    };
    let y = one(
        Op::Conv(spec(1)),
        &[
            &f(&[1, 1, 4], &[1., 2., 3., 4.]),
            &f(&[1, 1, 2], &[1., -1.]),
        ],
        &[(DType::F32, dims(&[1, 1, 3]))],
    );
    assert_eq!(y[0].to_f32().unwrap(), [-1., -1., -1.]);
    let x: Vec<f32> = (0..27).map(|v| v as f32).collect();
    let y = one(
        Op::Conv(spec(3)),
        &[&f(&[1, 1, 3, 3, 3], &x), &f(&[1, 1, 2, 2, 2], &[1.; 8])],
        &[(DType::F32, dims(&[1, 1, 2, 2, 2]))],
    );
    assert_eq!(y[0].get_f64(0), 52.0);
}

#[test]
fn reductions() {
    let x = f(
        &[2, 3, 2],
        &[1., 2., 3., 4., 5., 6., -1., -2., -9., -4., -5., -6.],
    );
    let red = |m: Monoid, axes: &[usize], keep: bool, out: &[(DType, &[usize])]| {
        let types: Vec<(DType, Vec<Dim>)> = out.iter().map(|(d, s)| (*d, dims(s))).collect();
        one(
            Op::Reduce {
                monoid: m,
                axes: axes.to_vec(),
                keep,
            },
            &[&x],
            &types,
        )
    };
    let d = DType::F32;
    let y = red(Monoid::sum(d, d), &[1], false, &[(d, &[2, 2])]);
    assert_eq!(y[0], f(&[2, 2], &[9., 12., -15., -12.]));
    let y = red(Monoid::max(d, d), &[0, 2], true, &[(d, &[1, 3, 1])]);
    assert_eq!(y[0], f(&[1, 3, 1], &[2., 4., 6.]));
    let y = red(
        Monoid::mean(d, d, &Dim::Known(12)),
        &[0, 1, 2],
        false,
        &[(d, &[])],
    );
    assert_eq!(y[0], f(&[], &[-0.5]));
    let y = red(Monoid::log_sum_exp(d, d), &[1], false, &[(d, &[2, 2])]);
    let lse = |v: [f64; 3]| v.map(f64::exp).iter().sum::<f64>().ln();
    close(
        &y[0],
        &[
            lse([1., 3., 5.]),
            lse([2., 4., 6.]),
            lse([-1., -9., -5.]),
            lse([-2., -4., -6.]),
        ],
    );
    let m = Monoid::argmax(d, 0, false);
    let y = red(m, &[1], false, &[(DType::I64, &[2, 2])]);
    assert_eq!(y[0], i(&[2, 2], &[2, 2, 0, 0]));
    // A million equal terms: halves combined in order keep the error small.
    let big = f(&[1 << 20], &vec![0.1; 1 << 20]);
    let sum = Op::Reduce {
        monoid: Monoid::sum(d, d),
        axes: vec![0],
        keep: false,
    };
    let y = one(sum, &[&big], &[(d, vec![])]);
    assert!((y[0].get_f64(0) / (0.1f32 as f64 * (1 << 20) as f64) - 1.0).abs() < 1e-6);
    // Nothing to reduce gives the identity.
    let none = Op::Reduce {
        monoid: Monoid::sum(d, d),
        axes: vec![0],
        keep: false,
    };
    assert_eq!(
        one(none, &[&f(&[0, 2], &[])], &[(d, dims(&[2]))])[0],
        f(&[2], &[0., 0.])
    );
}

#[test]
fn attention_is_what_it_stands_for() {
    let (q, k, v) = (
        random(&[2, 3, 4], 1),
        random(&[2, 5, 4], 2),
        random(&[2, 5, 6], 3),
    );
    let mask = random(&[1, 3, 5], 4);
    let mut e = ExprBuilder::new();
    let s = e.input(0, DType::F32);
    let m = e.input(1, DType::F32);
    let half = e.constant(0.5, DType::F32);
    let s = e.mul(s, half);
    let s = e.add(s, m);
    // Nothing after the query's own position plus two.
    let (r, c) = (e.index(1), e.index(2));
    let two = e.int(2, DType::I64);
    let reach = e.add(r, two);
    let far = e.compare(Compare::Gt, c, reach);
    let low = e.constant(f64::NEG_INFINITY, DType::F32);
    let s = e.select(far, low, s);
    let op = Op::Attention(AttentionSpec {
        score: e.finish(&[s]),
        undefined: Undefined::Nan,
    });
    let y = one(op, &[&q, &k, &v, &mask], &[(DType::F32, dims(&[2, 3, 6]))]);
    let mut want = vec![];
    for b in 0..2 {
        for r in 0..3 {
            let p: Vec<f64> = (0..5)
                .map(|t| {
                    let dot: f64 = (0..4)
                        .map(|x| q.get_f64((b * 3 + r) * 4 + x) * k.get_f64((b * 5 + t) * 4 + x))
                        .sum();
                    if t > r + 2 {
                        0.0
                    } else {
                        (dot * 0.5 + mask.get_f64(r * 5 + t)).exp()
                    }
                })
                .collect();
            let sum: f64 = p.iter().sum();
            for x in 0..6 {
                want.push(
                    (0..5)
                        .map(|t| p[t] / sum * v.get_f64((b * 5 + t) * 6 + x))
                        .sum(),
                );
            }
        }
    }
    close(&y[0], &want);
}

#[test]
fn attention_of_a_row_without_keys_is_what_it_says() {
    let (q, v) = (f(&[3, 1], &[1., 1., 1.]), f(&[2, 1], &[5., 7.]));
    let k = f(&[2, 1], &[1., 1.]);
    let (low, nan) = (f32::NEG_INFINITY, f32::NAN);
    let mask = f(&[3, 2], &[low, low, 0., low, low, nan]);
    let mut e = ExprBuilder::new();
    let (s, m) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let s = e.add(s, m);
    let score = e.finish(&[s]);
    let shape = [(DType::F32, dims(&[3, 1]))];
    for (undefined, want) in [
        (Undefined::Nan, [f64::NAN, 5., f64::NAN]),
        (Undefined::ZeroUnseen, [0., 5., f64::NAN]),
        (Undefined::Zero, [0., 5., 0.]),
    ] {
        let score = score.clone();
        let op = Op::Attention(AttentionSpec { score, undefined });
        let y = one(op, &[&q, &k, &v, &mask], &shape);
        let got: Vec<String> = (0..3).map(|i| y[0].get_f64(i).to_string()).collect();
        assert_eq!(got, want.map(|x| x.to_string()), "{undefined:?}");
    }
}

/// A program of one float argument.
fn program(f: impl Fn(&mut ExprBuilder, u32) -> u32) -> Expr {
    let mut e = ExprBuilder::new();
    let x = e.input(0, DType::F32);
    let y = f(&mut e, x);
    e.finish(&[y])
}

#[test]
fn branches_and_late_symbols() {
    let w = Arc::new(WeightStore::new());
    let branch = |name: &str, rows: i64| {
        let mut b = GraphBuilder::new(name, w.clone());
        let x = b.input("x", DType::F32, vec![Dim::sym("n")]);
        let view = View::Slice {
            starts: vec![Dim::ZERO],
            steps: vec![1],
            extents: vec![Dim::Known(rows)],
        };
        let y = b.node(Op::View(view), &[x], &["y"], &origin()).unwrap();
        Box::new(b.finish(&y))
    };
    let mut b = GraphBuilder::new("g", w.clone());
    let c = b.input("c", DType::Bool, vec![]);
    let x = b.input("x", DType::F32, vec![Dim::sym("n")]);
    let op = Op::If {
        then_branch: branch("then", 1),
        else_branch: branch("else", 2),
    };
    let y = b.node_with_shapes(op, &[c, x], &[("y", DType::F32, vec![None])], &origin())[0];
    let double = program(|e, x| e.add(x, x));
    let z = b.node(Op::Map(double), &[y], &["z"], &origin()).unwrap()[0];
    // NonZero of the result: another size that only the data tells.
    let host = Op::Host {
        name: "NonZero".into(),
        attrs: Attrs::new(),
    };
    let nz = b.node_with_shapes(
        host,
        &[z],
        &[("nz", DType::I64, vec![Some(Dim::ONE), None])],
        &origin(),
    )[0];
    let flat = Dim::product(&b.value(nz).shape.clone());
    let r = b
        .node(
            Op::View(View::Reshape(vec![flat])),
            &[nz],
            &["r"],
            &origin(),
        )
        .unwrap()[0];
    let g = b.finish(&[z, r]);
    let yes = Tensor::from_bytes(DType::Bool, &[], vec![1]).unwrap();
    let no = Tensor::from_bytes(DType::Bool, &[], vec![0]).unwrap();
    let x = f(&[3], &[0., 2., 3.]);
    let out = run_graph(&g, &[yes, x.clone()]).unwrap();
    assert_eq!((&out[0], &out[1]), (&f(&[1], &[0.]), &i(&[0], &[])));
    let out = run_graph(&g, &[no, x]).unwrap();
    assert_eq!((&out[0], &out[1]), (&f(&[2], &[0., 4.]), &i(&[1], &[1])));
}

#[test]
fn loops_carry_stack_and_stop() {
    let w = Arc::new(WeightStore::new());
    let mut b = GraphBuilder::new("body", w.clone());
    let iter = b.input("i", DType::I64, vec![]);
    let cond = b.input("c", DType::Bool, vec![]);
    // The carried tensor grows by one element each time.
    let x = b.input("x", DType::F32, vec![Dim::sym("len")]);
    let limit = b.input("limit", DType::I64, vec![]);
    let more = b
        .node(Op::Concat { axis: 0 }, &[x, x], &["more"], &origin())
        .unwrap()[0];
    let cut = View::Slice {
        starts: vec![Dim::ZERO],
        steps: vec![1],
        extents: vec![Dim::sym("len") + Dim::ONE],
    };
    let grown = b
        .node(Op::View(cut), &[more], &["grown"], &origin())
        .unwrap()[0];
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, DType::I64), e.input(1, DType::I64));
    let lt = e.compare(Compare::Lt, p, q);
    let go = b
        .node(Op::Map(e.finish(&[lt])), &[iter, limit], &["go"], &origin())
        .unwrap()[0];
    let mut e = ExprBuilder::new();
    let p = e.input(0, DType::I64);
    let sq = e.binary(Binary::Mul, p, p);
    let square = b
        .node(Op::Map(e.finish(&[sq])), &[iter], &["square"], &origin())
        .unwrap()[0];
    let _ = cond;
    let body = Box::new(b.finish(&[go, grown, square]));
    let mut b = GraphBuilder::new("g", w);
    let trip = b.input("trip", DType::I64, vec![]);
    let start = b.input("start", DType::Bool, vec![]);
    let x = b.input("x", DType::F32, vec![Dim::sym("n")]);
    let limit = b.input("limit", DType::I64, vec![]);
    let op = Op::Loop {
        body,
        carried: 1,
        has_trip: true,
        has_cond: true,
    };
    let out = b.node_with_shapes(
        op,
        &[trip, start, x, limit],
        &[("y", DType::F32, vec![None]), ("s", DType::I64, vec![None])],
        &origin(),
    );
    let g = b.finish(&out);
    let run = |trip: i64, start: u8, limit: i64| {
        let start = Tensor::from_bytes(DType::Bool, &[], vec![start]).unwrap();
        run_graph(
            &g,
            &[i(&[], &[trip]), start, f(&[2], &[1., 2.]), i(&[], &[limit])],
        )
        .unwrap()
    };
    // The condition is false in iteration 2, which still counts.
    let out = run(100, 1, 2);
    assert_eq!(out[0], f(&[5], &[1., 2., 1., 1., 1.]));
    assert_eq!(out[1], i(&[3], &[0, 1, 4]));
    assert_eq!(run(1, 1, 9)[1], i(&[1], &[0]));
    let none = run(5, 0, 9);
    assert_eq!((&none[0], &none[1]), (&f(&[2], &[1., 2.]), &i(&[0], &[])));
}

#[test]
fn weights_pools_sorts_and_errors_that_name_the_node() {
    let mut store = WeightStore::new();
    let id = store
        .add_tensor("w", f(&[1, 1, 4], &[4., 1., 3., 2.]))
        .unwrap();
    let mut b = GraphBuilder::new("g", Arc::new(store));
    let at = b.input("at", DType::I64, vec![Dim::ONE]);
    let w = b.weight(id).unwrap();
    let pool = PoolSpec {
        kind: PoolKind::Average { include_pad: false },
        kernel: vec![2],
        strides: vec![2],
        dilations: vec![1],
        before: vec![Dim::ZERO],
        after: vec![Dim::ZERO],
    };
    let p = b.node(Op::Pool(pool), &[w], &["p"], &origin()).unwrap()[0];
    let s = b
        .node(
            Op::Sort {
                axis: 2,
                k: Dim::Known(2),
                descending: true,
            },
            &[w],
            &["v", "i"],
            &origin(),
        )
        .unwrap();
    let o = Origin {
        name: "picker".into(),
        op_type: "Gather".into(),
    };
    let y = b
        .node(Op::Gather { axis: 2, batch: 0 }, &[w, at], &["y"], &o)
        .unwrap()[0];
    let g = b.finish(&[p, s[0], s[1], y]);
    let out = run_graph(&g, &[i(&[1], &[-1])]).unwrap();
    assert_eq!(out[0], f(&[1, 1, 2], &[2.5, 2.5]));
    assert_eq!(out[1], f(&[1, 1, 2], &[4., 3.]));
    assert_eq!(out[2], i(&[1, 1, 2], &[0, 2]));
    assert_eq!(out[3], f(&[1, 1, 1], &[2.]));
    let e = run_graph(&g, &[i(&[1], &[4])]).unwrap_err().to_string();
    assert!(e.contains("'picker'") && e.contains("index 4"), "{e}");
    assert!(run_graph(&g, &[]).is_err());
}

#[test]
fn first_difference_names_the_culprit() {
    let mut b = GraphBuilder::new("g", Arc::new(WeightStore::new()));
    let x = b.input("x", DType::F32, dims(&[2]));
    let y = b
        .node(
            Op::Map(program(|e, x| e.unary(Unary::Exp, x))),
            &[x],
            &["y"],
            &origin(),
        )
        .unwrap()[0];
    let z = b
        .node(
            Op::Map(program(|e, x| e.unary(Unary::Neg, x))),
            &[y],
            &["z"],
            &origin(),
        )
        .unwrap()[0];
    let g = b.finish(&[z]);
    let t = run_graph_named(&g, &[f(&[2], &[0., 1.])]).unwrap();
    assert_eq!(first_difference(&t, &|n| t.get(n).cloned(), 0.0), None);
    let d = first_difference(&t, &|n| (n != "x").then(|| f(&[2], &[1., f32::NAN])), 1e-3).unwrap();
    assert_eq!((d.name.as_str(), d.relative), ("y", f64::INFINITY));
    let d = first_difference(&t, &|n| (n == "z").then(|| f(&[2], &[-1., -2.])), 1e-3).unwrap();
    assert_eq!(d.name, "z");
    let e = std::f64::consts::E;
    assert!((d.relative - (e - 2.0) / e).abs() < 1e-4);
}
