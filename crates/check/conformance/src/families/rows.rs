//! Rows, reductions, pools.
use super::Case;
use crate::Rng;
use crate::build::{B, at, bound, expr, n};
use expr::{Expr, Monoid, Unary};
use kernel::{Access, Family, Stmt, Term};
use layout::{DType, Dim};

const F: DType = DType::F32;

/// Rows and columns: many of either or of neither.
fn sizes(rng: &mut Rng) -> (i64, i64) {
    match rng.below(3) {
        0 => (rng.extent(40), rng.some(67)),
        1 => (rng.extent(16), rng.some(67) * rng.times(5)),
        _ => (rng.extent(40) * rng.times(8), rng.some(16)),
    }
}

/// Mean and variance of rows, one after the other, then scaled and shifted.
pub(super) fn layer_norm(rng: &mut Rng) -> Case {
    let (m, nn) = sizes(rng);
    let axes = [("m", n(m)), ("n", n(nn))];
    let mut b = B::new("layernorm", Family::Row, &axes);
    let ox = b.read(F, m * nn, at(&[(0, nn), (1, 1)]));
    let x = b.load(ox, &[0, 1]);
    let sum = b.fill(F, &[0], 0.0);
    b.fold(Monoid::sum(F, F), sum, x, &[1], None);
    let mean = expr(|e| {
        let (s, c) = (e.input(0, F), e.constant(nn as f64, F));
        e.div(s, c)
    });
    let mean = b.map(F, &[0], &[sum], mean);
    let squares = b.fill(F, &[0], 0.0);
    let mut deviation = Monoid::sum(F, F);
    deviation.lift = expr(|e| {
        let (x, m) = (e.input(0, F), e.input(1, F));
        let d = e.sub(x, m);
        e.mul(d, d)
    });
    b.k.body.push(Stmt::Fold {
        monoid: deviation,
        state: vec![squares],
        args: vec![x, mean],
        over: vec![1],
        rescale: None,
    });
    let (og, oc) = (b.read(F, nn, at(&[(1, 1)])), b.read(F, nn, at(&[(1, 1)])));
    let (g, c) = (b.load(og, &[1]), b.load(oc, &[1]));
    let y = b.map(F, &[0, 1], &[x, mean, squares, g, c], normalised(nn));
    let oy = b.write(F, m * nn, at(&[(0, nn), (1, 1)]));
    b.store(oy, y);
    Case::new(b.0.k, 1e-4)
}

/// `(x - mean) / sqrt(squares / count + 1e-5) * g + c`.
fn normalised(count: i64) -> Expr {
    expr(|e| {
        let [x, m, q, g, c] = [0, 1, 2, 3, 4].map(|i| e.input(i, F));
        let (count, least) = (e.constant(count as f64, F), e.constant(1e-5, F));
        let v = e.div(q, count);
        let v = e.add(v, least);
        let r = e.unary(Unary::Rsqrt, v);
        let d = e.sub(x, m);
        let d = e.mul(d, r);
        let d = e.mul(d, g);
        e.add(d, c)
    })
}

/// Softmax over rows, of known or symbolic sizes.
pub(super) fn softmax(rng: &mut Rng) -> Case {
    let (m, nn) = sizes(rng);
    let symbolic = rng.once_in(2);
    let (rows, cols) = match symbolic {
        true => (Dim::sym("m"), Dim::sym("n")),
        false => (n(m), n(nn)),
    };
    let mut b = B::new(
        "softmax",
        Family::Row,
        &[("m", rows.clone()), ("n", cols.clone())],
    );
    let access = Access::strided(
        n(0),
        vec![
            Term::flat(0, n(1 << 30), cols.clone()),
            Term::flat(1, n(1 << 30), n(1)),
        ],
    );
    let all = rows * cols;
    let ox = b.read_dim(F, all.clone(), access.clone());
    let oy = b.write_dim(F, all, access);
    let x = b.load(ox, &[0, 1]);
    let m_tile = b.fill(F, &[0], f64::NEG_INFINITY);
    b.fold(Monoid::max(F, F), m_tile, x, &[1], None);
    let e = b.map(
        F,
        &[0, 1],
        &[x, m_tile],
        expr(|e| {
            let (x, m) = (e.input(0, F), e.input(1, F));
            let d = e.sub(x, m);
            e.unary(Unary::Exp, d)
        }),
    );
    let s = b.fill(F, &[0], 0.0);
    b.fold(Monoid::sum(F, F), s, e, &[1], None);
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
    let mut case = Case::new(b.0.k, 1e-5);
    if symbolic {
        case.symbols = vec![("m".into(), m), ("n".into(), nn)];
    }
    case
}

/// A standard reduction, along the inner axis, the outer one, or both.
pub(super) fn reduction(rng: &mut Rng) -> Case {
    let i64s = DType::I64;
    let which = rng.below(17);
    let (m, d) = match which {
        0 => (Monoid::sum(F, F), F),
        1 => (Monoid::product(F, F), F),
        2 => (Monoid::min(F, F), F),
        3 => (Monoid::sum_square(F, F), F),
        4 => (Monoid::l1(F, F), F),
        5 => (Monoid::log_sum_exp(F, F), F),
        6 => (Monoid::welford(F, F, 0), F),
        7 => (Monoid::argmax(F, 0, false), F),
        8 => (Monoid::argmin(F, 0, true), F),
        9 => (Monoid::sum(i64s, i64s), i64s),
        10 => (Monoid::argmax(i64s, 0, false), i64s),
        11 => (Monoid::any(DType::Bool), DType::Bool),
        12 => (Monoid::max(DType::U8, DType::U8), DType::U8),
        13 => (Monoid::argmax(F, 0, true), F),
        14 => (Monoid::first(1, F, 0, false), F),
        15 => (Monoid::first(3, F, 0, true), F),
        _ => (Monoid::sum(DType::F16, F), DType::F16),
    };
    let (rows, cols) = sizes(rng);
    let rows = rows.max(1);
    let over = match rng.below(3) {
        0 => vec![1u16],
        1 => vec![0],
        _ => vec![0, 1],
    };
    let mut b = B::new(
        &format!("{} over {over:?}", m.name),
        Family::Row,
        &[("m", n(rows)), ("n", n(cols))],
    );
    let kept: Vec<u16> = [0, 1].into_iter().filter(|a| !over.contains(a)).collect();
    let ox = b.read(d, rows * cols, at(&[(0, cols), (1, 1)]));
    let terms: Vec<(u16, i64)> = kept.iter().map(|&a| (a, 1)).collect();
    let mut states = vec![];
    for (i, t) in m
        .identity
        .output_types()
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
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
        .unwrap_or_default()
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
    let mut case = Case::new(b.0.k, 1e-3);
    case.limits.top = 3;
    case
}

/// A pool, channels last or first.
pub(super) fn pool(rng: &mut Rng) -> Case {
    let (r, stride, pad) = rng.of(&[(3, 2, 1), (2, 2, 0), (3, 1, 1)]);
    let h = rng.some(9).max(r);
    let c = rng.some(20);
    let o = (h + 2 * pad - r) / stride + 1;
    let last = rng.once_in(2);
    let (monoid, start) = match rng.once_in(2) {
        true => (Monoid::max(F, F), f64::NEG_INFINITY),
        false => (Monoid::sum(F, F), 0.0),
    };
    let (y0, x0, r0, s0, c0) = match last {
        true => (0u16, 1u16, 2u16, 3u16, 4u16),
        false => (1, 2, 3, 4, 0),
    };
    let mut axes = vec![("oh", n(o)), ("ow", n(o)), ("r", n(r)), ("s", n(r))];
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
    let y = match last {
        true => at(&[(y0, o * c), (x0, c), (c0, 1)]),
        false => at(&[(y0, o), (x0, 1), (c0, o * o)]),
    };
    let oy = b.write(F, o * o * c, y);
    let order: &[u16] = if last { &[0, 1, 4] } else { &[0, 1, 2] };
    let st = b.fill(F, order, start);
    let x = b.load(ox, &[0, 1, 2, 3, 4]);
    b.fold(monoid, st, x, &[r0, s0], None);
    b.store(oy, st);
    Case::new(b.0.k, 1e-5)
}
