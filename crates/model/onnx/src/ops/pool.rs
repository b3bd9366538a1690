//! MaxPool, AveragePool, LpPool.
use super::conv::{Window, window};
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, ExprBuilder, Unary};
use graph::{Op, PadMode, PoolKind, PoolSpec, ValueId, View};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("MaxPool", lower), op("AveragePool", lower), op("LpPool", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    if let Some(y) = pooled(c, n, n.name(0), x, n.op)? {
        c.set(n, 0, y);
    }
    Ok(())
}

/// The pool of kind `op` that the node's attributes state, of another input.
pub(crate) fn of<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId, op: &str) -> Lowered<ValueId> {
    pooled(c, n, name, x, op)?.ok_or_else(|| "this pool has no indices".into())
}

/// Channels last to channels second, or back.
pub(crate) fn turned<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, back: bool) -> Lowered<ValueId> {
    let r = c.rank(v);
    if r < 3 {
        return Err(format!("its {what} has rank {r}, at least 3 is needed").into());
    }
    let perm = match back {
        false => [0, r - 1].into_iter().chain(1..r - 1).collect(),
        true => std::iter::once(0).chain(2..r).chain([1]).collect(),
    };
    c.permute(n, n.tmp(&format!("{what}.turned")), v, perm)
}

/// Most elements of a window that are compared one after the other in one kernel, which reads each by itself.
const TAPS: i64 = 27;

/// The greatest of each window and its rank in the whole input, the first of equal ones, a NaN before any number:
/// the window's elements are strided parts of the padded input, compared in turn.
fn picked<'m>(
    c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, w: &Window, out: &[Dim], column_major: bool,
) -> Lowered<Vec<ValueId>> {
    let (d, s) = (c.dtype(x), c.shape(x));
    let r = w.kernel.len();
    let lowest = |e: &mut ExprBuilder| match d {
        _ if d.is_float() => e.constant(f64::NEG_INFINITY, d),
        _ if d.is_signed_int() => e.int(-1i64 << (d.bits() - 1), d),
        _ => e.int(0, d),
    };
    let mut padded = x;
    if w.before.iter().chain(&w.after).any(|p| !p.is_zero()) {
        let rim = |by: &[Dim]| [&[Dim::ZERO, Dim::ZERO], by].concat();
        let outside = c.fill(n, n.tmp("outside"), &[], d, lowest)?;
        let op = Op::Pad { before: rim(&w.before), after: rim(&w.after), mode: PadMode::Constant };
        padded = c.add1(n, op, &[x, outside], n.tmp("padded"))?;
    }
    // Taps in row-major order, each as its position in every dimension.
    let mut taps: Vec<Vec<i64>> = vec![vec![]];
    for &k in &w.kernel {
        taps = taps.into_iter().flat_map(|t| (0..k).map(move |j| [&t[..], &[j]].concat())).collect();
    }
    let mut inputs = Vec::new();
    for (i, tap) in taps.iter().enumerate() {
        let at = tap.iter().zip(&w.dilations).map(|(t, by)| Dim::Known(t * by));
        let starts = [Dim::ZERO, Dim::ZERO].into_iter().chain(at).collect();
        let steps = [1, 1].into_iter().chain(w.strides.iter().copied()).collect();
        let part = View::Slice { starts, steps, extents: out.to_vec() };
        inputs.push(c.add1(n, Op::View(part), &[padded], n.tmp(&format!("tap{i}")))?);
    }
    let i64s = DType::I64;
    let mut e = ExprBuilder::new();
    // What a step along each spatial dimension adds to a rank.
    let by: Vec<Dim> = (0..r)
        .map(|k| Dim::product(if column_major { &s[2..2 + k] } else { &s[3 + k..] }))
        .collect();
    let (mut first, mut base) = (e.int(0, i64s), e.int(0, i64s));
    let plane = Dim::product(&s[2..]);
    let (image, channel, channels) = (e.index(0), e.index(1), e.dim(&s[1]));
    let of = e.mul(image, channels);
    let of = e.add(of, channel);
    let plane = e.dim(&plane);
    let of = e.mul(of, plane);
    for (k, by) in by.iter().enumerate() {
        let (o, step, pad, stride) = (e.index(2 + k as u32), e.int(w.strides[k], i64s), e.dim(&w.before[k]), e.dim(by));
        let begin = e.mul(o, step);
        let begin = e.sub(begin, pad);
        let at = e.mul(begin, stride);
        base = e.add(base, at);
        if w.before[k].is_zero() {
            continue;
        }
        // The first element of a window that lies in the input: the answer where none is above the lowest number.
        let (zero, dilation, most) = (e.int(0, i64s), e.int(w.dilations[k], i64s), e.int(w.dilations[k] - 1, i64s));
        let missing = e.sub(zero, begin);
        let missing = e.binary(Binary::Max, missing, zero);
        let missing = e.add(missing, most);
        let skipped = e.div(missing, dilation);
        let skipped = e.mul(skipped, dilation);
        let skipped = e.mul(skipped, stride);
        first = e.add(first, skipped);
    }
    let (mut best, mut place) = (lowest(&mut e), first);
    for (i, tap) in taps.iter().enumerate() {
        let v = e.input(i as u32, d);
        let mut here = e.int(0, i64s);
        for ((at, dilation), by) in tap.iter().zip(&w.dilations).zip(&by) {
            let (steps, stride) = (e.int(at * dilation, i64s), e.dim(by));
            let part = e.mul(steps, stride);
            here = e.add(here, part);
        }
        let wins = if d.is_float() {
            let (below, number) = (e.compare(Compare::Le, v, best), e.compare(Compare::Eq, best, best));
            let above = e.unary(Unary::Not, below);
            e.binary(Binary::And, above, number)
        } else {
            e.compare(Compare::Gt, v, best)
        };
        best = e.select(wins, v, best);
        place = e.select(wins, here, place);
    }
    let place = e.add(base, place);
    let place = e.add(place, of);
    c.add(n, Op::Map(e.finish(&[best, place])), &inputs, &[n.name(0), n.name(1)])
}

/// The pool of `x`; nothing where the node's outputs are set.
fn pooled<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, mut x: ValueId, op: &str) -> Lowered<Option<ValueId>> {
    let shape = c.shape(x);
    if shape.len() < 3 {
        return Err(format!("needs rank 3 or more, its input has {}", shape.len()).into());
    }
    let extents = &shape[2..];
    let kernel = n.ints("kernel_shape")?.ok_or("attribute 'kernel_shape' is missing")?;
    let mut w = window(n, kernel, extents)?;
    let ceil = n.flag("ceil_mode", false)?;
    let include_pad = n.flag("count_include_pad", false)?;
    let column_major = n.flag("storage_order", false)?;
    let mut out = shape[..2].to_vec();
    let (stated, mut reached) = (w.after.clone(), false);
    for (i, d) in extents.iter().enumerate() {
        let (s, k) = (Dim::Known(w.strides[i]), Dim::Known((w.kernel[i] - 1) * w.dilations[i] + 1));
        let free = d.clone() + w.before[i].clone() + w.after[i].clone() - k.clone();
        let mut o = free.floor_div(&s) + Dim::ONE;
        if ceil {
            // The last window starts inside the input or the padding before it.
            let inside = (d.clone() + w.before[i].clone()).ceil_div(&s);
            let all = free.ceil_div(&s) + Dim::ONE;
            let o2 = if all.provably_le(&inside) { all } else { all.min_with(&inside) };
            if o2 != o {
                let needed = (o2.clone() - Dim::ONE) * s + k - d.clone() - w.before[i].clone();
                let longer = needed.max_with(&w.after[i]);
                if longer != w.after[i] {
                    reached = true;
                    w.after[i] = longer;
                }
            }
            o = o2;
        }
        if o.known().is_some_and(|o| o < 0) {
            return Err(format!("its window is larger than dimension {} with padding; give a smaller kernel_shape", i + 2).into());
        }
        out.push(o);
    }
    let d = c.dtype(x);
    if op == "MaxPool" && n.wants(1) {
        let taps = w.kernel.iter().try_fold(1i64, |all, k| all.checked_mul(*k));
        if taps.is_none_or(|t| t > TAPS) {
            let s: Vec<Option<Dim>> = out.into_iter().map(Some).collect();
            return c.host(n, &[(d, s.clone()), (DType::I64, s)]).map(|()| None);
        }
        let both = picked(c, n, x, &w, &out, column_major)?;
        c.set(n, 0, both[0]);
        c.set(n, 1, both[1]);
        return Ok(None);
    }
    let mut root = None;
    let kind = match op {
        "MaxPool" => PoolKind::Max,
        "AveragePool" => PoolKind::Average { include_pad: include_pad && !reached },
        _ => match n.number("p", 2.0)? {
            p if p.fract() == 0.0 => PoolKind::Lp { p: p as i64 },
            p => {
                root = Some(p);
                x = power(c, n, n.tmp("powers"), x, p)?;
                PoolKind::Lp { p: 1 }
            }
        },
    };
    if op == "AveragePool" && include_pad && reached {
        // Stated padding counts, what ceil mode adds does not: the former becomes real zeros.
        let (mut before, mut after) = (vec![Dim::ZERO; 2], vec![Dim::ZERO; 2]);
        for (i, own) in stated.into_iter().enumerate() {
            before.push(w.before[i].clone());
            w.after[i] = w.after[i].clone() - own.clone();
            w.before[i] = Dim::ZERO;
            after.push(own);
        }
        x = c.add1(n, Op::Pad { before, after, mode: PadMode::Constant }, &[x], n.tmp("padded"))?;
    }
    let spec = PoolSpec {
        kind,
        kernel: w.kernel,
        strides: w.strides,
        dilations: w.dilations,
        before: w.before,
        after: w.after,
    };
    let Some(p) = root else { return c.add1(n, Op::Pool(spec), &[x], name).map(Some) };
    let sums = c.add1(n, Op::Pool(spec), &[x], n.tmp("sums"))?;
    power(c, n, name, sums, 1.0 / p).map(Some)
}

/// `|x|` to the power of `p`.
fn power<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId, p: f64) -> Lowered<ValueId> {
    c.map_wide(n, name, &[x], |e, a, d| {
        let (x, p) = (e.unary(Unary::Abs, a[0]), e.constant(p, d));
        e.binary(Binary::Pow, x, p)
    })
}
