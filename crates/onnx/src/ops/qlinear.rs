//! Operators on quantised tensors: computed in f32 between dequantising and quantising.
use super::quantize::{dequantised, limits, quantised};
use super::{OpDef, conv, matmul, op, other};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::Unary;
use graph::ValueId;
use layout::DType;

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op("QLinearConv", conv_), op("QLinearMatMul", product), other(MS, "QGemm", gemm),
    other(MS, "QLinearAdd", binary), other(MS, "QLinearMul", binary), other(MS, "QLinearSigmoid", sigmoid),
    other(MS, "QLinearGlobalAveragePool", global),
];

/// Input `i` with the scale and zero point that follow it, in f32; vectors lie along `axis`.
fn real<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, i: usize, axis: usize) -> Lowered<ValueId> {
    let x = n.input(i)?;
    let rank = c.rank(x);
    let mut inputs = vec![x];
    for (name, v) in [("scale", Some(n.input(i + 1)?)), ("zero", n.opt(i + 2))] {
        let Some(v) = v else { continue };
        let one = layout::Dim::product(&c.shape(v)).is_one();
        inputs.push(match one {
            true => c.reshaped(n, n.tmp(&format!("{what}.{name}")), v, vec![])?,
            false if axis < rank => c.along(n, n.tmp(&format!("{what}.{name}")), v, rank, axis)?,
            false => return Err(format!("its {name} of {what} does not fit").into()),
        });
    }
    dequantised(c, n, n.tmp(what), &inputs, DType::F32)
}

/// The result with the scale and zero point of inputs `i` and `i + 1`.
fn back<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, y: ValueId, i: usize, to: DType) -> Lowered {
    let scale = n.input(i)?;
    let to = n.opt(i + 1).map_or(to, |z| c.dtype(z));
    let range = limits(to)?;
    let mut inputs = vec![y];
    for v in [Some(scale), n.opt(i + 1)].into_iter().flatten() {
        if !layout::Dim::product(&c.shape(v)).is_one() {
            return Err(LowerError::Unsupported("quantises its result per channel; quantise it per tensor".into()));
        }
        let name = n.tmp(if inputs.len() == 1 { "y.scale" } else { "y.zero" });
        inputs.push(c.reshaped(n, name, v, vec![])?);
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| quantised(e, a[0], a[1], a.get(2).copied(), to, range))?;
    c.set(n, 0, y);
    Ok(())
}

fn conv_<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let (x, w) = (real(c, n, "x", 0, 1)?, real(c, n, "w", 3, 0)?);
    let mut y = conv::core(c, n, n.tmp("conv"), x, w)?;
    if let Some(b) = n.opt(8) {
        let rank = c.rank(y);
        let flat = |c: &mut Ctx<'m>, i: usize, name: &str| -> Lowered<ValueId> {
            let v = n.input(i)?;
            match layout::Dim::product(&c.shape(v)).is_one() {
                true => c.reshaped(n, n.tmp(name), v, vec![]),
                false => Ok(v),
            }
        };
        let (xs, ws) = (flat(c, 1, "x.step")?, flat(c, 4, "w.step")?);
        let b = c.map(n, n.tmp("bias"), &[b, xs, ws], |e, a| {
            let b = e.cast(a[0], DType::F32);
            let s = e.mul(a[1], a[2]);
            e.mul(b, s)
        })?;
        let b = c.along(n, n.tmp("bias.c"), b, rank, 1)?;
        y = c.map(n, n.tmp("sum"), &[y, b], |e, a| e.add(a[0], a[1]))?;
    }
    let d = c.dtype(n.input(0)?);
    back(c, n, y, 6, d)
}

fn product<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(8)?;
    let (ra, rb) = (c.rank(n.input(0)?), c.rank(n.input(3)?));
    let (a, b) = (real(c, n, "a", 0, ra.saturating_sub(2))?, real(c, n, "b", 3, rb.saturating_sub(1))?);
    let y = matmul::product(c, n, n.tmp("product"), a, b, (false, false))?;
    let d = c.dtype(n.input(0)?);
    back(c, n, y, 6, d)
}

fn gemm<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let alpha = n.float("alpha", 1.0)?;
    let t = (n.flag("transA", false)?, n.flag("transB", false)?);
    let (a, b) = (real(c, n, "a", 0, 0)?, real(c, n, "b", 3, if t.1 { 0 } else { 1 })?);
    let y = matmul::product(c, n, n.tmp("product"), a, b, t)?;
    let mut inputs = vec![y];
    if let Some(bias) = n.opt(6) {
        inputs.extend([bias, n.input(1)?, n.input(4)?]);
    }
    let wide = n.opt(7).is_none();
    let name = if wide { n.name(0) } else { n.tmp("sum") };
    // The bias is in steps of the product of the scales.
    let y = c.map(n, name, &inputs, |e, x| {
        let k = e.constant(alpha, DType::F32);
        let mut v = if alpha == 1.0 { x[0] } else { e.mul(x[0], k) };
        if x.len() > 1 {
            let b = e.cast(x[1], DType::F32);
            let s = e.mul(x[2], x[3]);
            let s = e.mul(s, k);
            let b = e.mul(b, s);
            v = e.add(v, b);
        }
        v
    })?;
    if wide {
        c.set(n, 0, y);
        return Ok(());
    }
    let d = c.dtype(n.input(0)?);
    back(c, n, y, 7, d)
}

fn binary<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(8)?;
    let add = n.op == "QLinearAdd";
    let (a, b) = (real(c, n, "a", 0, usize::MAX)?, real(c, n, "b", 3, usize::MAX)?);
    let y = c.map(n, n.tmp("real"), &[a, b], |e, x| if add { e.add(x[0], x[1]) } else { e.mul(x[0], x[1]) })?;
    let d = c.dtype(n.input(0)?);
    back(c, n, y, 6, d)
}

fn sigmoid<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let x = real(c, n, "x", 0, usize::MAX)?;
    let y = c.map(n, n.tmp("real"), &[x], |e, a| e.unary(Unary::Sigmoid, a[0]))?;
    let d = c.dtype(n.input(0)?);
    back(c, n, y, 3, d)
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
    let d = c.dtype(n.input(0)?);
    back(c, n, y, 3, d)
}
