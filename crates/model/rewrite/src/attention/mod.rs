//! Attention by structure: softmax over the last dimension of a product, times another one,
//! whichever way the scores are scaled and masked between.
mod program;
mod walk;

use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Expr, ExprBuilder, Inst};
use graph::{AttentionSpec, ContractSpec, Graph, NodeId, Op, Origin, Undefined, ValueId, View};
use layout::{DType, Dim};
use program::Found;
use walk::{Walk, contracts_before};

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("attention", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) {
            continue;
        }
        let Op::Contract(spec) = e.node(n).op.clone() else {
            continue;
        };
        for side in 0..2 {
            let p = e.node(n).inputs[side];
            let mut reason = None;
            let mut done = false;
            for c in contracts_before(&e, p) {
                match find(&e, n, &spec, side, c) {
                    Ok(m) => {
                        if !e.may(
                            e.title(n),
                            format!("attention over the scores of {}", e.title(c)),
                        ) {
                            return Ok(e.finish());
                        }
                        build(&mut e, n, m)?;
                        done = true;
                        break;
                    }
                    Err(why) => reason = reason.or(Some(why)),
                }
            }
            if done {
                break;
            }
            if let Some(why) = reason {
                e.why_not(e.title(n), format!("no attention: {why}"));
            }
        }
    }
    Ok(e.finish())
}

/// An operand with the labels of its dimensions and the order in which they are wanted.
struct Operand {
    value: ValueId,
    labels: Vec<u8>,
    want: Vec<u8>,
    /// Extents in the wanted order.
    extents: Vec<Dim>,
}

/// Everything that is needed to write the new node.
struct Match {
    q: Operand,
    k: Operand,
    v: Operand,
    /// Batch extents of the attention.
    batch: Vec<Dim>,
    score: Expr,
    /// Extras in order of the score's slots 1.., and the shape to give them first, if another.
    extras: Vec<(ValueId, Option<Vec<Dim>>)>,
    /// Result dimensions before `batch` was regrouped, and the order in which they are wanted.
    result: Vec<Dim>,
    perm: Vec<usize>,
    undefined: Undefined,
    origins: Vec<Origin>,
}

fn find(e: &Edit, n: NodeId, spec: &ContractSpec, side: usize, c: NodeId) -> Result<Match, String> {
    let p = e.node(n).inputs[side];
    let Op::Contract(scores) = &e.node(c).op else {
        return Err("the scores are no product".into());
    };
    let c_out = e.node(c).outputs[0];
    let c_shape = e.value(c_out).shape.clone();
    let rank = c_shape.len();
    if rank < 2 || !e.value(c_out).dtype.is_float() {
        return Err("the scores are no matrix of floats".into());
    }
    let mut walk = Walk::new(e, c_out, p);
    let root = walk.lower(p)?;
    let mut matched = walk.nodes.clone();
    let Found { score, undefined } = program::softmax(&mut walk, root)?;
    // Nothing between may be needed elsewhere.
    matched.insert(c);
    for &m in &matched {
        for &o in &e.node(m).outputs {
            if e.is_pinned(o) || !e.readers(o).iter().all(|r| *r == n || matched.contains(r)) {
                return Err(format!("'{}' is read elsewhere too", e.value(o).name));
            }
        }
    }
    let [q, k] = score_operands(e, c, scores)?;
    let Values { v, result, perm } = values(e, n, spec, side)?;
    let batch = walk.batch(&c_shape, &e.value(p).shape)?;
    let (score, extras) = walk.finish_score(&score, &batch)?;
    let mut origins: Vec<Origin> = Vec::new();
    for &m in &matched {
        origins.extend(e.node(m).origins.iter().cloned());
    }
    Ok(Match {
        q,
        k,
        v,
        batch,
        score,
        extras,
        result,
        perm,
        undefined,
        origins,
    })
}

/// Queries and keys, the operands of the product `c` of the scores: [batch.., q, d] and [batch.., t, d].
fn score_operands(e: &Edit, c: NodeId, scores: &ContractSpec) -> Result<[Operand; 2], String> {
    let c_shape = &e.value(e.node(c).outputs[0]).shape;
    let rank = c_shape.len();
    let [lq, lt] = [scores.out[rank - 2], scores.out[rank - 1]];
    let (qs, ks) = match (scores.b.contains(&lt), scores.a.contains(&lt)) {
        (true, false) => (0, 1),
        (false, true) => (1, 0),
        _ => return Err("both operands of the scores have the softmax's dimension".into()),
    };
    let inputs = &e.node(c).inputs;
    let label_list = |i: usize| if i == 0 { &scores.a } else { &scores.b };
    let (ql, kl) = (label_list(qs), label_list(ks));
    if !ql.contains(&lq) || kl.contains(&lq) {
        return Err("the scores' rows do not come from one operand".into());
    }
    let both = ql.iter().chain(kl).copied();
    let summed: Vec<u8> = both.filter(|l| !scores.out.contains(l)).collect();
    let d = match summed.as_slice() {
        [x, y] if x == y => *x,
        _ => return Err("the scores sum over more or less than one dimension".into()),
    };
    let width_at = ql.iter().position(|l| *l == d).unwrap_or(0);
    let width = e.value(inputs[qs]).shape[width_at].clone();
    let operand = |value: ValueId, labels: &[u8], last: u8, rows: &Dim| Operand {
        value,
        labels: labels.to_vec(),
        want: [&scores.out[..rank - 2], &[last, d]].concat(),
        extents: [&c_shape[..rank - 2], &[rows.clone(), width.clone()]].concat(),
    };
    Ok([
        operand(inputs[qs], ql, lq, &c_shape[rank - 2]),
        operand(inputs[ks], kl, lt, &c_shape[rank - 1]),
    ])
}

/// The values of an attention, and how its result's dimensions are wanted.
struct Values {
    v: Operand,
    result: Vec<Dim>,
    perm: Vec<usize>,
}

/// The values, the operand of the second product `n` beside the weights, which are its input `side`.
fn values(e: &Edit, n: NodeId, spec: &ContractSpec, side: usize) -> Result<Values, String> {
    let (pl, vl) = match side {
        0 => (&spec.a, &spec.b),
        _ => (&spec.b, &spec.a),
    };
    let p_shape = &e.value(e.node(n).inputs[side]).shape;
    let pr = p_shape.len();
    let [pq, pt] = [pl[pr - 2], pl[pr - 1]];
    if spec.out.contains(&pt) || !vl.contains(&pt) || vl.contains(&pq) || !spec.out.contains(&pq) {
        return Err("the second product does not sum over the softmax's dimension".into());
    }
    if pl[..pr - 2].iter().any(|l| !spec.out.contains(l)) {
        return Err("the second product sums over a batch dimension".into());
    }
    let columns: Vec<u8> = vl.iter().copied().filter(|l| !pl.contains(l)).collect();
    let le = match columns.as_slice() {
        [l] if spec.out.contains(l) => *l,
        _ => return Err("the values have more or less than one dimension of their own".into()),
    };
    let v_in = e.node(n).inputs[1 - side];
    let ve_at = vl.iter().position(|l| *l == le).unwrap_or(0);
    let ve = e.value(v_in).shape[ve_at].clone();
    let natural = [&pl[..pr - 2], &[pq, le]].concat();
    let perm = spec
        .out
        .iter()
        .map(|l| natural.iter().position(|x| x == l))
        .collect::<Option<Vec<usize>>>()
        .ok_or("the second product's result has unknown dimensions")?;
    if perm.len() != natural.len() || e.value(e.node(n).outputs[0]).dtype != e.value(v_in).dtype {
        return Err("the second product changes dimensions or type".into());
    }
    Ok(Values {
        v: Operand {
            value: v_in,
            labels: vl.clone(),
            want: [&pl[..pr - 2], &[pt, le]].concat(),
            extents: [&p_shape[..pr - 2], &[p_shape[pr - 1].clone(), ve.clone()]].concat(),
        },
        result: [&p_shape[..pr - 2], &[p_shape[pr - 2].clone(), ve]].concat(),
        perm,
    })
}

fn build(e: &mut Edit, n: NodeId, mut m: Match) -> Result<(), Error> {
    let name = e.value(e.node(n).outputs[0]).name.clone();
    let own = e.node(n).origins.clone();
    let mut b = ExprBuilder::new();
    let product = e.infer_product(m.q.value, m.k.value);
    let mut raw = b.input(0, product);
    // A constant that scales q or k as a whole can as well scale their product, which must not leave a narrow type's
    // range before: that is so where it is never rounded to one.
    let spec = AttentionSpec {
        score: m.score.clone(),
        undefined: m.undefined,
    };
    let wide = matches!(product, DType::F32 | DType::F64) || spec.unrounded().is_some();
    for operand in [&mut m.q, &mut m.k].into_iter().filter(|_| wide) {
        if let Some((value, f, x)) = peel(e, operand.value)? {
            operand.value = value;
            let c = b.push(x);
            raw = b.binary(f, raw, c);
        }
    }
    let mut args = vec![raw];
    let mut extras = Vec::new();
    for (i, (v, shape)) in m.extras.iter().enumerate() {
        let v = match shape {
            Some(s) => e.add(
                Op::View(View::Reshape(s.clone())),
                &[*v],
                &format!("{name}.extra"),
                &own,
            )?,
            None => *v,
        };
        args.push(b.input(i as u32 + 1, e.value(v).dtype));
        extras.push(v);
    }
    let out = b.inline(&m.score, &args, None);
    let score = b.finish(&out).simplified();
    let mut inputs = Vec::new();
    for (operand, what) in [(&m.q, "q"), (&m.k, "k"), (&m.v, "v")] {
        inputs.push(arrange(
            e,
            operand,
            &m.batch,
            &format!("{name}.{what}"),
            &own,
        )?);
    }
    inputs.extend(extras);
    let op = Op::Attention(AttentionSpec {
        score,
        undefined: m.undefined,
    });
    let hint = format!("{name}.attention");
    let mut y = e.add(op, &inputs, &hint, &own)?;
    if let Some(w) = e.writer(y) {
        e.credit(w, &m.origins);
    }
    if e.value(y).shape != m.result {
        y = e.add(Op::View(View::Reshape(m.result)), &[y], &hint, &own)?;
    }
    if m.perm.iter().enumerate().any(|(i, p)| i != *p) {
        y = e.add(Op::View(View::Permute(m.perm)), &[y], &hint, &own)?;
    }
    let old = e.node(n).outputs[0];
    if e.can_replace(old, y) {
        e.replace(old, y);
    } else {
        let shape = e.value(old).shape.clone();
        e.set(n, Op::View(View::Reshape(shape)), &[y]);
    }
    Ok(())
}

/// `o` as [batch.., rows, columns].
fn arrange(
    e: &mut Edit,
    o: &Operand,
    batch: &[Dim],
    hint: &str,
    origins: &[Origin],
) -> Result<ValueId, Error> {
    let perm: Vec<usize> = o
        .want
        .iter()
        .filter_map(|l| o.labels.iter().position(|x| x == l))
        .collect();
    let mut v = o.value;
    if perm.iter().enumerate().any(|(i, p)| i != *p) {
        v = e.add(Op::View(View::Permute(perm)), &[v], hint, origins)?;
    }
    if o.labels.len() < o.want.len() {
        let thin = o
            .want
            .iter()
            .zip(&o.extents)
            .map(|(l, d)| match o.labels.contains(l) {
                true => d.clone(),
                false => Dim::ONE,
            })
            .collect();
        v = e.add(Op::View(View::Reshape(thin)), &[v], hint, origins)?;
        v = e.add(
            Op::View(View::Expand(o.extents.clone())),
            &[v],
            hint,
            origins,
        )?;
    }
    let rank = o.extents.len();
    if o.extents[..rank - 2] != *batch {
        let to = [batch, &o.extents[rank - 2..]].concat();
        v = e.add(Op::View(View::Reshape(to)), &[v], hint, origins)?;
    }
    Ok(v)
}

/// `v` without a multiplication or division by a constant before it, and that operation.
fn peel(e: &mut Edit, v: ValueId) -> Result<Option<(ValueId, expr::Binary, Inst)>, Error> {
    use expr::Binary::{Div, Mul};
    let mut views = Vec::new();
    let mut at = v;
    loop {
        if e.only_reader(at).is_none() {
            return Ok(None);
        }
        match e.unary(at) {
            Some((Op::View(view), x)) => {
                views.push(view.clone());
                at = x;
            }
            Some((Op::Map(p), x)) => {
                let is_x = |r: u32| matches!(p.insts[r as usize], Inst::Input { slot: 0, .. });
                let float = |r: u32| match &p.insts[r as usize] {
                    c @ Inst::Float { .. } => Some(c.clone()),
                    _ => None,
                };
                let scale = match p.outputs.as_slice() {
                    [o] => match p.insts[*o as usize] {
                        Inst::Binary(f @ (Mul | Div), a, b) if is_x(a) => float(b).map(|c| (f, c)),
                        Inst::Binary(Mul, a, b) if is_x(b) => float(a).map(|c| (Mul, c)),
                        _ => None,
                    },
                    _ => None,
                };
                let same = e.value(at).shape == e.value(x).shape;
                let (Some((f, c)), true) = (scale, same) else {
                    return Ok(None);
                };
                let mut base = x;
                let hint = e.value(v).name.clone();
                let origins = e.writer(v).map_or(vec![], |w| e.node(w).origins.clone());
                for view in views.into_iter().rev() {
                    base = e.add(Op::View(view), &[base], &hint, &origins)?;
                }
                return Ok(Some((base, f, c)));
            }
            _ => return Ok(None),
        }
    }
}
