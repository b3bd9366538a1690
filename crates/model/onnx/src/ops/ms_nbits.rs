//! com.microsoft MatMulNBits and GatherBlockQuantized: weights of 2, 4 or 8 bits stay packed in
//! memory; what dequantises them is an element-wise program in front of their reader.
use super::{OpDef, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of};
use expr::{Binary, ExprBuilder, Ref};
use graph::{Op, ValueId, View};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[op_of(MS, "MatMulNBits", product), op_of(MS, "GatherBlockQuantized", gather)];

fn known<'m>(c: &Ctx<'m>, v: ValueId, what: &str) -> Lowered<Vec<i64>> {
    let s: Option<Vec<i64>> = c.shape(v).iter().map(Dim::known).collect();
    s.ok_or_else(|| format!("the extents of its {what} must be known").into())
}

/// Bytes [.., n] as [.., n * 8 / bits] unsigned numbers, the lowest bits first.
pub(super) fn unpacked<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, bits: i64) -> Lowered<ValueId> {
    if bits == 8 {
        return Ok(v);
    }
    let mut s = known(c, v, what)?;
    let last = s.last_mut().ok_or_else(|| format!("its {what} is a single number"))?;
    *last = last.checked_mul(8 / bits).ok_or("its weights are too large")?;
    if bits == 4
        && let Some(v) = c.as_nibbles(v, &s)?
    {
        return Ok(v);
    }
    parts(c, n, what, v, bits)
}

/// The same by shifts and masks, a byte for each number.
pub(super) fn parts<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, bits: i64) -> Lowered<ValueId> {
    let mut shape = c.shape(v);
    let last = shape.len() - 1;
    let each = Dim::Known(8 / bits);
    let (mut thin, mut wide) = (shape.clone(), shape.clone());
    thin.push(Dim::ONE);
    wide.push(each.clone());
    shape[last] = shape[last].clone() * each;
    let t = c.reshape(n, n.tmp(&format!("{what}.bytes")), v, thin)?;
    let t = c.expand(n, n.tmp(&format!("{what}.spread")), t, wide)?;
    let t = c.map(n, n.tmp(&format!("{what}.parts")), &[t], |e, a| {
        let i = e.index((last + 1) as u32);
        let b = e.cast(a[0], DType::I32);
        let i = e.cast(i, DType::I32);
        let width = e.int(bits, DType::I32);
        let by = e.mul(i, width);
        let b = e.binary(Binary::Shr, b, by);
        let mask = e.int((1 << bits) - 1, DType::I32);
        let b = e.binary(Binary::And, b, mask);
        e.cast(b, DType::U8)
    })?;
    c.reshape(n, n.tmp(&format!("{what}.numbers")), t, shape)
}

/// Zero points of `count` blocks per row: as numbers, or packed like the weights.
fn zeros<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, z: ValueId, rows: i64, count: i64, bits: i64) -> Lowered<ValueId> {
    let name = |what: &str| n.tmp(&format!("zeros.{what}"));
    let full = vec![Dim::Known(rows), Dim::Known(count), Dim::ONE];
    if c.dtype(z) != DType::U8 || bits == 8 {
        return c.reshape(n, name("blocks"), z, full);
    }
    let each = 8 / bits;
    let bytes = (count + each - 1) / each;
    let z = c.reshaped(n, name("rows"), z, vec![Dim::Known(rows), Dim::Known(bytes)])?;
    let z = unpacked(c, n, "zeros", z, bits)?;
    let z = c.slice(n, name("cut"), z, 1, Dim::ZERO, Dim::Known(count))?;
    c.reshape(n, name("blocks"), z, full)
}

/// `(w - zero) * scale` in the scale's type.
fn real(e: &mut ExprBuilder, a: &[Ref], zero: f64, dz: Option<DType>, d: DType) -> Ref {
    let w = e.cast(a[0], d);
    let z = match (a.get(2), dz) {
        (Some(&z), Some(dz)) if dz == d => z,
        (Some(&z), _) => e.cast(z, d),
        _ => e.constant(zero, d),
    };
    let w = e.sub(w, z);
    e.mul(w, a[1])
}

fn product<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(6)?;
    let (x, w, scales) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let size = |name: &str| -> Lowered<i64> {
        let v = n.int_opt(name)?.filter(|v| (1..=1 << 40).contains(v));
        v.ok_or_else(|| format!("attribute '{name}' must be a positive number").into())
    };
    let (k, rows, block) = (size("K")?, size("N")?, size("block_size")?);
    let bits = n.int("bits", 4)?;
    // They say how exact the product may be and who packed the weights.
    n.int("accuracy_level", 0)?;
    if n.int("weight_prepacked", 0)? != 0 || ![2, 4, 8].contains(&bits) {
        return Err(LowerError::Unsupported("packs its weights for one device, or not in 2, 4 or 8 bits".into()));
    }
    let count = (k + block - 1) / block;
    let bytes = (block * bits + 7) / 8;
    let have = known(c, w, "weights")?.iter().try_fold(1i64, |p, d| p.checked_mul(*d));
    if have.is_none() || have != rows.checked_mul(count).and_then(|p| p.checked_mul(bytes)) {
        return Err(format!("its weights of shape {:?} are not {rows} x {count} blocks of {bytes} bytes", c.shape(w)).into());
    }
    let d = c.dtype(scales);
    let w = c.reshaped(n, n.tmp("w.blocks"), w, vec![Dim::Known(rows), Dim::Known(count), Dim::Known(bytes)])?;
    let w = unpacked(c, n, "w", w, bits)?;
    let blocks = vec![Dim::Known(rows), Dim::Known(count), Dim::ONE];
    let mut inputs = vec![w, c.reshape(n, n.tmp("scales.blocks"), scales, blocks)?];
    let mut dz = None;
    if let Some(z) = n.opt(3) {
        dz = Some(c.dtype(z));
        inputs.push(zeros(c, n, z, rows, count, bits)?);
    }
    let middle = (1i64 << (bits - 1)) as f64;
    let whole = |c: &mut Ctx<'m>, what: &str, v: ValueId| {
        let flat = c.reshape(n, n.tmp(&format!("{what}.rows")), v, vec![Dim::Known(rows), Dim::Known(count * block)])?;
        match count * block == k {
            true => Ok(flat),
            false => c.slice(n, n.tmp(&format!("{what}.cut")), flat, 1, Dim::ZERO, Dim::Known(k)),
        }
    };
    if let Some(groups) = n.opt(4) {
        // Columns have the scales of the groups that they are in, in place of those of their blocks.
        inputs[0] = whole(c, "w.numbers", w)?;
        for (i, v) in inputs.iter_mut().enumerate().skip(1) {
            let flat = c.reshape(n, n.tmp(&format!("group{i}.blocks")), *v, vec![Dim::Known(rows), Dim::Known(count)])?;
            let op = Op::Gather { axis: 1, batch: 0 };
            *v = c.add1(n, op, &[flat, groups], n.tmp(&format!("group{i}")))?;
        }
    }
    let mut w = c.map(n, n.tmp("w.real"), &inputs, |e, a| real(e, a, middle, dz, d))?;
    if n.opt(4).is_none() {
        w = whole(c, "w", w)?;
    }
    let dx = c.dtype(x);
    let w = c.cast(n, n.tmp("w.like"), w, dx)?;
    let name = if n.opt(5).is_some() { n.tmp("product") } else { n.name(0) };
    let mut y = super::matmul::product(c, n, name, x, w, (false, true))?;
    if let Some(b) = n.opt(5) {
        y = c.map(n, n.name(0), &[y, b], |e, a| e.add(a[0], a[1]))?;
    }
    c.set(n, 0, y);
    Ok(())
}

/// Rows of a quantised table: numbers and their scales are gathered, then dequantised.
fn gather<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (mut table, at, scales, zero) = (n.input(0)?, n.input(1)?, n.input(2)?, n.opt(3));
    let (bits, block) = (n.int("bits", 4)?, n.int("block_size", 128)?);
    let dt = c.dtype(table);
    let rank = c.rank(table);
    let (axis, along) = (axis_of(n.int("gather_axis", 0)?, rank)?, axis_of(n.int("quantize_axis", 1)?, rank)?);
    if c.rank(scales) != rank || zero.is_some_and(|z| c.rank(z) != rank) {
        return Err(format!("its scales and zero points must have rank {rank}").into());
    }
    if block < 1 || axis == along || ![2, 4, 8].contains(&bits) {
        return Err(LowerError::Unsupported("gathers along the blocks; gather along another dimension".into()));
    }
    let mut zero = zero;
    let packed = dt == DType::U8 && bits < 8;
    if packed {
        if along != rank - 1 {
            return Err("packed numbers must lie along the last dimension".into());
        }
        if let Some(z) = zero {
            let blocks = known(c, scales, "scales")?[along];
            let z = unpacked(c, n, "zeros", z, bits)?;
            let z = c.cast(n, n.tmp("zeros.bytes"), z, DType::U8)?;
            zero = Some(c.slice(n, n.tmp("zeros.cut"), z, along, Dim::ZERO, Dim::Known(blocks))?);
        }
    } else if dt.bits() == 4 {
        let wide = if dt == DType::I4 { DType::I8 } else { DType::U8 };
        table = c.cast(n, n.tmp("table.bytes"), table, wide)?;
        zero = zero.map(|z| c.cast(n, n.tmp("zeros.bytes"), z, wide)).transpose()?;
    }
    let pick = |c: &mut Ctx<'m>, what: &str, v: ValueId| c.add1(n, Op::Gather { axis, batch: 0 }, &[v, at], n.tmp(what));
    let mut rows = pick(c, "rows", table)?;
    if packed {
        // The bytes are gathered, for rows of a large table are few.
        rows = parts(c, n, "rows", rows, bits)?;
    }
    let d = c.dtype(scales);
    let width = c.shape(rows);
    // The blocks' dimension among the gathered ones.
    let moved = if along > axis { along + c.rank(at) - 1 } else { along };
    let mut inputs = vec![rows];
    let mut dz = None;
    for (what, v) in [("scales", Some(scales)), ("zeros", zero)] {
        let Some(v) = v else { continue };
        if what == "zeros" {
            dz = Some(c.dtype(v));
        }
        let t = pick(c, what, v)?;
        let s = c.shape(t);
        let (mut thin, mut wide, mut flat) = (s.clone(), s.clone(), s.clone());
        thin.insert(moved + 1, Dim::ONE);
        wide.insert(moved + 1, Dim::Known(block));
        flat[moved] = s[moved].clone() * Dim::Known(block);
        let t = c.reshape(n, n.tmp(&format!("{what}.thin")), t, thin)?;
        let t = c.add1(n, Op::View(View::Expand(wide)), &[t], n.tmp(&format!("{what}.wide")))?;
        let t = c.reshape(n, n.tmp(&format!("{what}.flat")), t, flat)?;
        inputs.push(c.slice(n, n.tmp(&format!("{what}.cut")), t, moved, Dim::ZERO, width[moved].clone())?);
    }
    let signed = dt == DType::I4;
    let middle = if signed { 0.0 } else { (1i64 << (bits - 1)) as f64 };
    let middle = if dt == DType::U4 { 0.0 } else { middle };
    let y = c.map(n, n.name(0), &inputs, |e, a| real(e, a, middle, dz, d))?;
    c.set(n, 0, y);
    Ok(())
}
