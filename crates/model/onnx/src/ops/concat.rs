//! Concat.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::Op;

pub(crate) const OPS: &[OpDef] = &[op("Concat", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let xs = n.all_inputs()?;
    let Some(&first) = xs.first() else {
        return Err("needs at least one input".into());
    };
    // It had a default before opset 4.
    let given = n.int_opt("axis")?.or((n.opset < 4).then_some(1));
    let axis = axis_of(given.ok_or("attribute 'axis' is missing")?, c.rank(first))?;
    let y = c.add1(n, Op::Concat { axis }, &xs, n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
