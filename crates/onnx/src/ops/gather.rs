//! Gather, GatherElements, GatherND, ArrayFeatureExtractor.
use super::{OpDef, op, other};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axis_of};
use graph::Op;
use layout::Dim;

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
    let shape = c.shape(i).into_iter().map(Some).collect();
    let d = c.dtype(x);
    c.host(n, &[(d, shape)])
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
    let shape: Vec<Option<Dim>> = lead.iter().chain(&s[from as usize..]).cloned().map(Some).collect();
    c.host(n, &[(d, shape)])
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
