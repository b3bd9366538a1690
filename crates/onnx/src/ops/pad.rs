//! Pad: pads as attribute before opset 11, as input since.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::{Op, PadMode};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Pad", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let (rank, d) = (c.rank(x), c.dtype(x));
    let mode = match n.text("mode", "constant")?.as_str() {
        "constant" => PadMode::Constant,
        "edge" => PadMode::Edge,
        "reflect" => PadMode::Reflect,
        "wrap" => PadMode::Wrap,
        m => return Err(format!("attribute 'mode' is '{m}', it must be constant, edge, reflect or wrap").into()),
    };
    let mut inputs = vec![x];
    let pads: Option<Vec<Dim>>;
    let mut axes: Vec<i64> = (0..rank as i64).collect();
    let mut known = true;
    if n.opset < 11 {
        n.at_most(1)?;
        let name = if n.opset < 2 { "paddings" } else { "pads" };
        pads = n.ints(name)?.map(|p| p.into_iter().map(Dim::Known).collect());
        let value = n.float("value", 0.0)?;
        if value != 0.0 && mode == PadMode::Constant {
            inputs.push(c.fill(n, n.tmp("value"), &[], d, |e| e.constant(value, d))?);
        }
    } else {
        n.at_most(4)?;
        pads = c.sizes(n.input(1)?)?;
        if let Some(a) = n.opt(3) {
            match c.const_ints(a) {
                Some(a) => axes = a,
                None => known = false,
            }
        }
        if let Some(v) = n.opt(2).filter(|_| mode == PadMode::Constant) {
            let v = c.reshaped(n, n.tmp("value"), v, vec![])?;
            if c.dtype(v) != d {
                return Err(format!("the value outside has type {}, the input {d}", c.dtype(v)).into());
            }
            inputs.push(v);
        }
    }
    let Some(pads) = pads.filter(|_| known) else {
        return c.host(n, &[(d, vec![None; rank])]);
    };
    if pads.len() != 2 * axes.len() {
        return Err(format!("has {} pads for {} dimensions", pads.len(), axes.len()).into());
    }
    let (mut before, mut after) = (vec![Dim::ZERO; rank], vec![Dim::ZERO; rank]);
    for (i, &a) in axes.iter().enumerate() {
        let a = axis_of(a, rank)?;
        before[a] = pads[i].clone();
        after[a] = pads[i + axes.len()].clone();
    }
    let y = c.add1(n, Op::Pad { before, after, mode }, &inputs, n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
