//! MatMul, MatMulInteger, com.microsoft FusedMatMul.
use super::whole_steps::{parts, step, steps, widened};
use super::{OpDef, op, op_of};
use crate::import::{Ctx, Lowered, NodeView};
use graph::ValueId;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("MatMul", lower), op("MatMulInteger", integer), op_of("com.microsoft", "FusedMatMul", fused),
];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let y = product(c, n, n.name(0), a, b, (false, false))?;
    c.set(n, 0, y);
    Ok(())
}

/// The matrix product by numpy's rule; `transposed` exchanges the last two dimensions first, of which a
/// vector has one.
pub(crate) fn product<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, a: ValueId, b: ValueId, transposed: (bool, bool)) -> Lowered<ValueId> {
    let both = c.compared(n, &name, &[a, b], 2)?;
    let (a, b) = (both[0], both[1]);
    let (sa, sb) = (c.shape(a), c.shape(b));
    if sa.is_empty() || sb.is_empty() {
        return Err("a scalar has no matrix product; use Mul".into());
    }
    const M: u8 = 250;
    const N: u8 = 251;
    const K: u8 = 252;
    let (ba, bb) = (sa.len().saturating_sub(2), sb.len().saturating_sub(2));
    let batch = ba.max(bb);
    if batch > 20 {
        return Err("has too many dimensions".into());
    }
    c.broadcast(n, &sa[..ba], &sb[..bb])?;
    // A batch dimension of extent 1 against another one is dropped: its label is the other's.
    let side = |s: &[Dim], own: usize, other: &[Dim], theirs: usize| {
        let (mut dims, mut labels) = (Vec::new(), Vec::new());
        for (i, d) in s.iter().enumerate().take(own) {
            let at = batch - own + i;
            let facing = (at + theirs).checked_sub(batch).map(|j| &other[j]);
            let dropped = d.is_one() && facing.is_some_and(|f| !f.is_one());
            if !dropped {
                dims.push(d.clone());
                labels.push(at as u8);
            }
        }
        dims.extend_from_slice(&s[own..]);
        (dims, labels)
    };
    let (da, mut la) = side(&sa, ba, &sb, bb);
    let (db, mut lb) = side(&sb, bb, &sa, ba);
    let mut out: Vec<u8> = (0..batch as u8).collect();
    match (sa.len(), transposed.0) {
        (1, _) => la.push(K),
        (_, false) => la.extend([M, K]),
        (_, true) => la.extend([K, M]),
    }
    match (sb.len(), transposed.1) {
        (1, _) => lb.push(K),
        (_, false) => lb.extend([K, N]),
        (_, true) => lb.extend([N, K]),
    }
    out.extend([M, N].into_iter().filter(|l| la.contains(l) || lb.contains(l)));
    let a = c.reshaped(n, format!("{name}.a"), a, da)?;
    let b = c.reshaped(n, format!("{name}.b"), b, db)?;
    // Letters in order of appearance, so that equal products have equal text.
    let mut order: Vec<u8> = Vec::new();
    for l in la.iter().chain(&lb) {
        if !order.contains(l) {
            order.push(*l);
        }
    }
    let small = |ls: &[u8]| -> Vec<u8> {
        ls.iter().filter_map(|l| order.iter().position(|o| o == l)).map(|p| b'a' + p as u8).collect()
    };
    c.contract(n, name, (a, &small(&la)), (b, &small(&lb)), &small(&out))
}

fn integer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let depth = c.shape(a).last().and_then(Dim::known).filter(|_| c.rank(b) == 2 && c.rank(a) <= 16);
    let largest = step(c, a, n.opt(2)) * step(c, b, n.opt(3));
    // Constant factors are laid out for instructions that sum pairs or quads of small integers.
    let grouped = depth.is_some_and(|k| k % 2 == 0) && c.weight_id(b).is_some();
    if let (Some(parts), false) = (depth.and_then(|k| parts(k, largest)), grouped) {
        let y = summed(c, n, a, b, parts)?;
        c.set(n, 0, y);
        return Ok(());
    }
    let a = widened(c, n, n.tmp("a"), a, n.opt(2), 2)?;
    let b = widened(c, n, n.tmp("b"), b, n.opt(3), 1)?;
    let y = product(c, n, n.name(0), a, b, (false, false))?;
    c.set(n, 0, y);
    Ok(())
}

/// The product of integers, exact: in f32 over parts of the summed dimension, which are added up as
/// integers.
fn summed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, a: ValueId, b: ValueId, parts: i64) -> Lowered<ValueId> {
    let rank = c.rank(a);
    let x = steps(c, n, "a", a, n.opt(2), rank.saturating_sub(2))?;
    let w = steps(c, n, "b", b, n.opt(3), 1)?;
    let whole = |e: &mut expr::ExprBuilder, x: &[expr::Ref]| {
        let mut y = e.cast(x[0], DType::I32);
        for &v in &x[1..] {
            let v = e.cast(v, DType::I32);
            y = e.add(y, v);
        }
        y
    };
    if parts == 1 {
        let y = product(c, n, n.tmp("product"), x, w, (false, false))?;
        return c.map(n, n.name(0), &[y], whole);
    }
    let (s, t) = (c.shape(x), c.shape(w));
    let (k, p) = (s[rank - 1].clone(), Dim::Known(parts));
    let each = k.exact_div(&p).ok_or("its depth cannot be cut")?;
    if t[0] != k {
        return Err(format!("multiplies {k} columns by {} rows", t[0]).into());
    }
    let (mut sx, sw) = (s[..rank - 1].to_vec(), vec![p.clone(), each.clone(), t[1].clone()]);
    sx.extend([p, each]);
    let x = c.reshape(n, n.tmp("a.parts"), x, sx)?;
    let w = c.reshape(n, n.tmp("b.parts"), w, sw)?;
    let lead: Vec<u8> = (0..rank as u8 - 1).map(|i| b'a' + i).collect();
    let (la, lo) = ([lead.as_slice(), b"yz"].concat(), [b"y", lead.as_slice(), b"x"].concat());
    let y = c.contract(n, n.tmp("products"), (x, &la), (w, b"yzx"), &lo)?;
    let out = c.shape(y)[1..].to_vec();
    let mut sums = Vec::new();
    for i in 0..parts {
        let one = c.slice(n, n.tmp(&format!("part{i}")), y, 0, Dim::Known(i), Dim::ONE)?;
        sums.push(c.reshape(n, n.tmp(&format!("sum{i}")), one, out.clone())?);
    }
    // Few at a time: an element-wise kernel has so many inputs.
    while sums.len() > 8 {
        let mut fewer = Vec::new();
        for (i, some) in sums.chunks(8).enumerate() {
            fewer.push(c.map(n, n.tmp(&format!("sums{}.{i}", sums.len())), some, whole)?);
        }
        sums = fewer;
    }
    c.map(n, n.name(0), &sums, whole)
}

fn fused<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (mut a, mut b) = (n.input(0)?, n.input(1)?);
    let alpha = n.float("alpha", 1.0)?;
    let t = (n.flag("transA", false)?, n.flag("transB", false)?);
    for (side, flag) in [(&mut a, "transBatchA"), (&mut b, "transBatchB")] {
        let rank = c.rank(*side);
        if n.flag(flag, false)? && rank > 2 {
            // The first dimension becomes the last but one.
            let order: Vec<usize> = (1..rank - 1).chain([0, rank - 1]).collect();
            *side = c.permute(n, n.tmp(flag), *side, order)?;
        }
    }
    let d = c.dtype(a);
    let y = if alpha == 1.0 {
        product(c, n, n.name(0), a, b, t)?
    } else {
        let y = product(c, n, n.tmp("product"), a, b, t)?;
        c.map(n, n.name(0), &[y], |e, x| {
            let k = e.constant(alpha, d);
            e.mul(x[0], k)
        })?
    };
    c.set(n, 0, y);
    Ok(())
}
