//! Norms by mean and variance: LayerNormalization, RMSNormalization (and the unofficial
//! SimplifiedLayerNormalization), InstanceNormalization, GroupNormalization,
//! MeanVarianceNormalization.
use super::{OpDef, op, op_of};
use crate::import::{Ctx, Lowered, NodeView, axes_of, axis_of, monoids, to_dtype};
use expr::{ExprBuilder, Ref, Unary};
use graph::ValueId;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("LayerNormalization", layer), op("RMSNormalization", rms), op("SimplifiedLayerNormalization", rms),
    op_of("com.microsoft", "SimplifiedLayerNormalization", rms), op_of("com.microsoft", "LayerNormalization", layer),
    op("InstanceNormalization", instance), op("GroupNormalization", group), op("MeanVarianceNormalization", mvn),
];

fn to(e: &mut ExprBuilder, x: Ref, from: DType, to: DType) -> Ref {
    if from == to { x } else { e.cast(x, to) }
}

/// What `normalise` gives.
pub(crate) struct Normed {
    /// `x - mean`, in the accumulator's type.
    pub centred: ValueId,
    /// Mean of x.
    pub mean: Option<ValueId>,
    /// Mean of squares of `centred`.
    pub variance: ValueId,
}

/// Centres `x` over `axes` (unless `rms`) and takes the mean of squares, in type `acc`.
pub(crate) fn normalise<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, axes: &[usize], acc: DType, rms: bool) -> Lowered<Normed> {
    let x = c.cast(n, n.tmp("wide"), x, acc)?;
    let count = c.count(x, axes);
    let (centred, mean) = if rms {
        (x, None)
    } else {
        let mean = c.reduce(n, n.tmp("mean"), x, monoids::mean(acc, &count), axes, true)?;
        let centred = c.map(n, n.tmp("centred"), &[x, mean], |e, a| e.sub(a[0], a[1]))?;
        (centred, Some(mean))
    };
    let square = c.map(n, n.tmp("square"), &[centred], |e, a| e.mul(a[0], a[0]))?;
    let variance = c.reduce(n, n.tmp("variance"), square, monoids::mean(acc, &count), axes, true)?;
    Ok(Normed { centred, mean, variance })
}

/// `centred * rsqrt(variance + eps) * scale + bias` in type `d`.
#[allow(clippy::too_many_arguments)]
pub(crate) fn scaled<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, v: &Normed, eps: f64, scale: Option<ValueId>, bias: Option<ValueId>, d: DType) -> Lowered<ValueId> {
    let acc = c.dtype(v.centred);
    let mut inputs = vec![v.centred, v.variance];
    inputs.extend(scale);
    inputs.extend(bias);
    let ts: Vec<DType> = inputs.iter().map(|&i| c.dtype(i)).collect();
    c.map(n, name, &inputs, |e, a| {
        let eps = e.constant(eps, acc);
        let s = e.add(a[1], eps);
        let s = e.unary(Unary::Rsqrt, s);
        let mut y = e.mul(a[0], s);
        let mut at = 2;
        if scale.is_some() {
            let k = to(e, a[at], ts[at], acc);
            y = e.mul(y, k);
            at += 1;
        }
        if bias.is_some() {
            let b = to(e, a[at], ts[at], acc);
            y = e.add(y, b);
        }
        to(e, y, acc, d)
    })
}

/// Type in which the statistics are computed.
fn stash<'m>(c: &Ctx<'m>, n: &NodeView<'m>, x: ValueId) -> Lowered<DType> {
    let d = to_dtype(n.int("stash_type", 1)?)?;
    if !d.is_float() {
        return Err("attribute 'stash_type' must be a float type".into());
    }
    let x = c.dtype(x);
    Ok(if d.bits() >= x.bits() { d } else { x })
}

fn rsqrt<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, v: ValueId, eps: f64) -> Lowered<ValueId> {
    let d = c.dtype(v);
    c.map(n, name, &[v], |e, a| {
        let k = e.constant(eps, d);
        let s = e.add(a[0], k);
        e.unary(Unary::Rsqrt, s)
    })
}

/// Output `i`: a statistic, which is of the stated type though it was computed in a wider one.
fn statistic<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, i: usize, v: ValueId) -> Lowered {
    let d = to_dtype(n.int("stash_type", 1)?)?;
    let y = c.cast(n, n.name(i), v, d)?;
    c.set(n, i, y);
    Ok(())
}

fn layer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.opt(2));
    let (rank, d) = (c.rank(x), c.dtype(x));
    let axis = axis_of(n.int("axis", -1)?, rank)?;
    let eps = n.float("epsilon", 1e-5)?;
    let acc = stash(c, n, x)?;
    let axes: Vec<usize> = (axis..rank).collect();
    let v = normalise(c, n, x, &axes, acc, false)?;
    let y = scaled(c, n, n.name(0), &v, eps, Some(scale), bias, d)?;
    c.set(n, 0, y);
    if let (Some(m), true) = (v.mean, n.wants(1)) {
        statistic(c, n, 1, m)?;
    }
    if n.wants(2) {
        let r = rsqrt(c, n, n.tmp("deviation"), v.variance, eps)?;
        statistic(c, n, 2, r)?;
    }
    Ok(())
}

fn rms<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, scale) = (n.input(0)?, n.input(1)?);
    let (rank, d) = (c.rank(x), c.dtype(x));
    let axis = axis_of(n.int("axis", -1)?, rank)?;
    let eps = n.float("epsilon", 1e-5)?;
    let acc = stash(c, n, x)?;
    let axes: Vec<usize> = (axis..rank).collect();
    let v = normalise(c, n, x, &axes, acc, true)?;
    let y = scaled(c, n, n.name(0), &v, eps, Some(scale), None, d)?;
    c.set(n, 0, y);
    if n.wants(1) {
        let r = rsqrt(c, n, n.tmp("deviation"), v.variance, eps)?;
        statistic(c, n, 1, r)?;
    }
    Ok(())
}

fn instance<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (rank, d) = (c.rank(x), c.dtype(x));
    if rank < 3 {
        return Err(format!("needs rank 3 or more, its input has {rank}").into());
    }
    let eps = n.float("epsilon", 1e-5)?;
    let axes: Vec<usize> = (2..rank).collect();
    let v = normalise(c, n, x, &axes, monoids::accumulator(d), false)?;
    let scale = c.along(n, n.tmp("scale.c"), scale, rank, 1)?;
    let bias = c.along(n, n.tmp("bias.c"), bias, rank, 1)?;
    let y = scaled(c, n, n.name(0), &v, eps, Some(scale), Some(bias), d)?;
    c.set(n, 0, y);
    Ok(())
}

fn group<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (x, scale, bias) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (s, d) = (c.shape(x), c.dtype(x));
    if s.len() < 2 {
        return Err(format!("needs rank 2 or more, its input has {}", s.len()).into());
    }
    let eps = n.float("epsilon", 1e-5)?;
    let groups = n.int_opt("num_groups")?.filter(|&g| g > 0).ok_or("attribute 'num_groups' must be a positive number")?;
    let acc = if n.opset >= 21 { stash(c, n, x)? } else { monoids::accumulator(d) };
    let each = s[1].exact_div(&Dim::Known(groups)).ok_or_else(|| format!("{} channels are not {groups} equal groups", s[1]))?;
    let mut shape = vec![s[0].clone(), Dim::Known(groups), each.clone()];
    shape.extend_from_slice(&s[2..]);
    let rank = shape.len();
    let x = c.reshape(n, n.tmp("groups"), x, shape)?;
    let axes: Vec<usize> = (2..rank).collect();
    let v = normalise(c, n, x, &axes, acc, false)?;
    // One number per group before opset 21, per channel since.
    let mut per = vec![Dim::Known(groups), if n.opset >= 21 { each } else { Dim::ONE }];
    per.resize(rank - 1, Dim::ONE);
    let scale = c.reshape(n, n.tmp("scale.c"), scale, per.clone())?;
    let bias = c.reshape(n, n.tmp("bias.c"), bias, per)?;
    let y = scaled(c, n, n.tmp("normed"), &v, eps, Some(scale), Some(bias), d)?;
    let y = c.reshape(n, n.name(0), y, s)?;
    c.set(n, 0, y);
    Ok(())
}

fn mvn<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let d = c.dtype(x);
    // The experimental operator from before opset 9 keeps the batch apart, and may leave the variance as it is.
    let (axes, divides) = match n.opset < 9 {
        true => {
            let from = if n.flag("across_channels", false)? { 1 } else { 2 };
            ((from..c.rank(x) as i64).collect(), n.flag("normalize_variance", true)?)
        }
        false => (n.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]), true),
    };
    let axes = axes_of(&axes, c.rank(x))?;
    let v = normalise(c, n, x, &axes, monoids::accumulator(d), false)?;
    let acc = c.dtype(v.centred);
    if !divides {
        let y = c.cast(n, n.tmp("narrow"), v.centred, d)?;
        let y = c.reshape(n, n.name(0), y, c.shape(y))?;
        c.set(n, 0, y);
        return Ok(());
    }
    // The standard's function adds 1e-9 to the deviation.
    let y = c.map(n, n.name(0), &[v.centred, v.variance], |e, a| {
        let s = e.unary(Unary::Sqrt, a[1]);
        let k = e.constant(1e-9, acc);
        let s = e.add(s, k);
        let y = e.div(a[0], s);
        to(e, y, acc, d)
    })?;
    c.set(n, 0, y);
    Ok(())
}
