//! ScatterND, ScatterElements, Scatter.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use graph::{Op, ScatterReduce};

pub(crate) const OPS: &[OpDef] =
    &[op("ScatterND", nd), op("ScatterElements", elements), OpDef { domain: "", name: "Scatter", opsets: (9, 10), lower: elements }];

fn nd<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, i, u) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let how = match n.text("reduction", "none")?.as_str() {
        "none" => ScatterReduce::Replace,
        "add" => ScatterReduce::Add,
        "mul" => ScatterReduce::Mul,
        "max" => ScatterReduce::Max,
        "min" => ScatterReduce::Min,
        r => return Err(format!("attribute 'reduction' is '{r}', it must be none, add, mul, max or min").into()),
    };
    let y = c.add1(n, Op::ScatterNd(how), &[x, i, u], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

fn elements<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let x = n.input(0)?;
    let (d, shape) = (c.dtype(x), c.shape(x).into_iter().map(Some).collect());
    c.host(n, &[(d, shape)])
}
