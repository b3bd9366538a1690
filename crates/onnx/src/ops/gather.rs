//! Gather, GatherElements, GatherND, ArrayFeatureExtractor.
use super::indexed::{element_ranks, or_nowhere, strides, wrapped};
use super::{OpDef, op, other};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of};
use graph::Op;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("Gather", gather), op("GatherElements", elements), op("GatherND", nd),
    other("ai.onnx.ml", "ArrayFeatureExtractor", features),
];

fn gather<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, i) = (n.input(0)?, n.input(1)?);
    let axis = axis_of(n.int("axis", 0)?, c.rank(x))?;
    let y = c.add1(n, Op::Gather { axis }, &[x, i], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn elements<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, i) = (n.input(0)?, n.input(1)?);
    let s = c.shape(x);
    let axis = axis_of(n.int("axis", 0)?, s.len())?;
    let ranks = element_ranks(c, n, i, &s, axis)?;
    let flat = c.reshaped(n, n.tmp("flat"), x, vec![Dim::product(&s)])?;
    let y = c.add1(n, Op::Gather { axis: 0 }, &[flat, ranks], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn nd<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, i) = (n.input(0)?, n.input(1)?);
    let (s, t, d) = (c.shape(x), c.shape(i), c.dtype(x));
    let b = n.int("batch_dims", 0)?;
    let Some((last, lead)) = t.split_last() else {
        return Err("its indices need rank 1 or more".into());
    };
    let Some(k) = last.known() else {
        return Err(LowerError::Unsupported("how many indices make a place depends on data; give the shape with --shape".into()));
    };
    let from = b.checked_add(k).filter(|&f| b >= 0 && k >= 0 && f <= s.len() as i64);
    let Some(from) = from else {
        return Err(format!("indexes {k} dimensions behind {b} batch dimensions of a tensor of rank {}", s.len()).into());
    };
    let (b, k, from) = (b as usize, k as usize, from as usize);
    if k > 16 {
        let shape: Vec<Option<Dim>> = lead.iter().chain(&s[from..]).cloned().map(Some).collect();
        return c.host(n, &[(d, shape)]);
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
    let y = c.add1(n, Op::Gather { axis: 0 }, &[x, ranks], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
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
    let y = c.add1(n, Op::Gather { axis }, &[x, i], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
