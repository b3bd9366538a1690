//! Split: one slice per output.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Split", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(if (2..13).contains(&n.opset) { 1 } else { 2 })?;
    let x = n.input(0)?;
    let shape = c.shape(x);
    let axis = axis_of(n.int("axis", 0)?, shape.len())?;
    let d = shape[axis].clone();
    let outs = n.outputs.len();
    let given = match n.opset < 13 && n.opt(1).is_none() {
        true => n.ints("split")?.map(|v| v.into_iter().map(Dim::Known).collect::<Vec<_>>()),
        false => match n.opt(1) {
            None => None,
            Some(v) => match c.sizes(v)? {
                Some(s) => Some(s),
                None => {
                    let mut each: Vec<Option<Dim>> = shape.iter().cloned().map(Some).collect();
                    let dtype = c.dtype(x);
                    let sizes = c.some_sizes(v, outs).into_iter();
                    let part = |k| {
                        each[axis] = k;
                        (dtype, each.clone())
                    };
                    let all: Vec<_> = sizes.map(part).collect();
                    return c.host(n, &all);
                }
            },
        },
    };
    let count = n.int("num_outputs", outs as i64)?;
    if count != outs as i64 || outs == 0 {
        return Err(format!("attribute 'num_outputs' is {count}, the node has {outs} outputs").into());
    }
    let parts = given.unwrap_or_else(|| {
        // The last chunk is smaller when the extent is no multiple.
        let size = d.ceil_div(&Dim::Known(count));
        let last = d.clone() - size.clone() * Dim::Known(count - 1);
        let mut p = vec![size; outs];
        p[outs - 1] = last;
        p
    });
    if parts.len() != outs || parts.iter().any(|p| p.known().is_some_and(|n| n < 0)) {
        return Err(format!("is split into {} parts, but has {outs} outputs", parts.len()).into());
    }
    let total = parts.iter().fold(Dim::ZERO, |a, b| a + b.clone());
    if let (Some(a), Some(b)) = (total.known(), d.known())
        && a != b
    {
        return Err(format!("the parts add up to {a}, dimension {axis} is {b}").into());
    }
    c.assume(n, &total, &d);
    for p in &parts {
        c.assume_at_most(n, &Dim::ZERO, p);
    }
    let mut at = Dim::ZERO;
    for (i, p) in parts.into_iter().enumerate() {
        if n.wants(i) {
            let y = c.slice(n, n.name(i), x, axis, at.clone(), p.clone())?;
            c.set(n, i, y);
        }
        at = at + p;
    }
    Ok(())
}
