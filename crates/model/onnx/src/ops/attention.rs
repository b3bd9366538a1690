//! Attention (opset 23): as the products, maps and reductions that exporters write out.
use super::{OpDef, matmul, op, softmax};
use crate::import::{Ctx, LowerError, Lowered, NodeView, to_dtype};
use expr::{Compare, Unary};
use graph::{Op, PadMode, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("Attention", lower)];

/// [b, s, h*d] as [b, h, s, d].
fn heads<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, heads: Option<i64>) -> Lowered<ValueId> {
    let s = c.shape(v);
    match s.len() {
        4 => Ok(v),
        3 => {
            let h = heads.filter(|h| *h > 0).ok_or("attributes 'q_num_heads' and 'kv_num_heads' are needed for inputs of rank 3")?;
            let h = Dim::Known(h);
            let each = s[2].exact_div(&h).ok_or_else(|| format!("{} elements are not {h} equal heads", s[2]))?;
            let v = c.reshape(n, n.tmp(&format!("{what}.split")), v, vec![s[0].clone(), s[1].clone(), h, each])?;
            c.permute(n, n.tmp(&format!("{what}.heads")), v, vec![0, 2, 1, 3])
        }
        r => Err(format!("its inputs must have rank 3 or 4, one has {r}").into()),
    }
}

/// Every key and value head repeated for the query heads that share it.
pub(crate) fn repeated<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, times: i64) -> Lowered<ValueId> {
    if times == 1 {
        return Ok(v);
    }
    let s = c.shape(v);
    let k = Dim::Known(times);
    let with = |d: Dim| vec![s[0].clone(), s[1].clone(), d, s[2].clone(), s[3].clone()];
    let t = c.reshape(n, n.tmp(&format!("{what}.thin")), v, with(Dim::ONE))?;
    let t = c.expand(n, n.tmp(&format!("{what}.wide")), t, with(k.clone()))?;
    let out = vec![s[0].clone(), s[1].clone() * k, s[2].clone(), s[3].clone()];
    c.reshape(n, n.tmp(&format!("{what}.shared")), t, out)
}

/// A mask that covers fewer keys than there are, widened, and where it ends.
fn padded<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, m: ValueId, keys: &Dim) -> Lowered<(ValueId, Option<Dim>)> {
    let s = c.shape(m);
    let own = match s.last() {
        Some(own) if !own.is_one() && own.known().zip(keys.known()).is_some_and(|(a, b)| a < b) => own.clone(),
        _ => return Ok((m, None)),
    };
    let mut after = vec![Dim::ZERO; s.len()];
    after[s.len() - 1] = keys.clone() - own.clone();
    let before = vec![Dim::ZERO; s.len()];
    let m = c.add1(n, Op::Pad { before, after, mode: PadMode::Constant }, &[m], n.tmp("mask"))?;
    Ok((m, Some(own)))
}

/// How many keys a query sees on one side of its own, unless all.
fn window(n: &NodeView, name: &str) -> Lowered<Option<i64>> {
    match n.int(name, -1)? {
        -1 => Ok(None),
        w if w >= 0 => Ok(Some(w)),
        w => Err(format!("attribute '{name}' is {w}, it must be -1 or a number of keys").into()),
    }
}

/// The scores with the keys hidden that lie further from the query's own than `sides` say; the
/// first query's own key lies at `offset`, counted from the end of a batch's keys where `lengths`
/// gives it.
fn within_window<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    s: ValueId,
    sides: (Option<i64>, Option<i64>),
    lengths: Option<ValueId>,
    offset: Dim,
) -> Lowered<ValueId> {
    if sides == (None, None) {
        return Ok(s);
    }
    let d = c.dtype(s);
    let inputs: Vec<ValueId> = [s].into_iter().chain(lengths).collect();
    c.map(n, n.tmp("near"), &inputs, |e, a| {
        let (i, j, offset) = (e.index(2), e.index(3), e.dim(&offset));
        let mut own = e.add(i, offset);
        if let Some(&length) = a.get(1) {
            own = e.add(own, length);
        }
        let distance = e.sub(j, own);
        let low = e.constant(f64::NEG_INFINITY, d);
        let bounds = [(Compare::Ge, sides.0.map(|left| -left)), (Compare::Le, sides.1)];
        bounds.into_iter().fold(a[0], |score, (side, bound)| match bound {
            None => score,
            Some(bound) => {
                let bound = e.int(bound, DType::I64);
                let seen = e.compare(side, distance, bound);
                e.select(seen, score, low)
            }
        })
    })
}

/// The scores with keys beyond their batch's length hidden.
fn unpadded<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, lengths: ValueId) -> Lowered<ValueId> {
    let d = c.dtype(s);
    c.map(n, n.tmp("nonpad"), &[s, lengths], |e, a| {
        let j = e.index(3);
        let seen = e.compare(Compare::Lt, j, a[1]);
        let low = e.constant(f64::NEG_INFINITY, d);
        e.select(seen, a[0], low)
    })
}

/// The scores `s` with mask `m`: added, or hidden where it is false or too short.
fn masked<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, m: ValueId) -> Lowered<ValueId> {
    let (d, dm) = (c.dtype(s), c.dtype(m));
    let keys = c.shape(s)[3].clone();
    let (m, short) = padded(c, n, m, &keys)?;
    c.map(n, n.tmp("masked"), &[s, m], |e, a| {
        let low = e.constant(f64::NEG_INFINITY, d);
        let y = match dm {
            DType::Bool => e.select(a[1], a[0], low),
            dm => {
                let m = if dm == d { a[1] } else { e.cast(a[1], d) };
                e.add(a[0], m)
            }
        };
        let Some(end) = &short else { return y };
        let (j, end) = (e.index(3), e.dim(end));
        let inside = e.compare(Compare::Lt, j, end);
        e.select(inside, y, low)
    })
}

/// The scaled scores of queries `q` and keys `k`, both with heads.
fn scores<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, q: ValueId, k: ValueId, scale: f64) -> Lowered<ValueId> {
    let d = c.dtype(q);
    let kt = c.permute(n, n.tmp("k.t"), k, vec![0, 1, 3, 2])?;
    let scaled = |c: &mut Ctx<'m>, what: &str, v: ValueId| {
        c.map(n, n.tmp(what), &[v], |e, a| {
            let f = e.constant(scale, d);
            e.mul(a[0], f)
        })
    };
    // In narrow types the product itself may be beyond their range.
    if matches!(d, DType::F16 | DType::BF16) {
        let q = scaled(c, "q.scaled", q)?;
        return matmul::product(c, n, n.tmp("scores"), q, kt, (false, false));
    }
    let s = matmul::product(c, n, n.tmp("scores"), q, kt, (false, false))?;
    scaled(c, "scaled", s)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    if n.opset < 23 {
        return Err(LowerError::Unsupported("is known from opset 23 on; export to it".into()));
    }
    n.at_most(7)?;
    // How many keys are valid in each batch.
    let valid = n.opt(6);
    let (q, k, v) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (mask, past_k, past_v) = (n.opt(3), n.opt(4), n.opt(5));
    let causal = n.flag("is_causal", false)?;
    let (left, right) = (window(n, "left_window_size")?, window(n, "right_window_size")?);
    let sides = (left, if causal { Some(0) } else { right });
    let (hq, hk) = (n.int_opt("q_num_heads")?, n.int_opt("kv_num_heads")?);
    let mode = n.int("qk_matmul_output_mode", 0)?;
    let (scale, cap) = (n.float_opt("scale")?, n.float("softcap", 0.0)?);
    let precision = n.int_opt("softmax_precision")?.map(to_dtype).transpose()?;
    let three = c.rank(q) == 3;
    let q = heads(c, n, "q", q, hq)?;
    let mut k = heads(c, n, "k", k, hk)?;
    let mut v = heads(c, n, "v", v, hk)?;
    let mut past = Dim::ZERO;
    if let (Some(pk), Some(pv)) = (past_k, past_v) {
        past = c.shape(pk).get(2).cloned().ok_or("past_key must have rank 4")?;
        let (name_k, name_v) = (if n.wants(1) { n.name(1) } else { n.tmp("keys") }, if n.wants(2) { n.name(2) } else { n.tmp("values") });
        k = c.add1(n, Op::Concat { axis: 2 }, &[pk, k], name_k)?;
        v = c.add1(n, Op::Concat { axis: 2 }, &[pv, v], name_v)?;
    } else if past_k.is_some() != past_v.is_some() {
        return Err("past_key and past_value must be given together".into());
    }
    if n.wants(1) {
        c.set(n, 1, k);
    }
    if n.wants(2) {
        c.set(n, 2, v);
    }
    let (sq, sk) = (c.shape(q), c.shape(k));
    let times = sq[1].exact_div(&sk[1]).and_then(|t| t.known()).filter(|t| *t >= 1);
    let times = times.ok_or_else(|| format!("{} query heads are no multiple of {} key heads", sq[1], sk[1]))?;
    let k = repeated(c, n, "k", k, times)?;
    let v = repeated(c, n, "v", v, times)?;
    let d = c.dtype(q);
    let width = sq[3].known().filter(|w| *w > 0);
    let scale = match (scale, width) {
        (Some(s), _) => s,
        (None, Some(w)) => 1.0 / (w as f64).sqrt(),
        _ => return Err(LowerError::Unsupported("its head size is not known; give it with --dim".into())),
    };
    let mut s = scores(c, n, q, k, scale)?;
    let mut stages = vec![s];
    if cap != 0.0 {
        s = c.map(n, n.tmp("capped"), &[s], |e, a| {
            let k = e.constant(cap, d);
            let t = e.div(a[0], k);
            let t = e.unary(Unary::Tanh, t);
            e.mul(k, t)
        })?;
    }
    stages.push(s);
    if let Some(m) = mask {
        s = masked(c, n, s, m)?;
    }
    let lengths = match valid {
        None => None,
        Some(v) => {
            let b = c.shape(v).first().cloned().ok_or("nonpad_kv_seqlen must have rank 1")?;
            let v = c.cast(n, n.tmp("valid"), v, DType::I64)?;
            Some(c.reshape(n, n.tmp("valid.b"), v, vec![b, Dim::ONE, Dim::ONE, Dim::ONE])?)
        }
    };
    if past_k.is_some() || lengths.is_none() {
        s = within_window(c, n, s, sides, None, past)?;
    } else {
        s = within_window(c, n, s, sides, lengths, -sq[2].clone())?;
    }
    if let Some(v) = lengths {
        s = unpadded(c, n, s, v)?;
    }
    stages.push(s);
    let wide = precision.filter(|p| p.is_float()).unwrap_or(d);
    let x = c.cast(n, n.tmp("wide"), s, wide)?;
    let p = softmax::attended(c, n, n.tmp("softmax"), x, 3)?;
    let p = c.cast(n, n.tmp("weights"), p, d)?;
    stages.push(p);
    if n.wants(3) {
        let at = usize::try_from(mode).ok().and_then(|m| stages.get(m).copied());
        let at = at.ok_or_else(|| format!("attribute 'qk_matmul_output_mode' is {mode}, it must be 0 to 3"))?;
        c.set(n, 3, at);
    }
    let name = if three { n.tmp("heads") } else { n.name(0) };
    let mut y = matmul::product(c, n, name, p, v, (false, false))?;
    if three {
        let s = c.shape(y);
        let moved = c.permute(n, n.tmp("joined"), y, vec![0, 2, 1, 3])?;
        let all = s[1].clone() * s[3].clone();
        y = c.reshape(n, n.name(0), moved, vec![s[0].clone(), s[2].clone(), all])?;
    }
    c.set(n, 0, y);
    Ok(())
}
