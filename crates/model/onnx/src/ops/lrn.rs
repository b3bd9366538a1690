//! LRN: an average over neighbouring channels as a pool over [n, 1, c, rest].
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, monoids};
use expr::Binary;
use graph::{Op, PoolKind, PoolSpec};
use layout::Dim;

pub(crate) const OPS: &[OpDef] = &[op("LRN", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (s, own) = (c.shape(x), c.dtype(x));
    // Squares of half precision do not fit it.
    let d = monoids::accumulator(own);
    let x = c.cast(n, n.tmp("wide"), x, d)?;
    let size = n.int_opt("size")?.filter(|s| (1..=1 << 20).contains(s)).ok_or("attribute 'size' must be a positive number")?;
    let (alpha, beta, bias) = (n.float("alpha", 0.0001)?, n.float("beta", 0.75)?, n.float("bias", 1.0)?);
    if s.len() < 3 {
        return Err(format!("needs rank 3 or more, its input has {}", s.len()).into());
    }
    let sq = c.map(n, n.tmp("square"), &[x], |e, a| e.mul(a[0], a[0]))?;
    let rows = vec![s[0].clone(), Dim::ONE, s[1].clone(), Dim::product(&s[2..])];
    let sq = c.reshape(n, n.tmp("rows"), sq, rows)?;
    let spec = PoolSpec {
        kind: PoolKind::Average { include_pad: true },
        kernel: vec![size, 1],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        before: vec![Dim::Known((size - 1) / 2), Dim::ZERO],
        after: vec![Dim::Known(size / 2), Dim::ZERO],
    };
    let mean = c.add1(n, Op::Pool(spec), &[sq], n.tmp("window"))?;
    let mean = c.reshape(n, n.tmp("mean"), mean, s)?;
    let y = c.map(n, n.name(0), &[x, mean], |e, a| {
        let (al, be, bi) = (e.constant(alpha, d), e.constant(beta, d), e.constant(bias, d));
        let v = e.mul(al, a[1]);
        let v = e.add(bi, v);
        let v = e.binary(Binary::Pow, v, be);
        let y = e.div(a[0], v);
        if d == own { y } else { e.cast(y, own) }
    })?;
    c.set(n, 0, y);
    Ok(())
}
