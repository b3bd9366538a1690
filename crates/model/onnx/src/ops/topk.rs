//! TopK: k as attribute before opset 10, as input since.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::Op;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("TopK", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let axis = axis_of(n.int("axis", -1)?, s.len())?;
    let descending = n.flag("largest", true)?;
    // Sorted is one of the orders allowed otherwise.
    n.flag("sorted", true)?;
    let k = if n.opset < 10 {
        Some(Dim::Known(n.int_opt("k")?.ok_or("attribute 'k' is missing")?))
    } else {
        c.sizes(n.input(1)?)?.and_then(|k| k.first().cloned())
    };
    let Some(k) = k else {
        let d = c.dtype(x);
        let mut s: Vec<Option<Dim>> = s.into_iter().map(Some).collect();
        s[axis] = None;
        return c.host(n, &[(d, s.clone()), (DType::I64, s)]);
    };
    if let (Some(k), Some(d)) = (k.known(), s[axis].known())
        && (k < 0 || k > d)
    {
        return Err(format!("keeps {k} of {d} elements").into());
    }
    let ys = c.add(n, Op::Sort { axis, k, descending }, &[x], &[n.name(0), n.name(1)])?;
    for (i, y) in ys.into_iter().enumerate() {
        c.set(n, i, y);
    }
    Ok(())
}
