//! Random numbers: RandomUniform, RandomNormal and their -Like forms, Bernoulli, Multinomial. The
//! generator counts: an element's number depends on the seed and on its
//! row-major rank only, so it is a scalar program, and every run gives the same numbers. Without
//! the attribute `seed` the node's name is the seed.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, to_dtype};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[
    op("RandomUniform", uniform), op("RandomUniformLike", uniform), op("RandomNormal", normal),
    op("RandomNormalLike", normal), op("Bernoulli", bernoulli), op("Multinomial", multinomial),
];

/// The seed of a node.
pub(crate) fn seed<'m>(n: &NodeView<'m>) -> Lowered<u64> {
    // A float by the standard, an integer for Dropout.
    let given = match n.attrs.get("seed") {
        Some(crate::proto::AttributeValue::Int(_)) => n.int_opt("seed")?.map(|s| s as u64),
        _ => n.float_opt("seed")?.map(f64::to_bits),
    };
    Ok(given.unwrap_or_else(|| {
        n.origin.name.bytes().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
    }))
}

/// Row-major rank of the element at hand, as U64.
pub(crate) fn rank_of(e: &mut ExprBuilder, shape: &[Dim]) -> Ref {
    let mut at = e.int(0, DType::I64);
    for (i, d) in shape.iter().enumerate() {
        let (i, d) = (e.index(i as u32), e.dim(d));
        at = e.mul(at, d);
        at = e.add(at, i);
    }
    e.cast(at, DType::U64)
}

/// A number in 0..1 of 24 bits for element `at` of stream `seed`, in F32: splitmix64.
pub(crate) fn unit(e: &mut ExprBuilder, at: Ref, seed: u64) -> Ref {
    let k = |e: &mut ExprBuilder, v: u64| e.int(v as i64, DType::U64);
    let shifted = |e: &mut ExprBuilder, z: Ref, by: u64| {
        let s = k(e, by);
        let s = e.binary(Binary::Shr, z, s);
        e.binary(Binary::Xor, z, s)
    };
    let (one, step, start) = (k(e, 1), k(e, 0x9e37_79b9_7f4a_7c15), k(e, seed));
    let z = e.add(at, one);
    let z = e.mul(z, step);
    let z = e.add(z, start);
    let z = shifted(e, z, 30);
    let m = k(e, 0xbf58_476d_1ce4_e5b9);
    let z = e.mul(z, m);
    let z = shifted(e, z, 27);
    let m = k(e, 0x94d0_49bb_1331_11eb);
    let z = e.mul(z, m);
    let z = shifted(e, z, 31);
    let by = k(e, 40);
    let z = e.binary(Binary::Shr, z, by);
    let z = e.cast(z, DType::F32);
    let scale = e.constant(1.0 / (1u64 << 24) as f64, DType::F32);
    e.mul(z, scale)
}

/// Shape and type that a node without (or with) an example asks for.
fn form<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<(Vec<Dim>, DType)> {
    let stated = n.int_opt("dtype")?.map(to_dtype).transpose()?;
    if n.op.ends_with("Like") {
        n.at_most(1)?;
        let x = n.input(0)?;
        return Ok((c.shape(x), stated.unwrap_or(c.dtype(x))));
    }
    n.at_most(0)?;
    let s = n.ints("shape")?.ok_or("attribute 'shape' is missing")?;
    if s.iter().any(|&d| d < 0) {
        return Err(format!("attribute 'shape' {s:?} holds a negative number").into());
    }
    Ok((s.into_iter().map(Dim::Known).collect(), stated.unwrap_or(DType::F32)))
}

fn float(d: DType) -> Lowered {
    match d.is_float() {
        true => Ok(()),
        false => Err(format!("attribute 'dtype' asks for {d}, it must be a float type").into()),
    }
}

fn uniform<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let (shape, d) = form(c, n)?;
    float(d)?;
    let (low, high, seed) = (n.float("low", 0.0)?, n.float("high", 1.0)?, seed(n)?);
    let y = c.fill(n, n.name(0), &shape, d, |e| {
        let at = rank_of(e, &shape);
        let u = unit(e, at, seed);
        let u = if d == DType::F32 { u } else { e.cast(u, d) };
        let (span, low) = (e.constant(high - low, d), e.constant(low, d));
        let y = e.mul(u, span);
        e.add(y, low)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn normal<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let (shape, d) = form(c, n)?;
    float(d)?;
    let (mean, scale, seed) = (n.float("mean", 0.0)?, n.float("scale", 1.0)?, seed(n)?);
    let y = c.fill(n, n.name(0), &shape, d, |e| {
        let at = rank_of(e, &shape);
        let y = gauss(e, at, seed);
        let (mean, scale) = (e.constant(mean, DType::F32), e.constant(scale, DType::F32));
        let y = e.mul(y, scale);
        let y = e.add(y, mean);
        if d == DType::F32 { y } else { e.cast(y, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// A number of the standard normal distribution, by Box and Muller.
fn gauss(e: &mut ExprBuilder, at: Ref, seed: u64) -> Ref {
    let f = DType::F32;
    let a = unit(e, at, seed);
    let b = unit(e, at, seed ^ 0x5851_f42d_4c95_7f2d);
    // Never 0, whose logarithm is infinite.
    let (one, two, turn) = (e.constant(1.0, f), e.constant(-2.0, f), e.constant(std::f64::consts::TAU, f));
    let a = e.sub(one, a);
    let r = e.unary(Unary::Log, a);
    let r = e.mul(r, two);
    let r = e.unary(Unary::Sqrt, r);
    let t = e.mul(b, turn);
    let t = e.unary(Unary::Cos, t);
    e.mul(r, t)
}

fn bernoulli<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (shape, from) = (c.shape(x), c.dtype(x));
    float(from)?;
    let d = n.int_opt("dtype")?.map(to_dtype).transpose()?.unwrap_or(from);
    let seed = seed(n)?;
    let y = c.map(n, n.name(0), &[x], |e, a| {
        let at = rank_of(e, &shape);
        let u = unit(e, at, seed);
        let u = if from == DType::F32 { u } else { e.cast(u, from) };
        let on = e.compare(Compare::Lt, u, a[0]);
        if d == DType::Bool { on } else { e.cast(on, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn multinomial<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let (s, from) = (c.shape(x), c.dtype(x));
    float(from)?;
    let d = to_dtype(n.int("dtype", 6)?)?;
    if s.len() != 2 || !d.is_int() {
        return Err("needs log-probabilities of rank 2 and an integer type".into());
    }
    let count = n.int("sample_size", 1)?;
    if !(0..1 << 31).contains(&count) {
        return Err(format!("attribute 'sample_size' is {count}").into());
    }
    let seed = seed(n)?;
    // The largest of log-probability plus a Gumbel number is a draw of its distribution.
    let wide = [s[0].clone(), Dim::Known(count), s[1].clone()];
    let thin = c.reshape(n, n.tmp("thin"), x, vec![s[0].clone(), Dim::ONE, s[1].clone()])?;
    let all = c.expand(n, n.tmp("wide"), thin, wide.to_vec())?;
    let g = c.map(n, n.tmp("gumbel"), &[all], |e, a| {
        let at = rank_of(e, &wide);
        let u = unit(e, at, seed);
        let tiny = e.constant(1e-12, DType::F32);
        let u = e.add(u, tiny);
        let l = e.unary(Unary::Log, u);
        let l = e.unary(Unary::Neg, l);
        let l = e.unary(Unary::Log, l);
        let x = if from == DType::F32 { a[0] } else { e.cast(a[0], DType::F32) };
        e.sub(x, l)
    })?;
    let best = c.reduce(n, n.tmp("best"), g, crate::import::monoids::arg(DType::F32, true, false), &[2], false)?;
    let y = match d {
        DType::I64 => c.reshape(n, n.name(0), best, wide[..2].to_vec())?,
        d => c.cast(n, n.name(0), best, d)?,
    };
    c.set(n, 0, y);
    Ok(())
}
