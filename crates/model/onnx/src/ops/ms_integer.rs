//! com.microsoft products of quantised matrices with results in floats.
use super::ms_attention::{attend, heads, heads_side_by_side, masked, scale};
use super::whole_steps::{placed, steps};
use super::quantize::{limits, quantised};
use super::{OpDef, matmul, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "DynamicQuantizeMatMul", dynamic),
    op_of(MS, "MatMulIntegerToFloat", to_float),
    op_of(MS, "QAttention", attention),
];

/// Sums of steps times both scales, plus a bias.
fn scaled<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, sums: ValueId, scales: [ValueId; 2], bias: Option<ValueId>) -> Lowered<ValueId> {
    let inputs: Vec<ValueId> = [sums].into_iter().chain(scales).chain(bias).collect();
    c.map(n, name, &inputs, |e, a| {
        let by = e.mul(a[1], a[2]);
        let y = e.mul(a[0], by);
        match a.get(3) {
            Some(&b) => e.add(y, b),
            None => y,
        }
    })
}

/// Steps of an f32 tensor in 8 bits and their scale, as DynamicQuantizeLinear finds them.
pub(super) fn measured<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, x: ValueId) -> Lowered<(ValueId, ValueId)> {
    let f = DType::F32;
    let name = |part: &str| n.tmp(&format!("{what}.{part}"));
    let axes: Vec<usize> = (0..c.rank(x)).collect();
    let low = c.reduce(n, name("min"), x, monoids::min(f), &axes, false)?;
    let high = c.reduce(n, name("max"), x, monoids::max(f), &axes, false)?;
    let step = c.map(n, name("step"), &[low, high], |e, a| {
        let zero = e.constant(0.0, f);
        let (lo, hi) = (e.binary(Binary::Min, a[0], zero), e.binary(Binary::Max, a[1], zero));
        let span = e.sub(hi, lo);
        let count = e.constant(255.0, f);
        let s = e.div(span, count);
        let none = e.compare(expr::Compare::Eq, span, zero);
        let one = e.constant(1.0, f);
        e.select(none, one, s)
    })?;
    let zero = c.map(n, name("point"), &[low, step], |e, a| {
        let (zero, top) = (e.constant(0.0, f), e.constant(255.0, f));
        let lo = e.binary(Binary::Min, a[0], zero);
        let z = e.div(lo, a[1]);
        let z = e.sub(zero, z);
        let z = e.binary(Binary::Max, z, zero);
        let z = e.binary(Binary::Min, z, top);
        let z = e.unary(Unary::Round, z);
        e.cast(z, DType::U8)
    })?;
    let range = limits(DType::U8)?;
    let q = c.map(n, name("quantised"), &[x, step, zero], |e, a| quantised(e, a[0], a[1], Some(a[2]), DType::U8, range))?;
    Ok((steps(c, n, what, q, Some(zero), usize::MAX)?, step))
}

fn dynamic<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let (x, w) = (n.input(0)?, n.input(1)?);
    let rank = c.rank(w);
    let (a, step) = measured(c, n, "a", x)?;
    let b = steps(c, n, "b", w, n.opt(3), rank.saturating_sub(1))?;
    let sums = matmul::product(c, n, n.tmp("product"), a, b, (false, false))?;
    let by = placed(c, n, "b.scale", n.input(2)?, rank, rank.saturating_sub(1))?;
    let y = scaled(c, n, n.name(0), sums, [step, by], n.opt(4))?;
    c.set(n, 0, y);
    Ok(())
}

fn to_float<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(7)?;
    let (x, w) = (n.input(0)?, n.input(1)?);
    let (ra, rb) = (c.rank(x), c.rank(w));
    let (row, column) = (ra.saturating_sub(2), rb.saturating_sub(1));
    let a = steps(c, n, "a", x, n.opt(4), row)?;
    let b = steps(c, n, "b", w, n.opt(5), column)?;
    let sums = matmul::product(c, n, n.tmp("product"), a, b, (false, false))?;
    let scales = [
        placed(c, n, "a.scale", n.input(2)?, ra, row)?,
        placed(c, n, "b.scale", n.input(3)?, rb, column)?,
    ];
    let y = scaled(c, n, n.name(0), sums, scales, n.opt(6))?;
    c.set(n, 0, y);
    Ok(())
}

fn attention<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let (x, w, bias, mask) = (n.input(0)?, n.input(1)?, n.input(2)?, n.opt(5));
    let count = n.int_opt("num_heads")?.ok_or("attribute 'num_heads' is missing")?;
    let filter = n.float("mask_filter_value", -10000.0)?;
    let one_way = n.flag("unidirectional", false)?;
    if n.flag("do_rotary", false)? || n.flag("past_present_share_buffer", false)? {
        return Err(LowerError::Unsupported("turns positions or shares its buffer; export it without".into()));
    }
    let a = steps(c, n, "a", x, n.opt(6), usize::MAX)?;
    let b = steps(c, n, "b", w, n.opt(7), 1)?;
    let sums = matmul::product(c, n, n.tmp("product"), a, b, (false, false))?;
    let scales = [placed(c, n, "a.scale", n.input(3)?, 3, usize::MAX)?, placed(c, n, "b.scale", n.input(4)?, 2, 1)?];
    let y = scaled(c, n, n.tmp("qkv"), sums, scales, Some(bias))?;
    let all = c.shape(w).last().and_then(Dim::known).ok_or("its weights must have known extents")?;
    if all % 3 != 0 || count < 1 {
        return Err(format!("its weights' {all} columns are not queries, keys and values").into());
    }
    let mut parts = Vec::new();
    for (i, what) in ["q", "k", "v"].into_iter().enumerate() {
        let p = super::ms_attention::columns(c, n, what, y, i as i64 * (all / 3), all / 3)?;
        parts.push(heads(c, n, what, p, count)?);
    }
    if let Some(p) = n.opt(8) {
        let s = c.shape(p);
        if s.len() != 5 {
            return Err(format!("its past has rank {}, not 5", s.len()).into());
        }
        for i in 0..2 {
            let half = c.slice(n, n.tmp(&format!("past{i}")), p, 0, Dim::Known(i as i64), Dim::ONE)?;
            let half = c.reshape(n, n.tmp(&format!("past{i}.4")), half, s[1..].to_vec())?;
            parts[i + 1] = c.add1(n, Op::Concat { axis: 2 }, &[half, parts[i + 1]], n.tmp(&format!("all{i}")))?;
        }
    }
    if n.wants(1) {
        let mut both = Vec::new();
        for (i, &v) in parts[1..].iter().enumerate() {
            let mut s = c.shape(v);
            s.insert(0, Dim::ONE);
            both.push(c.reshape(n, n.tmp(&format!("present{i}")), v, s)?);
        }
        let p = c.add1(n, Op::Concat { axis: 0 }, &both, n.name(1))?;
        c.set(n, 1, p);
    }
    let factor = scale(c, n, parts[0])?;
    let y = attend(c, n, (parts[0], parts[1], parts[2]), factor, &mut |c, mut s| {
        if let Some(m) = mask {
            s = masked(c, n, s, m, filter)?;
        }
        if one_way {
            let t = c.shape(s);
            let past = t[3].clone() - t[2].clone();
            s = super::ms_attention::causal(c, n, s, &past, f64::NEG_INFINITY)?;
        }
        Ok(s)
    })?;
    let y = heads_side_by_side(c, n, n.name(0), y)?;
    c.set(n, 0, y);
    Ok(())
}
