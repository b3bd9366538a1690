//! Dropout: nothing in inference; in training, elements are dropped by the counting generator.
use super::random::{rank_of, seed, unit};
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, Unary};
use graph::ValueId;
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("Dropout", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(if n.opset < 12 { 1 } else { 3 })?;
    let x = n.input(0)?;
    let (s, d) = (c.shape(x), c.dtype(x));
    // They say what training would do.
    let ratio = n.float("ratio", 0.5)?;
    if n.opset < 7 {
        n.flag("is_test", false)?;
    }
    let seed = seed(n)?;
    let training = n.opt(2).filter(|&t| c.const_ints(t).is_none_or(|t| t != [0]));
    if let Some(t) = training {
        return train(c, n, x, t, ratio, seed);
    }
    let y = c.reshape(n, n.name(0), x, s.clone())?;
    c.set(n, 0, y);
    if n.wants(1) {
        let d = if n.opset >= 10 { DType::Bool } else { d };
        let m = c.fill(n, n.name(1), &s, d, |e| e.constant(1.0, d))?;
        c.set(n, 1, m);
    }
    Ok(())
}

fn train<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, on: ValueId, ratio: f64, seed: u64) -> Lowered {
    let (s, d) = (c.shape(x), c.dtype(x));
    let f = DType::F32;
    let share = match n.opt(1) {
        Some(r) => c.cast(n, n.tmp("ratio"), r, f)?,
        None => c.fill(n, n.tmp("ratio"), &[], f, |e| e.constant(ratio, f))?,
    };
    let share = c.reshaped(n, n.tmp("ratio.scalar"), share, vec![])?;
    let on = c.reshaped(n, n.tmp("on.scalar"), on, vec![])?;
    let shape = s.clone();
    let wide = c.expand(n, n.tmp("ratio.wide"), share, s)?;
    let mask = c.map(n, n.name(1), &[wide, on], |e, a| {
        let at = rank_of(e, &shape);
        let u = unit(e, at, seed);
        let kept = e.compare(Compare::Ge, u, a[0]);
        let off = e.unary(Unary::Not, a[1]);
        e.binary(Binary::Or, kept, off)
    })?;
    let y = c.map(n, n.name(0), &[x, mask, share, on], |e, a| {
        let (one, zero) = (e.constant(1.0, f), e.constant(0.0, d));
        let rest = e.sub(one, a[2]);
        let k = e.div(one, rest);
        let k = e.select(a[3], k, one);
        let k = if d == f { k } else { e.cast(k, d) };
        let kept = e.mul(a[0], k);
        e.select(a[1], kept, zero)
    })?;
    c.set(n, 0, y);
    if n.wants(1) {
        c.set(n, 1, mask);
    }
    Ok(())
}
