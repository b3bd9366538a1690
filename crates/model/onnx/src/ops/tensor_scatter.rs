//! TensorScatter: writes rows of a cache at positions per batch.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use expr::Binary;
use graph::{Op, ScatterReduce};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("TensorScatter", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (past, update, at) = (n.input(0)?, n.input(1)?, n.opt(2));
    let (s, u) = (c.shape(past), c.shape(update));
    let axis = axis_of(n.int("axis", -2)?, s.len())?;
    if axis == 0 || u.len() != s.len() {
        return Err("needs an update of the cache's rank and an axis behind the batch".into());
    }
    let circular = match n.text("mode", "linear")?.as_str() {
        "linear" => false,
        "circular" => true,
        m => return Err(format!("attribute 'mode' is '{m}', it must be linear or circular").into()),
    };
    // Where each row of the update goes: its own coordinates, and along the axis the batch's first
    // position plus its number.
    let lead = u[..=axis].to_vec();
    let mut thin = lead.clone();
    thin.push(Dim::ONE);
    let mut parts = Vec::new();
    for i in 0..axis {
        parts.push(c.fill(n, n.tmp(&format!("at{i}")), &thin, DType::I64, |e| e.index(i as u32))?);
    }
    let extent = s[axis].clone();
    let first = match at {
        Some(at) => {
            let at = c.cast(n, n.tmp("first"), at, DType::I64)?;
            let mut per = vec![Dim::ONE; thin.len()];
            per[0] = s[0].clone();
            let at = c.reshape(n, n.tmp("first.b"), at, per)?;
            c.expand(n, n.tmp("first.wide"), at, thin)?
        }
        None => c.fill(n, n.tmp("first.wide"), &thin, DType::I64, |e| e.int(0, DType::I64))?,
    };
    parts.push(c.map(n, n.tmp("row"), &[first], |e, a| {
        let i = e.index(axis as u32);
        let row = e.add(a[0], i);
        let size = e.dim(&extent);
        if circular { e.binary(Binary::Mod, row, size) } else { row }
    })?);
    let places = c.add1(n, Op::Concat { axis: axis + 1 }, &parts, n.tmp("places"))?;
    let y = c.add1(n, Op::ScatterNd(ScatterReduce::Replace), &[past, places, update], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}
