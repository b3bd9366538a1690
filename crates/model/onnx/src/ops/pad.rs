//! Pad: pads as attribute before opset 11, as input since.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::{Op, PadMode, ValueId};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("Pad", lower)];

/// `x` without what negative rims cut off, which is not there for the other side to repeat; they are
/// 0 then.
fn cut<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, d: usize, rims: [&mut Dim; 2]) -> Lowered<ValueId> {
    let [from, to] = rims.map(|r| match r.known().filter(|k| *k < 0) {
        Some(k) => {
            *r = Dim::ZERO;
            -k
        }
        None => 0,
    });
    if from == 0 && to == 0 {
        return Ok(x);
    }
    let extent = c.shape(x)[d].clone() - Dim::Known(from) - Dim::Known(to);
    if extent.known().is_some_and(|e| e < 0) {
        return Err(format!("cuts {from} and {to} off an extent of {}", c.shape(x)[d]).into());
    }
    c.slice(n, n.tmp(&format!("cut{d}")), x, d, Dim::Known(from), extent)
}

/// Takes for granted that a rim which repeats a dimension finds something there, and a reflected one
/// no more than the dimension has beside its edge.
fn reaches<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, mode: PadMode, extent: &Dim, rims: [&Dim; 2]) -> Lowered {
    for rim in rims.into_iter().filter(|r| !r.is_zero()) {
        let least = if mode == PadMode::Reflect { rim.clone() + Dim::ONE } else { Dim::ONE };
        match (least.known(), extent.known()) {
            (Some(a), Some(b)) if a > b => {
                return Err(format!("pads an extent of {extent} by {rim}, for which it needs {least} or more; use mode constant or pad less").into());
            }
            (Some(_), Some(_)) => {}
            _ => c.assume_at_most(n, &least, extent),
        }
    }
    Ok(())
}

/// A pad by numbers that only the data gives; `axes`: what it pads, where that is known.
fn by_host<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, axes: Option<&Vec<i64>>) -> Lowered {
    let (s, d) = (c.shape(n.input(0)?), c.dtype(n.input(0)?));
    let Some(axes) = axes else {
        return c.host(n, &[(d, vec![None; s.len()])]);
    };
    let rims = c.some_sizes(n.input(1)?, 2 * axes.len());
    let mut out: Vec<Option<Dim>> = s.iter().cloned().map(Some).collect();
    for (i, &a) in axes.iter().enumerate() {
        let (before, after) = (rims[i].clone(), rims[i + axes.len()].clone());
        let a = axis_of(a, s.len())?;
        out[a] = before.zip(after).map(|(b, e)| s[a].clone() + b + e).filter(Dim::provably_nonneg);
    }
    c.host(n, &[(d, out)])
}

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
        return by_host(c, n, known.then_some(&axes));
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
    if mode != PadMode::Constant {
        for d in 0..rank {
            inputs[0] = cut(c, n, inputs[0], d, [&mut before[d], &mut after[d]])?;
            let extent = c.shape(inputs[0])[d].clone();
            reaches(c, n, mode, &extent, [&before[d], &after[d]])?;
        }
    } else if c.shape(x).iter().any(Dim::is_zero) {
        // There is only the rim.
        let value = match inputs.get(1) {
            Some(&v) => v,
            None => c.fill(n, n.tmp("value"), &[], d, |e| e.constant(0.0, d))?,
        };
        let s = c.shape(x);
        let shape = (0..rank).map(|i| s[i].clone() + before[i].clone() + after[i].clone()).collect();
        let y = c.expand(n, n.name(0), value, shape)?;
        c.set(n, 0, y);
        return Ok(());
    }
    let y = c.add1(n, Op::Pad { before, after, mode }, &inputs, n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
