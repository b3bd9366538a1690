//! com.microsoft operators of decoders that take one token at a time: attention over a buffer of keys and values, and what
//! is decided about the next token.
use super::ms_attention::{attend, columns, heads, heads_side_by_side, masked, scale};
use super::{OpDef, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use expr::{Binary, Compare};
use graph::{Op, ScatterReduce, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "BifurcationDetector", bifurcation), op_of(MS, "DecoderMaskedMultiHeadAttention", attention),
    op_of(MS, "DynamicTimeWarping", warping), op_of(MS, "NGramRepeatBlock", repeats),
];

/// Where a step writes into its buffers of keys and values.
struct Place {
    /// The position, a scalar.
    at: ValueId,
    /// For each entry of the batch and position the entry that it is read from, [batch, positions].
    from: Option<ValueId>,
}

/// `name` with the part of `bias` for it added.
fn biased<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, from: i64) -> Lowered<ValueId> {
    let Some(bias) = n.opt(10) else { return Ok(v) };
    let width = c.shape(v).last().and_then(Dim::known).ok_or("its hidden size must be known to add its bias")?;
    let b = columns(c, n, &format!("{what}.bias"), bias, from, width)?;
    c.map(n, n.tmp(&format!("{what}.biased")), &[v, b], |e, a| e.add(a[0], a[1]))
}

/// The buffer `past` with `new` at its place, as output `i`; and as it is read, where other entries' tokens came before.
fn written<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    i: usize,
    (past, new): (ValueId, ValueId),
    place: &Place,
) -> Lowered<ValueId> {
    let put = |c: &mut Ctx<'m>, name: String, old: ValueId| {
        c.map(n, name, &[old, new, place.at], |e, a| {
            let (t, at) = (e.index(2), e.cast(a[2], DType::I64));
            let here = e.compare(Compare::Eq, t, at);
            e.select(here, a[1], a[0])
        })
    };
    let all = put(c, n.name(i), past)?;
    c.set(n, i, all);
    let Some(from) = place.from else { return Ok(all) };
    let s = c.shape(past);
    let rows = c.permute(n, n.tmp(&format!("rows{i}")), past, vec![0, 2, 1, 3])?;
    let flat = vec![s[0].clone() * s[2].clone(), s[1].clone() * s[3].clone()];
    let rows = c.reshape(n, n.tmp(&format!("rows{i}.flat")), rows, flat)?;
    let picked = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[rows, from], n.tmp(&format!("picked{i}")))?;
    let apart = vec![s[0].clone(), s[2].clone(), s[1].clone(), s[3].clone()];
    let picked = c.reshape(n, n.tmp(&format!("picked{i}.heads")), picked, apart)?;
    let picked = c.permute(n, n.tmp(&format!("picked{i}.back")), picked, vec![0, 2, 1, 3])?;
    put(c, n.tmp(&format!("read{i}")), picked)
}

/// Where the step writes; `s`: the shape of its buffers.
fn place<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: &[Dim]) -> Lowered<Place> {
    let at = n.opt(7).ok_or("shares its buffers, for which it needs past_sequence_length")?;
    let at = c.reshape(n, n.tmp("at"), at, vec![])?;
    let Some(from) = n.opt(9) else { return Ok(Place { at, from: None }) };
    let [batch, beams, _] = <[Dim; 3]>::try_from(c.shape(from)).map_err(|s| format!("its cache_indirection has rank {}, not 3", s.len()))?;
    let from = c.slice(n, n.tmp("beams"), from, 2, Dim::ZERO, s[2].clone())?;
    let from = c.map(n, n.tmp("entries"), &[from], |e, a| {
        let (b, t, beam) = (e.index(0), e.index(2), e.cast(a[0], DType::I64));
        let (beams, length) = (e.dim(&beams), e.dim(&s[2]));
        let row = e.mul(b, beams);
        let row = e.add(row, beam);
        let row = e.mul(row, length);
        e.add(row, t)
    })?;
    c.assume(n, &(batch * beams), &s[0]);
    let from = c.reshape(n, n.tmp("entries.rows"), from, vec![s[0].clone(), s[2].clone()])?;
    Ok(Place { at, from: Some(from) })
}

/// `v` with `length` elements along its last dimension, of which those that it does not have are never seen.
fn wide<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, length: &Dim) -> Lowered<ValueId> {
    let Some((axis, own)) = c.rank(v).checked_sub(1).map(|a| (a, c.shape(v)[a].clone())) else { return Ok(v) };
    match own == *length {
        true => Ok(v),
        false => c.repeated(n, n.tmp(what), v, axis, &own, length.clone()),
    }
}

fn attention<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(11)?;
    let (query, key, value) = (n.input(0)?, n.opt(1), n.opt(2));
    let count = n.int_opt("num_heads")?.filter(|k| *k > 0).ok_or("attribute 'num_heads' must be a positive number")?;
    let filter = n.float("mask_filter_value", -10000.0)?;
    let shared = n.flag("past_present_share_buffer", false)?;
    if n.flag("output_qk", false)? || n.wants(3) {
        return Err(LowerError::Unsupported("gives its scores, which kernels for GPUs alone do; export it without".into()));
    }
    let (Some(key), Some(value)) = (key, value) else {
        return Err(LowerError::Unsupported("packs query, key and value; split them before it".into()));
    };
    let x = biased(c, n, "q", query, 0)?;
    let q = heads(c, n, "q", x, count)?;
    let (mut k, mut v, mut at) = (key, value, None);
    if c.rank(key) == 3 {
        let (Some(past_k), Some(past_v), true) = (n.opt(5), n.opt(6), shared) else {
            return Err(LowerError::Unsupported("grows its keys; export it with past_present_share_buffer".into()));
        };
        let width = c.shape(query).last().and_then(Dim::known).ok_or("its hidden size must be known")?;
        let place = place(c, n, &c.shape(past_k))?;
        for (i, what, own, past) in [(1, "k", &mut k, past_k), (2, "v", &mut v, past_v)] {
            let x = biased(c, n, what, *own, width * i as i64)?;
            let new = heads(c, n, what, x, count)?;
            *own = written(c, n, i, (past, new), &place)?;
        }
        at = Some(place.at);
    }
    let length = c.shape(k).get(2).cloned().ok_or("its keys must have rank 3 or 4")?;
    let factor = scale(c, n, q)?;
    let y = attend(c, n, (q, k, v), factor, &mut |c, mut s| {
        if let Some(m) = n.opt(3) {
            let m = wide(c, n, "mask.wide", m, &length)?;
            s = masked(c, n, s, m, filter)?;
        }
        if let Some(b) = n.opt(4) {
            let b = wide(c, n, "extra.wide", b, &length)?;
            s = c.map(n, n.tmp("extra"), &[s, b], |e, a| e.add(a[0], a[1]))?;
        }
        let Some(at) = at else { return Ok(s) };
        let d = c.dtype(s);
        c.map(n, n.tmp("so_far"), &[s, at], |e, a| {
            let (j, at, never) = (e.index(3), e.cast(a[1], DType::I64), e.constant(f64::NEG_INFINITY, d));
            let seen = e.compare(Compare::Le, j, at);
            e.select(seen, a[0], never)
        })
    })?;
    let y = heads_side_by_side(c, n, n.name(0), y)?;
    c.set(n, 0, y);
    Ok(())
}

/// Scores without the tokens that would end a run of `ngram_size` tokens which was there before.
fn repeats<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (ids, scores) = (n.input(0)?, n.input(1)?);
    let size = n.int_opt("ngram_size")?.filter(|k| (1..=64).contains(k)).ok_or("attribute 'ngram_size' must be 1 to 64")?;
    let (s, d) = (c.shape(ids), c.dtype(scores));
    let [batch, length] = s.as_slice() else {
        return Err(format!("its ids have rank {}, not 2", s.len()).into());
    };
    if length.known().is_some_and(|l| l < size) {
        let y = c.reshape(n, n.name(0), scores, c.shape(scores))?;
        c.set(n, 0, y);
        return Ok(());
    }
    c.assume_at_most(n, &Dim::Known(size), length);
    let runs = length.clone() - Dim::Known(size - 1);
    let at = |c: &mut Ctx<'m>, what: &str, from: Dim, extent: Dim| c.slice(n, n.tmp(what), ids, 1, from, extent);
    let mut inputs = vec![at(c, "ends", Dim::Known(size - 1), runs.clone())?];
    for k in 0..size - 1 {
        inputs.push(at(c, &format!("run{k}"), Dim::Known(k), runs.clone())?);
        inputs.push(at(c, &format!("last{k}"), runs.clone() + Dim::Known(k), Dim::ONE)?);
    }
    let updates = c.map(n, n.tmp("updates"), &inputs, |e, a| {
        let mut same = e.int(1, DType::Bool);
        for pair in a[1..].chunks(2) {
            let one = e.compare(Compare::Eq, pair[0], pair[1]);
            same = e.binary(Binary::And, same, one);
        }
        let (low, high) = (e.constant(f64::NEG_INFINITY, d), e.constant(f64::INFINITY, d));
        e.select(same, low, high)
    })?;
    let thin = vec![batch.clone(), runs.clone(), Dim::ONE];
    let ends = c.cast(n, n.tmp("ends.wide"), inputs[0], DType::I64)?;
    let ends = c.reshape(n, n.tmp("ends.thin"), ends, thin.clone())?;
    let rows = c.fill(n, n.tmp("rows"), &thin, DType::I64, |e| e.index(0))?;
    let places = c.add1(n, Op::Concat { axis: 2 }, &[rows, ends], n.tmp("places"))?;
    let y = c.add1(n, Op::ScatterNd(ScatterReduce::Min), &[scores, places, updates], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

/// The cheapest way through a matrix of costs: its rows and its columns.
fn warping<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    c.host(n, &[(DType::I32, vec![Some(Dim::Known(2)), None])])
}

/// The tokens so far with those that were foreseen, up to the first that is another, and where their end is in the source.
fn bifurcation<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(4)?;
    c.host(n, &[(DType::I64, vec![None]), (DType::I64, vec![])])
}
