//! com.microsoft operators that join a product or convolution with what follows it, and others
//! that are short forms.
use super::pool::{self, turned};
use super::{OpDef, conv, matmul, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, ExprBuilder, Ref, Unary, functions};
use graph::{Op, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "BiasAdd", bias_add),
    op_of(MS, "BiasSplitGelu", split_gelu),
    op_of(MS, "EmbedLayerNormalization", embed),
    op_of(MS, "FusedConv", fused_conv),
    op_of(MS, "FusedGemm", gemm),
    op_of(MS, "FusedMatMulActivation", product),
    op_of(MS, "GroupNorm", group_norm),
    op_of(MS, "QEmbedLayerNormalization", quantised_embed),
    op_of(MS, "NhwcConv", nhwc_conv),
    op_of(MS, "NhwcFusedConv", nhwc_conv),
    op_of(MS, "NhwcMaxPool", nhwc_max_pool),
    op_of(MS, "SkipGroupNorm", group_norm),
    op_of(MS, "TransposeMatMul", product),
];

/// The activation that an attribute names, with up to two numbers.
fn activated(e: &mut ExprBuilder, x: Ref, name: &str, p: &[f64], d: DType) -> Lowered<Ref> {
    let at = |i: usize, default: f64| p.get(i).copied().unwrap_or(default);
    Ok(match name {
        "" => x,
        "Relu" => functions::relu(e, x, d),
        "Tanh" => e.unary(Unary::Tanh, x),
        "Sigmoid" => e.unary(Unary::Sigmoid, x),
        "LeakyRelu" => functions::leaky_relu(e, x, at(0, 0.01), d),
        "Clip" => {
            let (lo, hi) = (e.constant(at(0, f64::MIN), d), e.constant(at(1, f64::MAX), d));
            let x = e.binary(Binary::Max, x, lo);
            e.binary(Binary::Min, x, hi)
        }
        "HardSigmoid" => functions::hard_sigmoid(e, x, at(0, 0.2), at(1, 0.5), d),
        "Elu" => functions::elu(e, x, at(0, 1.0), d),
        "Celu" => functions::celu(e, x, at(0, 1.0), d),
        "Selu" => functions::selu(e, x, at(0, 1.673_263_2), at(1, 1.050_701), d),
        "ThresholdedRelu" => functions::thresholded_relu(e, x, at(0, 1.0), d),
        "Softplus" => functions::softplus(e, x, d),
        "Softsign" => functions::softsign(e, x, d),
        "Mish" => functions::mish(e, x, d),
        "ParametricSoftplus" => {
            let (k, by) = (e.constant(at(0, 1.0), d), e.constant(at(1, 1.0), d));
            let x = e.mul(x, by);
            let y = functions::softplus(e, x, d);
            e.mul(k, y)
        }
        "ScaledTanh" => {
            let (k, by) = (e.constant(at(0, 1.0), d), e.constant(at(1, 1.0), d));
            let x = e.mul(x, by);
            let y = e.unary(Unary::Tanh, x);
            e.mul(k, y)
        }
        "Gelu" => super::activation::gelu_erf(e, x, d),
        "FastGelu" => super::activation::gelu_tanh(e, x, d),
        "HardSwish" => functions::hard_swish(e, x, d),
        "Silu" => functions::silu(e, x),
        other => return Err(LowerError::Unsupported(format!("its activation '{other}' is not covered; put it behind"))),
    })
}

/// A program of the inputs with an activation at its end.
fn ended<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    inputs: &[ValueId],
    name: &str,
    params: &[f64],
    f: impl FnOnce(&mut ExprBuilder, &[Ref], DType) -> Ref,
) -> Lowered<ValueId> {
    let mut failed = None;
    let y = c.map_wide(n, n.name(0), inputs, |e, a, d| {
        let y = f(e, a, d);
        activated(e, y, name, params, d).unwrap_or_else(|why| {
            failed = Some(why);
            y
        })
    })?;
    match failed {
        Some(why) => Err(why),
        None => Ok(y),
    }
}

fn sums(e: &mut ExprBuilder, a: &[Ref]) -> Ref {
    let mut y = a[0];
    for &b in &a[1..] {
        y = e.add(y, b);
    }
    y
}

fn fused_conv<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (x, w) = (n.input(0)?, n.input(1)?);
    let (name, params) = (n.text("activation", "")?, n.floats("activation_params")?.unwrap_or_default());
    let y = conv::core(c, n, n.tmp("conv"), x, w)?;
    let rank = c.rank(y);
    let mut inputs = vec![y];
    if let Some(b) = n.opt(2) {
        inputs.push(c.along(n, n.tmp("bias"), b, rank, 1)?);
    }
    inputs.extend(n.opt(3));
    let y = ended(c, n, &inputs, &name, &params, |e, x, _| sums(e, x))?;
    c.set(n, 0, y);
    Ok(())
}

fn nhwc_conv<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (name, params) = (n.text("activation", "")?, n.floats("activation_params")?.unwrap_or_default());
    let x = turned(c, n, "x", n.input(0)?, false)?;
    let y = conv::core(c, n, n.tmp("conv"), x, n.input(1)?)?;
    let y = turned(c, n, "y", y, true)?;
    let mut inputs = vec![y];
    inputs.extend(n.opt(2));
    inputs.extend(n.opt(3));
    let y = ended(c, n, &inputs, &name, &params, |e, x, _| sums(e, x))?;
    c.set(n, 0, y);
    Ok(())
}

fn nhwc_max_pool<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = turned(c, n, "x", n.input(0)?, false)?;
    let y = pool::of(c, n, n.tmp("pool"), x, "MaxPool")?;
    let y = turned(c, n, "y", y, true)?;
    let y = c.reshape(n, n.name(0), y, c.shape(y))?;
    c.set(n, 0, y);
    Ok(())
}

fn gemm<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (a, b, bias) = (n.input(0)?, n.input(1)?, n.opt(2));
    let (alpha, beta) = (n.float("alpha", 1.0)?, n.float("beta", 1.0)?);
    let t = (n.flag("transA", false)?, n.flag("transB", false)?);
    let name = n.text("activation", "")?;
    let mut params = Vec::new();
    for p in ["activation_alpha", "activation_beta", "activation_gamma"] {
        params.extend(n.float_opt(p)?);
    }
    let y = matmul::product(c, n, n.tmp("product"), a, b, t)?;
    let inputs: Vec<_> = [y].into_iter().chain(bias.filter(|_| beta != 0.0)).collect();
    let y = ended(c, n, &inputs, &name, &params, |e, x, d| {
        let (ka, kb) = (e.constant(alpha, d), e.constant(beta, d));
        let mut v = if alpha == 1.0 { x[0] } else { e.mul(x[0], ka) };
        if let Some(&b) = x.get(1) {
            let b = if beta == 1.0 { b } else { e.mul(b, kb) };
            v = e.add(v, b);
        }
        v
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// A product scaled and activated.
fn product<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let alpha = n.float("alpha", 1.0)?;
    let t = (n.flag("transA", false)?, n.flag("transB", false)?);
    if n.flag("transBatchA", false)? || n.flag("transBatchB", false)? {
        return Err(LowerError::Unsupported("moves batch dimensions; put a Transpose before it".into()));
    }
    let name = n.text("activation", "")?;
    n.int("activation_axis", 0)?;
    let mut params = Vec::new();
    for p in ["activation_alpha", "activation_beta", "activation_gamma"] {
        params.extend(n.float_opt(p)?);
    }
    let y = matmul::product(c, n, n.tmp("product"), a, b, t)?;
    let y = ended(c, n, &[y], &name, &params, |e, x, d| {
        let k = e.constant(alpha, d);
        if alpha == 1.0 { x[0] } else { e.mul(x[0], k) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn bias_add<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let inputs = n.all_inputs()?;
    let y = c.map(n, n.name(0), &inputs, sums)?;
    c.set(n, 0, y);
    Ok(())
}

/// The first half of x + bias times GELU of the second.
fn split_gelu<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, b) = (n.input(0)?, n.input(1)?);
    let s = c.map(n, n.tmp("biased"), &[x, b], sums)?;
    let last = c.rank(s).checked_sub(1).ok_or("its input is a single number")?;
    let half = c.shape(s)[last].exact_div(&Dim::Known(2)).ok_or("its last dimension must be even")?;
    let left = c.slice(n, n.tmp("left"), s, last, Dim::ZERO, half.clone())?;
    let right = c.slice(n, n.tmp("right"), s, last, half.clone(), half)?;
    let y = c.map_wide(n, n.name(0), &[left, right], |e, a, d| {
        let g = super::activation::gelu_erf(e, a[1], d);
        e.mul(a[0], g)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn embed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(9)?;
    let (ids, segments) = (n.input(0)?, n.opt(1));
    let (words, positions, kinds) = (n.input(2)?, n.input(3)?, n.opt(4));
    let (gamma, beta, mask, at) = (n.input(5)?, n.input(6)?, n.opt(7), n.opt(8));
    n.int("mask_index_type", 0)?;
    embedded(c, n, (ids, segments), (words, positions, kinds), (gamma, beta), (mask, at))
}

/// The same with tables of 8 bits, each with a scale and a zero point.
fn quantised_embed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(18)?;
    let mut tables = [None; 5];
    for (k, table) in tables.iter_mut().enumerate() {
        let Some(v) = n.opt(2 + k) else { continue };
        let (scale, zero) = (n.input(8 + k)?, n.opt(13 + k));
        let v = super::whole_steps::steps(c, n, &format!("table{k}"), v, zero, usize::MAX)?;
        let v = c.map(n, n.tmp(&format!("table{k}.real")), &[v, scale], |e, a| e.mul(a[0], a[1]))?;
        *table = Some(v);
    }
    let [Some(words), Some(positions), kinds, Some(gamma), Some(beta)] = tables else {
        return Err("needs tables of words and positions, gamma and beta".into());
    };
    embedded(c, n, (n.input(0)?, n.opt(1)), (words, positions, kinds), (gamma, beta), (n.opt(7), None))
}

/// The sum of what three tables have for each word, its place and its segment, normalised.
fn embedded<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (ids, segments): (ValueId, Option<ValueId>),
    (words, positions, kinds): (ValueId, ValueId, Option<ValueId>),
    (gamma, beta): (ValueId, ValueId),
    (mask, at): (Option<ValueId>, Option<ValueId>),
) -> Lowered {
    let eps = n.float("epsilon", 1e-12)?;
    let s = c.shape(ids);
    if s.len() != 2 || c.rank(positions) != 2 {
        return Err(format!("its ids have rank {} and its positions {}, not 2", s.len(), c.rank(positions)).into());
    }
    let mut inputs = vec![c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[words, ids], n.tmp("words"))?];
    inputs.push(match at {
        Some(at) => c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[positions, at], n.tmp("positions"))?,
        None => c.slice(n, n.tmp("positions"), positions, 0, Dim::ZERO, s[1].clone())?,
    });
    if let (Some(k), Some(at)) = (kinds, segments) {
        inputs.push(c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[k, at], n.tmp("segments"))?);
    }
    let name = if n.wants(2) { n.name(2) } else { n.tmp("sum") };
    let sum = c.map(n, name, &inputs, sums)?;
    let d = c.dtype(sum);
    let v = super::layer_norm::normalise(c, n, sum, &[2], monoids::accumulator(d), false)?;
    let y = super::layer_norm::scaled(c, n, n.name(0), &v, eps, Some(gamma), Some(beta), d)?;
    c.set(n, 0, y);
    if n.wants(1) {
        let counts = match mask {
            Some(m) => c.reduce(n, n.name(1), m, monoids::sum(DType::I32), &[1], false)?,
            None => c.fill(n, n.name(1), &s[..1], DType::I32, |e| e.int(0, DType::I32))?,
        };
        c.set(n, 1, counts);
    }
    if n.wants(2) {
        c.set(n, 2, sum);
    }
    Ok(())
}

/// GroupNorm with channels last by default, after a skip and a bias for SkipGroupNorm.
fn group_norm<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let skip = n.op == "SkipGroupNorm";
    n.at_most(if skip { 5 } else { 3 })?;
    let (mut x, gamma, beta) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let last = n.flag("channels_last", true)?;
    let groups = n.int("groups", 1)?;
    let eps = n.float("epsilon", 1e-5)?;
    let silu = n.flag("activation", false)?;
    let d = c.dtype(x);
    let rank = c.rank(x);
    if rank < 3 || groups < 1 {
        return Err(format!("needs rank 3 or more and groups, it has rank {rank} and {groups} groups").into());
    }
    if skip {
        let mut inputs = vec![x];
        let s = n.input(3)?;
        let t = c.shape(s);
        // A skip of one number per channel.
        inputs.push(if t.len() == 2 {
            let mut four = vec![Dim::ONE; rank];
            four[0] = t[0].clone();
            four[if last { rank - 1 } else { 1 }] = t[1].clone();
            c.reshape(n, n.tmp("skip"), s, four)?
        } else {
            s
        });
        if let Some(b) = n.opt(4) {
            inputs.push(c.along(n, n.tmp("bias"), b, rank, if last { rank - 1 } else { 1 })?);
        }
        let name = if n.wants(1) { n.name(1) } else { n.tmp("sum") };
        x = c.map(n, name, &inputs, sums)?;
        if n.wants(1) {
            c.set(n, 1, x);
        }
    }
    let s = c.shape(x);
    let channel = if last { rank - 1 } else { 1 };
    let g = Dim::Known(groups);
    let each = s[channel].exact_div(&g).ok_or_else(|| format!("{} channels are not {groups} groups", s[channel]))?;
    let mut split = s.clone();
    split[channel] = g;
    split.insert(channel + 1, each);
    let t = c.reshape(n, n.tmp("groups"), x, split)?;
    let axes: Vec<usize> = (1..=rank).filter(|&a| a != channel).collect();
    let v = super::layer_norm::normalise(c, n, t, &axes, monoids::accumulator(d), false)?;
    let y = super::layer_norm::scaled(c, n, n.tmp("normed"), &v, eps, None, None, d)?;
    let y = c.reshape(n, n.tmp("whole"), y, s)?;
    let gamma = c.along(n, n.tmp("gamma"), gamma, rank, channel)?;
    let beta = c.along(n, n.tmp("beta"), beta, rank, channel)?;
    let (dg, db) = (c.dtype(gamma), c.dtype(beta));
    let y = c.map(n, n.name(0), &[y, gamma, beta], |e, a| {
        let g = if dg == d { a[1] } else { e.cast(a[1], d) };
        let b = if db == d { a[2] } else { e.cast(a[2], d) };
        let y = e.mul(a[0], g);
        let y = e.add(y, b);
        if silu { functions::silu(e, y) } else { y }
    })?;
    c.set(n, 0, y);
    Ok(())
}
