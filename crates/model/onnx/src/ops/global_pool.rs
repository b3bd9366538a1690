//! GlobalAveragePool, GlobalMaxPool, GlobalLpPool: reductions over the spatial dimensions.
use super::{OpDef, op, reduce};
use crate::import::{Ctx, Lowered, NodeView, monoids};

pub(crate) const OPS: &[OpDef] = &[op("GlobalAveragePool", lower), op("GlobalMaxPool", lower), op("GlobalLpPool", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (rank, d) = (c.rank(x), c.dtype(x));
    if rank < 2 {
        return Err(format!("needs rank 2 or more, its input has {rank}").into());
    }
    let axes: Vec<usize> = (2..rank).collect();
    let m = match n.op {
        "GlobalAveragePool" => monoids::mean(d, &c.count(x, &axes)),
        "GlobalMaxPool" => monoids::max(d),
        _ => match n.number("p", 2.0)? {
            1.0 => reduce::l1(d),
            2.0 => reduce::l2(d),
            p => reduce::lp(d, p),
        },
    };
    let y = c.reduce(n, n.name(0), x, m, &axes, true)?;
    c.set(n, 0, y);
    Ok(())
}
