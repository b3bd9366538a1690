//! BatchNormalization as in inference.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use expr::Unary;

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
    n.float("momentum", 0.9)?;
    let training = n.flag("training_mode", false)? || (n.opset < 9 && !n.flag("spatial", true)?);
    if training || (1..n.outputs.len()).any(|i| n.wants(i)) {
        return Err(LowerError::Unsupported("is in training form; export the model for inference".into()));
    }
    // Statistics may be wider than the data.
    let t = c.dtype(p[3]);
    let (ts, tb, tm) = (c.dtype(p[0]), c.dtype(p[1]), c.dtype(p[2]));
    let to = |e: &mut expr::ExprBuilder, x, from| if from == t { x } else { e.cast(x, t) };
    let scale = c.map(n, n.tmp("scale"), &[p[0], p[3]], |e, a| {
        let eps = e.constant(eps, t);
        let v = e.add(a[1], eps);
        let r = e.unary(Unary::Rsqrt, v);
        let s = to(e, a[0], ts);
        e.mul(s, r)
    })?;
    let shift = c.map(n, n.tmp("shift"), &[p[1], p[2], scale], |e, a| {
        let (b, m) = (to(e, a[0], tb), to(e, a[1], tm));
        let k = e.mul(m, a[2]);
        e.sub(b, k)
    })?;
    let scale = c.along(n, n.tmp("scale.c"), scale, rank, 1)?;
    let shift = c.along(n, n.tmp("shift.c"), shift, rank, 1)?;
    let y = c.map(n, n.name(0), &[x, scale, shift], |e, a| {
        let x = to(e, a[0], d);
        let y = e.mul(x, a[1]);
        let y = e.add(y, a[2]);
        if t == d { y } else { e.cast(y, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}
