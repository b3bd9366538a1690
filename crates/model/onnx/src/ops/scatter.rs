//! ScatterND, ScatterElements, Scatter.
use super::gather::places;
use super::indexed::element_ranks;
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::{Op, ScatterReduce, ValueId, View};
use layout::Dim;

pub(crate) const OPS: &[OpDef] =
    &[op("ScatterND", nd), op("ScatterElements", elements), OpDef { domain: "", name: "Scatter", opsets: (9, 10), lower: elements }];

fn nd<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, i, u) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let how = reduction(n)?;
    let last = c.shape(i).last().cloned().ok_or("its indices need rank 1 or more")?;
    let (i, _) = places(c, n, i, &last, c.rank(x))?;
    let y = c.add1(n, Op::ScatterNd(how), &[x, i, u], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn elements<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, i, u) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (s, t) = (c.shape(x), c.shape(i));
    let axis = axis_of(n.int("axis", 0)?, s.len())?;
    let how = reduction(n)?;
    if let Some(thin) = repeated(c, i, u, &s, axis) {
        return rows(c, n, thin, axis, how);
    }
    let ranks = element_ranks(c, n, i, &s, axis)?;
    let count = Dim::product(&t);
    let places = c.reshape(n, n.tmp("places"), ranks, vec![count.clone(), Dim::ONE])?;
    let updates = c.reshaped(n, n.tmp("updates"), u, vec![count])?;
    let flat = c.reshaped(n, n.tmp("flat"), x, vec![Dim::product(&s)])?;
    let y = c.add1(n, Op::ScatterNd(how), &[flat, places, updates], n.tmp("scattered"))?;
    let y = c.reshape(n, n.name(0), y, s)?;
    c.set(n, 0, y);
    Ok(())
}

/// The indices before they were repeated along every dimension but `axis` of data of shape `s`: each
/// then names a whole slice.
fn repeated(c: &mut Ctx, i: ValueId, u: ValueId, s: &[Dim], axis: usize) -> Option<ValueId> {
    let (t, updates) = (c.shape(i), c.shape(u));
    let whole = t.len() == s.len() && (0..s.len()).all(|k| k == axis || t[k] == s[k]);
    if !whole || updates != t {
        return None;
    }
    let made = c.b().graph().producer(i)?;
    let Op::View(View::Expand(_)) = made.op else { return None };
    let thin = *made.inputs.first()?;
    let own = c.shape(thin);
    let missing = t.len().checked_sub(own.len())?;
    let along = |k: usize| k.checked_sub(missing).map_or(Dim::ONE, |k| own[k].clone());
    let slices = (0..t.len()).all(|k| if k == axis { along(k) == t[k] } else { along(k).is_one() });
    slices.then_some(thin)
}

/// Whole slices along `axis`.
fn rows<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, thin: ValueId, axis: usize, how: ScatterReduce) -> Lowered {
    let (x, u) = (n.input(0)?, n.input(2)?);
    let r = c.rank(x);
    let count = c.shape(u)[axis].clone();
    let at = c.reshape(n, n.tmp("rows"), thin, vec![count, Dim::ONE])?;
    let front: Vec<usize> = [axis].into_iter().chain((0..r).filter(|&d| d != axis)).collect();
    if axis == 0 {
        let y = c.add1(n, Op::ScatterNd(how), &[x, at, u], n.name(0))?;
        c.set(n, 0, y);
        return Ok(());
    }
    let x = c.permute(n, n.tmp("data"), x, front.clone())?;
    let u = c.permute(n, n.tmp("updates"), u, front.clone())?;
    let y = c.add1(n, Op::ScatterNd(how), &[x, at, u], n.tmp("scattered"))?;
    let back: Vec<usize> = (0..r).map(|d| front.iter().position(|&f| f == d).unwrap_or(d)).collect();
    let y = c.permute(n, n.name(0), y, back)?;
    c.set(n, 0, y);
    Ok(())
}

fn reduction<'m>(n: &NodeView<'m>) -> Lowered<ScatterReduce> {
    Ok(match n.text("reduction", "none")?.as_str() {
        "none" => ScatterReduce::Replace,
        "add" => ScatterReduce::Add,
        "mul" => ScatterReduce::Mul,
        "max" => ScatterReduce::Max,
        "min" => ScatterReduce::Min,
        r => return Err(format!("attribute 'reduction' is '{r}', it must be none, add, mul, max or min").into()),
    })
}
