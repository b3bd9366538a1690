//! DFT: a product with a table of the roots of unity, which is made once when the model is loaded;
//! long transforms and those whose length comes from data go to the host.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::ValueId;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("DFT", lower)];

/// Longest transform done by a table: 2 MB of it. Making and reading a longer one takes longer than
/// the host's transform, whose steps are not the length's square.
pub(crate) const LONGEST: i64 = 512;

/// Cosine and sine of `2 pi a b / n`, computed in F64. The angle is reduced as an integer first, so
/// that it is as exact for the last element as for the first.
pub(crate) fn root(e: &mut ExprBuilder, a: Ref, b: Ref, n: Ref) -> (Ref, Ref) {
    let turns = e.mul(a, b);
    let turns = e.binary(Binary::Mod, turns, n);
    let (turns, n) = (e.cast(turns, DType::F64), e.cast(n, DType::F64));
    let t = e.div(turns, n);
    let tau = e.constant(std::f64::consts::TAU, DType::F64);
    let angle = e.mul(t, tau);
    (e.unary(Unary::Cos, angle), e.unary(Unary::Sin, angle))
}

/// `at == k` along a dimension.
fn is(e: &mut ExprBuilder, axis: u32, k: i64) -> Ref {
    let (i, k) = (e.index(axis), e.int(k, DType::I64));
    e.compare(Compare::Eq, i, k)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(if n.opset < 20 { 2 } else { 3 })?;
    let x = n.input(0)?;
    let (s, d) = (c.shape(x), c.dtype(x));
    let (inverse, onesided) = (n.flag("inverse", false)?, n.flag("onesided", false)?);
    let parts = s.last().and_then(Dim::known).filter(|k| s.len() >= 2 && (1..=2).contains(k));
    let parts = parts.ok_or("needs a last dimension of 1 (real) or 2 (complex)")?;
    let axis = match n.opset {
        ..20 => Some(n.int("axis", 1)?),
        _ => match n.opt(2) {
            None => Some(-2),
            Some(v) => c.const_ints(v).and_then(|a| a.first().copied()),
        },
    };
    let length = match n.opt(1) {
        None => None,
        Some(v) => Some(c.sizes(v)?.and_then(|l| l.first().cloned())),
    };
    let result = Some(Dim::Known(if inverse && onesided { 1 } else { 2 }));
    let late = |s: &[Dim], axis: Option<usize>| -> Vec<Option<Dim>> {
        let mut out: Vec<Option<Dim>> =
            s.iter().enumerate().map(|(i, d)| if axis.is_none_or(|a| a == i) { None } else { Some(d.clone()) }).collect();
        out[s.len() - 1] = result.clone();
        out
    };
    let axis = match axis {
        Some(a) => axis_of(a, s.len())?,
        None => return c.host(n, &[(d, late(&s, None))]),
    };
    if axis + 1 == s.len() {
        return Err("transforms the dimension of real and imaginary parts".into());
    }
    let two = Dim::Known(2);
    let length = match length {
        Some(None) => return c.host(n, &[(d, late(&s, Some(axis)))]),
        Some(Some(l)) => l,
        None if inverse && onesided => (s[axis].clone() - Dim::ONE) * two.clone(),
        None => s[axis].clone(),
    };
    let bins = length.floor_div(&two) + Dim::ONE;
    // What is read and what comes out along the axis.
    let (from, to) = match (inverse, onesided) {
        (true, true) => (bins, length.clone()),
        (false, true) => (length.clone(), bins),
        _ => (length.clone(), length.clone()),
    };
    if length.known().is_some_and(|l| l > LONGEST) || !d.is_float() {
        let mut out = late(&s, Some(axis));
        out[axis] = Some(to);
        return c.host(n, &[(d, out)]);
    }
    let x = fitted(c, n, x, axis, &from)?;
    let out_parts = if inverse && onesided { 1 } else { 2 };
    let table = [from, Dim::Known(parts), to, Dim::Known(out_parts)];
    let (half, odd) = (length.floor_div(&two), length.clone() - length.floor_div(&two) * two.clone());
    let wide = if d == DType::F64 { d } else { DType::F32 };
    let table = c.fill(n, n.tmp("roots"), &table, wide, |e| {
        let (a, b, size) = (e.index(0), e.index(2), e.dim(&length));
        let (cos, sin) = root(e, a, b, size);
        let minus = e.unary(Unary::Neg, sin);
        let (imaginary_in, imaginary_out) = (is(e, 1, 1), is(e, 3, 1));
        // (re + i im) (cos -+ i sin): forward turns against the sense of the inverse.
        let (re_to_im, im_to_re) = if inverse { (sin, minus) } else { (minus, sin) };
        let from_re = e.select(imaginary_out, re_to_im, cos);
        let from_im = e.select(imaginary_out, cos, im_to_re);
        let mut v = e.select(imaginary_in, from_im, from_re);
        if inverse {
            let size = e.cast(size, DType::F64);
            v = e.div(v, size);
        }
        if inverse && onesided {
            // Every bin but the first, and the middle one of an even length, stands for two.
            let (twice, zero) = (e.constant(2.0, DType::F64), e.int(0, DType::I64));
            let (middle, rest) = (e.dim(&half), e.dim(&odd));
            let first = e.compare(Compare::Eq, a, zero);
            let at_middle = e.compare(Compare::Eq, a, middle);
            let even = e.compare(Compare::Eq, rest, zero);
            let alone = e.binary(Binary::And, at_middle, even);
            let alone = e.binary(Binary::Or, alone, first);
            let doubled = e.mul(v, twice);
            v = e.select(alone, v, doubled);
        }
        if wide == DType::F64 { v } else { e.cast(v, wide) }
    })?;
    let x = c.cast(n, n.tmp("wide"), x, wide)?;
    let letters: Vec<u8> = (0..s.len() as u8 - 1).map(|i| b'a' + i).collect();
    let mut left = letters.clone();
    left.push(b'x');
    let mut out = letters.clone();
    out[axis] = b'y';
    out.push(b'z');
    let name = if d == wide { n.name(0) } else { n.tmp("transformed") };
    let y = c.contract(n, name, (x, &left), (table, &[letters[axis], b'x', b'y', b'z']), &out)?;
    let y = c.cast(n, n.name(0), y, d)?;
    c.set(n, 0, y);
    Ok(())
}

/// `x` cut or filled with zeros to `extent` along `axis`.
fn fitted<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, axis: usize, extent: &Dim) -> Lowered<ValueId> {
    let s = c.shape(x);
    if s[axis] == *extent {
        return Ok(x);
    }
    let mut after = vec![Dim::ZERO; s.len()];
    after[axis] = extent.clone() - s[axis].clone();
    let before = vec![Dim::ZERO; s.len()];
    c.add1(n, graph::Op::Pad { before, after, mode: graph::PadMode::Constant }, &[x], n.tmp("fitted"))
}
