//! com.microsoft MoE and QMoE: every token goes through the experts that its router picks. All
//! experts are products of one batch, and those that were not picked weigh nothing: that reads each
//! weight once, whatever the tokens pick.
use super::ms_nbits::unpacked;
use super::{OpDef, activation, matmul, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::{Op, ValueId, View};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";
const F: DType = DType::F32;

pub(crate) const OPS: &[OpDef] = &[op_of(MS, "MoE", plain), op_of(MS, "QMoE", quantised)];

/// A layer of all experts: weights [experts, out, in] and biases [experts, out].
type Layer = (ValueId, Option<ValueId>);

fn plain<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(8)?;
    let third = n.opt(6).map(|w| (w, n.opt(7)));
    let normal = n.flag("normalize_routing_weights", false)?;
    lower(c, n, normal, (n.input(2)?, n.opt(3)), (n.input(4)?, n.opt(5)), third)
}

fn quantised<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(14)?;
    let d = c.dtype(n.input(0)?);
    let (bits, block) = (n.int("expert_weight_bits", 4)?, n.int("block_size", 0)?);
    if ![4, 8].contains(&bits) {
        return Err(LowerError::Unsupported(format!("has weights of {bits} bits; use 4 or 8")));
    }
    let layer = |c: &mut Ctx<'m>, i: usize| -> Lowered<Layer> {
        let (w, scale) = (n.input(2 + 3 * i)?, n.input(3 + 3 * i)?);
        let name = |what: &str| n.tmp(&format!("fc{i}.{what}"));
        let w = unpacked(c, n, &format!("fc{i}"), w, bits)?;
        let s = c.shape(w);
        let [_, _, width] = s.as_slice() else {
            return Err("its weights need rank 3".into());
        };
        // Blocks along the last dimension: one number of each row, or of each block.
        let blocks = match c.shape(scale).as_slice() {
            [_, _, b] if block > 0 => b.clone(),
            [_, _] | [_, _, _] => Dim::ONE,
            _ => return Err("its scales need rank 2 or 3".into()),
        };
        let each = if blocks.is_one() { width.clone() } else { Dim::Known(block) };
        let mut cut = vec![s[0].clone(), s[1].clone(), blocks.clone(), each];
        let numbers = c.reshape(n, name("blocks"), w, cut.clone())?;
        cut[3] = Dim::ONE;
        let mut inputs = vec![numbers, c.reshape(n, name("scales"), scale, cut.clone())?];
        if let Some(z) = n.opt(11 + i) {
            let mut z = unpacked(c, n, &format!("fc{i}.zeros"), z, bits)?;
            let last = c.rank(z).saturating_sub(1);
            if !blocks.is_one() && c.shape(z)[last] != blocks {
                z = c.slice(n, name("zeros.cut"), z, last, Dim::ZERO, blocks)?;
            }
            inputs.push(c.reshape(n, name("zeros.blocks"), z, cut)?);
        }
        let middle = (1i64 << (bits - 1)) as f64;
        let w = c.map(n, name("real"), &inputs, |e, a| {
            let w = e.cast(a[0], F);
            let z = match a.get(2) {
                Some(&z) => e.cast(z, F),
                None => e.constant(middle, F),
            };
            let (w, by) = (e.sub(w, z), e.cast(a[1], F));
            let w = e.mul(w, by);
            e.cast(w, d)
        })?;
        Ok((c.reshape(n, name("rows"), w, s)?, n.opt(4 + 3 * i)))
    };
    let (first, second) = (layer(c, 0)?, layer(c, 1)?);
    let third = match n.opt(8) {
        Some(_) => Some(layer(c, 2)?),
        None => None,
    };
    // The experts that were picked share a token whatever the attribute says, as onnxruntime has it.
    n.flag("normalize_routing_weights", false)?;
    lower(c, n, true, first, second, third)
}

/// What every expert counts for every token, [tokens, experts].
fn weights<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, logits: ValueId, normal: bool) -> Lowered<ValueId> {
    let k = n.int("k", 1)?;
    let s = c.shape(logits);
    let x = c.cast(n, n.tmp("router"), logits, F)?;
    let top = c.reduce(n, n.tmp("router.max"), x, monoids::max(F), &[1], true)?;
    let p = c.map(n, n.tmp("router.exp"), &[x, top], |e, a| {
        let y = e.sub(a[0], a[1]);
        e.unary(Unary::Exp, y)
    })?;
    let sum = c.reduce(n, n.tmp("router.sum"), p, monoids::sum(F), &[1], true)?;
    // How many experts come before each: those of larger logits, or of the same and a lower number.
    let own = c.reshape(n, n.tmp("own"), x, vec![s[0].clone(), s[1].clone(), Dim::ONE])?;
    let rest = c.reshape(n, n.tmp("rest"), x, vec![s[0].clone(), Dim::ONE, s[1].clone()])?;
    let before = c.map(n, n.tmp("before"), &[own, rest], |e, a| {
        let (i, j) = (e.index(1), e.index(2));
        let (more, same) = (e.compare(Compare::Gt, a[1], a[0]), e.compare(Compare::Eq, a[1], a[0]));
        let lower = e.compare(Compare::Lt, j, i);
        let tie = e.binary(Binary::And, same, lower);
        let yes = e.binary(Binary::Or, more, tie);
        e.cast(yes, F)
    })?;
    let rank = c.reduce(n, n.tmp("rank"), before, monoids::sum(F), &[2], false)?;
    let picked = c.map(n, n.tmp("picked"), &[p, rank], |e, a| {
        let (k, zero) = (e.constant(k as f64, F), e.constant(0.0, F));
        let on = e.compare(Compare::Lt, a[1], k);
        e.select(on, a[0], zero)
    })?;
    let sum = match normal {
        true => c.reduce(n, n.tmp("picked.sum"), picked, monoids::sum(F), &[1], true)?,
        false => sum,
    };
    c.map(n, n.tmp("share"), &[picked, sum], |e, a| e.div(a[0], a[1]))
}

/// The gate `g` by its sigmoid, times the value `l`, both within `limit`.
fn swiglu(e: &mut ExprBuilder, mut g: Ref, l: Ref, (alpha, beta, limit): (f64, f64, Option<f64>)) -> Ref {
    let mut l = e.cast(l, F);
    if let Some(limit) = limit {
        let (top, low) = (e.constant(limit, F), e.constant(-limit, F));
        g = e.binary(Binary::Min, g, top);
        l = e.binary(Binary::Min, l, top);
        l = e.binary(Binary::Max, l, low);
    }
    let (alpha, beta) = (e.constant(alpha, F), e.constant(beta, F));
    let s = e.mul(g, alpha);
    let s = e.unary(Unary::Sigmoid, s);
    let g = e.mul(g, s);
    let l = e.add(l, beta);
    e.mul(g, l)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, normal: bool, first: Layer, second: Layer, third: Option<Layer>) -> Lowered {
    let (x, logits) = (n.input(0)?, n.input(1)?);
    let (d, s) = (c.dtype(x), c.shape(x));
    let experts = c.shape(first.0);
    if s.len() < 2 || c.rank(logits) != 2 || experts.len() != 3 {
        return Err("needs tokens, a router of rank 2 and weights of rank 3".into());
    }
    if n.flag("use_sparse_mixer", false)? {
        return Err(LowerError::Unsupported("mixes sparsely (use_sparse_mixer); export it without".into()));
    }
    let act = n.text("activation_type", "relu")?;
    let (alpha, beta) = (n.float("activation_alpha", 1.0)?, n.float("activation_beta", 0.0)?);
    let limit = n.float_opt("swiglu_limit")?.filter(|v| v.is_finite());
    let paired = act == "swiglu";
    if n.int("swiglu_fusion", 0)? != i64::from(paired) {
        return Err(LowerError::Unsupported("has its gates beside its values; interleave them (swiglu_fusion 1)".into()));
    }
    let (count, width) = (experts[0].clone(), s[s.len() - 1].clone());
    let tokens = Dim::product(&s[..s.len() - 1]);
    let share = weights(c, n, logits, normal)?;
    let rows = c.reshape(n, n.tmp("tokens"), x, vec![Dim::ONE, tokens.clone(), width.clone()])?;
    let layer = |c: &mut Ctx<'m>, what: &str, x: ValueId, (w, b): Layer| -> Lowered<ValueId> {
        let w = c.cast(n, n.tmp(&format!("{what}.like")), w, d)?;
        let y = matmul::product(c, n, n.tmp(what), x, w, (false, true))?;
        let Some(b) = b else { return Ok(y) };
        let mut thin = c.shape(b);
        thin.insert(1, Dim::ONE);
        let b = c.reshape(n, n.tmp(&format!("{what}.bias")), b, thin)?;
        c.map(n, n.tmp(&format!("{what}.sum")), &[y, b], |e, a| e.add(a[0], a[1]))
    };
    let h = layer(c, "fc1", rows, first)?;
    let mut inputs = vec![h];
    if paired {
        let mut extents = c.shape(h);
        let Some(half) = extents[2].known().filter(|e| e % 2 == 0) else {
            return Err("its gates and values are no pairs".into());
        };
        extents[2] = Dim::Known(half / 2);
        inputs.clear();
        for i in 0..2 {
            let starts = vec![Dim::ZERO, Dim::ZERO, Dim::Known(i)];
            let cut = View::Slice { starts, steps: vec![1, 1, 2], extents: extents.clone() };
            inputs.push(c.add1(n, Op::View(cut), &[h], n.tmp(&format!("pair{i}")))?);
        }
    } else if let Some(third) = third {
        inputs.push(layer(c, "fc3", rows, third)?);
    }
    let by = c.permute(n, n.tmp("share.turned"), share, vec![1, 0])?;
    let by = c.reshape(n, n.tmp("share.thin"), by, vec![count, tokens.clone(), Dim::ONE])?;
    inputs.push(by);
    let unknown = !["relu", "gelu", "silu", "identity", "swiglu"].contains(&act.as_str());
    if unknown {
        return Err(format!("attribute 'activation_type' is '{act}', it must be relu, gelu, silu, swiglu or identity").into());
    }
    let h = c.map(n, n.tmp("active"), &inputs, |e, a| {
        let x = e.cast(a[0], F);
        let mut y = match act.as_str() {
            "relu" => {
                let zero = e.constant(0.0, F);
                e.binary(Binary::Max, x, zero)
            }
            "silu" => {
                let s = e.unary(Unary::Sigmoid, x);
                e.mul(x, s)
            }
            "gelu" => activation::gelu_tanh(e, x, F),
            "swiglu" => swiglu(e, x, a[1], (alpha, beta, limit)),
            _ => x,
        };
        if !paired && a.len() > 2 {
            let gate = e.cast(a[1], F);
            y = e.mul(y, gate);
        }
        let y = e.mul(y, a[a.len() - 1]);
        e.cast(y, d)
    })?;
    let y = layer(c, "fc2", h, (second.0, None))?;
    let mut y = c.reduce(n, n.tmp("mixed"), y, monoids::sum(d), &[0], false)?;
    if let Some(b) = second.1 {
        let share = c.cast(n, n.tmp("share.like"), share, d)?;
        let b = matmul::product(c, n, n.tmp("bias"), share, b, (false, false))?;
        y = c.map(n, n.tmp("biased"), &[y, b], |e, a| e.add(a[0], a[1]))?;
    }
    let y = c.reshape(n, n.name(0), y, s)?;
    c.set(n, 0, y);
    Ok(())
}
