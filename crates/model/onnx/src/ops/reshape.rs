//! Reshape, Flatten, Squeeze, Unsqueeze.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView, axes_of, axis_of};
use graph::ValueId;
use layout::Dim;

pub(crate) const OPS: &[OpDef] =
    &[op("Reshape", reshape), op("Flatten", flatten), op("Squeeze", squeeze), op("Unsqueeze", unsqueeze)];

fn reshape<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    if n.opset < 5 {
        let target = n.ints("shape")?.ok_or("has no attribute 'shape'")?;
        let target = target.into_iter().map(Dim::Known).collect();
        return reshaped(c, n, x, target, false);
    }
    let t = n.input(1)?;
    let keep_zero = n.flag("allowzero", false)?;
    let Some(target) = c.sizes(t)? else {
        let rank = c.rank_by(n, t)?;
        let from = c.shape(x);
        // The one of -1 follows from the others.
        let size = |(i, d): (usize, Option<Dim>)| match d?.known()? {
            0 if !keep_zero => from.get(i).cloned(),
            k => (k >= 0).then_some(Dim::Known(k)),
        };
        let shape = c.some_sizes(t, rank).into_iter().enumerate().map(size).collect();
        let d = c.dtype(x);
        return c.host(n, &[(d, shape)]);
    };
    reshaped(c, n, x, target, keep_zero)
}

/// `x` in a shape that is known, in numbers or symbols.
fn reshaped<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, target: Vec<Dim>, keep_zero: bool) -> Lowered {
    let from = c.shape(x);
    let mut shape = Vec::new();
    let mut open = None;
    for (i, d) in target.iter().enumerate() {
        shape.push(match d.known() {
            Some(0) if !keep_zero => from.get(i).cloned().ok_or("copies a dimension (0) that its input does not have")?,
            Some(-1) if open.is_none() => {
                open = Some(i);
                Dim::ONE
            }
            Some(v) if v < 0 => return Err(format!("its shape {target:?} holds a wrong number").into()),
            _ => {
                // Where it is 0 it would stand for the input's own.
                if !keep_zero && from.get(i) != Some(d) {
                    c.assume_at_most(n, &Dim::ONE, d);
                }
                d.clone()
            }
        });
    }
    if let Some(i) = open {
        // Factors on both sides go first, so that symbols whose product might be 0 do not matter.
        let (mut whole, mut rest) = (Vec::new(), shape.clone());
        rest.remove(i);
        for d in &from {
            match rest.iter().position(|r| r == d) {
                Some(at) => {
                    rest.remove(at);
                }
                None => whole.push(d.clone()),
            }
        }
        let (whole, rest) = (Dim::product(&whole), Dim::product(&rest));
        shape[i] = match (whole.known(), rest.known()) {
            (Some(_), Some(0)) => Dim::ZERO,
            (Some(a), Some(b)) if a % b != 0 => {
                return Err(format!("cannot bring shape {from:?} to {target:?}").into());
            }
            _ => whole.floor_div(&rest),
        };
    }
    let y = c.reshape(n, n.name(0), x, shape)?;
    c.set(n, 0, y);
    Ok(())
}

fn flatten<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let axis = n.int("axis", 1)?;
    let axis = if axis == s.len() as i64 { s.len() } else { axis_of(axis, s.len())? };
    let shape = vec![Dim::product(&s[..axis]), Dim::product(&s[axis..])];
    let y = c.reshape(n, n.name(0), x, shape)?;
    c.set(n, 0, y);
    Ok(())
}

/// How many axes come from data, where they do.
fn late_axes<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, rank: usize) -> Lowered<Option<usize>> {
    let Some(v) = n.opt(1).filter(|_| n.opset > 12) else { return Ok(None) };
    if c.const_ints(v).is_some() {
        return Ok(None);
    }
    let count = Dim::product(&c.shape(v));
    match c.number(n, &count, 0..=rank.max(2)) {
        Some(k) if k <= rank + 32 => Ok(Some(k)),
        _ => Err(LowerError::Unsupported("the rank of its result depends on data; make its axes constant".into())),
    }
}

fn squeeze<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    if let Some(rank) = late_axes(c, n, s.len())? {
        let out = s.len().checked_sub(rank).ok_or("squeezes more dimensions than there are")?;
        let d = c.dtype(x);
        return c.host(n, &[(d, vec![None; out])]);
    }
    let named = c.axes(n, 1, 12)?;
    let axes = match &named {
        Some(a) => axes_of(a, s.len())?,
        None => (0..s.len()).filter(|&i| s[i].is_one()).collect(),
    };
    if let Some(&a) = axes.iter().find(|&&a| s[a].known().is_some_and(|n| n != 1)) {
        return Err(format!("dimension {a} is {}, only 1 can be squeezed", s[a]).into());
    }
    for &a in &axes {
        c.assume(n, &s[a], &Dim::ONE);
    }
    if named.is_none() {
        // What stays is taken to be longer than 1.
        for d in s.iter().filter(|d| d.known().is_none()) {
            c.assume_at_most(n, &Dim::Known(2), d);
        }
    }
    let shape = (0..s.len()).filter(|i| !axes.contains(i)).map(|i| s[i].clone()).collect();
    let y = c.reshape(n, n.name(0), x, shape)?;
    c.set(n, 0, y);
    Ok(())
}

fn unsqueeze<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let mut shape = c.shape(x);
    if let Some(rank) = late_axes(c, n, shape.len())? {
        let d = c.dtype(x);
        return c.host(n, &[(d, vec![None; shape.len() + rank])]);
    }
    let axes = c.axes(n, 1, 12)?.ok_or("has no axes")?;
    for a in axes_of(&axes, shape.len() + axes.len())? {
        shape.insert(a, Dim::ONE);
    }
    let y = c.reshape(n, n.name(0), x, shape)?;
    c.set(n, 0, y);
    Ok(())
}
