//! com.microsoft GroupQueryAttention: positions, cache, masks and attention of decoders.
use super::ms_attention::{columns, heads, heads_side_by_side, scale};
use super::ms_gqa_cache::{cache_form, packed, unpacked};
use super::{OpDef, layer_norm, matmul, op_of, softmax};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op_of("com.microsoft", "GroupQueryAttention", lower)];

/// Sizes and lengths that all parts use.
struct Lengths {
    /// Batch, new positions, positions in the past's buffer, positions in all, extent of the result.
    batch: Dim,
    fresh: Dim,
    past: Dim,
    total: Dim,
    extent: Dim,
    /// Lengths less one per batch entry.
    lens: ValueId,
}

impl Lengths {
    /// Positions of batch entry whose length less one is `len` that come before the new ones.
    fn before(&self, e: &mut ExprBuilder, len: Ref) -> Ref {
        let len = e.cast(len, DType::I64);
        let one = e.int(1, DType::I64);
        let (s, t) = (e.dim(&self.fresh), e.dim(&self.total));
        let all = e.add(len, one);
        let p = e.sub(all, s);
        // The first call has nothing before it, whatever its texts' lengths.
        let first = e.compare(Compare::Eq, s, t);
        let zero = e.int(0, DType::I64);
        e.select(first, zero, p)
    }
}

/// Positions of the new keys, [batch, fresh].
fn positions<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, l: &Lengths) -> Lowered<ValueId> {
    let lens = c.reshape(n, n.tmp("lens.rows"), l.lens, vec![l.batch.clone(), Dim::ONE])?;
    let wide = c.expand(n, n.tmp("lens.wide"), lens, vec![l.batch.clone(), l.fresh.clone()])?;
    c.map(n, n.tmp("positions"), &[wide], |e, a| {
        let p = l.before(e, a[0]);
        let i = e.index(1);
        let at = e.add(p, i);
        // Padding has positions too, which must be some.
        let zero = e.int(0, DType::I64);
        e.binary(Binary::Max, at, zero)
    })
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(16)?;
    let (hq, hk) = (n.int("num_heads", 0)?, n.int("kv_num_heads", 0)?);
    if hq < 1 || hk < 1 || hq > 1 << 20 || hq % hk != 0 {
        return Err(format!("{hq} query heads are no multiple of {hk} key heads").into());
    }
    let cap = n.float("softcap", 0.0)?;
    let window = n.int("local_window_size", -1)?;
    let rotary = n.flag("do_rotary", false)?;
    let interleaved = n.flag("rotary_interleaved", false)?;
    let smooth = n.int("smooth_softmax", 0)? > 0;
    let eps = n.float("qk_norm_epsilon", 1e-6)?;
    let (kept_k, kept_v) = (cache_form(c, n, "k", 12, n.opt(3))?, cache_form(c, n, "v", 13, n.opt(4))?);
    n.int("kv_cache_bit_width", 0)?;
    if n.int("qk_output", 0)? != 0 || n.int("sliding_window_cache", 0)? != 0 || !n.flag("causal", true)? {
        return Err(LowerError::Unsupported("gives scores, slides its cache or looks ahead; export it without".into()));
    }
    let (query, key, value) = (n.input(0)?, n.opt(1), n.opt(2));
    let (q, k, v) = match (key, value) {
        (Some(k), Some(v)) => (query, k, v),
        (None, None) => {
            let whole = c.shape(query).last().and_then(Dim::known).ok_or("its packed query must have known columns")?;
            let each = whole / (hq + 2 * hk);
            if each * (hq + 2 * hk) != whole {
                return Err(format!("{whole} columns are not {hq} + 2 x {hk} heads").into());
            }
            (
                columns(c, n, "q", query, 0, hq * each)?,
                columns(c, n, "k", query, hq * each, hk * each)?,
                columns(c, n, "v", query, (hq + hk) * each, hk * each)?,
            )
        }
        _ => return Err("key and value must be given together".into()),
    };
    let s = c.shape(q);
    if s.len() != 3 {
        return Err(format!("its query has rank {}, not 3", s.len()).into());
    }
    let (past_k, past_v) = (n.opt(3), n.opt(4));
    let past = match past_k {
        Some(p) => c.shape(p).get(2).cloned().ok_or("past_key must have rank 4")?,
        None => Dim::ZERO,
    };
    let mut total = total(c, n, n.input(6)?)?;
    if let Some(t) = n.opt(10).and_then(|b| c.shape(b).get(3).cloned()).filter(|t| *t != total) {
        // A bias has a column for each position.
        c.assume(n, &total, &t);
        total = t;
    }
    let lens = n.input(5)?;
    let lens = c.reshape(n, n.tmp("lens"), lens, vec![s[0].clone()])?;
    let mut l = Lengths { batch: s[0].clone(), fresh: s[1].clone(), past: past.clone(), extent: past.max_with(&total), total, lens };
    // Where the cache grows by the new positions, one text has them right after the old ones.
    let grown = past.clone() + l.fresh.clone();
    let appends = l.total == grown || l.extent == grown;
    if appends {
        l.extent = grown;
    }
    let four = |c: &mut Ctx<'m>, what: &str, v: ValueId, count: i64| heads(c, n, what, v, count);
    let mut q = four(c, "q", q, hq)?;
    let mut k = four(c, "k", k, hk)?;
    let v = four(c, "v", v, hk)?;
    if let Some(g) = n.opt(14) {
        q = normed(c, n, "q", q, g, eps)?;
    }
    if let Some(g) = n.opt(15) {
        k = normed(c, n, "k", k, g, eps)?;
    }
    if rotary {
        let at = match n.opt(9) {
            Some(p) => p,
            None => positions(c, n, &l)?,
        };
        q = turned(c, n, "q", q, (n.input(7)?, n.input(8)?, at), interleaved)?;
        k = turned(c, n, "k", k, (n.input(7)?, n.input(8)?, at), interleaved)?;
    }
    let mut cached = Vec::new();
    for (i, what, past, new, kept) in [(1, "k", past_k, k, &kept_k), (2, "v", past_v, v, &kept_v)] {
        let Some(kept) = kept else {
            cached.push(present(c, n, i, past, new, &l, appends)?);
            continue;
        };
        // Attention reads what the cache holds, of the new positions too.
        let d = c.dtype(new);
        let new = packed(c, n, what, new, kept)?;
        let all = present(c, n, i, past, new, &l, appends)?;
        cached.push(unpacked(c, n, what, all, kept, d)?);
    }
    let (k, v) = (cached[0], cached[1]);
    let factor = scale(c, n, q)?;
    let y = attend(c, n, (q, k, v), (hq, hk), factor, Shade { l: &l, cap, window, smooth })?;
    let y = heads_side_by_side(c, n, n.name(0), y)?;
    c.set(n, 0, y);
    Ok(())
}

/// The number that `v` holds as a size. One that only data gives is the extent of a tensor made that long.
fn total<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, v: ValueId) -> Lowered<Dim> {
    if let Some(t) = c.sizes(v)?.and_then(|t| t.first().cloned()) {
        return Ok(t);
    }
    let length = c.cast(n, n.tmp("total.wide"), v, DType::I64)?;
    let length = c.reshaped(n, n.tmp("total.length"), length, vec![Dim::ONE])?;
    let op = Op::Host { name: "ConstantOfShape".into(), attrs: Default::default() };
    let name = n.tmp("total");
    let ys = c.b().node_with_shapes(op, &[length], &[(&name, DType::F32, vec![None])], &n.origin);
    let y = ys.first().ok_or("its total_sequence_length is lost")?;
    Ok(c.shape(*y)[0].clone())
}

fn normed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, x: ValueId, gamma: ValueId, eps: f64) -> Lowered<ValueId> {
    let d = c.dtype(x);
    let v = layer_norm::normalise(c, n, x, &[3], monoids::accumulator(d), true)?;
    layer_norm::scaled(c, n, n.tmp(&format!("{what}.normed")), &v, eps, Some(gamma), None, d)
}

/// [b, h, s, d] turned by the angles at positions [b, s].
fn turned<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    what: &str,
    x: ValueId,
    (cos, sin, at): (ValueId, ValueId, ValueId),
    interleaved: bool,
) -> Lowered<ValueId> {
    let s = c.shape(x);
    if c.rank(at) != 2 || c.rank(cos) != 2 || c.rank(sin) != 2 {
        return Err("its positions, cosines and sines must have rank 2".into());
    }
    let half = c.shape(cos).last().and_then(Dim::known).ok_or("its cosines must have a known last dimension")?;
    let width = s[3].known().ok_or("its head size must be known")?;
    if 2 * half > width {
        return Err(format!("turns {} of {width} elements", 2 * half).into());
    }
    let mut angles = Vec::new();
    for (name, table) in [("cos", cos), ("sin", sin)] {
        let rows = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[table, at], n.tmp(&format!("{what}.{name}")))?;
        let t = c.shape(rows);
        let four = vec![t[0].clone(), Dim::ONE, t[1].clone(), t[2].clone()];
        angles.push(c.reshape(n, n.tmp(&format!("{what}.{name}.rows")), rows, four)?);
    }
    let h = Dim::Known(half);
    let mut parts = Vec::new();
    if interleaved {
        let pairs = vec![s[0].clone(), s[1].clone(), s[2].clone(), h.clone(), Dim::Known(2)];
        let front = columns(c, n, &format!("{what}.front"), x, 0, 2 * half)?;
        let p = c.reshape(n, n.tmp(&format!("{what}.pairs")), front, pairs.clone())?;
        let mut thin = pairs;
        thin[4] = Dim::ONE;
        let mut both = Vec::new();
        for i in 0..2 {
            let t = c.slice(n, n.tmp(&format!("{what}.part{i}")), p, 4, Dim::Known(i), Dim::ONE)?;
            both.push(c.reshape(n, n.tmp(&format!("{what}.flat{i}")), t, thin[..4].to_vec())?);
        }
        let (a, b) = rotated(c, n, what, both[0], both[1], &angles)?;
        let a = c.reshape(n, n.tmp(&format!("{what}.a")), a, thin.clone())?;
        let b = c.reshape(n, n.tmp(&format!("{what}.b")), b, thin)?;
        let y = c.add1(n, Op::Concat { axis: 4 }, &[a, b], n.tmp(&format!("{what}.woven")))?;
        let mut flat = s.clone();
        flat[3] = Dim::Known(2 * half);
        parts.push(c.reshape(n, n.tmp(&format!("{what}.again")), y, flat)?);
    } else {
        let a = columns(c, n, &format!("{what}.first"), x, 0, half)?;
        let b = columns(c, n, &format!("{what}.second"), x, half, half)?;
        let (a, b) = rotated(c, n, what, a, b, &angles)?;
        parts.extend([a, b]);
    }
    if 2 * half < width {
        parts.push(columns(c, n, &format!("{what}.rest"), x, 2 * half, width - 2 * half)?);
    }
    match parts.as_slice() {
        [one] => Ok(*one),
        all => c.add1(n, Op::Concat { axis: 3 }, all, n.tmp(&format!("{what}.turned"))),
    }
}

fn rotated<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, a: ValueId, b: ValueId, angles: &[ValueId]) -> Lowered<(ValueId, ValueId)> {
    let inputs = [a, b, angles[0], angles[1]];
    let real = c.map(n, n.tmp(&format!("{what}.real")), &inputs, |e, a| {
        let (p, q) = (e.mul(a[2], a[0]), e.mul(a[3], a[1]));
        e.sub(p, q)
    })?;
    let imaginary = c.map(n, n.tmp(&format!("{what}.imaginary")), &inputs, |e, a| {
        let (p, q) = (e.mul(a[3], a[0]), e.mul(a[2], a[1]));
        e.add(p, q)
    })?;
    Ok((real, imaginary))
}

/// The cache with the new positions: [b, h, extent, d], output `i`.
fn present<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    i: usize,
    past: Option<ValueId>,
    new: ValueId,
    l: &Lengths,
    appends: bool,
) -> Lowered<ValueId> {
    let name = if n.wants(i) { n.name(i) } else { n.tmp(&format!("present{i}")) };
    let y = match past {
        None => c.reshape(n, name, new, c.shape(new))?,
        // One text, or a first call: nothing lies between the old positions and the new.
        Some(p) if appends && (l.batch.is_one() || l.past.is_zero()) => c.add1(n, Op::Concat { axis: 2 }, &[p, new], name)?,
        Some(p) => {
            // Every text's new positions follow its own old ones: rows are picked out of both.
            let s = c.shape(new);
            let all = c.add1(n, Op::Concat { axis: 2 }, &[p, new], format!("{name}.both"))?;
            let rows = l.past.clone() + l.fresh.clone();
            let flat = vec![s[0].clone() * s[1].clone() * rows.clone(), s[3].clone()];
            let table = c.reshape(n, format!("{name}.rows"), all, flat)?;
            let lens = c.reshape(n, format!("{name}.lens"), l.lens, vec![s[0].clone(), Dim::ONE, Dim::ONE])?;
            let wide = c.expand(n, format!("{name}.wide"), lens, vec![s[0].clone(), s[1].clone(), l.extent.clone()])?;
            let at = c.map(n, format!("{name}.at"), &[wide], |e, a| {
                let (b, h, j) = (e.index(0), e.index(1), e.index(2));
                let before = l.before(e, a[0]);
                let (heads, rows) = (e.dim(&s[1]), e.dim(&rows));
                let (old, fresh) = (e.dim(&l.past), e.dim(&l.fresh));
                let own = e.sub(j, before);
                let moved = e.add(own, old);
                let is_old = e.compare(Compare::Lt, j, before);
                let is_new = e.compare(Compare::Lt, own, fresh);
                // What lies behind the new positions is made zero below.
                let row = e.select(is_new, moved, j);
                let row = e.select(is_old, j, row);
                let one = e.int(1, DType::I64);
                let last = e.sub(rows, one);
                let row = e.binary(Binary::Min, row, last);
                let zero = e.int(0, DType::I64);
                let row = e.binary(Binary::Max, row, zero);
                let base = e.mul(b, heads);
                let base = e.add(base, h);
                let base = e.mul(base, rows);
                e.add(base, row)
            })?;
            let picked = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[table, at], format!("{name}.picked"))?;
            let d = c.dtype(picked);
            let lens = c.reshape(n, format!("{name}.lens4"), l.lens, vec![s[0].clone(), Dim::ONE, Dim::ONE, Dim::ONE])?;
            c.map(n, name, &[picked, lens], |e, a| {
                let before = l.before(e, a[1]);
                let (j, fresh) = (e.index(2), e.dim(&l.fresh));
                let end = e.add(before, fresh);
                let there = e.compare(Compare::Lt, j, end);
                let zero = if d.is_float() { e.constant(0.0, d) } else { e.int(0, d) };
                e.select(there, a[0], zero)
            })?
        }
    };
    c.set(n, i, y);
    Ok(y)
}

struct Shade<'a> {
    l: &'a Lengths,
    cap: f64,
    window: i64,
    smooth: bool,
}

fn attend<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (q, k, v): (ValueId, ValueId, ValueId),
    (hq, hk): (i64, i64),
    scale: f64,
    shade: Shade,
) -> Lowered<ValueId> {
    let d = c.dtype(q);
    let l = shade.l;
    // The query heads that share a key head become rows of one product, so that no key is repeated.
    let (sq, share) = (c.shape(q), hq / hk);
    let rows = Dim::Known(share) * l.fresh.clone();
    let q = c.reshaped(n, n.tmp("q.rows"), q, vec![sq[0].clone(), Dim::Known(hk), rows.clone(), sq[3].clone()])?;
    let kt = c.permute(n, n.tmp("k.t"), k, vec![0, 1, 3, 2])?;
    let raw = matmul::product(c, n, n.tmp("scores"), q, kt, (false, false))?;
    let mut s = c.map(n, n.tmp("scaled"), &[raw], |e, a| {
        let f = e.constant(scale, d);
        e.mul(a[0], f)
    })?;
    if shade.cap != 0.0 {
        s = c.map(n, n.tmp("capped"), &[s], |e, a| {
            let k = e.constant(shade.cap, d);
            let t = e.div(a[0], k);
            let t = e.unary(Unary::Tanh, t);
            e.mul(k, t)
        })?;
    }
    if let Some(b) = n.opt(10) {
        let mut b = spread(c, n, "bias", b, share, &l.fresh)?;
        if c.rank(b) == 4 && l.extent != l.total {
            // What lies behind them in a longer cache is hidden below.
            let (before, mut after) = (vec![Dim::ZERO; 4], vec![Dim::ZERO; 4]);
            after[3] = l.extent.clone() - l.total.clone();
            let op = Op::Pad { before, after, mode: graph::PadMode::Constant };
            b = c.add1(n, op, &[b], n.tmp("bias.wide"))?;
        }
        s = c.map(n, n.tmp("biased"), &[s, b], |e, a| e.add(a[0], a[1]))?;
    }
    let lens = c.reshape(n, n.tmp("lens.4"), l.lens, vec![l.batch.clone(), Dim::ONE, Dim::ONE, Dim::ONE])?;
    s = c.map(n, n.tmp("causal"), &[s, lens], |e, a| {
        let (mut i, j) = (e.index(2), e.index(3));
        if share > 1 {
            let fresh = e.dim(&l.fresh);
            i = e.binary(Binary::Mod, i, fresh);
        }
        let before = l.before(e, a[1]);
        let last = e.add(before, i);
        let mut seen = e.compare(Compare::Le, j, last);
        // Padding behind a text sees the text.
        let len = e.cast(a[1], DType::I64);
        let within = e.compare(Compare::Le, j, len);
        seen = e.binary(Binary::And, seen, within);
        if shade.window > 0 {
            let w = e.int(shade.window, DType::I64);
            let first = e.sub(last, w);
            let near = e.compare(Compare::Gt, j, first);
            seen = e.binary(Binary::And, seen, near);
        }
        let low = e.constant(f64::NEG_INFINITY, d);
        e.select(seen, a[0], low)
    })?;
    let sink = n.opt(11);
    let p = if shade.smooth || sink.is_some() {
        sunk(c, n, s, sink, share, &l.fresh)?
    } else {
        softmax::softmax(c, n, n.tmp("softmax"), s, &[3], false)?
    };
    let p = c.cast(n, n.tmp("weights"), p, d)?;
    let y = matmul::product(c, n, n.tmp("heads"), p, v, (false, false))?;
    let t = c.shape(y);
    c.reshaped(n, n.tmp("heads.all"), y, vec![t[0].clone(), Dim::Known(hq), l.fresh.clone(), t[3].clone()])
}

/// What is stated per query head and row, [b, heads, s, t], for rows of shared key heads.
fn spread<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, v: ValueId, share: i64, fresh: &Dim) -> Lowered<ValueId> {
    let s = c.shape(v);
    if share == 1 || s.len() != 4 {
        return Ok(v);
    }
    let (k, rows) = (Dim::Known(share), Dim::Known(share) * fresh.clone());
    let (heads, wide) = match s[1].exact_div(&k) {
        Some(h) if !s[1].is_one() => (h, None),
        _ => (Dim::ONE, Some(vec![s[0].clone(), Dim::ONE, k, s[2].clone(), s[3].clone()])),
    };
    let mut v = v;
    if let Some(wide) = wide {
        let mut thin = wide.clone();
        thin[2] = Dim::ONE;
        let t = c.reshape(n, n.tmp(&format!("{what}.thin")), v, thin)?;
        v = c.expand(n, n.tmp(&format!("{what}.wide")), t, wide)?;
    }
    c.reshape(n, n.tmp(&format!("{what}.rows")), v, vec![s[0].clone(), heads, rows, s[3].clone()])
}

/// Softmax with one more score that takes weight and gives nothing: 0, or one per head.
fn sunk<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: ValueId, sink: Option<ValueId>, share: i64, fresh: &Dim) -> Lowered<ValueId> {
    let d = c.dtype(s);
    let acc = monoids::accumulator(d);
    let sink = match sink {
        Some(v) => {
            let h = c.shape(s)[1].clone();
            let k = Dim::Known(share);
            let t = c.reshape(n, n.tmp("sink.thin"), v, vec![h.clone(), k.clone(), Dim::ONE, Dim::ONE])?;
            let t = c.expand(n, n.tmp("sink.wide"), t, vec![h.clone(), k.clone(), fresh.clone(), Dim::ONE])?;
            c.reshape(n, n.tmp("sink"), t, vec![h, k * fresh.clone(), Dim::ONE])?
        }
        None => c.fill(n, n.tmp("sink"), &[], d, |e| e.constant(0.0, d))?,
    };
    let top = c.reduce(n, n.tmp("top.keys"), s, monoids::max(d), &[3], true)?;
    let top = c.map(n, n.tmp("top"), &[top, sink], |e, a| e.binary(Binary::Max, a[0], a[1]))?;
    let exp = c.map(n, n.tmp("exp"), &[s, top], |e, a| {
        let (x, m) = if acc == d { (a[0], a[1]) } else { (e.cast(a[0], acc), e.cast(a[1], acc)) };
        let x = e.sub(x, m);
        e.unary(Unary::Exp, x)
    })?;
    let sum = c.reduce(n, n.tmp("sum"), exp, monoids::sum(acc), &[3], true)?;
    c.map(n, n.tmp("softmax"), &[exp, sum, top, sink], |e, a| {
        let (m, k) = if acc == d { (a[2], a[3]) } else { (e.cast(a[2], acc), e.cast(a[3], acc)) };
        let k = e.sub(k, m);
        let k = e.unary(Unary::Exp, k);
        let all = e.add(a[1], k);
        e.div(a[0], all)
    })
}
