//! Tile programs of every family, under several schedules, on every instruction set, against the oracle.
mod attention;
pub(crate) mod build;
mod gathers;
mod harness;
mod oracle;

use build::{B, at, blocked, bound, expr, n};
use expr::{Binary, Compare, Monoid, Unary, functions};
use harness::{Rng, check, random, schedule};
use kernel::{Access, Family, Kernel, Role, Stmt, Term};
use layout::{DType, Dim};
use tensor::Tensor;

const F: DType = DType::F32;

fn tensors(k: &Kernel, top: u64) -> Vec<Tensor> {
    let mut rng = Rng(0x1234_5678_9abc_def1 ^ k.operands.len() as u64);
    let size = |o: usize| k.operands[o].elements.known().expect("a number") as usize;
    (0..k.operands.len())
        .map(|o| {
            let d = k.operands[o].dtype;
            if k.operands[o].role == Role::Write {
                Tensor::zeros(d, &[size(o)]).expect("zeros")
            } else {
                random(d, size(o), top, &mut rng)
            }
        })
        .collect()
}

/// y[m,n] = gelu(a[m,k] b[k,n] + bias[n]); `nr` > 0: B in packed panels; `transposed`: B as [n,k].
fn gemm(m: i64, nn: i64, k: i64, nr: i64, transposed: bool) -> Kernel {
    let mut b = B::new(
        "gemm",
        Family::Contract,
        &[("m", n(m)), ("k", n(k)), ("n", n(nn))],
    );
    let oa = b.read(F, m * k, at(&[(0, k), (1, 1)]));
    let blocks = if nr > 0 { (nn + nr - 1) / nr } else { 0 };
    let ob = if nr > 0 {
        let terms = vec![
            blocked(2, blocks, k * nr, nr, 1),
            Term::flat(1, n(k), n(nr)),
        ];
        b.read(F, blocks * nr * k, Access::strided(n(0), terms))
    } else if transposed {
        b.read(F, nn * k, at(&[(2, k), (1, 1)]))
    } else {
        b.read(F, nn * k, at(&[(2, 1), (1, nn)]))
    };
    let oc = b.read(F, nn, at(&[(2, 1)]));
    let oy = b.write(F, m * nn, at(&[(0, nn), (2, 1)]));
    let acc = b.fill(F, &[0, 2], 0.0);
    let a = b.load(oa, &[0, 1]);
    let w = b.load(ob, &[1, 2]);
    b.contract(acc, a, w, &[1]);
    let c = b.load(oc, &[2]);
    let y = b.map(
        F,
        &[0, 2],
        &[acc, c],
        expr(|e| {
            let (x, c) = (e.input(0, F), e.input(1, F));
            let s = e.add(x, c);
            functions::gelu_erf(e, s, F)
        }),
    );
    b.store(oy, y);
    b.k
}

#[test]
fn gemms() {
    for (m, nn, k) in [
        (1, 1, 1),
        (7, 33, 19),
        (20, 130, 70),
        (3, 64, 128),
        (0, 5, 4),
        (5, 0, 3),
        (4, 6, 0),
        (40, 17, 5),
    ] {
        for (nr, transposed) in [(0, false), (16, false), (64, false), (0, true)] {
            let kernel = gemm(m, nn, k, nr, transposed);
            let s = [
                schedule(&kernel, &[(0, 6), (2, 64)], &[(1, 16)], true, Some((6, 64))),
                schedule(&kernel, &[(2, 48), (0, 13)], &[], true, Some((4, 16))),
                schedule(&kernel, &[(0, 5)], &[(1, 7)], false, None),
                schedule(&kernel, &[], &[], true, Some((6, 16))),
            ];
            let t = tensors(&kernel, 1);
            check(&kernel, &s, &[], t, 2e-5);
        }
    }
}

/// Channels-last convolution; weights [r][s][c][oc].
#[allow(clippy::too_many_arguments)]
fn conv(
    batch: i64,
    h: i64,
    c: i64,
    oc: i64,
    r: i64,
    stride: i64,
    pad: i64,
    first: bool,
) -> (Kernel, i64) {
    let o = (h + 2 * pad - r) / stride + 1;
    let axes = [
        ("b", n(batch)),
        ("oh", n(o)),
        ("ow", n(o)),
        ("r", n(r)),
        ("s", n(r)),
        ("c", n(c)),
        ("oc", n(oc)),
    ];
    let mut b = B::new("conv", Family::Conv, &axes);
    // Channels first: c has the stride of a plane.
    let (ch, px) = if first { (h * h, 1) } else { (1, c) };
    let mut x = at(&[
        (0, h * h * c),
        (1, h * stride * px),
        (2, stride * px),
        (3, h * px),
        (4, px),
        (5, ch),
    ]);
    x.offset = n(-pad * h * px - pad * px);
    x.bounds = vec![
        bound(&[(1, stride), (3, 1)], -pad, h),
        bound(&[(2, stride), (4, 1)], -pad, h),
    ];
    let ox = b.read(F, batch * h * h * c, x);
    let ow = b.read(
        F,
        r * r * c * oc,
        at(&[(3, r * c * oc), (4, c * oc), (5, oc), (6, 1)]),
    );
    let oy = b.write(
        F,
        batch * o * o * oc,
        at(&[(0, o * o * oc), (1, o * oc), (2, oc), (6, 1)]),
    );
    let acc = b.fill(F, &[0, 1, 2, 6], 0.0);
    let x = b.load(ox, &[0, 1, 2, 3, 4, 5]);
    let w = b.load(ow, &[3, 4, 5, 6]);
    b.contract(acc, x, w, &[3, 4, 5]);
    let y = b.map(
        F,
        &[0, 1, 2, 6],
        &[acc],
        expr(|e| {
            let x = e.input(0, F);
            functions::relu(e, x, F)
        }),
    );
    b.store(oy, y);
    (b.k, o)
}

#[test]
fn convolutions() {
    for (batch, h, c, oc, r, stride, pad, first) in [
        (1, 9, 5, 17, 3, 2, 1, false),
        (2, 8, 16, 32, 3, 1, 1, false),
        (1, 7, 3, 20, 7, 2, 3, true),
        (1, 6, 8, 8, 1, 1, 0, false),
        (1, 1, 4, 4, 3, 1, 1, false),
    ] {
        let (k, o) = conv(batch, h, c, oc, r, stride, pad, first);
        let s = [
            schedule(
                &k,
                &[(0, 1), (1, 2), (6, 16)],
                &[(3, 1), (4, 1)],
                true,
                Some((6, 16)),
            ),
            schedule(
                &k,
                &[(1, 3), (2, o.max(1))],
                &[(5, 3), (3, 1), (4, 1)],
                true,
                Some((4, 16)),
            ),
            schedule(&k, &[(0, 1), (1, 1), (2, 4)], &[], true, None),
            schedule(&k, &[(0, 1), (1, 2), (6, 16)], &[(3, 1)], false, None),
        ];
        let t = tensors(&k, 1);
        check(&k, &s, &[], t, 2e-5);
    }
}

/// Weights whose rows lie backwards can be taken while a piece has several channels, and not in the last piece,
/// which has one: the rest of the sum goes statement by statement, from where it stands.
#[test]
fn a_later_piece_lies_otherwise() {
    for (h, c, oc, r, pad) in [(8, 5, 32, 3, 0), (9, 3, 20, 2, 0), (9, 7, 16, 3, 1)] {
        let (mut k, _) = conv(2, h, c, oc, r, 1, pad, false);
        let mut w = at(&[(3, -r * c * oc), (4, c * oc), (5, oc), (6, 1)]);
        w.offset = n((r - 1) * r * c * oc);
        k.operands[1].access = w;
        let s = [
            schedule(&k, &[(0, 1), (1, 2)], &[(5, 2)], true, Some((6, 16))),
            schedule(&k, &[(1, 3)], &[(4, 1), (5, 2)], true, Some((4, 16))),
            schedule(&k, &[(6, 16)], &[(5, 2), (4, 2)], true, Some((6, 16))),
            schedule(&k, &[(6, 16)], &[(5, 2), (3, 2)], false, Some((6, 16))),
        ];
        let t = tensors(&k, 1);
        check(&k, &s, &[], t, 2e-5);
    }
}

#[test]
fn depthwise() {
    for (h, c, r, stride, pad, apart) in [
        (9, 19, 3, 1, 1, 1),
        (8, 32, 5, 2, 2, 1),
        (11, 40, 5, 1, 4, 2),
        (13, 7, 7, 1, 5, 3),
        (10, 17, 3, 2, 2, 2),
    ] {
        let o = (h + 2 * pad - (r - 1) * apart - 1) / stride + 1;
        let axes = [
            ("oh", n(o)),
            ("ow", n(o)),
            ("r", n(r)),
            ("s", n(r)),
            ("c", n(c)),
        ];
        let mut b = B::new("depthwise", Family::Conv, &axes);
        let mut x = at(&[
            (0, h * stride * c),
            (1, stride * c),
            (4, 1),
            (2, apart * h * c),
            (3, apart * c),
        ]);
        x.offset = n(-pad * h * c - pad * c);
        x.bounds = vec![
            bound(&[(0, stride), (2, apart)], -pad, h),
            bound(&[(1, stride), (3, apart)], -pad, h),
        ];
        let ox = b.read(F, h * h * c, x);
        let ow = b.read(F, r * r * c, at(&[(2, r * c), (3, c), (4, 1)]));
        let oy = b.write(F, o * o * c, at(&[(0, o * c), (1, c), (4, 1)]));
        let acc = b.fill(F, &[0, 1, 4], 0.0);
        let x = b.load(ox, &[0, 1, 2, 3, 4]);
        let w = b.load(ow, &[2, 3, 4]);
        b.contract(acc, x, w, &[2, 3]);
        b.store(oy, acc);
        let s = [
            schedule(&b.k, &[(0, 2)], &[(2, 1), (3, 1)], true, None),
            schedule(&b.k, &[(0, 1), (1, 4), (4, 16)], &[], true, None),
            schedule(&b.k, &[(0, 3)], &[], false, None),
        ];
        let t = tensors(&b.k, 1);
        check(&b.k, &s, &[], t, 2e-5);
    }
}

fn softmax(rows: Dim, cols: Dim, ld: Dim) -> Kernel {
    let mut b = B::new("softmax", Family::Row, &[("m", rows.clone()), ("n", cols)]);
    let access = Access::strided(
        n(0),
        vec![
            Term::flat(0, n(1 << 30), ld.clone()),
            Term::flat(1, n(1 << 30), n(1)),
        ],
    );
    let all = rows * ld;
    let ox = b.read_dim(F, all.clone(), access.clone());
    let oy = b.write_dim(F, all, access);
    let x = b.load(ox, &[0, 1]);
    let m = b.fill(F, &[0], f64::NEG_INFINITY);
    b.k.body.push(Stmt::Fold {
        monoid: Monoid::max(F, F),
        state: vec![m],
        args: vec![x],
        over: vec![1],
        rescale: None,
    });
    let e = b.map(
        F,
        &[0, 1],
        &[x, m],
        expr(|e| {
            let (x, m) = (e.input(0, F), e.input(1, F));
            let d = e.sub(x, m);
            e.unary(Unary::Exp, d)
        }),
    );
    let s = b.fill(F, &[0], 0.0);
    b.k.body.push(Stmt::Fold {
        monoid: Monoid::sum(F, F),
        state: vec![s],
        args: vec![e],
        over: vec![1],
        rescale: None,
    });
    let y = b.map(
        F,
        &[0, 1],
        &[e, s],
        expr(|e| {
            let (x, s) = (e.input(0, F), e.input(1, F));
            e.div(x, s)
        }),
    );
    b.store(oy, y);
    b.k
}

#[test]
fn softmax_rows() {
    for (m, nn) in [
        (1, 1),
        (5, 7),
        (13, 300),
        (3, 257),
        (0, 4),
        (64, 16),
        (301, 4),
        (29, 13),
    ] {
        let k = softmax(n(m), n(nn), n(nn));
        let s = [
            schedule(&k, &[(0, 4)], &[], true, None),
            schedule(&k, &[(0, 1)], &[], false, None),
            schedule(&k, &[], &[], true, None),
        ];
        let t = tensors(&k, 1);
        check(&k, &s, &[], t, 1e-5);
    }
}

#[test]
fn symbolic_rows() {
    let k = softmax(Dim::sym("m"), Dim::sym("n"), Dim::sym("n"));
    let s = [
        schedule(&k, &[(0, 3)], &[], true, None),
        schedule(&k, &[(0, 2)], &[], false, None),
    ];
    for (m, nn) in [(4i64, 9i64), (1, 1), (7, 40)] {
        let mut rng = Rng(77);
        let t = vec![
            random(F, (m * nn) as usize, 1, &mut rng),
            Tensor::zeros(F, &[(m * nn) as usize]).expect("zeros"),
        ];
        check(&k, &s, &[("m", m), ("n", nn)], t, 1e-5);
    }
}

#[test]
fn layer_norm() {
    for (m, nn) in [(6, 40), (3, 768), (1, 1), (9, 13)] {
        let mut b = B::new("layernorm", Family::Row, &[("m", n(m)), ("n", n(nn))]);
        let ox = b.read(F, m * nn, at(&[(0, nn), (1, 1)]));
        let og = b.read(F, nn, at(&[(1, 1)]));
        let ob = b.read(F, nn, at(&[(1, 1)]));
        let oy = b.write(F, m * nn, at(&[(0, nn), (1, 1)]));
        let x = b.load(ox, &[0, 1]);
        let s = b.fill(F, &[0], 0.0);
        let fold = |m: Monoid, state: u16, args: Vec<u16>| Stmt::Fold {
            monoid: m,
            state: vec![state],
            args,
            over: vec![1],
            rescale: None,
        };
        b.k.body.push(fold(Monoid::sum(F, F), s, vec![x]));
        let mean = b.map(
            F,
            &[0],
            &[s],
            expr(|e| {
                let s = e.input(0, F);
                let c = e.constant(nn as f64, F);
                e.div(s, c)
            }),
        );
        let q = b.fill(F, &[0], 0.0);
        let mut dev = Monoid::sum(F, F);
        dev.lift = expr(|e| {
            let (x, m) = (e.input(0, F), e.input(1, F));
            let d = e.sub(x, m);
            e.mul(d, d)
        });
        b.k.body.push(fold(dev, q, vec![x, mean]));
        let (g, c) = (b.load(og, &[1]), b.load(ob, &[1]));
        let y = b.map(
            F,
            &[0, 1],
            &[x, mean, q, g, c],
            expr(|e| {
                let [x, m, q, g, c] = [0, 1, 2, 3, 4].map(|i| e.input(i, F));
                let count = e.constant(nn as f64, F);
                let v = e.div(q, count);
                let eps = e.constant(1e-5, F);
                let v = e.add(v, eps);
                let r = e.unary(Unary::Rsqrt, v);
                let d = e.sub(x, m);
                let d = e.mul(d, r);
                let d = e.mul(d, g);
                e.add(d, c)
            }),
        );
        b.store(oy, y);
        let s = [
            schedule(&b.k, &[(0, 4)], &[], true, None),
            schedule(&b.k, &[(0, 1)], &[], false, None),
        ];
        let t = tensors(&b.k, 1);
        check(&b.k, &s, &[], t, 1e-4);
    }
}

/// y[...] = x[...] with other strides.
fn mover(ext: &[i64], xs: &[i64], ys: &[i64], d: DType) -> Kernel {
    let names = ["a", "b", "c", "d"];
    let axes: Vec<(&str, Dim)> = ext.iter().zip(names).map(|(&e, s)| (s, n(e))).collect();
    let mut b = B::new("move", Family::Move, &axes);
    let all: i64 = ext.iter().product();
    let ids: Vec<u16> = (0..ext.len() as u16).collect();
    let term = |s: &[i64]| {
        at(&s
            .iter()
            .enumerate()
            .map(|(i, &s)| (i as u16, s))
            .collect::<Vec<_>>())
    };
    let ox = b.read(d, all, term(xs));
    let oy = b.write(d, all, term(ys));
    let t = b.load(ox, &ids);
    b.store(oy, t);
    b.k
}

#[test]
fn moves() {
    for d in [DType::F32, DType::I64, DType::U8, DType::F16] {
        for k in [
            mover(&[37, 21], &[21, 1], &[1, 37], d),
            mover(&[3, 5, 7, 11], &[385, 77, 11, 1], &[385, 1, 55, 5], d),
            mover(&[4, 6, 5], &[30, 5, 1], &[5, 20, 1], d),
            mover(&[1, 9], &[9, 1], &[9, 1], d),
            mover(&[5, 6, 2], &[6, 1, 0], &[12, 2, 1], d),
            mover(&[5, 6, 3], &[1, 5, 0], &[18, 3, 1], d),
            mover(&[40, 4], &[1, 40], &[4, 1], d),
            mover(&[0, 9], &[9, 1], &[9, 1], d),
        ] {
            let s = [
                schedule(&k, &[(0, 16)], &[], true, None),
                schedule(&k, &[(1, 3)], &[], false, None),
                schedule(&k, &[], &[], true, None),
            ];
            let t = tensors(&k, 200);
            check(&k, &s, &[], t, 0.0);
        }
    }
}

#[test]
fn pads_and_pieces() {
    // A piece of a concatenation: rows 3.. of the output, and a padded rim of the given value.
    let mut b = B::new("pad", Family::Move, &[("h", n(9)), ("w", n(12))]);
    let mut x = at(&[(0, 8), (1, 1)]);
    x.offset = n(-2 * 8 - 3);
    x.bounds = vec![bound(&[(0, 1)], -2, 5), bound(&[(1, 1)], -3, 8)];
    x.outside = 2.5;
    let ox = b.read(F, 40, x);
    let mut y = at(&[(0, 12), (1, 1)]);
    y.offset = n(36);
    y.bounds = vec![bound(&[(0, 1), (1, 0)], 0, 8)];
    let oy = b.write(F, 12 * 12, y);
    let t = b.load(ox, &[0, 1]);
    b.store(oy, t);
    let s = [
        schedule(&b.k, &[(0, 2)], &[], true, None),
        schedule(&b.k, &[(0, 4), (1, 5)], &[], false, None),
        schedule(&b.k, &[], &[], true, None),
    ];
    let t = tensors(&b.k, 1);
    check(&b.k, &s, &[], t, 0.0);
    // A backwards slice, and a weight packed into panels with zeroed columns.
    let mut b = B::new("pack", Family::Move, &[("n", n(48)), ("k", n(10))]);
    let mut w = at(&[(0, 10), (1, -1)]);
    w.offset = n(9);
    w.bounds = vec![bound(&[(0, 1)], 0, 37)];
    let ow = b.read(F, 370, w);
    let op = b.write(
        F,
        480,
        Access::strided(
            n(0),
            vec![blocked(0, 3, 160, 16, 1), Term::flat(1, n(10), n(16))],
        ),
    );
    let t = b.load(ow, &[0, 1]);
    b.store(op, t);
    let s = [
        schedule(&b.k, &[(0, 16)], &[], true, None),
        schedule(&b.k, &[(0, 48)], &[], true, None),
        schedule(&b.k, &[(0, 20), (1, 3)], &[], false, None),
    ];
    let t = tensors(&b.k, 1);
    check(&b.k, &s, &[], t, 0.0);
}

#[test]
fn pools() {
    for (h, c, r, stride, pad) in [(9, 19, 3, 2, 1), (8, 4, 2, 2, 0)] {
        let o = (h + 2 * pad - r) / stride + 1;
        for (last, monoid, start) in [
            (true, Monoid::max(F, F), f64::NEG_INFINITY),
            (false, Monoid::sum(F, F), 0.0),
        ] {
            let whole = [("oh", n(o)), ("ow", n(o)), ("r", n(r)), ("s", n(r))];
            let (y0, x0, r0, s0, c0) = if last {
                (0u16, 1u16, 2u16, 3u16, 4u16)
            } else {
                (1, 2, 3, 4, 0)
            };
            let mut axes = whole.to_vec();
            axes.insert(c0 as usize, ("c", n(c)));
            let mut b = B::new("pool", Family::Pool, &axes);
            let (px, ch) = if last { (c, 1) } else { (1, h * h) };
            let mut x = at(&[
                (y0, h * stride * px),
                (x0, stride * px),
                (c0, ch),
                (r0, h * px),
                (s0, px),
            ]);
            x.offset = n(-pad * h * px - pad * px);
            x.bounds = vec![
                bound(&[(y0, stride), (r0, 1)], -pad, h),
                bound(&[(x0, stride), (s0, 1)], -pad, h),
            ];
            x.outside = start;
            let ox = b.read(F, h * h * c, x);
            let y = if last {
                at(&[(y0, o * c), (x0, c), (c0, 1)])
            } else {
                at(&[(y0, o), (x0, 1), (c0, o * o)])
            };
            let oy = b.write(F, o * o * c, y);
            let order: &[u16] = if last { &[0, 1, 4] } else { &[0, 1, 2] };
            let st = b.fill(F, order, start);
            let x = b.load(ox, &[0, 1, 2, 3, 4]);
            b.k.body.push(Stmt::Fold {
                monoid,
                state: vec![st],
                args: vec![x],
                over: vec![r0, s0],
                rescale: None,
            });
            b.store(oy, st);
            let s = [
                schedule(&b.k, &[(y0, 2)], &[(r0, 1), (s0, 1)], true, None),
                schedule(&b.k, &[(y0, 1), (c0, 3)], &[], true, None),
                schedule(&b.k, &[(x0, 3)], &[(r0, 1)], false, None),
            ];
            let t = tensors(&b.k, 1);
            check(&b.k, &s, &[], t, 1e-5);
        }
    }
}

#[test]
fn reductions() {
    // Every standard monoid, reduced along the inner axis, the outer one, both.
    let i64s = DType::I64;
    let all: Vec<(Monoid, DType)> = vec![
        (Monoid::sum(F, F), F),
        (Monoid::product(F, F), F),
        (Monoid::min(F, F), F),
        (Monoid::sum_square(F, F), F),
        (Monoid::l1(F, F), F),
        (Monoid::log_sum_exp(F, F), F),
        (Monoid::welford(F, F, 0), F),
        (Monoid::argmax(F, 0, false), F),
        (Monoid::argmin(F, 0, true), F),
        (Monoid::argmax(F, 0, true), F),
        (Monoid::first(1, F, 0, false), F),
        (Monoid::first(3, F, 0, true), F),
        (Monoid::sum(i64s, i64s), i64s),
        (Monoid::argmax(i64s, 0, false), i64s),
        (Monoid::any(DType::Bool), DType::Bool),
        (Monoid::max(DType::U8, DType::U8), DType::U8),
        (Monoid::sum(DType::F16, F), DType::F16),
    ];
    for (m, d) in all {
        for (rows, cols) in [(5, 7), (3, 600), (1, 1), (17, 33), (150, 5)] {
            for over in [vec![1u16], vec![0], vec![0, 1]] {
                let mut b = B::new(
                    &format!("{} over {over:?}", m.name),
                    Family::Row,
                    &[("m", n(rows)), ("n", n(cols))],
                );
                let kept: Vec<u16> = [0, 1].into_iter().filter(|a| !over.contains(a)).collect();
                let ox = b.read(d, rows * cols, at(&[(0, cols), (1, 1)]));
                let terms: Vec<(u16, i64)> = kept.iter().map(|&a| (a, 1)).collect();
                let types = m.identity.output_types().expect("types");
                let mut states = Vec::new();
                for (i, &t) in types.iter().enumerate() {
                    let mut e = m.identity.clone();
                    e.outputs = vec![e.outputs[i]];
                    states.push(b.map(t, &kept, &[], e));
                }
                let x = b.load(ox, &[0, 1]);
                b.k.body.push(Stmt::Fold {
                    monoid: m.clone(),
                    state: states.clone(),
                    args: vec![x],
                    over: over.clone(),
                    rescale: None,
                });
                let count = kept.iter().map(|&a| [rows, cols][a as usize]).product();
                for (i, r) in m
                    .finish
                    .output_types()
                    .expect("types")
                    .into_iter()
                    .enumerate()
                {
                    let oy = b.write(r, count, at(&terms));
                    let mut e = m.finish.clone();
                    e.outputs = vec![e.outputs[i]];
                    let slots = states.clone();
                    let y = b.map(r, &kept, &slots, e);
                    b.store(oy, y);
                }
                let mut s = vec![schedule(&b.k, &[], &[], true, None)];
                if let Some(&a) = kept.first() {
                    s.push(schedule(&b.k, &[(a, 4)], &[], false, None));
                    s.push(schedule(&b.k, &[(a, 3)], &[(over[0], 5)], true, None));
                }
                let t = tensors(&b.k, 3);
                check(&b.k, &s, &[], t, 1e-3);
            }
        }
    }
}

#[test]
fn products_of_every_type() {
    for (a, w, acc) in [
        (DType::I8, DType::I8, DType::I32),
        (DType::U8, DType::I8, DType::I32),
        (DType::F16, DType::F16, F),
        (DType::BF16, F, F),
        (DType::F64, DType::F64, DType::F64),
        (DType::I64, DType::I64, DType::I64),
    ] {
        let (batch, m, nn, k) = (3, 5, 18, 9);
        let axes = [("b", n(batch)), ("m", n(m)), ("k", n(k)), ("n", n(nn))];
        let mut b = B::new("matmul", Family::Contract, &axes);
        let oa = b.read(a, batch * m * k, at(&[(0, m * k), (1, k), (2, 1)]));
        let ob = b.read(w, batch * nn * k, at(&[(0, nn * k), (3, 1), (2, nn)]));
        let oy = b.write(acc, batch * m * nn, at(&[(0, m * nn), (1, nn), (3, 1)]));
        let y = b.fill(acc, &[0, 1, 3], 0.0);
        let x = b.load(oa, &[0, 1, 2]);
        let v = b.load(ob, &[0, 2, 3]);
        b.contract(y, x, v, &[2]);
        b.store(oy, y);
        let s = [
            schedule(&b.k, &[(0, 1), (1, 2)], &[(2, 4)], true, None),
            schedule(&b.k, &[(0, 2)], &[], false, None),
        ];
        let t = tensors(&b.k, 100);
        check(&b.k, &s, &[], t, 1e-4);
    }
}

#[test]
fn maps_of_every_type() {
    let types = [
        F,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I64,
        DType::I32,
        DType::U8,
        DType::I8,
        DType::Bool,
    ];
    for d in types {
        // Unaries and binaries that the type has, with broadcast arguments on either side.
        let mut programs = vec![];
        for g in [
            Binary::Add,
            Binary::Sub,
            Binary::Mul,
            Binary::Div,
            Binary::Min,
            Binary::Max,
            Binary::Pow,
            Binary::Mod,
        ] {
            for swap in [false, true] {
                programs.push(expr(|e| {
                    let (x, y) = (e.input(0, d), e.input(1, d));
                    if swap {
                        e.binary(g, y, x)
                    } else {
                        e.binary(g, x, y)
                    }
                }));
            }
        }
        if d.is_float() {
            for g in [
                Unary::Exp,
                Unary::Tanh,
                Unary::Erf,
                Unary::Sigmoid,
                Unary::Floor,
                Unary::Sign,
                Unary::Atan,
                Unary::Sqrt,
            ] {
                programs.push(expr(|e| {
                    let (x, y) = (e.input(0, d), e.input(1, d));
                    let s = e.mul(x, y);
                    e.unary(g, s)
                }));
            }
            programs.push(expr(|e| {
                let (x, y) = (e.input(0, d), e.input(1, d));
                let i = e.index(1);
                let i = e.cast(i, d);
                let s = e.mul(x, y);
                let s = e.add(s, i);
                functions::gelu_tanh(e, s, d)
            }));
            programs.push(expr(|e| {
                let (x, y) = (e.input(0, d), e.input(1, d));
                let h = functions::hard_swish(e, x, d);
                let s = functions::silu(e, y);
                e.add(h, s)
            }));
        }
        for to in types {
            programs.push(expr(|e| {
                let (x, y) = (e.input(0, d), e.input(1, d));
                let c = e.compare(Compare::Le, x, y);
                let c = e.select(c, x, y);
                let c = e.cast(c, to);
                e.cast(c, d)
            }));
        }
        for (i, p) in programs.into_iter().enumerate() {
            let (r, c) = (5, 70);
            let which = i % 3;
            let mut b = B::new(
                &format!("map {i} of {d}"),
                Family::Map,
                &[("m", n(r)), ("n", n(c))],
            );
            let ox = b.read(d, r * c, at(&[(0, c), (1, 1)]));
            let (axes, access, size): (&[u16], _, _) = match which {
                0 => (&[1], at(&[(1, 1)]), c),
                1 => (&[0], at(&[(0, 1)]), r),
                _ => (&[0, 1], at(&[(0, 1), (1, r)]), r * c),
            };
            let oz = b.read(d, size, access);
            let oy = b.write(d, r * c, at(&[(0, c), (1, 1)]));
            let x = b.load(ox, &[0, 1]);
            let z = b.load(oz, axes);
            let y = b.map(d, &[0, 1], &[x, z], p);
            b.store(oy, y);
            let s = [
                schedule(&b.k, &[(0, 2)], &[], true, None),
                schedule(&b.k, &[(1, 33)], &[], false, None),
            ];
            let t = tensors(&b.k, 5);
            let tolerance = if matches!(d, DType::BF16 | DType::F16) {
                1e-2
            } else {
                1e-5
            };
            check(&b.k, &s, &[], t, tolerance);
        }
    }
}
