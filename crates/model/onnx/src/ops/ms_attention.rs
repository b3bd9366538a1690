//! com.microsoft Attention and MultiHeadAttention: as the products, maps and reductions that
//! exporters write out, so that they are found as attention like any other.
use super::{OpDef, matmul, op_of, softmax};
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use expr::{Compare, ExprBuilder, Ref};
use graph::{Op, ValueId};
use layout::{DType, Dim};

const MS: &str = "com.microsoft";

pub(crate) const OPS: &[OpDef] = &[op_of(MS, "Attention", packed), op_of(MS, "MultiHeadAttention", multi_head)];

/// [b, s, h*d] as [b, h, s, d].
pub(super) fn heads<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, heads: i64) -> Lowered<ValueId> {
    let s = c.shape(v);
    let h = Dim::Known(heads);
    let each = match s.as_slice() {
        [_, _, w] if heads > 0 => w.exact_div(&h),
        _ => None,
    };
    let each = each.ok_or_else(|| format!("its {what} of shape {s:?} is not {heads} equal heads"))?;
    let v = c.reshape(n, n.tmp(&format!("{what}.split")), v, vec![s[0].clone(), s[1].clone(), h, each])?;
    c.permute(n, n.tmp(&format!("{what}.heads")), v, vec![0, 2, 1, 3])
}

/// [b, h, s, d] as [b, s, h*d].
pub(super) fn heads_side_by_side<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, v: ValueId) -> Lowered<ValueId> {
    let s = c.shape(v);
    let moved = c.permute(n, format!("{name}.joined"), v, vec![0, 2, 1, 3])?;
    let all = s[1].clone() * s[3].clone();
    c.reshape(n, name, moved, vec![s[0].clone(), s[2].clone(), all])
}

/// 1/sqrt of the head size unless the attribute `scale` gives another factor.
pub(super) fn scale<'m>(c: &Ctx<'m>, n: &NodeView<'m>, q: ValueId) -> Lowered<f64> {
    match (n.float("scale", 0.0)?, c.shape(q).last().and_then(Dim::known)) {
        (s, _) if s != 0.0 => Ok(s),
        (_, Some(w)) if w > 0 => Ok(1.0 / (w as f64).sqrt()),
        _ => Err(LowerError::Unsupported("its head size is not known; give it with --dim".into())),
    }
}

/// softmax(mask(q·kᵀ·scale))·v over [b, h, s, d]; `mask` changes the scaled scores.
pub(super) fn attend<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (q, k, v): (ValueId, ValueId, ValueId),
    scale: f64,
    mask: &mut dyn FnMut(&mut Ctx<'m>, ValueId) -> Lowered<ValueId>,
) -> Lowered<ValueId> {
    let d = c.dtype(q);
    let kt = c.permute(n, n.tmp("k.t"), k, vec![0, 1, 3, 2])?;
    let raw = matmul::product(c, n, n.tmp("scores"), q, kt, (false, false))?;
    let s = c.map(n, n.tmp("scaled"), &[raw], |e, a| {
        let f = e.constant(scale, d);
        e.mul(a[0], f)
    })?;
    let s = mask(c, s)?;
    let p = softmax::softmax(c, n, n.tmp("softmax"), s, &[3], false)?;
    let p = c.cast(n, n.tmp("weights"), p, d)?;
    matmul::product(c, n, n.tmp("heads"), p, v, (false, false))
}

/// Columns `from..from + width` of the last dimension.
pub(super) fn columns<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, from: i64, width: i64) -> Lowered<ValueId> {
    let last = c.rank(v).checked_sub(1).ok_or_else(|| format!("its {what} is a single number"))?;
    c.slice(n, n.tmp(what), v, last, Dim::Known(from), Dim::Known(width))
}

/// What is added where a key must not be seen, and where it may.
fn hidden(e: &mut ExprBuilder, seen: Ref, score: Ref, filter: f64, d: DType) -> Ref {
    let low = e.constant(filter, d);
    let sum = e.add(score, low);
    e.select(seen, score, sum)
}

/// Masks as com.microsoft's operators state them: by lengths, by keys or by key and query.
pub(super) fn masked<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, mask: ValueId, filter: f64) -> Lowered<ValueId> {
    let (shape, d) = (c.shape(s), c.dtype(s));
    let dm = c.dtype(mask);
    let m = c.shape(mask);
    if m.len() == 1 {
        let two = shape[0].clone() * Dim::Known(2);
        let three = shape[0].clone() * Dim::Known(3) + Dim::Known(2);
        let wide = |v: Dim| vec![v, Dim::ONE, Dim::ONE, Dim::ONE];
        let same = |a: &Dim, b: &Dim| a == b || (a.known().is_some() && a.known() == b.known());
        if same(&m[0], &three) && !same(&m[0], &shape[0]) {
            return Err(LowerError::Unsupported("masks by cumulated lengths; give a mask of keys".into()));
        }
        let begins = same(&m[0], &two) && !same(&m[0], &shape[0]);
        let ends = if begins { c.slice(n, n.tmp("mask.end"), mask, 0, Dim::ZERO, shape[0].clone())? } else { mask };
        let mut inputs = vec![s, c.reshape(n, n.tmp("mask.ends"), ends, wide(shape[0].clone()))?];
        if begins {
            let b = c.slice(n, n.tmp("mask.begin"), mask, 0, shape[0].clone(), shape[0].clone())?;
            inputs.push(c.reshape(n, n.tmp("mask.begins"), b, wide(shape[0].clone()))?);
        }
        return c.map(n, n.tmp("masked"), &inputs, |e, a| {
            let j = e.index(3);
            let end = e.cast(a[1], DType::I64);
            let mut seen = e.compare(Compare::Lt, j, end);
            if let Some(&b) = a.get(2) {
                let begin = e.cast(b, DType::I64);
                let after = e.compare(Compare::Ge, j, begin);
                seen = e.binary(expr::Binary::And, seen, after);
            }
            hidden(e, seen, a[0], filter, d)
        });
    }
    let mut m4 = match m.len() {
        2 => c.reshape(n, n.tmp("mask.keys"), mask, vec![m[0].clone(), Dim::ONE, Dim::ONE, m[1].clone()])?,
        3 => c.reshape(n, n.tmp("mask.pairs"), mask, vec![m[0].clone(), Dim::ONE, m[1].clone(), m[2].clone()])?,
        4 => mask,
        r => return Err(format!("its mask has rank {r}").into()),
    };
    // A mask for the longest text: the part that is there.
    let m = c.shape(m4);
    if m.len() == 4 && (m[2] != shape[2] && !m[2].is_one() || m[3] != shape[3])
        && let (Some(a), Some(b)) = (m[2].known(), m[3].known())
            && a == b
            && a > 1
        {
            let past = shape[3].clone() - shape[2].clone();
            m4 = c.slice(n, n.tmp("mask.rows"), m4, 2, past, shape[2].clone())?;
            m4 = c.slice(n, n.tmp("mask.columns"), m4, 3, Dim::ZERO, shape[3].clone())?;
        }
    c.map(n, n.tmp("masked"), &[s, m4], |e, a| {
        let zero = e.int(0, dm);
        let seen = match dm {
            DType::Bool => a[1],
            _ => e.compare(Compare::Gt, a[1], zero),
        };
        hidden(e, seen, a[0], filter, d)
    })
}

/// Keys after the query's own position, which comes behind `past` keys, are hidden. The last query sees all keys, as
/// onnxruntime has it: there may be more than were before the queries and come with them.
pub(super) fn causal<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, past: &Dim, filter: f64) -> Lowered<ValueId> {
    let (shape, d) = (c.shape(s), c.dtype(s));
    let more = shape[3] != past.clone() + shape[2].clone();
    c.map(n, n.tmp("causal"), &[s], |e, a| {
        let (i, j) = (e.index(2), e.index(3));
        let p = e.dim(past);
        let last = e.add(i, p);
        let mut seen = e.compare(Compare::Le, j, last);
        if more {
            let end = e.dim(&(shape[2].clone() - Dim::ONE));
            let all = e.compare(Compare::Eq, i, end);
            seen = e.binary(expr::Binary::Or, seen, all);
        }
        hidden(e, seen, a[0], filter, d)
    })
}

fn biased<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, bias: Option<ValueId>, from: i64) -> Lowered<ValueId> {
    let Some(b) = bias else { return Ok(v) };
    let width = c.shape(v).last().and_then(Dim::known).ok_or("its hidden size must be known to add its bias")?;
    let b = columns(c, n, &format!("{what}.bias"), b, from, width)?;
    c.map(n, n.tmp(&format!("{what}.biased")), &[v, b], |e, a| e.add(a[0], a[1]))
}

fn packed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(6)?;
    let (x, w, bias, mask, past, extra) = (n.input(0)?, n.input(1)?, n.opt(2), n.opt(3), n.opt(4), n.opt(5));
    let count = n.int_opt("num_heads")?.ok_or("attribute 'num_heads' is missing")?;
    let filter = n.float("mask_filter_value", -10000.0)?;
    let one_way = n.flag("unidirectional", false)?;
    if n.flag("do_rotary", false)? || n.flag("past_present_share_buffer", false)? {
        return Err(LowerError::Unsupported("turns positions or shares its buffer; export it without".into()));
    }
    n.int("rotary_embedding_dim", 0)?;
    let all = c.shape(w).last().and_then(Dim::known).ok_or("its weights must have known extents")?;
    let sizes = match n.ints("qkv_hidden_sizes")? {
        Some(s) if s.len() == 3 => s,
        Some(s) => return Err(format!("attribute 'qkv_hidden_sizes' {s:?} must have three entries").into()),
        None => vec![all / 3; 3],
    };
    let sum = sizes.iter().try_fold(0i64, |s, v| s.checked_add(*v));
    if sum != Some(all) || sizes.iter().any(|&s| s < 1 || count < 1 || s % count != 0) {
        return Err(format!("its weights' {all} columns are not {sizes:?} for {count} heads").into());
    }
    let y = matmul::product(c, n, n.tmp("qkv"), x, w, (false, false))?;
    let y = match bias {
        Some(b) => c.map(n, n.tmp("qkv.biased"), &[y, b], |e, a| e.add(a[0], a[1]))?,
        None => y,
    };
    let mut parts = Vec::new();
    let mut from = 0;
    for (what, &size) in ["q", "k", "v"].into_iter().zip(&sizes) {
        let p = columns(c, n, what, y, from, size)?;
        parts.push(heads(c, n, what, p, count)?);
        from += size;
    }
    let (q, mut k, mut v) = (parts[0], parts[1], parts[2]);
    let mut keys = Vec::new();
    for (i, (what, own)) in [("k", &mut k), ("v", &mut v)].into_iter().enumerate() {
        if let Some(p) = past {
            let s = c.shape(p);
            if s.len() != 5 {
                return Err(format!("its past has rank {}, not 5", s.len()).into());
            }
            let half = c.slice(n, n.tmp(&format!("past.{what}")), p, 0, Dim::Known(i as i64), Dim::ONE)?;
            let half = c.reshape(n, n.tmp(&format!("past.{what}.4")), half, s[1..].to_vec())?;
            *own = c.add1(n, Op::Concat { axis: 2 }, &[half, *own], n.tmp(&format!("{what}.all")))?;
        }
        let mut s = c.shape(*own);
        s.insert(0, Dim::ONE);
        keys.push((*own, s));
    }
    if (n.wants(1) || past.is_some()) && sizes[1] != sizes[2] {
        return Err(format!("its keys of {} columns and values of {} do not share one past; leave past and present out", sizes[1], sizes[2]).into());
    }
    if n.wants(1) {
        let mut both = Vec::new();
        for (i, (v, s)) in keys.into_iter().enumerate() {
            both.push(c.reshape(n, n.tmp(&format!("present{i}")), v, s)?);
        }
        let p = c.add1(n, Op::Concat { axis: 0 }, &both, n.name(1))?;
        c.set(n, 1, p);
    }
    let factor = scale(c, n, q)?;
    let y = attend(c, n, (q, k, v), factor, &mut |c, s| {
        let t = c.shape(s);
        let before = t[3].clone() - t[2].clone();
        shaded(c, n, s, mask, extra, one_way.then_some(&before), filter)
    })?;
    let y = heads_side_by_side(c, n, n.name(0), y)?;
    c.set(n, 0, y);
    Ok(())
}

fn shaded<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    mut s: ValueId,
    mask: Option<ValueId>,
    extra: Option<ValueId>,
    one_way: Option<&Dim>,
    filter: f64,
) -> Lowered<ValueId> {
    if let Some(m) = mask {
        s = masked(c, n, s, m, filter)?;
    }
    if let Some(past) = one_way {
        s = causal(c, n, s, past, f64::NEG_INFINITY)?;
    }
    if let Some(b) = extra {
        s = c.map(n, n.tmp("extra"), &[s, b], |e, a| e.add(a[0], a[1]))?;
    }
    Ok(s)
}

fn multi_head<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(8)?;
    let (query, key, value, bias) = (n.input(0)?, n.opt(1), n.opt(2), n.opt(3));
    let (mask, extra, past_k, past_v) = (n.opt(4), n.opt(5), n.opt(6), n.opt(7));
    let count = n.int_opt("num_heads")?.ok_or("attribute 'num_heads' is missing")?;
    let filter = n.float("mask_filter_value", -10000.0)?;
    let one_way = n.flag("unidirectional", false)?;
    let (q, k, v);
    match (key, value) {
        (None, None) => {
            // [b, s, h, 3, d].
            let s = c.shape(query);
            if s.len() != 5 || bias.is_some() {
                return Err("a query alone must be [b, s, h, 3, d] without bias".into());
            }
            let mut parts = Vec::new();
            for (i, what) in ["q", "k", "v"].into_iter().enumerate() {
                parts.push(layer(c, n, what, query, i)?);
            }
            (q, k, v) = (parts[0], parts[1], parts[2]);
        }
        (Some(key), None) => {
            // [b, t, h, 2, d].
            if c.rank(key) != 5 {
                return Err("a key without value must be [b, t, h, 2, d]".into());
            }
            let x = biased(c, n, "q", query, bias, 0)?;
            q = heads(c, n, "q", x, count)?;
            k = layer(c, n, "k", key, 0)?;
            v = layer(c, n, "v", key, 1)?;
        }
        (Some(key), Some(value)) => {
            let width = |v: ValueId, c: &Ctx<'m>| c.shape(v).last().and_then(Dim::known).unwrap_or(0);
            let x = biased(c, n, "q", query, bias, 0)?;
            q = heads(c, n, "q", x, count)?;
            let from = width(query, c);
            k = side(c, n, "k", key, bias, from, count)?;
            let from = if c.rank(key) == 3 { from + width(key, c) } else { 2 * from };
            v = side(c, n, "v", value, bias, from, count)?;
        }
        (None, Some(_)) => return Err("has a value without a key".into()),
    }
    let (mut k, mut v) = (k, v);
    let before = past_k.map_or(Dim::ZERO, |p| c.shape(p).get(2).cloned().unwrap_or(Dim::ZERO));
    if let (Some(pk), Some(pv)) = (past_k, past_v) {
        let names = [if n.wants(1) { n.name(1) } else { n.tmp("keys") }, if n.wants(2) { n.name(2) } else { n.tmp("values") }];
        let [a, b] = names;
        k = c.add1(n, Op::Concat { axis: 2 }, &[pk, k], a)?;
        v = c.add1(n, Op::Concat { axis: 2 }, &[pv, v], b)?;
    }
    if n.wants(1) {
        c.set(n, 1, k);
    }
    if n.wants(2) {
        c.set(n, 2, v);
    }
    let factor = scale(c, n, q)?;
    let mut scores = None;
    let y = attend(c, n, (q, k, v), factor, &mut |c, s| {
        scores = Some(s);
        shaded(c, n, s, mask, extra, one_way.then_some(&before), filter)
    })?;
    if let (true, Some(s)) = (n.wants(3), scores) {
        c.set(n, 3, s);
    }
    let y = heads_side_by_side(c, n, n.name(0), y)?;
    c.set(n, 0, y);
    Ok(())
}

/// Keys or values: [b, t, h*d], or [b, h, t, d] already.
fn side<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, bias: Option<ValueId>, from: i64, count: i64) -> Lowered<ValueId> {
    match c.rank(v) {
        4 => Ok(v),
        _ => {
            let x = biased(c, n, what, v, bias, from)?;
            heads(c, n, what, x, count)
        }
    }
}

/// Entry `i` of dimension 3 of [b, s, h, k, d], as [b, h, s, d].
fn layer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, i: usize) -> Lowered<ValueId> {
    let s = c.shape(v);
    let x = c.slice(n, n.tmp(&format!("{what}.layer")), v, 3, Dim::Known(i as i64), Dim::ONE)?;
    let x = c.reshape(n, n.tmp(&format!("{what}.4")), x, vec![s[0].clone(), s[1].clone(), s[2].clone(), s[4].clone()])?;
    c.permute(n, n.tmp(&format!("{what}.heads")), x, vec![0, 2, 1, 3])
}
