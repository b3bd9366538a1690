//! If: a branch known at import is inlined, all others become closed graphs. Loops whose rounds are one graph.
use super::{OpDef, op};
use crate::import::{BodyInput, Ctx, ImportError, Kind, LowerError, Lowered, Mark, NodeView};
use graph::{Op, ValueId, View};
use layout::{DType, Dim};
use tensor::{Attr, Tensor};

pub(crate) const OPS: &[OpDef] = &[op("If", branch)];

/// Rounds in which changing extents of carried values are found.
const ROUNDS: usize = 6;

/// What became of lowering one branch.
enum Tried {
    /// Its outputs; its frame is open.
    Lowered(Vec<ValueId>),
    /// It depends on an unsupported node.
    Poisoned,
    /// It contradicts itself for these sizes, and why.
    Invalid(String),
}

fn attempt<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    g: &'m crate::proto::Graph,
    captured: &[ValueId],
) -> Lowered<Tried> {
    let frames = c.frames.len();
    let mark = c.mark();
    match c.open_body(n, g, &[], captured) {
        Ok(Some(outs)) => Ok(Tried::Lowered(outs)),
        Ok(None) => {
            c.drop_body();
            Ok(Tried::Poisoned)
        }
        Err(LowerError::Import(e @ (ImportError::Node { .. } | ImportError::Graph { .. }))) => {
            c.frames.truncate(frames);
            c.rewind(mark);
            Ok(Tried::Invalid(e.to_string()))
        }
        Err(e) => Err(e),
    }
}

fn branch<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let cond = n.input(0)?;
    let (yes, no) = (n.graph("then_branch")?, n.graph("else_branch")?);
    if let Some([k]) = c.const_ints(cond).as_deref() {
        return c.inline_branch(n, if *k != 0 { yes } else { no });
    }
    // `x.squeeze(d)` is exported as a branch on the extent; its ranks tell that the model's author
    // expects one outcome, which is then assumed.
    let squeezes = (only_squeezes(yes), only_squeezes(no));
    if squeezes.0 != squeezes.1
        && let Some(holds) = truth(c, cond, 8)
    {
        c.assume(n, &holds, &Dim::Known(i64::from(squeezes.0)));
        return c.inline_branch(n, if squeezes.0 { yes } else { no });
    }
    let cond = one_bool(c, n, cond)?;
    let outer = c.frames.len();
    // The branch lowered first is one that is valid.
    let Some((mut first, swapped)) = first_branch(c, n, (yes, no))? else { return Ok(()) };
    let mut kinds_a = kinds(c, &first);
    let codes_a: Vec<_> = first.iter().map(|&v| c.narrow(v)).collect();
    let captured: Vec<ValueId> = c.frame().captures.iter().map(|x| x.0).collect();
    // The other branch captures the same values first, in the same order; what it takes beyond
    // them this one takes too.
    let Some(mut frame) = c.frames.pop() else { return Err("a branch is lost".into()) };
    let tried = match swapped {
        true => attempt(c, n, yes, &captured)?,
        false => attempt(c, n, no, &captured)?,
    };
    let mut second = match tried {
        Tried::Lowered(outs) => outs,
        Tried::Poisoned => {
            poison(c, n);
            return Ok(());
        }
        Tried::Invalid(why) => refuse(c, n, (cond, None), i64::from(swapped), &captured, &asked(c, &kinds_a), &misfit(n, &why))?,
    };
    let mut kinds_b = kinds(c, &second);
    let codes_b: Vec<_> = second.iter().map(|&v| c.narrow(v)).collect();
    if let Some((i, a, b)) = ranks_differ(&kinds_a, &kinds_b) {
        // A value has one rank: the rest of the model is made for the branch that the caller says is
        // taken, else for the one with the lower rank, or else the other. The one that is not gives
        // an error when it is taken.
        let why = |own, other| misfit(n, &format!("its output {i} has rank {own}, the other branch's {other}"));
        let keep_first = match c.told(n) {
            Some(yes) => (yes != 0) != swapped,
            None => (a < b) == (c.ranks.guess(2) == 0),
        };
        if keep_first {
            c.drop_body();
            kinds_b = asked(c, &kinds_a);
            second = refuse(c, n, (cond, None), i64::from(swapped), &captured, &kinds_b, &why(b, a))?;
        } else {
            let held: Vec<ValueId> = c.frame().captures.iter().map(|x| x.0).collect();
            let Some(other) = c.frames.pop() else { return Err("a branch is lost".into()) };
            kinds_a = asked(c, &kinds_b);
            first = refuse(c, n, (cond, None), i64::from(!swapped), &held, &kinds_a, &why(a, b))?;
            let Some(refused) = c.frames.pop() else { return Err("a branch is lost".into()) };
            frame = refused;
            c.frames.push(other);
            // Both take the same values; the refused one reads the condition too.
            let at = c.frames.len() - 1;
            c.capture(at, cond)?;
        }
    }
    let all: Vec<ValueId> = c.frame().captures.iter().map(|x| x.0).collect();
    let (second_graph, _) = c.close_body(&second);
    c.frames.push(frame);
    // Its weights may be of before the other branch added some.
    let store = c.store();
    c.b().set_weights(store);
    for &v in &all[captured.len()..] {
        c.capture(outer, v)?;
    }
    let (first_graph, captures) = c.close_body(&first);
    let count = n.outputs.len();
    if first.len() < count || second.len() < count {
        return Err(format!("its branches have {} and {} outputs, it has {count}", first.len(), second.len()).into());
    }
    if first.len() != second.len() {
        return Err("its branches have different numbers of outputs".into());
    }
    let inputs: Vec<ValueId> = [cond].into_iter().chain(captures).collect();
    let (then_graph, else_graph) = if swapped { (second_graph, first_graph) } else { (first_graph, second_graph) };
    let op = Op::If { then_branch: Box::new(then_graph), else_branch: Box::new(else_graph) };
    let ys = add_if(c, n, op, &inputs, [&kinds_a, &kinds_b])?;
    for (i, y) in ys.into_iter().enumerate() {
        // A branch that is refused gives no codes.
        let (a, b) = (codes_a.get(i).copied().flatten(), codes_b.get(i).copied().flatten());
        c.set_narrow(y, a.or(b));
    }
    Ok(())
}

/// Adds the node of a branch whose outputs are of these kinds in either case.
fn add_if<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, op: Op, inputs: &[ValueId], kinds: [&[Kind]; 2]) -> Lowered<Vec<ValueId>> {
    let mut outs = Vec::new();
    let mut held = Vec::new();
    for (i, (a, b)) in kinds[0].iter().zip(kinds[1]).enumerate() {
        let both = a.join(b).map_err(|e| name_output(e, i))?.known(&|d| c.visible(d));
        let (d, s) = c.outside(&both)?;
        outs.push((n.name(i), d, s));
        held.push(both);
    }
    let outs: Vec<(&str, DType, Vec<Option<Dim>>)> = outs.iter().map(|(s, d, x)| (s.as_str(), *d, x.clone())).collect();
    let ys = c.b().node_with_shapes(op, inputs, &outs, &n.origin);
    for (i, (&y, kind)) in ys.iter().zip(held).enumerate() {
        c.set_kind(y, kind);
        c.set(n, i, y);
    }
    Ok(ys)
}

/// The outputs of the branch that is lowered first, and whether that is the second one; its frame is open. `None`
/// where the node is poisoned.
fn first_branch<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (yes, no): (&'m crate::proto::Graph, &'m crate::proto::Graph),
) -> Lowered<Option<(Vec<ValueId>, bool)>> {
    match attempt(c, n, yes, &[])? {
        Tried::Lowered(outs) => Ok(Some((outs, false))),
        Tried::Poisoned => poisoned(c, n, no).map(|()| None),
        Tried::Invalid(why) => match attempt(c, n, no, &[])? {
            Tried::Lowered(outs) => Ok(Some((outs, true))),
            Tried::Poisoned => {
                poison(c, n);
                Ok(None)
            }
            Tried::Invalid(other) => Err(format!("neither branch fits these sizes: {why}; {other}").into()),
        },
    }
}

/// The condition as a scalar; a size that only the data gives is taken to be 1.
pub(super) fn one_bool<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, cond: ValueId) -> Lowered<ValueId> {
    let s = c.shape(cond);
    if c.dtype(cond) != DType::Bool || s.iter().any(|d| d.known().is_some_and(|d| d != 1)) {
        return Err("its condition must be one bool".into());
    }
    let mut one = cond;
    for (axis, d) in s.iter().enumerate().filter(|(_, d)| !d.is_one()) {
        c.assume(n, d, &Dim::ONE);
        one = c.slice(n, n.tmp(&format!("cond.d{axis}")), one, axis, Dim::ZERO, Dim::ONE)?;
    }
    c.reshaped(n, n.tmp("cond"), one, vec![])
}

/// The first output whose rank differs, and its ranks.
fn ranks_differ(a: &[Kind], b: &[Kind]) -> Option<(usize, usize, usize)> {
    let ranks = a.iter().zip(b).map(|k| match k {
        (Kind::Tensor { shape: Some(x), .. }, Kind::Tensor { shape: Some(y), .. }) => (x.len(), y.len()),
        _ => (0, 0),
    });
    ranks.enumerate().find(|(_, (x, y))| x != y).map(|(i, (x, y))| (i, x, y))
}

fn name_output(e: LowerError, i: usize) -> LowerError {
    match e {
        LowerError::Node(why) => LowerError::Node(format!("output {i}: {why}")),
        e => e,
    }
}

/// Why a branch is refused.
fn misfit(n: &NodeView<'_>, why: &str) -> String {
    format!("the branch of '{}' that these inputs take does not fit the sizes that the model was loaded with: {why}", n.origin.name)
}

/// A body in place of the branch that does not fit: it gives an error when it is run, and says what its node then
/// takes: `taken`, or what `by` holds. Its frame stays open.
pub(super) fn refuse<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (cond, by): (ValueId, Option<ValueId>),
    taken: i64,
    captured: &[ValueId],
    like: &[Kind],
    why: &str,
) -> Lowered<Vec<ValueId>> {
    c.push_frame(&format!("{}/invalid", n.origin.name), Default::default());
    let at = c.frames.len() - 1;
    for &v in captured {
        c.capture(at, v)?;
    }
    // Reading the condition keeps it from being run before it is taken.
    let mut reads = vec![c.capture(at, cond)?];
    reads.extend(by.map(|by| c.capture(at, by)).transpose()?);
    let mut outs = Vec::new();
    for (i, kind) in like.iter().enumerate() {
        let (d, s) = c.outside(kind)?;
        let attrs = tensor::attrs(vec![
            ("why", Attr::Str(why.into())),
            ("node", Attr::Str(n.origin.name.clone())),
            ("taken", Attr::Int(taken)),
        ]);
        let op = Op::Host { name: "Refuse".into(), attrs };
        let name = format!("{}.refused{i}", n.name(0));
        let vs = c.b().node_with_shapes(op, &reads, &[(&name, d, s)], &n.origin);
        for v in vs {
            c.set_kind(v, kind.clone());
            outs.push(v);
        }
    }
    Ok(outs)
}

/// What the branch that is refused is taken to give: the same as the other. An extent of 0 is left open,
/// for what has no elements is not computed, and so nothing would be refused.
fn asked(c: &Ctx, like: &[Kind]) -> Vec<Kind> {
    like.iter().map(|k| k.known(&|d| !d.is_zero() && c.visible(d))).collect()
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

/// The one number or truth (0 or 1) that `v` holds, as an expression of sizes, where it is computed
/// from sizes alone by at most `depth` nodes.
fn truth<'m>(c: &mut Ctx<'m>, v: ValueId, depth: usize) -> Option<Dim> {
    if let Some(one) = c.ints(v) {
        return one.first().filter(|_| one.len() == 1).cloned();
    }
    let node = c.b().graph().producer(v).cloned()?;
    if depth == 0 || Dim::product(&c.shape(v)).known() != Some(1) {
        return None;
    }
    let args: Vec<Option<Dim>> = node.inputs.iter().map(|&i| truth(c, i, depth - 1)).collect();
    match &node.op {
        Op::View(View::Reshape(_)) => args.into_iter().next().flatten(),
        Op::Map(e) => e.eval_truth(&args),
        _ => None,
    }
}

/// One branch is unsupported: the other is lowered for the list of what else is.
fn poisoned<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, other: &'m crate::proto::Graph) -> Lowered {
    if let Tried::Lowered(_) = attempt(c, n, other, &[])? {
        c.drop_body();
    }
    poison(c, n);
    Ok(())
}

pub(super) fn poison<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) {
    for &o in n.outputs.iter().filter(|o| !o.is_empty()) {
        c.bind(o, crate::import::Item::Poisoned);
    }
}

fn kinds<'m>(c: &Ctx<'m>, vs: &[ValueId]) -> Vec<Kind> {
    vs.iter().map(|&v| c.kind(v)).collect()
}

/// A loop to be lowered.
#[derive(Clone)]
pub(crate) struct Looped {
    /// Name of its body.
    pub name: String,
    /// Trip count, if given.
    pub trip: Option<ValueId>,
    /// First condition, if given.
    pub cond: Option<ValueId>,
    /// Carried values before the first round.
    pub initial: Vec<ValueId>,
    /// Their names in the body.
    pub formals: Vec<String>,
    /// Number of its first round.
    pub first: i64,
    /// Names of the results: carried, then stacked.
    pub names: Vec<String>,
}

/// Opens a body whose inputs are the round, the condition and the carried values; gives the next
/// condition, the carried values and those to be stacked. `None`: one is unsupported.
pub(super) type Open<'a, 'm> = &'a dyn Fn(&mut Ctx<'m>, &[BodyInput]) -> Lowered<Option<Vec<ValueId>>>;

/// What became of lowering a loop.
pub(super) enum Ended {
    /// Its results: carried, then stacked.
    Values(Vec<ValueId>),
    /// Its body is not supported.
    Poisoned,
    /// Ranks change from round to round, so that no body is that of all: why, and the types of what a round gives to
    /// be stacked.
    Ranks(String, Vec<(DType, Vec<Dim>)>),
}

/// Adds a loop; gives its results, or nothing when its body is not supported.
pub(crate) fn looped<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, l: Looped, open: Open<'_, 'm>) -> Lowered<Option<Vec<ValueId>>> {
    match one_body(c, n, l, open, Apart::Never)? {
        Ended::Values(ys) => Ok(Some(ys)),
        Ended::Poisoned => Ok(None),
        Ended::Ranks(why, _) => Err(LowerError::Unsupported(why)),
    }
}

/// Where a rank is guessed in a loop's body, whether the body is taken to be that of all rounds although another round
/// may have another rank.
#[derive(Clone, Copy)]
pub(super) enum Apart {
    /// It is.
    Never,
    /// It is not where no more rounds than these are certain to run.
    Within(i64),
    /// It is not.
    Always,
}

/// Adds a loop if one body is that of all its rounds; `apart`: where it is not because a rank is guessed in it.
pub(super) fn one_body<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, l: Looped, open: Open<'_, 'm>, apart: Apart) -> Lowered<Ended> {
    let carried = l.initial.len();
    let known_trip = match l.trip {
        Some(t) => c.sizes(t)?.and_then(|t| t.first().cloned()).filter(|t| t.known() != Some(i64::MAX)),
        None => None,
    };
    let starts = match l.cond {
        Some(k) => c.const_ints(k).is_some_and(|k| k == [1]),
        None => true,
    };
    let start: Vec<(DType, Vec<Dim>)> = l.initial.iter().map(|&v| (c.dtype(v), c.shape(v))).collect();
    let mut shapes: Vec<Vec<Dim>> = start.iter().map(|t| t.1.clone()).collect();
    let mut held = kinds(c, &l.initial);
    for round in 0..ROUNDS {
        let mark = c.mark();
        let guessed = c.ranks.guessed;
        // Whenever the body runs its condition holds.
        let mut ins = vec![
            BodyInput { dtype: DType::I64, shape: vec![], ints: None, kind: None, narrow: None, plus: l.first },
            BodyInput { dtype: DType::Bool, shape: vec![], ints: Some(vec![Dim::ONE]), kind: None, narrow: None, plus: 0 },
        ];
        for (i, (d, _)) in start.iter().enumerate() {
            let kind = (*d == DType::Host).then(|| held[i].clone());
            let (shape, narrow) = (shapes[i].clone(), c.narrow(l.initial[i]));
            ins.push(BodyInput { dtype: *d, shape, ints: None, kind, narrow, plus: 0 });
        }
        let Some(outs) = open(c, &ins)? else {
            c.drop_body();
            return Ok(Ended::Poisoned);
        };
        if outs.len() < 1 + carried {
            return Err(format!("its body has {} outputs for {carried} carried values", outs.len()).into());
        }
        let ts: Vec<(DType, Vec<Dim>)> = outs.iter().map(|&v| (c.dtype(v), c.shape(v))).collect();
        let after = kinds(c, &outs);
        let codes: Vec<_> = outs.iter().skip(1).map(|&v| c.narrow(v)).collect();
        let inner = c.frames.pop();
        let mut changed = false;
        for (i, k) in held.iter_mut().enumerate().filter(|(i, _)| start[*i].0 == DType::Host) {
            if ts[i + 1].0 != DType::Host {
                return Err(format!("carried value {i} is {} at first and {} after a round", k.text(), ts[i + 1].0).into());
            }
            let joined = k.join(&after[i + 1].known(&|d| c.visible(d)))?;
            changed |= joined != *k;
            *k = joined;
        }
        c.frames.extend(inner);
        if let Some((i, (d, _))) = ts[1..=carried].iter().enumerate().find(|(i, t)| t.0 != start[*i].0) {
            return Err(format!("carried value {i} is {} at first and {d} after a round", start[i].0).into());
        }
        if let Some(i) = (0..carried).find(|&i| codes[i] != ins[i + 2].narrow) {
            let text = |code: Option<&'static str>| code.unwrap_or(start[i].0.name());
            return Err(format!("carried value {i} is {} at first and {} after a round", text(ins[i + 2].narrow), text(codes[i])).into());
        }
        for (i, s) in shapes.iter_mut().enumerate() {
            let t = &ts[i + 1].1;
            if t.len() != s.len() {
                let why = format!("carried value {i} changes its rank from {} to {}", s.len(), t.len());
                return Ok(unlike(c, mark, why, &ts[1 + carried..]));
            }
            for (axis, (x, y)) in s.iter_mut().zip(t).enumerate() {
                let own = format!("{}.{}.d{axis}", n.name(0), l.formals.get(i).map_or("carried", |s| s));
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
        if let Some(i) = (1 + carried..ts.len()).find(|&i| ts[i].0 == DType::Host) {
            return Err(stacks_held(i - 1));
        }
        let forever = starts && c.const_ints(outs[0]).is_some_and(|k| k == [1]);
        let certain = known_trip.as_ref().and_then(Dim::known).filter(|_| forever);
        let apart = match apart {
            Apart::Never => false,
            Apart::Within(few) => certain.is_some_and(|k| k <= few),
            Apart::Always => true,
        };
        if c.ranks.guessed != guessed && apart {
            return Ok(unlike(c, mark, "its rounds take values of several ranks".into(), &ts[1 + carried..]));
        }
        let (mut graph, captures) = c.close_body(&outs);
        graph.name = l.name.clone();
        let ys = finish(c, n, Finished { graph, captures, ts, start, shapes, held, known_trip, forever, spec: l })?;
        ys.iter().zip(codes).for_each(|(&y, code)| c.set_narrow(y, code));
        return Ok(Ended::Values(ys));
    }
    Err("its body could not be typed".into())
}

/// What is no tensor cannot be stacked, nor texts where rounds are lowered one by one.
pub(super) fn stacks_held(output: usize) -> LowerError {
    LowerError::Unsupported(format!("stacks texts or sequences as output {output}; carry a sequence instead"))
}

/// Gives up a body that is not that of all rounds. Where no round runs, extents that only a round gives are 0.
fn unlike<'m>(c: &mut Ctx<'m>, mark: Mark, why: String, stacked: &[(DType, Vec<Dim>)]) -> Ended {
    c.drop_body();
    c.rewind(mark);
    let visible = |d: &Dim| if c.visible(d) { d.clone() } else { Dim::ZERO };
    Ended::Ranks(why, stacked.iter().map(|(d, t)| (*d, t.iter().map(visible).collect())).collect())
}

struct Finished {
    graph: graph::Graph,
    captures: Vec<ValueId>,
    ts: Vec<(DType, Vec<Dim>)>,
    start: Vec<(DType, Vec<Dim>)>,
    shapes: Vec<Vec<Dim>>,
    held: Vec<Kind>,
    known_trip: Option<Dim>,
    forever: bool,
    spec: Looped,
}

fn finish<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, f: Finished) -> Lowered<Vec<ValueId>> {
    let carried = f.spec.initial.len();
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
        let name = f.spec.names.get(i - 1).cloned().unwrap_or_else(|| n.name(i - 1));
        outs.push((name, *d, s));
    }
    let trip = scalar(c, n, f.spec.trip, "trip", DType::I64)?;
    let cond = scalar(c, n, f.spec.cond, "cond", DType::Bool)?;
    let inputs: Vec<ValueId> = [trip, cond].into_iter().chain(f.spec.initial).chain(f.captures).collect();
    let op = Op::Loop { body: Box::new(f.graph), carried, has_trip: f.spec.trip.is_some(), has_cond: f.spec.cond.is_some() };
    let outs: Vec<(&str, DType, Vec<Option<Dim>>)> = outs.iter().map(|(s, d, x)| (s.as_str(), *d, x.clone())).collect();
    let ys = c.b().node_with_shapes(op, &inputs, &outs, &n.origin);
    for (&y, kind) in ys.iter().zip(f.held) {
        c.set_kind(y, kind);
    }
    Ok(ys)
}

/// The trip count or condition `v` as a scalar; 1 or true where it is left out.
pub(super) fn scalar<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, v: Option<ValueId>, what: &str, d: DType) -> Lowered<ValueId> {
    match v {
        Some(v) if c.dtype(v) != d || !Dim::product(&c.shape(v)).is_one() => Err(format!("its {what} must be one {d}").into()),
        Some(v) => c.reshaped(n, n.tmp(what), v, vec![]),
        None => {
            let mut t = Tensor::zeros(d, &[])?;
            t.set_i64(0, 1);
            c.constant(&n.tmp(what), t)
        }
    }
}
