//! Where.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("Where", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (k, a, b) = (n.input(0)?, n.input(1)?, n.input(2)?);
    if c.dtype(k) != DType::Bool || c.dtype(a) != c.dtype(b) {
        return Err("needs a bool condition and two inputs of one type".into());
    }
    let y = c.map(n, n.name(0), &[k, a, b], |e, x| e.select(x[0], x[1], x[2]))?;
    c.set(n, 0, y);
    Ok(())
}
