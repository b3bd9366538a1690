//! com.microsoft operators of models that carry several streams of features beside each other, and of routers between
//! experts.
use super::{OpDef, layer_norm, matmul, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, Compare, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";
const F: DType = DType::F32;

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "EngramGate", engram_gate), op_of(MS, "HyperConnectionPostMix", post_mix),
    op_of(MS, "HyperConnectionPreMix", pre_mix), op_of(MS, "MoEGroupRouter", router),
    op_of(MS, "NGramHashMapping", hash_ids),
];

/// Streams [.., C, H] as f32, which may come flattened, [.., C * H].
fn grouped<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId) -> Lowered<ValueId> {
    let mut s = c.shape(x);
    if let count @ 1.. = n.int("num_branches", 0)? {
        let last = s.pop().ok_or("its streams are a single number")?;
        let each = last.exact_div(&Dim::Known(count));
        s.extend([Dim::Known(count), each.ok_or_else(|| format!("its last dimension {last} is not {count} branches"))?]);
    }
    if s.len() < 2 {
        return Err(format!("its streams have rank {}, not 2 or more", s.len()).into());
    }
    let x = c.reshaped(n, n.tmp("streams"), x, s)?;
    c.cast(n, n.tmp("streams.wide"), x, F)
}

/// Gates of branches or of their features as [.., C, 1] or [.., C, H] of f32, beside streams of shape `s`.
fn gates<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, v: ValueId, s: &[Dim]) -> Lowered<ValueId> {
    let own = c.shape(v);
    let (branches, features) = (&s[s.len() - 2], &s[s.len() - 1]);
    let mut shape = own.clone();
    if own.len() + 1 == s.len() {
        let last = shape.pop().ok_or("its gates are a single number")?;
        let flat = &last != branches && last == branches.clone() * features.clone();
        shape.extend([branches.clone(), if flat { features.clone() } else { Dim::ONE }]);
    }
    let v = c.reshaped(n, n.tmp("gates"), v, shape)?;
    c.cast(n, n.tmp("gates.wide"), v, F)
}

/// One stream of several: their sum, each weighed by its gates.
fn pre_mix<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, d) = (n.input(0)?, c.dtype(n.input(0)?));
    let factor = n.float("reduction_scale", 1.0)?;
    let x = grouped(c, n, x)?;
    let s = c.shape(x);
    let g = gates(c, n, n.input(1)?, &s)?;
    let weighed = c.map(n, n.tmp("weighed"), &[x, g], |e, a| e.mul(a[0], a[1]))?;
    let sum = c.reduce(n, n.tmp("sum"), weighed, monoids::sum(F), &[s.len() - 2], false)?;
    let y = c.map(n, n.name(0), &[sum], |e, a| {
        let k = e.constant(factor, F);
        let y = e.mul(a[0], k);
        if d == F { y } else { e.cast(y, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// Streams mixed with each other, and what a block gives added to each by its gates.
fn post_mix<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    let (given, block, mix) = (n.input(0)?, n.input(1)?, n.opt(3));
    let (own, d) = (c.shape(given), c.dtype(given));
    let x = grouped(c, n, given)?;
    let s = c.shape(x);
    let g = gates(c, n, n.input(2)?, &s)?;
    let mut thin = c.shape(block);
    thin.insert(thin.len().saturating_sub(1), Dim::ONE);
    let block = c.reshape(n, n.tmp("block"), block, thin)?;
    let block = c.cast(n, n.tmp("block.wide"), block, F)?;
    let mixed = match mix {
        Some(m) => {
            // Row c of the matrix says where stream c goes.
            let rank = c.rank(m);
            let mut order: Vec<usize> = (0..rank).collect();
            if rank < 2 {
                return Err("its matrix of streams needs rank 2 or more".into());
            }
            order.swap(rank - 1, rank - 2);
            let m = c.permute(n, n.tmp("mix"), m, order)?;
            let m = c.cast(n, n.tmp("mix.wide"), m, F)?;
            matmul::product(c, n, n.tmp("mixed"), m, x, (false, false))?
        }
        None => x,
    };
    let y = c.map(n, n.tmp("sum"), &[mixed, g, block], |e, a| {
        let p = e.mul(a[1], a[2]);
        let y = e.add(a[0], p);
        if d == F { y } else { e.cast(y, d) }
    })?;
    let y = c.reshape(n, n.name(0), y, own)?;
    c.set(n, 0, y);
    Ok(())
}

/// The rows of `x`, each divided by the root of its mean of squares and scaled, in f32.
fn normed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, x: ValueId, scale: ValueId, eps: f64) -> Lowered<ValueId> {
    let x = c.cast(n, n.tmp(&format!("{what}.wide")), x, F)?;
    let scale = c.cast(n, n.tmp(&format!("{what}.scale")), scale, F)?;
    let last = c.rank(x).checked_sub(1).ok_or("its input is a single number")?;
    let v = layer_norm::normalise(c, n, x, &[last], F, true)?;
    let y = layer_norm::scaled(c, n, n.tmp(&format!("{what}.normed")), &v, eps, None, None, F)?;
    c.map(n, n.tmp(&format!("{what}.scaled")), &[y, scale], |e, a| e.mul(a[0], a[1]))
}

/// A value times the sigmoid of how alike key and query are.
fn engram_gate<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(6)?;
    let (key, query, value) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let eps = n.float("epsilon", 1e-5)?;
    let (s, t, d) = (c.shape(key), c.shape(value), c.dtype(key));
    if s.len() != 4 || t.len() != 3 {
        return Err(format!("its keys have rank {} and its values {}, not 4 and 3", s.len(), t.len()).into());
    }
    let k = normed(c, n, "key", key, n.input(3)?, eps)?;
    let q = normed(c, n, "query", query, n.input(4)?, eps)?;
    let both = c.map(n, n.tmp("both"), &[k, q], |e, a| e.mul(a[0], a[1]))?;
    let dot = c.reduce(n, n.tmp("dot"), both, monoids::sum(F), &[3], true)?;
    let value = c.reshape(n, n.tmp("value"), value, vec![t[0].clone(), t[1].clone(), Dim::ONE, t[2].clone()])?;
    let value = c.cast(n, n.tmp("value.wide"), value, F)?;
    let wide = c.map(n, n.tmp("gated"), &[dot, value], |e, a| {
        let width = e.dim(&s[3]);
        let width = e.cast(width, F);
        let root = e.unary(Unary::Sqrt, width);
        let dot = e.div(a[0], root);
        let (size, sign) = (e.unary(Unary::Abs, dot), e.unary(Unary::Sign, dot));
        let least = e.constant(1e-6, F);
        let size = e.binary(Binary::Max, size, least);
        let size = e.unary(Unary::Sqrt, size);
        let x = e.mul(sign, size);
        let gate = e.unary(Unary::Sigmoid, x);
        e.mul(gate, a[1])
    })?;
    let y = c.map(n, n.name(0), &[wide], |e, a| if d == F { a[0] } else { e.cast(a[0], d) })?;
    c.set(n, 0, y);
    if n.wants(1) {
        let y = normed(c, n, "out", y, n.input(5)?, eps)?;
        let y = c.map(n, n.name(1), &[y], |e, a| if d == F { a[0] } else { e.cast(a[0], d) })?;
        c.set(n, 1, y);
    }
    Ok(())
}

/// How many elements of the last dimension come before each when the largest is first; of equal ones the first is.
fn places<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, x: ValueId) -> Lowered<ValueId> {
    let s = c.shape(x);
    let last = s.len() - 1;
    let around = |at: usize| {
        let mut t = s.clone();
        t.insert(at, Dim::ONE);
        t
    };
    let own = c.reshape(n, n.tmp(&format!("{what}.own")), x, around(last + 1))?;
    let all = c.reshape(n, n.tmp(&format!("{what}.others")), x, around(last))?;
    let before = c.map(n, n.tmp(&format!("{what}.before")), &[own, all], |e, a| {
        let (i, j) = (e.index(last as u32), e.index(last as u32 + 1));
        let (more, same, first) =
            (e.compare(Compare::Gt, a[1], a[0]), e.compare(Compare::Eq, a[1], a[0]), e.compare(Compare::Lt, j, i));
        let earlier = e.binary(Binary::And, same, first);
        let before = e.binary(Binary::Or, more, earlier);
        e.cast(before, DType::I32)
    })?;
    c.reduce(n, n.tmp(&format!("{what}.places")), before, monoids::sum(DType::I32), &[last + 1], false)
}

/// `x` where `places` says fewer than `count`, and `other` elsewhere.
fn among<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, (x, places): (ValueId, ValueId), count: i64, other: f64) -> Lowered<ValueId> {
    let d = c.dtype(x);
    c.map(n, n.tmp(what), &[x, places], |e, a| {
        let (k, other) = (e.int(count, DType::I32), e.constant(other, d));
        let chosen = e.compare(Compare::Lt, a[1], k);
        e.select(chosen, a[0], other)
    })
}

/// Scores of experts for tokens: some groups of experts by the sum of their best, and of those the best.
fn router<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    if n.opt(2).is_some() {
        return Err(LowerError::Unsupported("projects its logits, which kernels for GPUs alone do; put a MatMul before it".into()));
    }
    let (logits, bias) = (n.input(0)?, n.input(1)?);
    let count = |name: &str, usual: Option<i64>| -> Lowered<i64> {
        let k = n.int_opt(name)?.or(usual).filter(|k| (1..1 << 20).contains(k));
        k.ok_or_else(|| format!("attribute '{name}' must be a positive number").into())
    };
    let (top, groups) = (count("top_k", None)?, count("n_group", Some(1))?);
    let (kept, best) = (count("topk_group", Some(1))?, count("group_topk", Some(2))?);
    let sentinel = n.float("router_sentinel", -10000.0)?;
    let (s, d) = (c.shape(logits), c.dtype(logits));
    let Some((experts, rows)) = s.split_last() else { return Err("its logits are a single number".into()) };
    let each = experts.exact_div(&Dim::Known(groups)).ok_or_else(|| format!("{experts} experts are not {groups} groups"))?;
    let flat = c.reshape(n, n.tmp("rows"), logits, vec![Dim::product(rows), experts.clone()])?;
    let wide = c.cast(n, n.tmp("wide"), flat, F)?;
    let score = c.map(n, if n.wants(2) { n.name(2) } else { n.tmp("scores") }, &[wide], |e, a| e.unary(Unary::Sigmoid, a[0]))?;
    let ranked = c.map(n, if n.wants(1) { n.name(1) } else { n.tmp("biased") }, &[score, bias], |e, a| e.add(a[0], a[1]))?;
    if n.wants(1) {
        c.set(n, 1, ranked);
    }
    if n.wants(2) {
        c.set(n, 2, score);
    }
    if !n.wants(0) {
        return Ok(());
    }
    let in_groups = vec![Dim::product(rows), Dim::Known(groups), each];
    let parts = c.reshape(n, n.tmp("groups"), ranked, in_groups)?;
    let at = places(c, n, "member", parts)?;
    let bests = among(c, n, "bests", (parts, at), best, 0.0)?;
    let sums = c.reduce(n, n.tmp("sums"), bests, monoids::sum(F), &[2], false)?;
    let at = places(c, n, "group", sums)?;
    let mut thin = c.shape(at);
    thin.push(Dim::ONE);
    let at = c.reshape(n, n.tmp("group.thin"), at, thin)?;
    let open = among(c, n, "open", (parts, at), kept, f64::NEG_INFINITY)?;
    let open = c.reshape(n, n.tmp("open.rows"), open, c.shape(ranked))?;
    let at = places(c, n, "expert", open)?;
    let y = c.map(n, n.name(0), &[score, at], |e, a| {
        let (k, none, least) = (e.int(top, DType::I32), e.constant(sentinel, F), e.constant(1e-20, F));
        let chosen = e.compare(Compare::Lt, a[1], k);
        let x = e.binary(Binary::Max, a[0], least);
        let x = e.unary(Unary::Log, x);
        let y = e.select(chosen, x, none);
        if d == F { y } else { e.cast(y, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}

/// Hashes of each token with those before it.
fn hash_ids<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(7)?;
    let (ids, by, sizes) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let most = n.int_opt("max_ngram_size")?.filter(|k| (2..=64).contains(k)).ok_or("attribute 'max_ngram_size' must be 2 to 64")?;
    let heads = n.int_opt("n_head_per_ngram")?.filter(|k| (1..1 << 20).contains(k));
    let heads = heads.ok_or("attribute 'n_head_per_ngram' must be a positive number")?;
    let pad = n.int_opt("pad_id")?.ok_or("attribute 'pad_id' is missing")?;
    let end = n.opt(5);
    if (n.flag("reset_on_eos", false)? && end.is_some()) || n.opt(6).is_some() {
        return Err(LowerError::Unsupported("begins anew inside a text; give each text by itself".into()));
    }
    let (s, d) = (c.shape(ids), c.dtype(ids));
    let ([batch, length], true) = (s.as_slice(), d.is_int()) else {
        return Err(format!("needs ids of rank 2, they are {d} of rank {}", s.len()).into());
    };
    let before = [batch.clone(), Dim::Known(most - 1)];
    let past = match (n.opt(3), end) {
        (Some(p), _) => c.has_shape(n, n.tmp("past"), p, &before)?,
        (None, Some(end)) => {
            let end = c.reshaped(n, n.tmp("end"), end, vec![Dim::ONE, Dim::ONE])?;
            c.expand(n, n.tmp("past"), end, before.to_vec())?
        }
        (None, None) => c.fill(n, n.tmp("past"), &before, d, |e| e.int(pad, d))?,
    };
    let all = c.add1(n, Op::Concat { axis: 1 }, &[past, ids], n.tmp("all"))?;
    if n.wants(1) {
        let last = c.slice(n, n.name(1), all, 1, length.clone(), before[1].clone())?;
        c.set(n, 1, last);
    }
    let one = |c: &mut Ctx<'m>, v: ValueId, what: &str, from: i64, count: i64| {
        let part = c.slice(n, n.tmp(what), v, 0, Dim::Known(from), Dim::Known(count))?;
        c.reshape(n, n.tmp(&format!("{what}.row")), part, vec![Dim::ONE, Dim::ONE, Dim::Known(count)])
    };
    let (mut mix, mut parts) = (None, Vec::new());
    for k in 0..most {
        let moved = c.slice(n, n.tmp(&format!("moved{k}")), all, 1, Dim::Known(most - 1 - k), length.clone())?;
        let moved = c.reshape(n, n.tmp(&format!("moved{k}.thin")), moved, vec![batch.clone(), length.clone(), Dim::ONE])?;
        let factor = one(c, by, &format!("factor{k}"), k, 1)?;
        let inputs: Vec<ValueId> = [moved, factor].into_iter().chain(mix).collect();
        let mixed = c.map(n, n.tmp(&format!("mix{k}")), &inputs, |e, a| {
            let y = e.mul(a[0], a[1]);
            a.get(2).map_or(y, |&m| e.binary(Binary::Xor, m, y))
        })?;
        mix = Some(mixed);
        if k == 0 {
            continue;
        }
        let from = (k - 1) * heads;
        let mut inputs = vec![mixed, one(c, sizes, &format!("sizes{k}"), from, heads)?];
        if let Some(o) = n.opt(4) {
            inputs.push(one(c, o, &format!("offsets{k}"), from, heads)?);
        }
        parts.push(c.map(n, n.tmp(&format!("ids{k}")), &inputs, |e, a| {
            let y = e.binary(Binary::Mod, a[0], a[1]);
            a.get(2).map_or(y, |&o| e.add(y, o))
        })?);
    }
    let y = match parts.as_slice() {
        [one] => c.reshape(n, n.name(0), *one, c.shape(*one))?,
        all => c.add1(n, Op::Concat { axis: 2 }, all, n.name(0))?,
    };
    c.set(n, 0, y);
    Ok(())
}
