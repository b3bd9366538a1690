//! Operators on quantised tensors. Products add up whole steps (the scales come in at the end), so
//! that their sums are exact; all others are computed in f32 between dequantising and quantising.
use super::whole_steps::{placed, steps};
use super::quantize::{dequantised, limits, quantised};
use super::{OpDef, conv, matmul, op, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, ExprBuilder, Ref, Unary, functions};
use graph::{Op, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op("QLinearConv", conv_), op("QLinearMatMul", product), op_of(MS, "QGemm", gemm), op_of(MS, "QLinearConv", conv_),
    op_of(MS, "QLinearAdd", binary), op_of(MS, "QLinearMul", binary), op_of(MS, "QLinearSigmoid", unary),
    op_of(MS, "QLinearLeakyRelu", unary), op_of(MS, "QLinearSoftmax", softmax), op_of(MS, "QLinearConcat", concat),
    op_of(MS, "QLinearGlobalAveragePool", global), op_of(MS, "QLinearAveragePool", pool),
    op_of(MS, "QLinearReduceMean", mean), op_of(MS, "QLinearWhere", where_),
];

/// Input `i` with the scale and zero point that follow it, in f32; vectors lie along `axis`.
fn real<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, i: usize, axis: usize) -> Lowered<ValueId> {
    let x = n.input(i)?;
    let rank = c.rank(x);
    let mut inputs = vec![x, placed(c, n, &format!("{what}.scale"), n.input(i + 1)?, rank, axis)?];
    if let Some(z) = n.opt(i + 2) {
        inputs.push(placed(c, n, &format!("{what}.zero"), z, rank, axis)?);
    }
    dequantised(c, n, n.tmp(what), &inputs, DType::F32)
}

/// The result with the scale and zero point of inputs `i` and `i + 1`.
fn back<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, y: ValueId, i: usize, to: DType) -> Lowered<ValueId> {
    let scale = n.input(i)?;
    let to = n.opt(i + 1).map_or(to, |z| c.dtype(z));
    let range = limits(to)?;
    let mut inputs = vec![y];
    for (what, v) in [("y.scale", Some(scale)), ("y.zero", n.opt(i + 1))] {
        let Some(v) = v else { continue };
        inputs.push(one(c, n, what, v)?);
    }
    c.map(n, name, &inputs, |e, a| quantised(e, a[0], a[1], a.get(2).copied(), to, range))
}

fn one<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId) -> Lowered<ValueId> {
    if !Dim::product(&c.shape(v)).is_one() {
        return Err(LowerError::Unsupported("quantises its result per channel; quantise it per tensor".into()));
    }
    c.reshaped(n, n.tmp(what), v, vec![])
}

/// Sums of steps, with a bias in steps, quantised: `sums * (xs * ws / ys)` rounded, plus zero.
struct Requantise {
    sums: ValueId,
    bias: Option<ValueId>,
    x_scale: ValueId,
    w_scale: ValueId,
}

fn requantised<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, r: &Requantise, factor: f64, i: usize, to: DType) -> Lowered<ValueId> {
    let to = n.opt(i + 1).map_or(to, |z| c.dtype(z));
    let range = limits(to)?;
    let y_scale = one(c, n, "y.scale", n.input(i)?)?;
    let zero = n.opt(i + 1).map(|z| one(c, n, "y.zero", z)).transpose()?;
    // Scales may be narrower floats; the sums are in f32.
    let mut scales = [r.x_scale, r.w_scale, y_scale];
    for (v, what) in scales.iter_mut().zip(["x", "w", "y"]) {
        *v = c.cast(n, n.tmp(&format!("{what}.scale.wide")), *v, DType::F32)?;
    }
    let [x_scale, w_scale, y_scale] = scales;
    let mut inputs = vec![r.sums, x_scale, w_scale, y_scale];
    inputs.extend(r.bias);
    inputs.extend(zero);
    c.map(n, n.name(0), &inputs, |e, a| {
        let sum = biased(e, a[0], r.bias.map(|_| a[4]));
        let mut by = e.mul(a[1], a[2]);
        if factor != 1.0 {
            let k = e.constant(factor, DType::F32);
            by = e.mul(by, k);
        }
        let by = e.div(by, a[3]);
        let y = e.mul(sum, by);
        let unit = e.constant(1.0, DType::F32);
        let zero = zero.map(|_| a[4 + r.bias.is_some() as usize]);
        quantised(e, y, unit, zero, to, range)
    })
}

fn biased(e: &mut ExprBuilder, sum: Ref, bias: Option<Ref>) -> Ref {
    match bias {
        Some(b) => {
            let b = e.cast(b, DType::F32);
            e.add(sum, b)
        }
        None => sum,
    }
}

fn conv_<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let last = n.domain == MS && n.flag("channels_last", false)?;
    let (mut x, w) = (n.input(0)?, n.input(3)?);
    let rank = c.rank(x);
    if last && rank > 2 {
        let perm = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        x = c.permute(n, n.tmp("x.turned"), x, perm)?;
    }
    let d = c.dtype(x);
    let x = steps(c, n, "x", x, n.opt(2), 1)?;
    let w = steps(c, n, "w", w, n.opt(5), 0)?;
    let mut sums = conv::core(c, n, n.tmp("conv"), x, w)?;
    let channel = if last && rank > 2 { rank - 1 } else { 1 };
    if channel != 1 {
        let perm = std::iter::once(0).chain(2..rank).chain([1]).collect();
        sums = c.permute(n, n.tmp("y.turned"), sums, perm)?;
    }
    let along = |c: &mut Ctx<'m>, what: &str, v: ValueId| placed(c, n, what, v, rank, channel);
    let r = Requantise {
        sums,
        bias: n.opt(8).map(|b| along(c, "bias", b)).transpose()?,
        x_scale: one(c, n, "x.scale", n.input(1)?)?,
        w_scale: along(c, "w.scale", n.input(4)?)?,
    };
    let y = requantised(c, n, &r, 1.0, 6, d)?;
    c.set(n, 0, y);
    Ok(())
}

fn product<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(8)?;
    let (a, b) = (n.input(0)?, n.input(3)?);
    let (ra, rb) = (c.rank(a), c.rank(b));
    let (row, column) = (ra.saturating_sub(2), rb.saturating_sub(1));
    let d = c.dtype(a);
    let x = steps(c, n, "a", a, n.opt(2), row)?;
    let w = steps(c, n, "b", b, n.opt(5), column)?;
    let sums = matmul::product(c, n, n.tmp("product"), x, w, (false, false))?;
    let r = Requantise {
        sums,
        bias: None,
        x_scale: placed(c, n, "a.scale", n.input(1)?, ra, row)?,
        w_scale: placed(c, n, "b.scale", n.input(4)?, rb, column)?,
    };
    let y = requantised(c, n, &r, 1.0, 6, d)?;
    c.set(n, 0, y);
    Ok(())
}

fn gemm<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let alpha = n.float("alpha", 1.0)?;
    let t = (n.flag("transA", false)?, n.flag("transB", false)?);
    let (a, b) = (n.input(0)?, n.input(3)?);
    let d = c.dtype(a);
    let x = steps(c, n, "a", a, n.opt(2), 0)?;
    let w = steps(c, n, "b", b, n.opt(5), if t.1 { 0 } else { 1 })?;
    let sums = matmul::product(c, n, n.tmp("product"), x, w, t)?;
    let r = Requantise {
        sums,
        bias: n.opt(6),
        x_scale: one(c, n, "a.scale", n.input(1)?)?,
        w_scale: placed(c, n, "b.scale", n.input(4)?, 2, 1)?,
    };
    if n.opt(7).is_some() {
        let y = requantised(c, n, &r, alpha, 7, d)?;
        c.set(n, 0, y);
        return Ok(());
    }
    let inputs: Vec<ValueId> = [r.sums, r.x_scale, r.w_scale].into_iter().chain(r.bias).collect();
    let y = c.map(n, n.name(0), &inputs, |e, x| {
        let sum = biased(e, x[0], x.get(3).copied());
        let mut by = e.mul(x[1], x[2]);
        if alpha != 1.0 {
            let k = e.constant(alpha, DType::F32);
            by = e.mul(by, k);
        }
        e.mul(sum, by)
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// An f32 result, quantised, as output 0.
fn finish<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, y: ValueId, scale: usize) -> Lowered {
    let d = c.dtype(n.input(0)?);
    let y = back(c, n, n.name(0), y, scale, d)?;
    c.set(n, 0, y);
    Ok(())
}

fn binary<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(8)?;
    let add = n.op == "QLinearAdd";
    let (a, b) = (real(c, n, "a", 0, usize::MAX)?, real(c, n, "b", 3, usize::MAX)?);
    let y = c.map(n, n.tmp("real"), &[a, b], |e, x| if add { e.add(x[0], x[1]) } else { e.mul(x[0], x[1]) })?;
    finish(c, n, y, 6)
}

fn unary<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let alpha = if n.op == "QLinearLeakyRelu" { Some(n.float("alpha", 0.01)?) } else { None };
    let x = real(c, n, "x", 0, usize::MAX)?;
    let y = c.map(n, n.tmp("real"), &[x], |e, a| match alpha {
        Some(k) => functions::leaky_relu(e, a[0], k, DType::F32),
        None => e.unary(Unary::Sigmoid, a[0]),
    })?;
    finish(c, n, y, 3)
}

fn softmax<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let opset = n.int("opset", 13)?;
    let x = real(c, n, "x", 0, usize::MAX)?;
    let rank = c.rank(x);
    let axis = crate::import::axis_of(n.int("axis", -1)?, rank)?;
    // Before opset 13 all dimensions from the axis on make one row.
    let axes: Vec<usize> = if opset < 13 { (axis..rank).collect() } else { vec![axis] };
    let y = super::softmax::softmax(c, n, n.tmp("real"), x, &axes, false)?;
    // onnxruntime counts the steps of 1 in whole numbers.
    let to = c.dtype(n.input(0)?);
    let (low, high) = limits(to)?;
    let mut inputs = vec![y, one(c, n, "y.scale", n.input(3)?)?];
    if let Some(z) = n.opt(4) {
        inputs.push(one(c, n, "y.zero", z)?);
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let (one, half) = (e.constant(1.0, DType::F32), e.constant(0.5, DType::F32));
        let steps = e.div(one, a[1]);
        let steps = e.unary(Unary::Floor, steps);
        let y = e.mul(a[0], steps);
        let y = e.add(y, half);
        let mut y = e.unary(Unary::Floor, y);
        if let Some(&z) = a.get(2) {
            let z = e.cast(z, DType::F32);
            y = e.add(y, z);
        }
        let (low, high) = (e.constant(low, DType::F32), e.constant(high, DType::F32));
        let y = e.binary(Binary::Max, y, low);
        let y = e.binary(Binary::Min, y, high);
        e.cast(y, to)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn global<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let x = real(c, n, "x", 0, usize::MAX)?;
    let rank = c.rank(x);
    if rank < 3 {
        return Err(format!("needs rank 3 or more, its input has {rank}").into());
    }
    let axes: Vec<usize> = if n.flag("channels_last", false)? { (1..rank - 1).collect() } else { (2..rank).collect() };
    let count = c.count(x, &axes);
    let y = c.reduce(n, n.tmp("mean"), x, monoids::mean(DType::F32, &count), &axes, true)?;
    finish(c, n, y, 3)
}

fn mean<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let x = real(c, n, "x", 0, usize::MAX)?;
    let axes = n.ints("axes")?.unwrap_or_else(|| (0..c.rank(x) as i64).collect());
    let axes = crate::import::axes_of(&axes, c.rank(x))?;
    let keep = n.flag("keepdims", true)?;
    let count = c.count(x, &axes);
    let y = c.reduce(n, n.tmp("mean"), x, monoids::mean(DType::F32, &count), &axes, keep)?;
    finish(c, n, y, 3)
}

fn pool<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let mut x = real(c, n, "x", 0, usize::MAX)?;
    let last = n.flag("channels_last", false)?;
    let rank = c.rank(x);
    if last && rank > 2 {
        let perm = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
        x = c.permute(n, n.tmp("x.turned"), x, perm)?;
    }
    let mut y = super::pool::of(c, n, n.tmp("pooled"), x, "AveragePool")?;
    if last && rank > 2 {
        let perm = std::iter::once(0).chain(2..rank).chain([1]).collect();
        y = c.permute(n, n.tmp("y.turned"), y, perm)?;
    }
    let d = c.dtype(n.input(0)?);
    let range = limits(d)?;
    let mut inputs = vec![y, one(c, n, "y.scale", n.input(3)?)?];
    if let Some(z) = n.opt(4) {
        inputs.push(one(c, n, "y.zero", z)?);
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let mut q = e.div(a[0], a[1]);
        // Rounded behind the zero point, which decides where a tie goes.
        if let Some(&z) = a.get(2) {
            let z = e.cast(z, DType::F32);
            q = e.add(q, z);
        }
        let unit = e.constant(1.0, DType::F32);
        quantised(e, q, unit, None, d, range)
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// Scale and zero point of the result come first, then three inputs per part.
fn concat<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let mut parts = Vec::new();
    for i in 0..n.inputs.len().saturating_sub(2) / 3 {
        parts.push(real(c, n, &format!("part{i}"), 2 + 3 * i, usize::MAX)?);
    }
    let first = *parts.first().ok_or("joins nothing")?;
    let axis = crate::import::axis_of(n.int("axis", 0)?, c.rank(first))?;
    let d = c.dtype(n.input(2)?);
    let mut quantised = Vec::new();
    for (i, p) in parts.into_iter().enumerate() {
        quantised.push(back(c, n, n.tmp(&format!("y{i}")), p, 0, d)?);
    }
    let y = c.add1(n, Op::Concat { axis }, &quantised, n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn where_<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let (x, y) = (real(c, n, "x", 1, usize::MAX)?, real(c, n, "y", 4, usize::MAX)?);
    let d = c.dtype(n.input(1)?);
    let y = c.map(n, n.tmp("real"), &[n.input(0)?, x, y], |e, a| e.select(a[0], a[1], a[2]))?;
    let y = back(c, n, n.name(0), y, 7, d)?;
    c.set(n, 0, y);
    Ok(())
}
