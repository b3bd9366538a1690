//! Windows: maxima and means over channels-last or row-major memory.
use super::builder::Window;
use super::simplify::magnitude;
use super::{Body, Builder, Lowering, Result, row_major, touched};
use crate::fuse::Group;
use expr::{Binary, ExprBuilder, Monoid};
use graph::{NodeId, Op, PoolKind, PoolSpec};
use kernel::{Access, AxisId, Family, Term};
use layout::Arrange;
use layout::{DType, Dim, Leaf};
use std::collections::BTreeMap;

/// The dimensions in the order of the input's memory, outermost first.
fn memory_order(xs: &[Dim], stride: &dyn Fn(usize) -> Dim) -> Vec<usize> {
    let mut order = row_major(xs.len());
    if (0..xs.len()).all(|d| xs[d].is_one() || !stride(d).is_zero()) {
        order.arrange_by_key(|&d| {
            let step = match xs[d].is_one() {
                true => i64::MAX,
                false => magnitude(&stride(d)),
            };
            (std::cmp::Reverse(step), d)
        });
    }
    order
}

/// Axes by the output's dimensions, in this order, and those of the window, which stand before the innermost
/// output axis, so that rows run along memory.
fn pool_axes(
    b: &mut Builder,
    spec: &PoolSpec,
    os: &[Dim],
    order: &[usize],
) -> (Vec<Vec<AxisId>>, Vec<Option<AxisId>>) {
    let mut dims: Vec<Vec<AxisId>> = vec![vec![]; os.len()];
    let mut output_axis = |b: &mut Builder, d: usize| {
        if !os[d].is_one() {
            let name = match d {
                0 => "b".to_string(),
                1 => "c".to_string(),
                _ => format!("o{}", d - 2),
            };
            dims[d].push(b.axis(&name, &os[d]));
        }
    };
    let lane = order.iter().rposition(|&d| !os[d].is_one());
    let (outer, inner) = order.split_at(lane.unwrap_or(0));
    outer.iter().for_each(|&d| output_axis(b, d));
    let taps = (spec.kernel.iter().enumerate())
        .map(|(d, &k)| (k != 1).then(|| b.axis(&format!("t{d}"), &Dim::Known(k))))
        .collect();
    inner.iter().for_each(|&d| output_axis(b, d));
    (dims, taps)
}

impl Lowering<'_> {
    pub(crate) fn pool(&mut self, g: &Group, n: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let Op::Pool(spec) = &node.op else {
            return self.fail(n, "not a pool");
        };
        let (vx, vo) = (node.inputs[0], node.outputs[0]);
        let spatial = spec.kernel.len();
        let dtype = self.dtype(vx);
        let mut x = self.locate(vx)?;
        if x.layout.modes.iter().any(|m| m.coalesce().leaves.len() > 1) {
            x = self.materialise(&x, dtype, self.name(vx), &self.origins(&[n]))?;
        }
        let (xs, os) = (self.shape(vx).to_vec(), self.shape(vo).to_vec());
        let stride = |d: usize| {
            x.layout.modes[d]
                .coalesce()
                .leaves
                .first()
                .map_or(Dim::ZERO, |l| l.stride.clone())
        };
        let mut b = Builder::new(&self.group_name(g), Family::Pool);
        let order = memory_order(&xs, &stride);
        let (dims, taps) = pool_axes(&mut b, spec, &os, &order);
        let mut access = Access::strided(x.layout.offset.clone(), vec![]);
        for d in 0..2 {
            if let Some(&a) = dims[d].first() {
                access.terms.push(Term {
                    axis: a,
                    leaves: vec![Leaf {
                        extent: os[d].clone(),
                        stride: stride(d),
                    }],
                });
            }
        }
        for d in 0..spatial {
            let inside = spec.before[d].is_zero() && spec.after[d].is_zero();
            Window {
                out: dims[2 + d].first().copied(),
                tap: taps[d],
                stride: spec.strides[d],
                dilation: spec.dilations[d],
                base: -spec.before[d].clone(),
                extent: &xs[2 + d],
                inside,
            }
            .apply(&b, &mut access, &stride(2 + d));
        }
        // Sums of half precision neither fit it nor keep its digits.
        let acc_type = match dtype {
            DType::F16 | DType::BF16 => DType::F32,
            d if d.is_float() => d,
            _ => DType::F64,
        };
        let monoid = match spec.kind {
            PoolKind::Max => {
                access.outside = lowest(dtype);
                Monoid::max(dtype, dtype)
            }
            // Divided before it is rounded.
            PoolKind::Average { .. } => Monoid {
                finish: Monoid::sum(acc_type, acc_type).finish,
                ..Monoid::sum(dtype, acc_type)
            },
            PoolKind::Lp { p } => power_sum(dtype, acc_type, p),
        };
        let over: Vec<AxisId> = taps.iter().flatten().copied().collect();
        let t = b.load("x", dtype, access, touched(&x.layout), x.ix);
        let mut result = b
            .reduce(&monoid, &[t], &over)
            .map_err(|e| self.expr_error(n, e))?[0];
        let mut body = Body {
            builder: b,
            dims,
            tiles: BTreeMap::new(),
            loads: BTreeMap::new(),
            indexed: false,
            folded: Vec::new(),
        };
        if let PoolKind::Average { include_pad } = spec.kind {
            result = divide_by_count(&mut body, result, spec, &xs, include_pad, dtype);
        }
        body.tiles.insert(vo, result);
        self.close(body, g, Some(n))
    }
}

/// The smallest value of a type, as an f64 that converts to it.
fn lowest(d: DType) -> f64 {
    match d {
        DType::I8 => i8::MIN as f64,
        DType::I16 => i16::MIN as f64,
        DType::I32 => i32::MIN as f64,
        DType::I64 => i64::MIN as f64,
        d if d.is_float() => f64::NEG_INFINITY,
        _ => 0.0,
    }
}

/// (sum |x|^p)^(1/p).
fn power_sum(dtype: DType, acc: DType, p: i64) -> Monoid {
    let mut m = Monoid::sum(dtype, acc);
    let cast = |b: &mut ExprBuilder, x, from, to| if from == to { x } else { b.cast(x, to) };
    m.name = format!("l{p}");
    let mut b = ExprBuilder::new();
    let x = b.input(0, dtype);
    let x = cast(&mut b, x, dtype, acc);
    let x = b.unary(expr::Unary::Abs, x);
    let e = b.constant(p as f64, acc);
    let x = b.binary(Binary::Pow, x, e);
    m.lift = b.finish(&[x]);
    let mut b = ExprBuilder::new();
    let s = b.input(0, acc);
    let e = b.constant(1.0 / p as f64, acc);
    let y = b.binary(Binary::Pow, s, e);
    let y = cast(&mut b, y, acc, dtype);
    m.finish = b.finish(&[y]);
    m
}

/// The sum divided by the number of window positions that count: those inside the tensor, or (with
/// `include_pad`) inside the tensor and its padding.
fn divide_by_count(
    body: &mut Body,
    sum: kernel::TileId,
    spec: &PoolSpec,
    xs: &[Dim],
    include_pad: bool,
    dtype: DType,
) -> kernel::TileId {
    let from = body.builder.tile_dtype(sum);
    let mut whole = 1i64;
    let mut counts = Vec::new();
    for d in 0..spec.kernel.len() {
        if spec.before[d].is_zero() && spec.after[d].is_zero() {
            whole = whole.saturating_mul(spec.kernel[d]);
            continue;
        }
        let mut b = ExprBuilder::new();
        let dil = spec.dilations[d];
        let size = b.int(spec.kernel[d], DType::I64);
        // Taps t with lo <= start + t*dil < hi, start = o*stride - before.
        let o = body.index(&mut b, &body.dims[2 + d]);
        let stride = b.int(spec.strides[d], DType::I64);
        let start = b.mul(o, stride);
        let before = b.dim(&spec.before[d]);
        let start = b.sub(start, before);
        let (lo, hi) = if include_pad {
            (
                -spec.before[d].clone(),
                xs[2 + d].clone() + spec.after[d].clone(),
            )
        } else {
            (Dim::ZERO, xs[2 + d].clone())
        };
        let (lo, hi) = (b.dim(&lo), b.dim(&hi));
        let zero = b.int(0, DType::I64);
        let dil_ref = b.int(dil, DType::I64);
        let round = b.int(dil - 1, DType::I64);
        // first = max(0, ceil((lo - start) / dil)); last = min(kernel, ceil((hi - start) / dil))
        let ceil = |b: &mut ExprBuilder, edge| {
            let gap = b.sub(edge, start);
            let gap = b.binary(Binary::Max, gap, zero);
            let gap = b.add(gap, round);
            b.div(gap, dil_ref)
        };
        let first = ceil(&mut b, lo);
        let last = ceil(&mut b, hi);
        let last = b.binary(Binary::Min, last, size);
        let c = b.sub(last, first);
        let one = b.int(1, DType::I64);
        let c = b.binary(Binary::Max, c, one);
        let c = b.cast(c, from);
        // It depends on one dimension, and need not be counted for every element.
        let expr = b.finish(&[c]);
        let axes = body.dims[2 + d].clone();
        let name = format!("taps{d}");
        counts.push(body.builder.map(&name, from, &axes, expr, &[]));
    }
    let mut b = ExprBuilder::new();
    let s = b.input(0, from);
    let whole = b.int(whole, DType::I64);
    let mut count = b.cast(whole, from);
    for slot in 1..=counts.len() as u32 {
        let c = b.input(slot, from);
        count = b.mul(count, c);
    }
    let q = b.div(s, count);
    let q = if from == dtype { q } else { b.cast(q, dtype) };
    let axes = body.builder.tile_axes(sum).to_vec();
    let mut args = vec![sum];
    args.extend(counts);
    body.builder
        .map("mean", dtype, &axes, b.finish(&[q]), &args)
}
