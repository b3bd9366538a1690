//! Transpose.
use layout::Arrange;
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};

pub(crate) const OPS: &[OpDef] = &[op("Transpose", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let rank = c.rank(x);
    let perm: Vec<usize> = match n.ints("perm")? {
        None => (0..rank).rev().collect(),
        Some(p) => {
            let mut sorted = p.clone();
            sorted.arrange();
            if sorted != (0..rank as i64).collect::<Vec<_>>() {
                return Err(format!("attribute 'perm' {p:?} is no order of {rank} dimensions").into());
            }
            p.iter().map(|&i| i as usize).collect()
        }
    };
    let y = c.permute(n, n.name(0), x, perm)?;
    c.set(n, 0, y);
    Ok(())
}
