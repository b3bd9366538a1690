//! Identity.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};

pub(crate) const OPS: &[OpDef] = &[op("Identity", identity)];

fn identity<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    if c.dtype(x).is_held() {
        c.set(n, 0, x);
        return Ok(());
    }
    let s = c.shape(x);
    let y = c.reshape(n, n.name(0), x, s)?;
    c.set(n, 0, y);
    Ok(())
}
