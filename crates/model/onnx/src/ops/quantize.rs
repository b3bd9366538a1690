//! QuantizeLinear, DequantizeLinear (per tensor, per axis, blocked), DynamicQuantizeLinear.
use super::{OpDef, op, op_of};
use super::cast::recoded;
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of, monoids, narrow_name, to_dtype};
use expr::{Binary, ExprBuilder, Ref, Unary};
use graph::ValueId;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("QuantizeLinear", quantize), op("DequantizeLinear", dequantize), op("DynamicQuantizeLinear", dynamic),
    op_of("com.microsoft", "QuantizeLinear", quantize), op_of("com.microsoft", "DequantizeLinear", dequantize),
];

/// Smallest and largest value of a quantised type.
pub(crate) fn limits(d: DType) -> Lowered<(f64, f64)> {
    Ok(match d {
        DType::I4 => (-8.0, 7.0),
        DType::U4 => (0.0, 15.0),
        DType::I8 => (-128.0, 127.0),
        DType::U8 => (0.0, 255.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::U16 => (0.0, 65535.0),
        d => return Err(LowerError::Unsupported(format!("quantises to {d}; use an integer type of 4 to 16 bits"))),
    })
}

/// `x / scale` rounded, moved by the zero point and saturated to `to`; all in f32.
pub(crate) fn quantised(e: &mut ExprBuilder, x: Ref, scale: Ref, zero: Option<Ref>, to: DType, range: (f64, f64)) -> Ref {
    let q = e.div(x, scale);
    coded(e, q, zero, to, range)
}

/// A quotient in f32 rounded, moved by the zero point and saturated to `to`.
fn coded(e: &mut ExprBuilder, q: Ref, zero: Option<Ref>, to: DType, range: (f64, f64)) -> Ref {
    let f = DType::F32;
    let mut q = e.unary(Unary::Round, q);
    if let Some(z) = zero {
        let z = e.cast(z, f);
        q = e.add(q, z);
    }
    let (lo, hi) = (e.constant(range.0, f), e.constant(range.1, f));
    let q = e.binary(Binary::Max, q, lo);
    let q = e.binary(Binary::Min, q, hi);
    e.cast(q, to)
}

/// A scale or zero point so that it broadcasts against the data.
fn placed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, x: ValueId, axis: i64, block: i64) -> Lowered<ValueId> {
    let (s, t) = (c.shape(x), c.shape(v));
    if t.is_empty() || (t.len() == 1 && t[0].is_one()) {
        return c.reshaped(n, n.tmp(what), v, vec![]);
    }
    let axis = axis_of(axis, s.len())?;
    if t.len() == 1 && block == 0 {
        return c.along(n, n.tmp(what), v, s.len(), axis);
    }
    if block <= 0 || t.len() != s.len() {
        return Err(format!("its {what} of shape {t:?} fits no block of the input").into());
    }
    // Each number stands for `block` elements along the axis.
    let (mut thin, mut wide, mut out) = (t.clone(), t.clone(), t.clone());
    thin.insert(axis + 1, Dim::ONE);
    wide.insert(axis + 1, Dim::Known(block));
    out[axis] = t[axis].clone() * Dim::Known(block);
    // What is cut is written anew, which numbers of less than a byte are not.
    let whole = match c.dtype(v) {
        d if out[axis] == s[axis] || d.bits() >= 8 => d,
        DType::I4 => DType::I8,
        _ => DType::U8,
    };
    let v = c.cast(n, n.tmp(&format!("{what}.bytes")), v, whole)?;
    let v = c.reshape(n, n.tmp(&format!("{what}.thin")), v, thin)?;
    let v = c.expand(n, n.tmp(&format!("{what}.wide")), v, wide)?;
    let v = c.reshape(n, n.tmp(&format!("{what}.blocks")), v, out.clone())?;
    if out[axis] == s[axis] {
        return Ok(v);
    }
    c.slice(n, n.tmp(&format!("{what}.cut")), v, axis, Dim::ZERO, s[axis].clone())
}

fn quantize<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.opt(2));
    let (axis, block) = (n.int("axis", 1)?, n.int("block_size", 0)?);
    // They are about 8-bit floats and about the division's type.
    let saturate = n.int("saturate", 1)?;
    let division = match n.int("precision", 0)? {
        0 => c.dtype(scale),
        code => to_dtype(code)?,
    };
    let to = match (zero, n.int("output_dtype", 0)?) {
        (Some(z), _) => c.dtype(z),
        (None, 0) => DType::U8,
        (None, code) => to_dtype(code)?,
    };
    let code = n.int("output_dtype", 0)?;
    let narrow = zero.map_or_else(|| i32::try_from(code).ok().and_then(narrow_name), |z| c.narrow(z));
    let (dx, ds) = (c.dtype(x), c.dtype(scale));
    let axis = if c.rank(x) < 2 { 0 } else { axis };
    if narrow.is_some() || to.bits() < 8 {
        return quantize_narrow(c, n, (x, division), (scale, zero), (axis, block), (to, narrow), saturate);
    }
    let range = limits(to)?;
    let scale = placed(c, n, "scale", scale, x, axis, block)?;
    let mut inputs = vec![x, scale];
    if let Some(z) = zero {
        inputs.push(placed(c, n, "zero", z, x, axis, block)?);
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let q = quotient(e, (a[0], dx), (a[1], ds), division);
        coded(e, q, a.get(2).copied(), to, range)
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// `x / scale` as f32, rounded to the type that it is divided in.
fn quotient(e: &mut ExprBuilder, (x, dx): (Ref, DType), (scale, ds): (Ref, DType), division: DType) -> Ref {
    let f = DType::F32;
    let x = if dx == f { x } else { e.cast(x, f) };
    let s = if ds == f { scale } else { e.cast(scale, f) };
    let q = e.div(x, s);
    match division {
        // The quotient in f32 rounded once more is the quotient in 16 bits.
        DType::F16 | DType::BF16 => {
            let q = e.cast(q, division);
            e.cast(q, f)
        }
        _ => q,
    }
}

/// Quantises to a type that kernels do not store: the quotient by a kernel, its code by the host. A
/// float type has no zero point but 0.
fn quantize_narrow<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (x, division): (ValueId, DType),
    (scale, zero): (ValueId, Option<ValueId>),
    (axis, block): (i64, i64),
    to: (DType, Option<&'static str>),
    saturate: i64,
) -> Lowered {
    let float = to.1.is_some_and(|t| t.starts_with("float"));
    let range = match to.1 {
        Some("int2") => (-2.0, 1.0),
        Some("uint2") => (0.0, 3.0),
        _ if float => (0.0, 0.0),
        _ => limits(to.0)?,
    };
    let (dx, ds) = (c.dtype(x), c.dtype(scale));
    let scale = placed(c, n, "scale", scale, x, axis, block)?;
    let mut inputs = vec![x, scale];
    if let Some(z) = zero.filter(|_| !float) {
        let wide = recoded(c, n, n.tmp("zero.wide"), z, (DType::F32, None), 1, "up")?;
        inputs.push(placed(c, n, "zero", wide, x, axis, block)?);
    }
    let (f, signless) = (DType::F32, zero.is_some());
    let q = c.map(n, n.tmp("quotient"), &inputs, |e, a| {
        let q = quotient(e, (a[0], dx), (a[1], ds), division);
        if float {
            // Adding the zero point, which is 0, takes the sign of a zero away.
            let none = e.constant(0.0, f);
            let zero = e.compare(expr::Compare::Eq, q, none);
            return if signless { e.select(zero, none, q) } else { q };
        }
        let mut q = e.unary(Unary::Round, q);
        if let Some(&z) = a.get(2) {
            q = e.add(q, z);
        }
        let (lo, hi) = (e.constant(range.0, f), e.constant(range.1, f));
        let q = e.binary(Binary::Max, q, lo);
        e.binary(Binary::Min, q, hi)
    })?;
    let y = recoded(c, n, n.name(0), q, to, saturate, "up")?;
    c.set(n, 0, y);
    Ok(())
}

/// `(x - zero) * scale` in type `to`. Integers that a scale of 16 bits has no numbers for are multiplied in f32.
pub(crate) fn dequantised<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, inputs: &[ValueId], to: DType) -> Lowered<ValueId> {
    let ds = c.dtype(inputs[1]);
    let product = match c.dtype(inputs[0]).bits() > 8 && ds.bits() < 32 {
        true => DType::F32,
        false => ds,
    };
    c.map(n, name, inputs, |e, a| {
        let mut x = e.cast(a[0], DType::I32);
        if let Some(&z) = a.get(2) {
            let z = e.cast(z, DType::I32);
            x = e.sub(x, z);
        }
        let x = e.cast(x, product);
        let scale = if ds == product { a[1] } else { e.cast(a[1], product) };
        let y = e.mul(x, scale);
        if product == to { y } else { e.cast(y, to) }
    })
}

fn dequantize<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, scale, zero) = (n.input(0)?, n.input(1)?, n.opt(2));
    let (axis, block) = (n.int("axis", 1)?, n.int("block_size", 0)?);
    let to = match n.int("output_dtype", 0)? {
        0 => c.dtype(scale),
        code => to_dtype(code)?,
    };
    let axis = if c.rank(x) < 2 { 0 } else { axis };
    if c.narrow(x).is_some() {
        return dequantize_narrow(c, n, x, (scale, zero), (axis, block), to);
    }
    let scale = placed(c, n, "scale", scale, x, axis, block)?;
    let mut inputs = vec![x, scale];
    if let Some(z) = zero {
        inputs.push(placed(c, n, "zero", z, x, axis, block)?);
    }
    let y = dequantised(c, n, n.name(0), &inputs, to)?;
    c.set(n, 0, y);
    Ok(())
}

/// Of a type held as codes: the host reads the codes, a kernel multiplies.
fn dequantize_narrow<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    x: ValueId,
    (scale, zero): (ValueId, Option<ValueId>),
    (axis, block): (i64, i64),
    to: DType,
) -> Lowered {
    let f = DType::F32;
    let scale = placed(c, n, "scale", scale, x, axis, block)?;
    let wide = recoded(c, n, n.tmp("wide"), x, (f, None), 1, "up")?;
    let mut inputs = vec![wide, scale];
    if let Some(z) = zero {
        let z = recoded(c, n, n.tmp("zero.wide"), z, (f, None), 1, "up")?;
        inputs.push(placed(c, n, "zero", z, x, axis, block)?);
    }
    let ds = c.dtype(scale);
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let x = match a.get(2) {
            Some(&z) => e.sub(a[0], z),
            None => a[0],
        };
        let x = if ds == f { x } else { e.cast(x, ds) };
        let y = e.mul(x, a[1]);
        if ds == to { y } else { e.cast(y, to) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn dynamic<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let f = DType::F32;
    if c.dtype(x) != f {
        return Err("needs an f32 input".into());
    }
    let axes: Vec<usize> = (0..c.rank(x)).collect();
    let low = c.reduce(n, n.tmp("min"), x, monoids::min(f), &axes, false)?;
    let high = c.reduce(n, n.tmp("max"), x, monoids::max(f), &axes, false)?;
    let scale = c.map(n, n.name(1), &[low, high], |e, a| {
        let zero = e.constant(0.0, f);
        let (lo, hi) = (e.binary(Binary::Min, a[0], zero), e.binary(Binary::Max, a[1], zero));
        let span = e.sub(hi, lo);
        let steps = e.constant(255.0, f);
        let s = e.div(span, steps);
        // All zeros: any scale does, 0 would divide.
        let none = e.compare(expr::Compare::Eq, span, zero);
        let one = e.constant(1.0, f);
        e.select(none, one, s)
    })?;
    let point = c.map(n, n.name(2), &[low, scale], |e, a| {
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
    let y = c.map(n, n.name(0), &[x, scale, point], |e, a| quantised(e, a[0], a[1], Some(a[2]), DType::U8, range))?;
    for (i, v) in [y, scale, point].into_iter().enumerate() {
        c.set(n, i, v);
    }
    Ok(())
}
