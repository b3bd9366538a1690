//! Any number of arguments: Max, Min, Sum, Mean.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::Binary;

pub(crate) const OPS: &[OpDef] = &[op("Max", lower), op("Min", lower), op("Sum", lower), op("Mean", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let xs = n.all_inputs()?;
    let Some(&first) = xs.first() else {
        return Err("needs at least one input".into());
    };
    let d = c.dtype(first);
    if xs.iter().any(|&x| c.dtype(x) != d) {
        return Err("inputs must have one type".into());
    }
    let f = match n.op {
        "Max" => Binary::Max,
        "Min" => Binary::Min,
        _ => Binary::Add,
    };
    let y = c.map(n, n.name(0), &xs, |e, a| {
        let all = a.iter().copied().reduce(|x, y| e.binary(f, x, y)).unwrap_or(0);
        if n.op == "Mean" {
            let k = e.constant(a.len() as f64, d);
            e.div(all, k)
        } else {
            all
        }
    })?;
    c.set(n, 0, y);
    Ok(())
}
