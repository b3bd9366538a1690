//! OneHot.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, Num, axis_of};
use expr::{Binary, Compare};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("OneHot", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (i, depth, values) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let mut shape = c.shape(i);
    let axis = axis_of(n.int("axis", -1)?, shape.len() + 1)?;
    let k: Option<Dim> = c.known(depth).and_then(|d| d.first().and_then(Num::dim));
    let (d, t) = (c.dtype(values), c.dtype(i));
    // Texts are the host's.
    let Some(k) = k.clone().filter(|_| d != DType::Str) else {
        let mut s: Vec<Option<Dim>> = shape.into_iter().map(Some).collect();
        s.insert(axis, k);
        return c.host(n, &[(d, s)]);
    };
    if c.shape(values) != [Dim::Known(2)] {
        return Err("its values must be the two numbers for off and on".into());
    }
    shape.insert(axis, Dim::ONE);
    let i = c.reshape(n, n.tmp("indices"), i, shape.clone())?;
    shape[axis] = k.clone();
    let i = c.expand(n, n.tmp("wide"), i, shape)?;
    let off = c.slice(n, n.tmp("off"), values, 0, Dim::ZERO, Dim::ONE)?;
    let on = c.slice(n, n.tmp("on"), values, 0, Dim::ONE, Dim::ONE)?;
    let y = c.map(n, n.name(0), &[i, off, on], |e, a| {
        let i = if t == DType::I64 { a[0] } else { e.cast(a[0], DType::I64) };
        let (zero, k) = (e.int(0, DType::I64), e.dim(&k));
        let neg = e.compare(Compare::Lt, i, zero);
        let back = e.binary(Binary::Add, i, k);
        let i = e.select(neg, back, i);
        let at = e.index(axis as u32);
        let here = e.compare(Compare::Eq, i, at);
        e.select(here, a[2], a[1])
    })?;
    c.set(n, 0, y);
    Ok(())
}
