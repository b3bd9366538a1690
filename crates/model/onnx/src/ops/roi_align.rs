//! RoiAlign: rows of channels gathered at the four corners around every sample of a bin, weighted and
//! averaged. By the host where the number of samples follows from the region, or is large.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("RoiAlign", lower)];

const F: DType = DType::F32;
/// Most samples of a bin that are gathered one by one.
const SAMPLES: i64 = 4;

/// What says where samples lie along one dimension.
struct Along {
    /// Columns of the regions: first edge, last edge.
    edges: [ValueId; 2],
    /// Numbers of the bins, broadcast against the columns.
    bins: ValueId,
    bin_count: i64,
    extent: Dim,
}

/// How edges become positions.
struct Rule {
    ratio: i64,
    scale: f64,
    half: bool,
}

/// Position of sample `k` of a bin: (first edge, last edge, bin).
fn position(e: &mut ExprBuilder, a: &[Ref], rule: &Rule, bins: i64, k: i64) -> Ref {
    let scale = e.constant(rule.scale, F);
    let offset = e.constant(if rule.half { 0.5 } else { 0.0 }, F);
    let edge = |e: &mut ExprBuilder, v: Ref| {
        let v = e.mul(v, scale);
        e.sub(v, offset)
    };
    let (start, end) = (edge(e, a[0]), edge(e, a[1]));
    let mut size = e.sub(end, start);
    if !rule.half {
        let one = e.constant(1.0, F);
        size = e.binary(Binary::Max, size, one);
    }
    let count = e.constant(bins as f64, F);
    let bin = e.div(size, count);
    let whole = e.mul(a[2], bin);
    let (sample, samples) = (e.constant(k as f64 + 0.5, F), e.constant(rule.ratio as f64, F));
    let part = e.mul(sample, bin);
    let part = e.div(part, samples);
    let at = e.add(start, whole);
    e.add(at, part)
}

/// The last element's number as a float.
fn last(e: &mut ExprBuilder, extent: &Dim) -> Ref {
    let n = e.dim(&(extent.clone() - Dim::ONE));
    e.cast(n, F)
}

/// Position `x` inside the dimension, and the element before it.
fn inside(e: &mut ExprBuilder, x: Ref, extent: &Dim) -> (Ref, Ref) {
    let (zero, end) = (e.constant(0.0, F), last(e, extent));
    let x = e.binary(Binary::Min, x, end);
    let x = e.binary(Binary::Max, x, zero);
    let floor = e.unary(Unary::Floor, x);
    (x, floor)
}

/// Number of the element at or behind position `x`.
fn element(e: &mut ExprBuilder, x: Ref, extent: &Dim, behind: bool) -> Ref {
    let (_, mut at) = inside(e, x, extent);
    if behind {
        let one = e.constant(1.0, F);
        let end = last(e, extent);
        at = e.add(at, one);
        at = e.binary(Binary::Min, at, end);
    }
    e.cast(at, DType::I64)
}

/// How much of it the position takes: nothing where the position lies outside.
fn weight(e: &mut ExprBuilder, x: Ref, extent: &Dim, behind: bool) -> Ref {
    let (at, floor) = inside(e, x, extent);
    let (zero, one, low) = (e.constant(0.0, F), e.constant(1.0, F), e.constant(-1.0, F));
    let part = e.sub(at, floor);
    let part = if behind { part } else { e.sub(one, part) };
    let end = e.dim(extent);
    let end = e.cast(end, F);
    let (above, below) = (e.compare(Compare::Ge, x, low), e.compare(Compare::Le, x, end));
    let both = e.binary(Binary::And, above, below);
    e.select(both, part, zero)
}

/// The mean of samples: `a` has `corners` values, `taps` to a row, then the rows' and the columns' weights.
fn mean(e: &mut ExprBuilder, a: &[Ref], (corners, taps): (usize, usize), ratio: i64) -> Ref {
    let (down, across) = a[corners..].split_at(taps);
    // What adds nothing, also to minus 0.
    let mut sum = e.constant(-0.0, F);
    for (row, w) in a[..corners].chunks(taps).zip(down) {
        let mut line = e.constant(-0.0, F);
        for (v, w) in row.iter().zip(across) {
            let v = e.mul(*v, *w);
            line = e.add(line, v);
        }
        let line = e.mul(line, *w);
        sum = e.add(sum, line);
    }
    let share = e.constant(1.0 / (ratio * ratio) as f64, F);
    e.mul(sum, share)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, rois, batch) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (d, s, r) = (c.dtype(x), c.shape(x), c.shape(rois));
    if s.len() != 4 || r.len() != 2 || c.rank(batch) != 1 {
        return Err("needs an input of rank 4, rois of rank 2 and batch indices of rank 1".into());
    }
    let (oh, ow) = (n.int("output_height", 1)?.max(0), n.int("output_width", 1)?.max(0));
    let out = [r[0].clone(), s[1].clone(), Dim::Known(oh), Dim::Known(ow)];
    let usual = if n.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half = match n.text("coordinate_transformation_mode", usual)?.as_str() {
        "half_pixel" => true,
        "output_half_pixel" => false,
        m => return Err(format!("coordinate mode '{m}' is not one that ONNX lists").into()),
    };
    let average = match n.text("mode", "avg")?.as_str() {
        "avg" => true,
        "max" => false,
        m => return Err(format!("attribute 'mode' is '{m}', it must be avg or max").into()),
    };
    let ratio = n.int("sampling_ratio", 0)?;
    let rule = Rule { ratio, scale: n.float("spatial_scale", 1.0)?, half };
    // Positions in f32 are exact enough for f32 data only; an empty picture has no corner to take.
    let few = (1..=SAMPLES).contains(&ratio.saturating_mul(ratio));
    let types = d == F && c.dtype(rois) == F && c.dtype(batch) == DType::I64;
    let sized = oh * ow > 0 && !s[2..].iter().any(Dim::is_zero) && r[1].known() == Some(4);
    if !(few && average && types && sized) {
        return c.host(n, &[(d, out.into_iter().map(Some).collect())]);
    }
    // The bins of a region lie along dimensions 1 and 2; channels last.
    let column = |c: &mut Ctx<'m>, i: usize| -> Lowered<ValueId> {
        let v = c.slice(n, n.tmp(&format!("edge{i}")), rois, 1, Dim::from(i), Dim::ONE)?;
        c.reshape(n, n.tmp(&format!("edge{i}.thin")), v, vec![r[0].clone(), Dim::ONE, Dim::ONE, Dim::ONE])
    };
    let bins = |c: &mut Ctx<'m>, axis: u32, count: i64| -> Lowered<ValueId> {
        let mut shape = vec![Dim::ONE; 4];
        shape[axis as usize] = Dim::Known(count);
        c.fill(n, n.tmp(&format!("bins{axis}")), &shape, F, |e| {
            let i = e.index(axis);
            e.cast(i, F)
        })
    };
    let rows =
        Along { edges: [column(c, 1)?, column(c, 3)?], bins: bins(c, 1, oh)?, bin_count: oh, extent: s[2].clone() };
    let columns =
        Along { edges: [column(c, 0)?, column(c, 2)?], bins: bins(c, 2, ow)?, bin_count: ow, extent: s[3].clone() };
    let batch = c.reshape(n, n.tmp("picture"), batch, vec![r[0].clone(), Dim::ONE, Dim::ONE, Dim::ONE])?;
    let pixels = c.permute(n, n.tmp("last"), x, vec![0, 2, 3, 1])?;
    let count = s[0].clone() * s[2].clone() * s[3].clone();
    let pixels = c.reshape(n, n.tmp("pixels"), pixels, vec![count, s[1].clone()])?;
    // Per sample and corner: the element's part of the rank, and its weight.
    let mut parts = [Vec::new(), Vec::new()];
    for (k, a) in [rows, columns].into_iter().enumerate() {
        for tap in 0..2 * ratio {
            let (sample, behind) = (tap / 2, tap % 2 == 1);
            let name = |what: &str| n.tmp(&format!("{what}{k}.{tap}"));
            let from = [a.edges[0], a.edges[1], a.bins, batch];
            let at = c.map(n, name("at"), &from, |e, v| {
                let p = position(e, v, &rule, a.bin_count, sample);
                let at = element(e, p, &a.extent, behind);
                if k == 1 {
                    return at;
                }
                // The rank of a row's first pixel.
                let (h, w) = (e.dim(&s[2]), e.dim(&s[3]));
                let row = e.mul(v[3], h);
                let row = e.add(row, at);
                e.mul(row, w)
            })?;
            let weight = c.map(n, name("weight"), &from[..3], |e, v| {
                let p = position(e, v, &rule, a.bin_count, sample);
                weight(e, p, &a.extent, behind)
            })?;
            parts[k].push((at, weight));
        }
    }
    let mut inputs: Vec<ValueId> = Vec::new();
    for (i, (row, _)) in parts[0].iter().enumerate() {
        for (j, (column, _)) in parts[1].iter().enumerate() {
            let name = |what: &str| n.tmp(&format!("{what}{i}.{j}"));
            let rank = c.map(n, name("rank"), &[*row, *column], |e, v| e.add(v[0], v[1]))?;
            let rank = c.reshape(n, name("rank.thin"), rank, vec![r[0].clone(), Dim::Known(oh), Dim::Known(ow)])?;
            inputs.push(c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[pixels, rank], name("corner"))?);
        }
    }
    let (taps, corners) = (parts[1].len(), inputs.len());
    inputs.extend(parts.iter().flatten().map(|p| p.1));
    let y = c.map(n, n.tmp("mean"), &inputs, |e, a| mean(e, a, (corners, taps), ratio))?;
    let y = c.permute(n, n.name(0), y, vec![0, 3, 1, 2])?;
    c.set(n, 0, y);
    Ok(())
}
