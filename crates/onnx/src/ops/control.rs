//! If and Loop: a branch known at import is inlined, all others become closed graphs.
use super::{OpDef, op};
use crate::import::{BodyInput, Ctx, LowerError, Lowered, NodeView};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::Tensor;

pub(crate) const OPS: &[OpDef] = &[op("If", branch), op("Loop", repeat)];

/// Rounds in which changing extents of carried values are found.
const ROUNDS: usize = 6;

fn branch<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let cond = n.input(0)?;
    let (yes, no) = (n.graph("then_branch")?, n.graph("else_branch")?);
    if let Some([k]) = c.const_ints(cond).as_deref() {
        return c.inline_branch(n, if *k != 0 { yes } else { no });
    }
    // `x.squeeze(d)` is exported as a branch on the extent; its ranks tell that the model's author
    // expects one outcome, which the squeeze then assumes.
    match (only_squeezes(yes), only_squeezes(no)) {
        (true, false) if depends_on_sizes(c, cond) => return c.inline_branch(n, yes),
        (false, true) if depends_on_sizes(c, cond) => return c.inline_branch(n, no),
        _ => {}
    }
    if c.dtype(cond) != DType::Bool || !Dim::product(&c.shape(cond)).is_one() {
        return Err("its condition must be one bool".into());
    }
    let cond = c.reshaped(n, n.tmp("cond"), cond, vec![])?;
    let outer = c.frames.len();
    let Some(a) = c.open_body(n, yes, &[], &[])? else {
        c.drop_body();
        return poisoned(c, n, no);
    };
    let types_a = types(c, &a);
    let captured: Vec<ValueId> = c.frame().captures.iter().map(|x| x.0).collect();
    // The other branch captures the same values first, in the same order; what it takes beyond
    // them this one takes too.
    let Some(then_frame) = c.frames.pop() else { return Err("a branch is lost".into()) };
    let Some(b) = c.open_body(n, no, &[], &captured)? else {
        c.drop_body();
        return Ok(());
    };
    let types_b = types(c, &b);
    let all: Vec<ValueId> = c.frame().captures.iter().map(|x| x.0).collect();
    let (else_graph, _) = c.close_body(&b);
    c.frames.push(then_frame);
    // Its weights may be of before the other branch added some.
    let store = c.store();
    c.b().set_weights(store);
    for &v in &all[captured.len()..] {
        c.capture(outer, v)?;
    }
    let (then_graph, captures) = c.close_body(&a);
    let count = n.outputs.len();
    if a.len() < count || b.len() < count {
        return Err(format!("its branches have {} and {} outputs, it has {count}", a.len(), b.len()).into());
    }
    let mut outs = Vec::new();
    let names: Vec<String> = (0..count.max(1)).map(|i| n.name(i)).collect();
    if a.len() != b.len() {
        return Err("its branches have different numbers of outputs".into());
    }
    for i in 0..a.len() {
        let ((da, sa), (db, sb)) = (&types_a[i], &types_b[i]);
        if da != db {
            return Err(format!("output {i} is {da} in one branch and {db} in the other").into());
        }
        if sa.len() != sb.len() {
            return Err(LowerError::Unsupported(format!("output {i} has rank {} in one branch and {} in the other", sa.len(), sb.len())));
        }
        let s: Vec<Option<Dim>> = sa.iter().zip(sb).map(|(x, y)| (x == y && c.visible(x)).then(|| x.clone())).collect();
        outs.push((names.get(i).cloned().unwrap_or_else(|| n.name(i)), *da, s));
    }
    let outs: Vec<(&str, DType, Vec<Option<Dim>>)> = outs.iter().map(|(s, d, x)| (s.as_str(), *d, x.clone())).collect();
    let inputs: Vec<ValueId> = [cond].into_iter().chain(captures).collect();
    let op = Op::If { then_branch: Box::new(then_graph), else_branch: Box::new(else_graph) };
    let ys = c.b().node_with_shapes(op, &inputs, &outs, &n.origin);
    for (i, y) in ys.into_iter().enumerate() {
        c.set(n, i, y);
    }
    Ok(())
}

fn only_squeezes(g: &crate::proto::Graph) -> bool {
    let mut squeezes = 0;
    for n in &g.nodes {
        match n.op_type.as_str() {
            "Squeeze" => squeezes += 1,
            "Constant" | "Identity" => {}
            _ => return false,
        }
    }
    squeezes > 0
}

/// Whether a condition is computed from extents alone: a comparison of known contents.
fn depends_on_sizes<'m>(c: &mut Ctx<'m>, cond: ValueId) -> bool {
    let mut v = cond;
    for _ in 0..8 {
        let Some(node) = c.b().graph().producer(v).cloned() else { return false };
        if !node.inputs.is_empty() && node.inputs.iter().all(|&i| c.ints(i).is_some()) {
            return true;
        }
        match node.inputs.as_slice() {
            [one] => v = *one,
            _ => return false,
        }
    }
    false
}

/// One branch is unsupported: the other is lowered for the list of what else is.
fn poisoned<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, other: &'m crate::proto::Graph) -> Lowered {
    c.open_body(n, other, &[], &[])?;
    c.drop_body();
    poison(c, n);
    Ok(())
}

fn poison<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) {
    for &o in n.outputs.iter().filter(|o| !o.is_empty()) {
        c.bind(o, crate::import::Item::Poisoned);
    }
}

fn types<'m>(c: &Ctx<'m>, vs: &[ValueId]) -> Vec<(DType, Vec<Dim>)> {
    vs.iter().map(|&v| (c.dtype(v), c.shape(v))).collect()
}

fn repeat<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let body = n.graph("body")?;
    let carried = n.inputs.len().checked_sub(2).ok_or("needs a trip count and a condition, left out or not")?;
    let (trip, cond) = (n.opt(0), n.opt(1));
    let initial: Vec<ValueId> = (0..carried).map(|i| n.input(i + 2)).collect::<Lowered<_>>()?;
    let known_trip = match trip {
        Some(t) => c.sizes(t)?.and_then(|t| t.first().cloned()).filter(|t| t.known() != Some(i64::MAX)),
        None => None,
    };
    let starts = match cond {
        Some(k) => c.const_ints(k).is_some_and(|k| k == [1]),
        None => true,
    };
    let start: Vec<(DType, Vec<Dim>)> = types(c, &initial);
    let mut shapes: Vec<Vec<Dim>> = start.iter().map(|t| t.1.clone()).collect();
    let formals: Vec<&str> = Ctx::real_inputs(body).iter().map(|i| i.name.as_str()).collect();
    for round in 0..ROUNDS {
        let mark = c.mark();
        // Whenever the body runs its condition holds.
        let mut ins = vec![
            BodyInput { dtype: DType::I64, shape: vec![], ints: None },
            BodyInput { dtype: DType::Bool, shape: vec![], ints: Some(vec![Dim::ONE]) },
        ];
        for ((d, _), s) in start.iter().zip(&shapes) {
            ins.push(BodyInput { dtype: *d, shape: s.clone(), ints: None });
        }
        let Some(outs) = c.open_body(n, body, &ins, &[])? else {
            c.drop_body();
            poison(c, n);
            return Ok(());
        };
        if outs.len() < 1 + carried {
            return Err(format!("its body has {} outputs for {carried} carried values", outs.len()).into());
        }
        let ts = types(c, &outs);
        let mut changed = false;
        for (i, s) in shapes.iter_mut().enumerate() {
            let (d, t) = &ts[i + 1];
            if *d != start[i].0 {
                return Err(format!("carried value {i} is {} at first and {d} after a round", start[i].0).into());
            }
            if t.len() != s.len() {
                return Err(LowerError::Unsupported(format!("carried value {i} changes its rank from {} to {}", s.len(), t.len())));
            }
            for (axis, (x, y)) in s.iter_mut().zip(t).enumerate() {
                let own = format!("{}.{}.d{axis}", n.name(0), formals.get(i + 2).unwrap_or(&"carried"));
                if x != y && x.as_sym() != Some(&own) {
                    *x = Dim::sym(&own);
                    changed = true;
                }
            }
        }
        if changed && round + 1 < ROUNDS {
            c.drop_body();
            c.rewind(mark);
            continue;
        }
        if changed {
            return Err(LowerError::Unsupported("the shapes of its carried values do not settle; make them fixed".into()));
        }
        let forever = starts && c.const_ints(outs[0]).is_some_and(|k| k == [1]);
        let (mut graph, captures) = c.close_body(&outs);
        graph.name = if body.name.is_empty() { format!("{}.body", n.origin.name) } else { body.name.clone() };
        return finish(c, n, Finished { graph, captures, ts, start, shapes, known_trip, forever, trip, cond, initial });
    }
    Err("its body could not be typed".into())
}

struct Finished {
    graph: graph::Graph,
    captures: Vec<ValueId>,
    ts: Vec<(DType, Vec<Dim>)>,
    start: Vec<(DType, Vec<Dim>)>,
    shapes: Vec<Vec<Dim>>,
    known_trip: Option<Dim>,
    forever: bool,
    trip: Option<ValueId>,
    cond: Option<ValueId>,
    initial: Vec<ValueId>,
}

fn finish<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, f: Finished) -> Lowered {
    let carried = f.initial.len();
    let rounds = f.known_trip.filter(|_| f.forever);
    let mut outs = Vec::new();
    for (i, (d, t)) in f.ts.iter().enumerate().skip(1) {
        let mut s: Vec<Option<Dim>> = Vec::new();
        if i > carried {
            s.push(rounds.clone());
        }
        for (axis, x) in t.iter().enumerate() {
            let fixed = i > carried || f.shapes[i - 1][axis] == f.start[i - 1].1[axis];
            s.push(match (fixed, &rounds) {
                (true, _) => c.visible(x).then(|| x.clone()),
                // An extent that grows by the same number every round.
                (false, Some(r)) => (x.clone() - f.shapes[i - 1][axis].clone())
                    .known()
                    .map(|k| f.start[i - 1].1[axis].clone() + r.clone() * Dim::Known(k)),
                _ => None,
            });
        }
        outs.push((n.name(i - 1), *d, s));
    }
    let scalar = |c: &mut Ctx<'m>, v: Option<ValueId>, what: &str, d: DType| -> Lowered<ValueId> {
        match v {
            Some(v) if c.dtype(v) != d || !Dim::product(&c.shape(v)).is_one() => Err(format!("its {what} must be one {d}").into()),
            Some(v) => c.reshaped(n, n.tmp(what), v, vec![]),
            None => {
                let mut t = Tensor::zeros(d, &[])?;
                t.set_i64(0, 1);
                c.constant(&n.tmp(what), t)
            }
        }
    };
    let trip = scalar(c, f.trip, "trip", DType::I64)?;
    let cond = scalar(c, f.cond, "cond", DType::Bool)?;
    let inputs: Vec<ValueId> = [trip, cond].into_iter().chain(f.initial).chain(f.captures).collect();
    let op = Op::Loop { body: Box::new(f.graph), carried, has_trip: f.trip.is_some(), has_cond: f.cond.is_some() };
    let outs: Vec<(&str, DType, Vec<Option<Dim>>)> = outs.iter().map(|(s, d, x)| (s.as_str(), *d, x.clone())).collect();
    let ys = c.b().node_with_shapes(op, &inputs, &outs, &n.origin);
    for (i, y) in ys.into_iter().enumerate() {
        c.set(n, i, y);
    }
    Ok(())
}
