//! AffineGrid: the base grid times a matrix per sample, where the size is known.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{ExprBuilder, Ref};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("AffineGrid", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (theta, size) = (n.input(0)?, n.input(1)?);
    let (t, d) = (c.shape(theta), c.dtype(theta));
    let corners = n.flag("align_corners", false)?;
    let axes = t.get(1).and_then(Dim::known).filter(|k| t.len() == 3 && (2..=3).contains(k));
    let axes = axes.ok_or("needs matrices of 2 x 3 or 3 x 4")? as usize;
    let Some(size) = c.sizes(size)? else {
        let mut out = c.some_sizes(size, axes + 2);
        out.drain(..2);
        out.insert(0, Some(t[0].clone()));
        out.push(Some(Dim::from(axes)));
        return c.host(n, &[(d, out)]);
    };
    if size.len() != axes + 2 {
        return Err(format!("has {} sizes for matrices of {axes} rows", size.len()).into());
    }
    let space = &size[2..];
    // Coordinates run from x on, which is the last dimension, and end with 1.
    let mut base = space.to_vec();
    base.push(Dim::from(axes + 1));
    let f = if d == DType::F64 { d } else { DType::F32 };
    let coordinate = |e: &mut ExprBuilder, axis: usize| -> Ref {
        let (i, extent) = (e.index(axis as u32), e.dim(&space[axis]));
        let (i, extent) = (e.cast(i, f), e.cast(extent, f));
        let (one, two) = (e.constant(1.0, f), e.constant(2.0, f));
        let i = e.mul(i, two);
        if corners {
            let span = e.sub(extent, one);
            // A single point lies at -1.
            let span = e.binary(expr::Binary::Max, span, one);
            let p = e.div(i, span);
            e.sub(p, one)
        } else {
            let i = e.add(i, one);
            let p = e.div(i, extent);
            e.sub(p, one)
        }
    };
    let base = c.fill(n, n.tmp("base"), &base, f, |e| {
        let which = e.index(axes as u32);
        let mut out = e.constant(1.0, f);
        for k in 0..axes {
            let (at, v) = (e.int(k as i64, DType::I64), coordinate(e, axes - 1 - k));
            let here = e.compare(expr::Compare::Eq, which, at);
            out = e.select(here, v, out);
        }
        out
    })?;
    let theta = c.cast(n, n.tmp("wide"), theta, f)?;
    let (spatial, name) = (&b"xyz"[..axes], if d == f { n.name(0) } else { n.tmp("grid") });
    let labels = [spatial, b"k"].concat();
    let out = [b"n", spatial, b"r"].concat();
    let y = c.contract(n, name, (base, &labels), (theta, b"nrk"), &out)?;
    let y = c.cast(n, n.name(0), y, d)?;
    c.set(n, 0, y);
    Ok(())
}
