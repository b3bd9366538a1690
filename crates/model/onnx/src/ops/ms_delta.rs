//! com.microsoft GatedDeltaNet: LinearAttention over packed tokens, with its gates computed on the way.
use super::{OpDef, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Unary, functions};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::Attr;

pub(crate) const OPS: &[OpDef] = &[op_of("com.microsoft", "GatedDeltaNet", lower)];

const F: DType = DType::F32;

/// Extents that all parts use.
struct Sizes {
    batch: Dim,
    /// Tokens of each entry of the batch.
    length: Dim,
    /// Heads of queries and keys, and of values.
    few: i64,
    many: i64,
    /// Elements of a head of queries and keys, and of values.
    key: Dim,
    value: Dim,
}

/// Queries, keys and values [tokens.., heads, elements], which may come as one tensor; their sizes, and the leading
/// dimensions of the result.
fn parts<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered<([ValueId; 3], Sizes, Vec<Dim>)> {
    let (q, state) = (n.input(0)?, n.opt(6).map(|v| c.shape(v)));
    let s = c.shape(q);
    let number = |d: &Dim| d.known().filter(|k| *k > 0).ok_or("its numbers of heads must be known");
    let (all, few, many, key, value, lead) = match (n.opt(1), n.opt(2)) {
        (Some(k), Some(v)) => {
            let t = c.shape(v);
            let [lead @ .., heads, width] = s.as_slice() else { return Err("its queries are a single number".into()) };
            if t.len() != s.len() || !(1..=2).contains(&lead.len()) {
                return Err(format!("its queries have rank {}, not 3 or 4", s.len()).into());
            }
            let many = number(&t[lead.len()])?;
            ([q, k, v], number(heads)?, many, width.clone(), t[lead.len() + 1].clone(), lead.to_vec())
        }
        (None, None) => {
            let Some([_, heads, value, key]) = state.as_deref() else {
                return Err("packs its queries, for which it needs initial_state".into());
            };
            let Some((width, lead)) = s.split_last() else { return Err("its queries are a single number".into()) };
            let many = number(heads)?;
            let rest = width.clone() - value.clone() * Dim::Known(many);
            let few = rest.exact_div(&(key.clone() * Dim::Known(2))).as_ref().map(number).transpose()?;
            let few = few.ok_or_else(|| format!("{width} columns are no heads of {key} and {value}"))?;
            let axis = lead.len();
            let mut from = Dim::ZERO;
            let mut cut = |c: &mut Ctx<'m>, what: &str, heads: i64, each: &Dim| {
                let width = each.clone() * Dim::Known(heads);
                let v = c.slice(n, n.tmp(what), q, axis, from.clone(), width.clone())?;
                from = from.clone() + width;
                let shape = [lead, &[Dim::Known(heads), each.clone()]].concat();
                c.reshape(n, n.tmp(&format!("{what}.heads")), v, shape)
            };
            let all = [cut(c, "q", few, key)?, cut(c, "k", few, key)?, cut(c, "v", many, value)?];
            (all, few, many, key.clone(), value.clone(), lead.to_vec())
        }
        _ => return Err("key and value must be given together".into()),
    };
    if many % few != 0 {
        return Err(format!("{many} value heads are no multiple of {few} key heads").into());
    }
    let (batch, length) = match lead.as_slice() {
        [batch, length] => (batch.clone(), length.clone()),
        all => {
            let state = state.ok_or("packs its tokens evenly, for which it needs initial_state")?;
            let batch = state.first().cloned().ok_or("its state is a single number")?;
            let length = Dim::product(all).floor_div(&batch);
            (batch, length)
        }
    };
    Ok((all, Sizes { batch, length, few, many, key, value }, lead))
}

/// Queries or keys, each head for all the heads of values that share it, [batch, length, heads * elements] in f32.
fn spread<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, what: &str, x: ValueId, s: &Sizes, unit: bool) -> Lowered<ValueId> {
    let mut x = c.cast(n, n.tmp(&format!("{what}.wide")), x, F)?;
    if unit {
        let last = c.rank(x) - 1;
        let squares = c.map(n, n.tmp(&format!("{what}.squares")), &[x], |e, a| e.mul(a[0], a[0]))?;
        let sum = c.reduce(n, n.tmp(&format!("{what}.sum")), squares, monoids::sum(F), &[last], true)?;
        x = c.map(n, n.tmp(&format!("{what}.unit")), &[x, sum], |e, a| {
            let eps = e.constant(1e-6, F);
            let sum = e.add(a[1], eps);
            let root = e.unary(Unary::Sqrt, sum);
            e.div(a[0], root)
        })?;
    }
    let (few, times) = (Dim::Known(s.few), Dim::Known(s.many / s.few));
    let thin = vec![s.batch.clone(), s.length.clone(), few.clone(), Dim::ONE, s.key.clone()];
    let x = c.reshape(n, n.tmp(&format!("{what}.thin")), x, thin)?;
    let x = c.expand(n, n.tmp(&format!("{what}.shared")), x, vec![s.batch.clone(), s.length.clone(), few, times, s.key.clone()])?;
    let all = vec![s.batch.clone(), s.length.clone(), Dim::Known(s.many) * s.key.clone()];
    c.reshape(n, n.tmp(&format!("{what}.rows")), x, all)
}

/// How much of its state each head keeps at each token, as a logarithm.
fn decay<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, s: &Sizes) -> Lowered<Option<ValueId>> {
    let activation = n.text("gate_activation", "none")?;
    let lowest = n.float("gate_lower_bound", -5.0)?;
    let Some(g) = n.opt(4) else { return Ok(None) };
    let heads = Dim::Known(s.many);
    let each = Dim::product(&c.shape(g)).floor_div(&(s.batch.clone() * s.length.clone() * heads.clone()));
    let each = if each == s.key { each } else { Dim::ONE };
    let apart = [s.batch.clone(), s.length.clone(), heads.clone(), each.clone()];
    let g = c.reshape(n, n.tmp("decay.heads"), g, apart.to_vec())?;
    let mut g = c.cast(n, n.tmp("decay.wide"), g, F)?;
    let softplus = match activation.as_str() {
        "none" => None,
        "softplus" | "qwen" => Some(true),
        "sigmoid" | "kda" => Some(false),
        a => return Err(format!("attribute 'gate_activation' is '{a}', it must be none, softplus or sigmoid").into()),
    };
    if let Some(softplus) = softplus {
        let a = c.reshape(n, n.tmp("a_log"), n.input(7)?, vec![heads.clone(), Dim::ONE])?;
        let mut inputs = vec![g, a];
        if let Some(b) = n.opt(8) {
            let whole = Dim::product(&c.shape(b)) != heads;
            inputs.push(c.reshape(n, n.tmp("dt_bias"), b, vec![heads.clone(), if whole { s.key.clone() } else { Dim::ONE }])?);
        }
        g = c.map(n, n.tmp("decay.gate"), &inputs, |e, a| {
            let x = a.get(2).map_or(a[0], |&b| e.add(a[0], b));
            let k = e.unary(Unary::Exp, a[1]);
            if softplus {
                let y = functions::softplus(e, x, F);
                let k = e.unary(Unary::Neg, k);
                return e.mul(k, y);
            }
            let x = e.mul(k, x);
            let y = e.unary(Unary::Sigmoid, x);
            let low = e.constant(lowest, F);
            e.mul(low, y)
        })?;
    }
    let each = c.shape(g)[3].clone();
    Ok(Some(c.reshape(n, n.tmp("decay.rows"), g, vec![s.batch.clone(), s.length.clone(), heads * each])?))
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(11)?;
    if n.opt(3).is_some() || n.int("state_update_capacity", 0)? != 0 || n.opt(9).is_some() || n.wants(2) {
        return Err(LowerError::Unsupported("packs texts of several lengths or gives its updates; give texts of one length".into()));
    }
    n.int("chunk_size", 64)?;
    let rule = n.text("update_rule", "gated_delta")?;
    let unit = n.flag("qk_l2_norm", false)?;
    let scale = n.float("scale", 0.0)?;
    let sigmoid = match n.text("beta_activation", "none")?.as_str() {
        "none" => false,
        "sigmoid" => true,
        a => return Err(format!("attribute 'beta_activation' is '{a}', it must be none or sigmoid").into()),
    };
    let d = c.dtype(n.input(0)?);
    let ([q, k, v], s, lead) = parts(c, n)?;
    let (q, k) = (spread(c, n, "q", q, &s, unit)?, spread(c, n, "k", k, &s, unit)?);
    let v = c.cast(n, n.tmp("v.wide"), v, F)?;
    let heads = Dim::Known(s.many);
    let rows = vec![s.batch.clone(), s.length.clone(), heads.clone() * s.value.clone()];
    let v = c.reshape(n, n.tmp("v.rows"), v, rows.clone())?;
    let decay = decay(c, n, &s)?;
    let beta = match n.opt(5) {
        Some(b) => {
            let b = c.reshape(n, n.tmp("beta.rows"), b, vec![s.batch.clone(), s.length.clone(), heads.clone()])?;
            let b = c.cast(n, n.tmp("beta.wide"), b, F)?;
            Some(if sigmoid { c.map(n, n.tmp("beta.gate"), &[b], |e, a| e.unary(Unary::Sigmoid, a[0]))? } else { b })
        }
        None => None,
    };
    let state = match n.opt(6) {
        Some(p) => Some(c.permute(n, n.tmp("state.turned"), p, vec![0, 1, 3, 2])?),
        None => None,
    };
    let given = [Some(q), Some(k), Some(v), state, decay, beta];
    let attrs = tensor::attrs(vec![
        ("q_num_heads", Attr::Int(s.many)),
        ("kv_num_heads", Attr::Int(s.many)),
        ("scale", Attr::Float(scale)),
        ("update_rule", Attr::Str(rule)),
        ("present", Attr::Ints(given.iter().map(|v| i64::from(v.is_some())).collect())),
    ]);
    let inputs: Vec<ValueId> = given.into_iter().flatten().collect();
    let states = [s.batch.clone(), heads.clone(), s.key.clone(), s.value.clone()];
    let (y, after) = (n.tmp("rows"), n.tmp("state.after"));
    let some = |s: &[Dim]| s.iter().cloned().map(Some).collect::<Vec<_>>();
    let outs = [(y.as_str(), F, some(&rows)), (after.as_str(), F, some(&states))];
    let op = Op::Host { name: "LinearAttention".into(), attrs };
    let ys = c.b().node_with_shapes(op, &inputs, &outs, &n.origin);
    let [y, after] = ys[..] else { return Err("a recurrence has no results".into()) };
    let shape = [lead.as_slice(), &[heads, s.value]].concat();
    let y = c.reshape(n, n.tmp("heads"), y, shape)?;
    let y = c.map(n, n.name(0), &[y], |e, a| if d == F { a[0] } else { e.cast(a[0], d) })?;
    c.set(n, 0, y);
    if n.wants(1) {
        let after = c.permute(n, n.name(1), after, vec![0, 1, 3, 2])?;
        c.set(n, 1, after);
    }
    Ok(())
}
