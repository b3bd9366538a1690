//! Gather, GatherElements, GatherND, ArrayFeatureExtractor.
use super::indexed::{element_ranks, or_nowhere, strides, wrapped};
use super::{OpDef, op, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of};
use graph::{Op, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("Gather", gather), op("GatherElements", elements), op("GatherND", nd),
    op_of("ai.onnx.ml", "ArrayFeatureExtractor", features),
];

fn gather<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, i) = (n.input(0)?, n.input(1)?);
    let axis = axis_of(n.int("axis", 0)?, c.rank(x))?;
    if let (Some(all), Some(d)) = (c.const_ints(i), c.shape(x)[axis].known())
        && let Some(at) = all.iter().find(|at| !(-d..d).contains(*at))
    {
        return Err(format!("index {at} is outside dimension {axis} of {d}").into());
    }
    let y = c.add1(n, Op::Gather { axis, batch: 0 }, &[x, i], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn elements<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, i) = (n.input(0)?, n.input(1)?);
    let s = c.shape(x);
    let axis = axis_of(n.int("axis", 0)?, s.len())?;
    if let Some(y) = along(c, n, (x, i), axis)? {
        c.set(n, 0, y);
        return Ok(());
    }
    let ranks = element_ranks(c, n, i, &s, axis)?;
    let flat = c.reshaped(n, n.tmp("flat"), x, vec![Dim::product(&s)])?;
    let y = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[flat, ranks], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

/// Elements picked along `axis`, each position of the other dimensions by indices of its own: one gather where
/// these dimensions are known to agree.
fn along<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, (x, i): (ValueId, ValueId), axis: usize) -> Lowered<Option<ValueId>> {
    let (s, t) = (c.shape(x), c.shape(i));
    let within = |d: usize| matches!((s[d].known(), t[d].known()), (Some(s), Some(t)) if t <= s);
    let others: Vec<usize> = (0..s.len()).filter(|&d| d != axis).collect();
    if t.len() != s.len() || !others.iter().all(|&d| s[d] == t[d] || within(d)) {
        return Ok(None);
    }
    let mut data = x;
    for &d in others.iter().filter(|&&d| s[d] != t[d]) {
        data = c.slice(n, n.tmp(&format!("part{d}")), data, d, Dim::ZERO, t[d].clone())?;
    }
    let (batch, mut by) = (others.len(), i);
    let op = Op::Gather { axis: batch, batch };
    if axis == batch {
        return Ok(Some(c.add1(n, op, &[data, by], n.name(0))?));
    }
    let perm: Vec<usize> = others.into_iter().chain([axis]).collect();
    data = c.permute(n, n.tmp("last"), data, perm.clone())?;
    by = c.permute(n, n.tmp("indices.last"), by, perm)?;
    let y = c.add1(n, op, &[data, by], n.tmp("picked"))?;
    let back = (0..axis).chain([batch]).chain(axis..batch).collect();
    Ok(Some(c.permute(n, n.name(0), y, back)?))
}

fn nd<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, i) = (n.input(0)?, n.input(1)?);
    let (s, t, d) = (c.shape(x), c.shape(i), c.dtype(x));
    let b = n.int("batch_dims", 0)?;
    let Some((last, lead)) = t.split_last() else {
        return Err("its indices need rank 1 or more".into());
    };
    let (i, k) = places(c, n, i, last, s.len())?;
    let batch = usize::try_from(b).ok();
    let from = batch.and_then(|b| Some((b, b.checked_add(k)?))).filter(|f| f.1 <= s.len());
    let Some((b, from)) = from else {
        return Err(format!("indexes {k} dimensions behind {b} batch dimensions of a tensor of rank {}", s.len()).into());
    };
    if k > 16 {
        let shape: Vec<Option<Dim>> = lead.iter().chain(&s[from..]).cloned().map(Some).collect();
        return c.host(n, &[(d, shape)]);
    }
    if k == 1 && s[..b] == t[..b] && b < t.len() {
        let by = c.reshape(n, n.tmp("indices"), i, lead.to_vec())?;
        let y = c.add1(n, Op::Gather { axis: b, batch: b }, &[x, by], n.name(0))?;
        c.set(n, 0, y);
        return Ok(());
    }
    // Rank among the slices that the indexed dimensions pick.
    let by = strides(&s[..from]);
    let last = t.len() - 1;
    let mut parts = Vec::new();
    for j in 0..k {
        let part = c.slice(n, n.tmp(&format!("index{j}")), i, last, Dim::from(j), Dim::ONE)?;
        parts.push(c.reshape(n, n.tmp(&format!("index{j}.thin")), part, lead.to_vec())?);
    }
    let di = c.dtype(i);
    let program = |e: &mut expr::ExprBuilder, a: &[expr::Ref]| {
        let mut rank = e.int(0, DType::I64);
        let mut valid = e.int(1, DType::Bool);
        for (d, stride) in by.iter().enumerate() {
            let at = match d.checked_sub(b) {
                None => e.index(d as u32),
                Some(j) => {
                    let (at, inside) = wrapped(e, a[j], di, &s[d]);
                    valid = e.binary(expr::Binary::And, valid, inside);
                    at
                }
            };
            let stride = e.dim(stride);
            let part = e.mul(at, stride);
            rank = e.add(rank, part);
        }
        or_nowhere(e, valid, rank)
    };
    let ranks = match parts.is_empty() {
        true => c.fill(n, n.tmp("ranks"), lead, DType::I64, |e| program(e, &[]))?,
        false => c.map(n, n.tmp("ranks"), &parts, |e, a| program(e, a))?,
    };
    let mut flat = vec![Dim::product(&s[..from])];
    flat.extend_from_slice(&s[from..]);
    let x = c.reshaped(n, n.tmp("flat"), x, flat)?;
    let y = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[x, ranks], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

/// The indices `i`, whose last extent is `last`, of places in a tensor of `rank` dimensions, and how many indices make
/// a place.
pub(super) fn places<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, i: ValueId, last: &Dim, rank: usize) -> Lowered<(ValueId, usize)> {
    let Some(k) = c.number(n, last, 1..=rank) else {
        return Err(LowerError::Unsupported("how many indices make a place depends on data; give the shape with --shape".into()));
    };
    let mut shape = c.shape(i);
    if let Some(last) = shape.last_mut() {
        *last = Dim::from(k);
    }
    Ok((c.reshaped(n, n.tmp("places"), i, shape)?, k))
}

/// The last dimension's elements at the given places.
fn features<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (mut x, i) = (n.input(0)?, n.input(1)?);
    let s = c.shape(x);
    if s.len() == 1 {
        // One row, as the standard's own evaluator has it.
        x = c.reshape(n, n.tmp("row"), x, vec![Dim::ONE, s[0].clone()])?;
    }
    let Some(axis) = c.rank(x).checked_sub(1) else {
        return Err("needs a tensor of rank 1 or more".into());
    };
    let count = Dim::product(&c.shape(i));
    let i = c.reshaped(n, n.tmp("indices"), i, vec![count])?;
    let y = c.add1(n, Op::Gather { axis, batch: 0 }, &[x, i], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
