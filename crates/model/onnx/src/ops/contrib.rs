//! com.microsoft operators that are short forms of others.
use super::{OpDef, activation, layer_norm, op_of};
use crate::import::{Ctx, Lowered, NodeView, monoids};
use expr::Unary;

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "BiasGelu", gelu), op_of(MS, "FastGelu", gelu), op_of(MS, "Gelu", gelu), op_of(MS, "QuickGelu", quick),
    op_of(MS, "SkipLayerNormalization", skip), op_of(MS, "SkipSimplifiedLayerNormalization", skip),
];

fn gelu<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let inputs: Vec<_> = [x].into_iter().chain(n.opt(1)).collect();
    let y = c.map_wide(n, n.name(0), &inputs, |e, a, d| {
        let x = match a.get(1) {
            Some(&b) => e.add(a[0], b),
            None => a[0],
        };
        if n.op == "FastGelu" { activation::gelu_tanh(e, x, d) } else { activation::gelu_erf(e, x, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn quick<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let alpha = n.float("alpha", 1.702)?;
    let y = c.map_wide(n, n.name(0), &[x], |e, a, d| {
        let k = e.constant(alpha, d);
        let s = e.mul(k, a[0]);
        let s = e.unary(Unary::Sigmoid, s);
        e.mul(a[0], s)
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// Norm of the sum of input, skip and bias; the sum is output 3.
fn skip<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let rms = n.op == "SkipSimplifiedLayerNormalization";
    n.at_most(if rms { 4 } else { 5 })?;
    let (x, s, gamma) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (beta, bias) = if rms { (None, n.opt(3)) } else { (n.opt(3), n.opt(4)) };
    let d = c.dtype(x);
    let eps = n.float("epsilon", 1e-12)?;
    let inputs: Vec<_> = [x, s].into_iter().chain(bias).collect();
    let sum = c.map(n, n.name(3), &inputs, |e, a| a.iter().copied().reduce(|x, y| e.add(x, y)).unwrap_or(0))?;
    let last = c.rank(sum).checked_sub(1).ok_or("needs rank 1 or more")?;
    let v = layer_norm::normalise(c, n, sum, &[last], monoids::accumulator(d), rms)?;
    let y = layer_norm::scaled(c, n, n.name(0), &v, eps, Some(gamma), beta, d)?;
    c.set(n, 0, y);
    if n.wants(3) {
        c.set(n, 3, sum);
    }
    Ok(())
}
