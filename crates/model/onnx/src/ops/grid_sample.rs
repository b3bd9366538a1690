//! GridSample: rows of channels gathered at the corners around each position, weighted and summed.
//! By the host only for more corners than that pays for.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("GridSample", lower)];

/// Most corners that are gathered one by one.
const CORNERS: usize = 16;

/// The weight of what lies outside and counts as 0, whatever the element that is taken for it holds: more than
/// any weight.
const NOTHING: f64 = 8.0;

#[derive(Clone, Copy, PartialEq)]
enum Outside {
    Zeros,
    Border,
    Reflection,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Nearest,
    Linear,
    Cubic,
}

/// What a position is made of.
struct Place {
    mode: Mode,
    outside: Outside,
    corners: bool,
}

const F: DType = DType::F32;

/// `x` mirrored into the dimension: at its outermost elements' centres, or at their edges.
fn mirrored(e: &mut ExprBuilder, p: &Place, x: Ref, extent: &Dim) -> Ref {
    let n = e.dim(extent);
    let n = e.cast(n, F);
    let (lo, less) = if p.corners { (0.0, 1.0) } else { (-0.5, 0.0) };
    let (lo, less, zero, two) = (e.constant(lo, F), e.constant(less, F), e.constant(0.0, F), e.constant(2.0, F));
    let span = e.sub(n, less);
    let round = e.mul(span, two);
    let d = e.sub(x, lo);
    let d = e.binary(Binary::Mod, d, round);
    let back = e.sub(round, d);
    let far = e.compare(Compare::Gt, d, span);
    let d = e.select(far, back, d);
    let y = e.add(lo, d);
    // A dimension of one element has nothing to go back and forth in.
    let some = e.compare(Compare::Gt, span, zero);
    e.select(some, y, lo)
}

/// `x` at most at the outermost elements.
fn clipped(e: &mut ExprBuilder, x: Ref, extent: &Dim) -> Ref {
    let last = e.dim(&(extent.clone() - Dim::ONE));
    let last = e.cast(last, F);
    let zero = e.constant(0.0, F);
    let x = e.binary(Binary::Min, x, last);
    e.binary(Binary::Max, x, zero)
}

/// The position along a dimension of `extent` that `g` in -1..1 means.
fn position(e: &mut ExprBuilder, p: &Place, g: Ref, extent: &Dim) -> Ref {
    let n = e.dim(extent);
    let n = e.cast(n, F);
    let (one, half) = (e.constant(1.0, F), e.constant(0.5, F));
    let g = e.add(g, one);
    let x = if p.corners {
        let span = e.sub(n, one);
        let g = e.mul(g, half);
        e.mul(g, span)
    } else {
        let g = e.mul(g, n);
        let g = e.sub(g, one);
        e.mul(g, half)
    };
    match p.outside {
        _ if p.mode == Mode::Cubic => x,
        Outside::Zeros => x,
        Outside::Border => clipped(e, x, extent),
        Outside::Reflection => mirrored(e, p, x, extent),
    }
}

/// Element number `k` around position `x` as a float, not yet inside the dimension.
fn element(e: &mut ExprBuilder, mode: Mode, x: Ref, k: usize) -> Ref {
    match mode {
        Mode::Nearest => e.unary(Unary::Round, x),
        Mode::Linear | Mode::Cubic => {
            let floor = e.unary(Unary::Floor, x);
            let first = if mode == Mode::Cubic { -1.0 } else { 0.0 };
            let k = e.constant(first + k as f64, F);
            e.add(floor, k)
        }
    }
}

/// How much of that element the position takes.
fn weight(e: &mut ExprBuilder, mode: Mode, x: Ref, k: usize) -> Ref {
    let one = e.constant(1.0, F);
    if mode == Mode::Nearest {
        return one;
    }
    let floor = e.unary(Unary::Floor, x);
    let t = e.sub(x, floor);
    if mode == Mode::Linear {
        return if k == 0 { e.sub(one, t) } else { t };
    }
    let a = -0.75;
    let c = |e: &mut ExprBuilder, v: f64| e.constant(v, F);
    let two = c(e, 2.0);
    let d = match k {
        0 => e.add(t, one),
        1 => t,
        2 => e.sub(one, t),
        _ => e.sub(two, t),
    };
    // Cubic convolution: one polynomial within one element's distance, another beyond.
    let parts = if k == 1 || k == 2 { [a + 2.0, -(a + 3.0), 0.0, 1.0] } else { [a, -5.0 * a, 8.0 * a, -4.0 * a] };
    let mut y = c(e, parts[0]);
    for v in &parts[1..] {
        y = e.mul(y, d);
        let v = c(e, *v);
        y = e.add(y, v);
    }
    y
}

/// The weight of a corner, which takes element `digit` of each dimension, for a position.
fn corner_weight(e: &mut ExprBuilder, p: &Place, a: &[Ref], space: &[Dim], digit: &dyn Fn(usize) -> usize) -> Ref {
    let mut w = e.constant(1.0, F);
    let mut inside = e.int(1, DType::Bool);
    for (k, extent) in space.iter().enumerate() {
        let part = weight(e, p.mode, a[k], digit(k));
        w = e.mul(w, part);
        if p.outside == Outside::Zeros {
            let i = element(e, p.mode, a[k], digit(k));
            let (zero, end) = (e.constant(0.0, F), e.dim(extent));
            let end = e.cast(end, F);
            let (low, high) = (e.compare(Compare::Ge, i, zero), e.compare(Compare::Lt, i, end));
            let both = e.binary(Binary::And, low, high);
            inside = e.binary(Binary::And, inside, both);
        }
    }
    let none = e.constant(NOTHING, F);
    if p.outside == Outside::Zeros { e.select(inside, w, none) } else { w }
}

/// The sum of corners; one that lies outside adds nothing, whatever its value is.
fn weighted_sum(e: &mut ExprBuilder, values: &[Ref], weights: &[Ref], outside: Outside) -> Ref {
    // What adds nothing, also to minus 0.
    let mut sum = e.constant(-0.0, F);
    for (value, w) in values.iter().zip(weights) {
        let mut part = e.mul(*value, *w);
        if outside == Outside::Zeros {
            let (zero, bound) = (e.constant(0.0, F), e.constant(NOTHING / 2.0, F));
            let inside = e.compare(Compare::Lt, *w, bound);
            part = e.select(inside, part, zero);
        }
        sum = e.add(sum, part);
    }
    sum
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, g) = (n.input(0)?, n.input(1)?);
    let (d, s, t) = (c.dtype(x), c.shape(x), c.shape(g));
    let r = s.len().saturating_sub(2);
    if r == 0 || t.len() != s.len() {
        return Err("needs an input and a grid of one rank of 3 or more".into());
    }
    let mode = match n.text("mode", "linear")?.as_str() {
        "linear" | "bilinear" => Mode::Linear,
        "nearest" => Mode::Nearest,
        "cubic" | "bicubic" => Mode::Cubic,
        m => return Err(format!("attribute 'mode' is '{m}', it must be linear, nearest or cubic").into()),
    };
    let outside = match n.text("padding_mode", "zeros")?.as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        m => return Err(format!("attribute 'padding_mode' is '{m}', it must be zeros, border or reflection").into()),
    };
    let p = Place { mode, outside, corners: n.flag("align_corners", false)? };
    let (space, places) = (&s[2..], &t[1..=r]);
    let mut out = s[..2].to_vec();
    out.extend_from_slice(places);
    let taps: usize = match mode {
        Mode::Nearest => 1,
        Mode::Linear => 2,
        Mode::Cubic => 4,
    };
    let corners = taps.checked_pow(r as u32).filter(|k| *k <= CORNERS);
    // Positions in f32 are exact enough for f32 data only; an empty image has no corner to take.
    let empty = space.iter().any(Dim::is_zero);
    let Some(corners) = corners.filter(|_| d == F && c.dtype(g) == F && !empty) else {
        return c.host(n, &[(d, out.into_iter().map(Some).collect())]);
    };
    // Positions along each dimension, [n, places..]; the grid names the last dimension first.
    let mut shape = vec![t[0].clone()];
    shape.extend_from_slice(places);
    let mut at = Vec::new();
    for (k, extent) in space.iter().enumerate() {
        let name = n.tmp(&format!("at{k}"));
        let one = c.slice(n, format!("{name}.grid"), g, r + 1, Dim::from(r - 1 - k), Dim::ONE)?;
        let one = c.reshape(n, format!("{name}.thin"), one, shape.clone())?;
        at.push(c.map(n, name, &[one], |e, a| position(e, &p, a[0], extent))?);
    }
    // Channels last, every pixel a row.
    let perm: Vec<usize> = [0].into_iter().chain(2..r + 2).chain([1]).collect();
    let rows = c.permute(n, n.tmp("last"), x, perm)?;
    let pixels = s[0].clone() * Dim::product(space);
    let rows = c.reshape(n, n.tmp("rows"), rows, vec![pixels, s[1].clone()])?;
    // Which of a dimension's elements corner `corner` takes.
    let digit = |corner: usize, k: usize| corner / taps.pow((r - 1 - k) as u32) % taps;
    let (mut inputs, mut weights): (Vec<ValueId>, Vec<ValueId>) = Default::default();
    let mut thin = shape;
    thin.push(Dim::ONE);
    for corner in 0..corners {
        let ranks = c.map(n, n.tmp(&format!("rank{corner}")), &at, |e, a| {
            let mut rank = e.index(0);
            for (k, extent) in space.iter().enumerate() {
                let mut i = element(e, mode, a[k], digit(corner, k));
                if outside == Outside::Reflection {
                    i = mirrored(e, &p, i, extent);
                }
                // What lies outside weighs nothing, or is the border's.
                let i = clipped(e, i, extent);
                let (i, size) = (e.cast(i, DType::I64), e.dim(extent));
                rank = e.mul(rank, size);
                rank = e.add(rank, i);
            }
            rank
        })?;
        inputs.push(c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[rows, ranks], n.tmp(&format!("corner{corner}")))?);
        // Once for all channels.
        let w = c.map(n, n.tmp(&format!("weight{corner}")), &at, |e, a| {
            corner_weight(e, &p, a, space, &|k| digit(corner, k))
        })?;
        weights.push(c.reshape(n, n.tmp(&format!("weight{corner}.thin")), w, thin.clone())?);
    }
    inputs.extend(weights);
    let y = c.map(n, n.tmp("sum"), &inputs, |e, a| {
        let (values, weights) = a.split_at(corners);
        weighted_sum(e, values, weights, outside)
    })?;
    let back: Vec<usize> = [0, r + 1].into_iter().chain(1..=r).collect();
    let y = c.permute(n, n.name(0), y, back)?;
    c.set(n, 0, y);
    Ok(())
}
