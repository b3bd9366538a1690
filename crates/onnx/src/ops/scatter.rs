//! ScatterND, ScatterElements, Scatter.
use super::indexed::element_ranks;
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use graph::{Op, ScatterReduce};
use layout::Dim;

pub(crate) const OPS: &[OpDef] =
    &[op("ScatterND", nd), op("ScatterElements", elements), OpDef { domain: "", name: "Scatter", opsets: (9, 10), lower: elements }];

fn nd<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, i, u) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let how = reduction(n)?;
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
