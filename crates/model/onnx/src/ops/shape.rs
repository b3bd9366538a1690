//! Shape and Size: contents known at once.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("Shape", shape), op("Size", size)];

fn shape<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let s = c.shape(n.input(0)?);
    let r = s.len() as i64;
    let at = |v: i64| (if v < 0 { v.saturating_add(r) } else { v }).clamp(0, r) as usize;
    let (start, end) = (at(n.int("start", 0)?), n.int_opt("end")?.map_or(s.len(), at));
    let part = &s[start..end.max(start)];
    let y = c.fill_dims(n, n.name(0), &[Dim::from(part.len())], DType::I64, part)?;
    c.set(n, 0, y);
    Ok(())
}

fn size<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let s = Dim::product(&c.shape(n.input(0)?));
    let y = c.fill_dims(n, n.name(0), &[], DType::I64, &[s])?;
    c.set(n, 0, y);
    Ok(())
}
