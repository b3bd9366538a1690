//! BatchNormalization as in inference, and by the statistics of the batch itself.
use super::layer_norm::{normalise, scaled};
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::Unary;
use graph::ValueId;
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("BatchNormalization", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(5)?;
    let x = n.input(0)?;
    let p = [n.input(1)?, n.input(2)?, n.input(3)?, n.input(4)?];
    let (rank, d) = (c.rank(x), c.dtype(x));
    if rank < 2 {
        return Err(format!("needs rank 2 or more, its input has {rank}").into());
    }
    let eps = n.float("epsilon", 1e-5)?;
    // It says how training updates the statistics.
    let momentum = n.float("momentum", 0.9)?;
    // Statistics of each element, in place of each channel.
    let each = n.opset < 9 && !n.flag("spatial", true)?;
    let mut training = n.flag("training_mode", false)?;
    if n.opset < 7 {
        training = !n.flag("is_test", false)?;
    }
    if training && n.opset >= 14 {
        return train(c, n, x, p, eps, momentum);
    }
    if training || (1..n.outputs.len()).any(|i| n.wants(i)) {
        return Err(LowerError::Unsupported("is in training form; export the model for inference".into()));
    }
    // Statistics may be wider than the data, and are combined in f32 at least.
    let t = monoids::accumulator(c.dtype(p[3]));
    let [ts, tb, tm, tv] = p.map(|v| c.dtype(v));
    let to = |e: &mut expr::ExprBuilder, x, from| if from == t { x } else { e.cast(x, t) };
    let scale = c.map(n, n.tmp("scale"), &[p[0], p[3]], |e, a| {
        let (v, eps) = (to(e, a[1], tv), e.constant(eps, t));
        let v = e.add(v, eps);
        let r = e.unary(Unary::Rsqrt, v);
        let s = to(e, a[0], ts);
        e.mul(s, r)
    })?;
    let shift = c.map(n, n.tmp("shift"), &[p[1], p[2], scale], |e, a| {
        let (b, m) = (to(e, a[0], tb), to(e, a[1], tm));
        let k = e.mul(m, a[2]);
        e.sub(b, k)
    })?;
    let mut placed = |v: ValueId, name: &str| match each {
        true => {
            let mut shape = c.shape(v);
            shape.insert(0, Dim::ONE);
            c.reshape(n, n.tmp(name), v, shape)
        }
        false => c.along(n, n.tmp(name), v, rank, 1),
    };
    let (scale, shift) = (placed(scale, "scale.c")?, placed(shift, "shift.c")?);
    let y = c.map(n, n.name(0), &[x, scale, shift], |e, a| {
        let x = to(e, a[0], d);
        let y = e.mul(x, a[1]);
        let y = e.add(y, a[2]);
        if t == d { y } else { e.cast(y, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// Normalises by the batch's own mean and variance, and gives the running ones updated.
fn train<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, p: [ValueId; 4], eps: f64, momentum: f64) -> Lowered {
    let (rank, d) = (c.rank(x), c.dtype(x));
    let axes: Vec<usize> = (0..rank).filter(|&a| a != 1).collect();
    let v = normalise(c, n, x, &axes, monoids::accumulator(d), false)?;
    let scale = c.along(n, n.tmp("scale.c"), p[0], rank, 1)?;
    let bias = c.along(n, n.tmp("bias.c"), p[1], rank, 1)?;
    let y = scaled(c, n, n.name(0), &v, eps, Some(scale), Some(bias), d)?;
    c.set(n, 0, y);
    for (i, (now, old)) in [(v.mean, p[2]), (Some(v.variance), p[3])].into_iter().enumerate() {
        let (Some(now), true) = (now, n.wants(i + 1)) else { continue };
        let (from, to, s) = (c.dtype(now), c.dtype(old), c.shape(old));
        let now = c.reshape(n, n.tmp(&format!("batch{i}")), now, s)?;
        let r = c.map(n, n.name(i + 1), &[now, old], |e, a| {
            let (m, rest) = (e.constant(momentum, to), e.constant(1.0 - momentum, to));
            let now = if from == to { a[0] } else { e.cast(a[0], to) };
            let (now, old) = (e.mul(now, rest), e.mul(a[1], m));
            e.add(old, now)
        })?;
        c.set(n, i + 1, r);
    }
    Ok(())
}
