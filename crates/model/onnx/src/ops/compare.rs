//! Comparisons.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::Compare;

pub(crate) const OPS: &[OpDef] = &[
    op("Equal", lower), op("Greater", lower), op("GreaterOrEqual", lower), op("Less", lower), op("LessOrEqual", lower),
];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let b = super::binary::aligned(c, n, a, b)?;
    if c.dtype(a) != c.dtype(b) {
        return Err(format!("inputs have types {} and {}, they must be one", c.dtype(a), c.dtype(b)).into());
    }
    let f = match n.op {
        "Equal" => Compare::Eq,
        "Greater" => Compare::Gt,
        "GreaterOrEqual" => Compare::Ge,
        "Less" => Compare::Lt,
        _ => Compare::Le,
    };
    let y = c.map(n, n.name(0), &[a, b], |e, x| e.compare(f, x[0], x[1]))?;
    c.set(n, 0, y);
    Ok(())
}
