//! Contractions, windows, reductions, recurrent layers, attention and control flow.
use super::Gen;
use expr::{Binary, ExprBuilder, Monoid, Unary};
use graph::{
    ContractSpec, ConvSpec, GraphBuilder, Op, PoolKind, PoolSpec, RecurrentKind, RecurrentSpec,
    ResampleMode, ResampleSpec, ValueId, View,
};
use layout::{DType, Dim};

const F: DType = DType::F32;

/// One or a few nodes of a random kind; nothing when the values picked do not suit it.
pub(super) fn step(g: &mut Gen) -> Option<Vec<ValueId>> {
    let one = |v: Option<ValueId>| v.map(|v| vec![v]);
    match g.r.below(13) {
        0 | 1 => one(product(g)),
        2 => one(pairs(g)),
        3 | 4 => one(conv(g)),
        5 => one(pool(g)),
        6 => one(reduce(g)),
        7 => one(softmax(g)),
        8 => one(attention(g)),
        9 => one(scan(g)),
        10 => sort(g),
        11 => {
            if g.r.once_in(2) {
                recurrent(g)
            } else {
                one(resample(g))
            }
        }
        _ => {
            if g.r.once_in(2) {
                one(branch(g))
            } else {
                one(repeat(g))
            }
        }
    }
}

/// Sums over `k` terms are brought back to unit scale.
fn scaled(g: &mut Gen, v: ValueId, terms: i64) -> Option<ValueId> {
    let mut c = 1.0 / (terms.max(1) as f64).sqrt();
    if !g.dtype(v).is_float() {
        c /= 64.0;
    }
    g.map(&[v], |e, a| {
        let (v, c) = (e.cast(a[0], F), e.constant(c, F));
        e.mul(v, c)
    })
}

/// A value of small integers as I16, the way integer products widen their factors: one that was
/// given, since a rounded float may be one off.
fn whole(g: &mut Gen, rank: usize) -> Option<ValueId> {
    let x = g.find(|d, s| matches!(d, DType::U8 | DType::I8) && s.len() >= rank)?;
    g.map(&[x], |e, a| {
        let (v, z) = (e.cast(a[0], DType::I16), e.constant(3.0, DType::I16));
        e.sub(v, z)
    })
}

/// A product with a weight, and perhaps what usually follows it.
fn product(g: &mut Gen) -> Option<ValueId> {
    let x = match g.r.once_in(4) {
        true => whole(g, 2)?,
        false => g.pick_float(1)?,
    };
    let s = g.shape(x);
    let k = s.last()?.known()?;
    let n = g.r.of(&[1usize, 3, 8, 16, 17, 48]);
    let swapped = g.r.once_in(2);
    let w = g.weight(
        factor(g.dtype(x)),
        &if swapped {
            [n, k as usize]
        } else {
            [k as usize, n]
        },
    )?;
    let lead: Vec<u8> = (0..s.len() as u8 - 1).collect();
    let spec = ContractSpec {
        a: [&lead[..], &[100]].concat(),
        b: if swapped {
            vec![101, 100]
        } else {
            vec![100, 101]
        },
        out: [&lead[..], &[101]].concat(),
    };
    let y = g.node(Op::Contract(spec), &[x, w])?;
    let y = scaled(g, y, k)?;
    if g.r.once_in(2) {
        return Some(y);
    }
    let b = g.weight(F, &[n])?;
    let f = g.r.of(&[Unary::Tanh, Unary::Sigmoid, Unary::Erf]);
    g.map(&[y, b], |e, a| {
        let v = e.add(a[0], a[1]);
        let u = e.unary(f, v);
        e.mul(u, v)
    })
}

/// The type of weights beside values of type `x`.
fn factor(x: DType) -> DType {
    if x.is_float() { F } else { x }
}

/// A batched product of two values over a shared dimension.
fn pairs(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick_float(2)?;
    let s = g.shape(x);
    let r = s.len();
    let batch: Vec<u8> = (0..r as u8 - 2).collect();
    let y = g
        .find(|d, t| d == F && t.len() == r && t[..r - 2] == s[..r - 2] && t[r - 1] == s[r - 1])
        .unwrap_or(x);
    let spec = ContractSpec {
        a: [&batch[..], &[50, 52]].concat(),
        b: [&batch[..], &[51, 52]].concat(),
        out: if g.r.once_in(3) {
            [&[51u8][..], &batch[..], &[50]].concat()
        } else {
            [&batch[..], &[50, 51]].concat()
        },
    };
    let v = g.node(Op::Contract(spec), &[x, y])?;
    g.map(&[v], |e, a| e.unary(Unary::Atan, a[0]))
}

/// A value as [batch, channels, spatial..] with a known, non-zero number of channels.
fn image(g: &mut Gen, integers: bool) -> Option<(ValueId, Vec<Dim>, i64)> {
    let x = match integers && g.r.once_in(4) {
        true => whole(g, 3)?,
        false => g.pick_float(3)?,
    };
    let s = g.shape(x);
    let c = s[1].known().filter(|&c| c > 0);
    if let Some(c) = c {
        return (s.len() <= 5).then_some((x, s, c));
    }
    // A channel in front of what is there.
    let mut to = s.clone();
    to.insert(1, Dim::ONE);
    let v = g.view(x, View::Reshape(to.clone()))?;
    (to.len() <= 5).then_some((v, to, 1))
}

fn conv(g: &mut Gen) -> Option<ValueId> {
    let (x, s, c) = image(g, true)?;
    let spatial = s.len() - 2;
    let transposed = g.dtype(x).is_float() && g.r.once_in(5);
    let groups = match g.r.below(5) {
        0 => c,
        1 if c % 2 == 0 => 2,
        2 if c % 2 == 0 => c / 2,
        _ => 1,
    };
    // Small groups of as many outputs as inputs are a case of their own.
    let per = match groups > 1 && g.r.once_in(2) {
        true => c / groups,
        false => g.r.of(&[1i64, 2, 5, 16]),
    };
    let kernel: Vec<i64> = (0..spatial).map(|_| g.r.of(&[1i64, 2, 3])).collect();
    let spec = ConvSpec {
        strides: (0..spatial).map(|_| g.r.of(&[1i64, 1, 2])).collect(),
        dilations: (0..spatial).map(|_| g.r.of(&[1i64, 1, 1, 2])).collect(),
        // A transposed one is not cropped below its input's extent, whatever that is.
        before: kernel
            .iter()
            .map(|k| Dim::Known(if transposed { 0 } else { k - 1 }))
            .collect(),
        after: kernel
            .iter()
            .map(|k| Dim::Known(if transposed { k.min(&2) - 1 } else { k * 2 - 2 }))
            .collect(),
        kernel: kernel.clone(),
        groups,
        transposed,
        outside: 0,
    };
    let mut shape: Vec<usize> = if transposed {
        vec![c as usize, per as usize]
    } else {
        vec![(groups * per) as usize, (c / groups) as usize]
    };
    shape.extend(kernel.iter().map(|&k| k as usize));
    let w = g.weight(factor(g.dtype(x)), &shape)?;
    let y = if transposed {
        let mut out = vec![s[0].clone(), Dim::Known(groups * per)];
        for d in 0..spatial {
            // The usual size: (n - 1) * stride - before - after + dilation * (k - 1) + 1.
            out.push(
                (s[d + 2].clone() - Dim::ONE) * Dim::Known(spec.strides[d])
                    - spec.before[d].clone()
                    - spec.after[d].clone()
                    + Dim::Known(spec.dilations[d] * (kernel[d] - 1) + 1),
            );
        }
        let o = super::origin("conv_transpose");
        let shape = out.into_iter().map(Some).collect();
        g.b.node_with_shapes(Op::Conv(spec), &[x, w], &[("ct", F, shape)], &o)
            .first()
            .copied()?
    } else {
        g.node(Op::Conv(spec), &[x, w])?
    };
    let y = scaled(g, y, c / groups * kernel.iter().product::<i64>())?;
    if g.r.once_in(2) {
        return Some(y);
    }
    let mut shape = vec![(groups * per) as usize];
    shape.extend(vec![1; spatial]);
    let b = g.weight(F, &shape)?;
    g.map(&[y, b], |e, a| {
        let v = e.add(a[0], a[1]);
        let zero = e.constant(0.0, F);
        e.binary(Binary::Max, v, zero)
    })
}

fn pool(g: &mut Gen) -> Option<ValueId> {
    let (x, s, _) = image(g, false)?;
    let spatial = s.len() - 2;
    let kernel: Vec<i64> = (0..spatial).map(|_| g.r.of(&[1i64, 2, 3])).collect();
    let kind = match g.r.below(3) {
        0 => PoolKind::Max,
        1 => PoolKind::Average {
            include_pad: g.r.once_in(2),
        },
        _ => PoolKind::Lp { p: 2 },
    };
    let spec = PoolSpec {
        kind,
        strides: (0..spatial).map(|_| g.r.of(&[1i64, 2])).collect(),
        dilations: vec![1; spatial],
        // A rim on one side only: windows over nothing but padding have no agreed average.
        before: kernel.iter().map(|k| Dim::Known(k - 1)).collect(),
        after: vec![Dim::ZERO; spatial],
        kernel,
    };
    g.node(Op::Pool(spec), &[x])
}

fn reduce(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick();
    let (s, d) = (g.shape(x), g.dtype(x));
    if s.is_empty() || d == DType::Bool {
        return None;
    }
    let mut axes = vec![g.r.below(s.len())];
    if g.r.once_in(3) {
        axes = (0..s.len()).collect();
    }
    let keep = g.r.once_in(2);
    let acc = match d {
        DType::F16 | DType::BF16 => F,
        d => d,
    };
    let monoid = match g.r.below(5) {
        0 | 1 => Monoid::max(d, acc),
        2 if d == F => {
            let count = axes.iter().fold(Dim::ONE, |n, &a| n * s[a].clone());
            Monoid::mean(d, acc, &count)
        }
        3 if d == F => Monoid::l2(d, acc),
        _ if d.is_int() => Monoid::sum(d, acc),
        _ => Monoid::max(d, acc),
    };
    g.node(Op::Reduce { monoid, axes, keep }, &[x])
}

fn along(g: &mut Gen, v: ValueId, monoid: Monoid) -> Option<ValueId> {
    let last = g.shape(v).len() - 1;
    let keep = true;
    g.node(
        Op::Reduce {
            monoid,
            axes: vec![last],
            keep,
        },
        &[v],
    )
}

fn softmax_of(g: &mut Gen, x: ValueId) -> Option<ValueId> {
    let m = along(g, x, Monoid::max(F, F))?;
    let e = g.map(&[x, m], |e, a| {
        let d = e.sub(a[0], a[1]);
        e.unary(Unary::Exp, d)
    })?;
    let t = along(g, e, Monoid::sum(F, F))?;
    g.map(&[e, t], |e, a| e.div(a[0], a[1]))
}

/// Softmax or a norm of rows.
fn softmax(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick_float(1)?;
    let n = g.shape(x).last()?.clone();
    if g.r.once_in(2) {
        return softmax_of(g, x);
    }
    let m = along(g, x, Monoid::mean(F, F, &n))?;
    let c = g.map(&[x, m], |e, a| e.sub(a[0], a[1]))?;
    let q = g.map(&[c], |e, a| e.mul(a[0], a[0]))?;
    let v = along(g, q, Monoid::mean(F, F, &n))?;
    g.map(&[c, v], |e, a| {
        // A large epsilon: rows of one element have no variance at all.
        let eps = e.constant(0.1, F);
        let v = e.add(a[1], eps);
        let r = e.unary(Unary::Rsqrt, v);
        e.mul(a[0], r)
    })
}

fn attention(g: &mut Gen) -> Option<ValueId> {
    let q = g.pick_float(3)?;
    let s = g.shape(q);
    let r = s.len();
    let batch: Vec<u8> = (0..r as u8 - 2).collect();
    let k = g.map(&[q], |e, a| e.unary(Unary::Sin, a[0]))?;
    let v = g.map(&[q], |e, a| e.unary(Unary::Cos, a[0]))?;
    let spec = ContractSpec {
        a: [&batch[..], &[50, 52]].concat(),
        b: [&batch[..], &[51, 52]].concat(),
        out: [&batch[..], &[50, 51]].concat(),
    };
    let mut p = g.node(Op::Contract(spec), &[q, k])?;
    p = g.map(&[p], |e, a| {
        let c = e.constant(0.3, F);
        e.mul(a[0], c)
    })?;
    if g.r.once_in(2) {
        let (row, col) = (r as u32 - 2, r as u32 - 1);
        p = g.map(&[p], |e, a| {
            let (i, j) = (e.index(row), e.index(col));
            let seen = e.compare(expr::Compare::Le, j, i);
            let low = e.constant(-1e30, F);
            e.select(seen, a[0], low)
        })?;
    }
    let p = softmax_of(g, p)?;
    let spec = ContractSpec {
        a: [&batch[..], &[50, 51]].concat(),
        b: [&batch[..], &[51, 52]].concat(),
        out: [&batch[..], &[50, 52]].concat(),
    };
    g.node(Op::Contract(spec), &[p, v])
}

fn scan(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick();
    let (s, d) = (g.shape(x), g.dtype(x));
    if s.is_empty() || !matches!(d, DType::F32 | DType::I64 | DType::I32) {
        return None;
    }
    let (axis, exclusive, reverse) = (g.r.below(s.len()), g.r.once_in(2), g.r.once_in(2));
    let monoid = Monoid::sum(d, d);
    let v = g.node(
        Op::Scan {
            monoid,
            axis,
            exclusive,
            reverse,
        },
        &[x],
    )?;
    if d == F {
        return g.map(&[v], |e, a| e.unary(Unary::Atan, a[0]));
    }
    Some(v)
}

fn sort(g: &mut Gen) -> Option<Vec<ValueId>> {
    // Only integers: a rounding may not change an order.
    let x = g.find(|d, t| d == DType::I64 && !t.is_empty())?;
    let s = g.shape(x);
    let axis = g.r.below(s.len());
    let k = match s[axis].known() {
        Some(n) if n > 0 => Dim::Known(1 + g.r.below(n as usize) as i64),
        _ => s[axis].clone(),
    };
    let descending = g.r.once_in(2);
    g.nodes(
        Op::Sort {
            axis,
            k,
            descending,
        },
        &[x],
        2,
    )
}

fn recurrent(g: &mut Gen) -> Option<Vec<ValueId>> {
    let x = g.find(|d, t| d == F && t.len() == 3 && t[2].known().is_some_and(|n| n > 0))?;
    let width = g.shape(x)[2].known()? as usize;
    let hidden = g.r.of(&[1usize, 4, 9]);
    let (kind, gates) = g.r.of(&[
        (RecurrentKind::Lstm, 4),
        (RecurrentKind::Gru, 3),
        (RecurrentKind::Rnn, 1),
    ]);
    let direction = g.r.of(&["forward", "reverse", "bidirectional"]);
    let ways = if direction == "bidirectional" { 2 } else { 1 };
    let names: &[&str] = match kind {
        RecurrentKind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        RecurrentKind::Gru => &["Sigmoid", "Tanh"],
        RecurrentKind::Rnn => &["Tanh"],
    };
    let w = g.weight(F, &[ways, gates * hidden, width])?;
    let r = g.weight(F, &[ways, gates * hidden, hidden])?;
    let b = g.weight(F, &[ways, 2 * gates * hidden])?;
    let spec = RecurrentSpec {
        kind,
        hidden: hidden as i64,
        direction: direction.into(),
        batch_first: false,
        present: vec![true, true, true, true, false, false, false, false],
        activations: (0..ways)
            .flat_map(|_| names)
            .map(|n| n.to_string())
            .collect(),
        alphas: vec![],
        betas: vec![],
        clip: None,
        linear_before_reset: g.r.once_in(2),
        input_forget: false,
    };
    let outputs = if kind == RecurrentKind::Lstm { 3 } else { 2 };
    g.nodes(Op::Recurrent(spec), &[x, w, r, b], outputs)
}

fn resample(g: &mut Gen) -> Option<ValueId> {
    let (x, s, _) = image(g, false)?;
    let spatial = s.len() - 2;
    let factors: Vec<i64> = (0..spatial).map(|_| g.r.of(&[1i64, 2, 3])).collect();
    let mut scales = vec![1.0, 1.0];
    let mut shape = vec![Some(s[0].clone()), Some(s[1].clone())];
    for (d, f) in factors.iter().enumerate() {
        scales.push(*f as f64);
        shape.push(Some(s[d + 2].clone() * Dim::Known(*f)));
    }
    let linear = g.r.once_in(2);
    let spec = ResampleSpec {
        mode: if linear {
            ResampleMode::Linear
        } else {
            ResampleMode::Nearest {
                rounding: "floor".into(),
            }
        },
        coordinates: if linear {
            g.r.of(&["half_pixel", "align_corners", "asymmetric"])
        } else {
            "asymmetric"
        }
        .into(),
        scales,
        antialias: false,
        exclude_outside: false,
    };
    let o = super::origin("resample");
    g.b.node_with_shapes(Op::Resample(spec), &[x], &[("resampled", F, shape)], &o)
        .first()
        .copied()
}

/// A graph of two inputs alike that gives a value of their shape.
fn body(g: &mut Gen, s: &[Dim], f: Unary) -> Option<(GraphBuilder, ValueId)> {
    let mut b = GraphBuilder::new("body", g.b.graph().weights.clone());
    let x = b.input("x", F, s.to_vec());
    let y = b.input("y", F, s.to_vec());
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, F), e.input(1, F));
    let t = e.add(p, q);
    let t = e.unary(f, t);
    let v = b
        .node(
            Op::Map(e.finish(&[t])),
            &[x, y],
            &["z"],
            &super::origin("body"),
        )
        .ok()?[0];
    Some((b, v))
}

fn condition(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick_float(1)?;
    let all: Vec<usize> = (0..g.shape(x).len()).collect();
    let top = g.node(
        Op::Reduce {
            monoid: Monoid::max(F, F),
            axes: all,
            keep: false,
        },
        &[x],
    )?;
    g.map(&[top], |e, a| {
        // Values lie on a grid of thousandths or come from smooth functions: this is no tie.
        let c = e.constant(0.430_217_3, F);
        e.compare(expr::Compare::Gt, a[0], c)
    })
}

fn branch(g: &mut Gen) -> Option<ValueId> {
    let c = condition(g)?;
    let x = g.pick_float(1)?;
    let y = g.map(&[x], |e, a| e.unary(Unary::Cos, a[0]))?;
    let s = g.shape(x);
    let (a, va) = body(g, &s, Unary::Tanh)?;
    let (b, vb) = body(g, &s, Unary::Sin)?;
    let op = Op::If {
        then_branch: Box::new(a.finish(&[va])),
        else_branch: Box::new(b.finish(&[vb])),
    };
    g.node(op, &[c, x, y])
}

fn repeat(g: &mut Gen) -> Option<ValueId> {
    let x = g.pick_float(1)?;
    let y = g.map(&[x], |e, a| e.unary(Unary::Sin, a[0]))?;
    let s = g.shape(x);
    let mut b = GraphBuilder::new("body", g.b.graph().weights.clone());
    b.input("i", DType::I64, vec![]);
    let on = b.input("on", DType::Bool, vec![]);
    let p = b.input("p", F, s.clone());
    let q = b.input("q", F, s);
    let mut e = ExprBuilder::new();
    let (u, w) = (e.input(0, F), e.input(1, F));
    let t = e.add(u, w);
    let t = e.unary(Unary::Atan, t);
    let next = b
        .node(
            Op::Map(e.finish(&[t])),
            &[p, q],
            &["next"],
            &super::origin("body"),
        )
        .ok()?[0];
    let times = g.r.below(4) as i64;
    let trip =
        g.b.constant("trip", tensor::Tensor::from_i64(&[], &[times]).ok()?)
            .ok()?;
    let always = g.weight_true()?;
    let op = Op::Loop {
        body: Box::new(b.finish(&[on, next])),
        carried: 1,
        has_trip: true,
        has_cond: true,
    };
    g.node(op, &[trip, always, x, y])
}
