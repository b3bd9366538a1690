//! Sequences: host operators between blocks, with what they hold known where the graph is built.
use super::control::Looped;
use super::loops::{Inline, rounds};
use super::{OpDef, op};
use crate::import::{BodyInput, Ctx, Item, Kind, LowerError, Lowered, NodeView, TakenOut, axis_of, to_dtype};
use graph::{GUESSES_RANK, Op, ValueId};
use layout::{DType, Dim};
use tensor::{Attr, Attrs};

pub(crate) const OPS: &[OpDef] = &[
    op("ConcatFromSequence", concat),
    op("SequenceAt", at),
    op("SequenceConstruct", construct),
    op("SequenceEmpty", empty),
    op("SequenceErase", erase),
    op("SequenceInsert", insert),
    op("SequenceLength", length),
    op("SequenceMap", map),
    op("SplitToSequence", split),
];

impl<'m> Ctx<'m> {
    /// A host operator with one output of the given kind.
    pub fn held_op(
        &mut self,
        n: &NodeView<'m>,
        op: &str,
        attrs: Attrs,
        inputs: &[ValueId],
        name: String,
        kind: Kind,
    ) -> Lowered<ValueId> {
        let (d, s) = self.outside(&kind)?;
        let op = Op::Host { name: op.into(), attrs };
        let vs = self.b().node_with_shapes(op, inputs, &[(&name, d, s)], &n.origin);
        let v = vs.first().copied().ok_or("a host operator has no output")?;
        self.set_kind(v, kind);
        Ok(v)
    }

    /// As [`Ctx::held_op`], of what an operator takes out of a value. Running checks a guessed rank, also where only the
    /// shape is asked for, which the guess tells.
    pub fn taken_op(
        &mut self,
        n: &NodeView<'m>,
        op: &str,
        mut attrs: Attrs,
        inputs: &[ValueId],
        name: String,
        taken: TakenOut,
    ) -> Lowered<ValueId> {
        if taken.guessed {
            attrs.insert(GUESSES_RANK.into(), Attr::Int(1));
        }
        self.held_op(n, op, attrs, inputs, name, taken.kind)
    }
}

/// Items of a sequence input, and each where they are told apart.
fn items<'m>(c: &Ctx<'m>, v: ValueId) -> Lowered<(Kind, Option<Vec<Kind>>)> {
    match c.kind(v) {
        Kind::Seq { items, each } => Ok((*items, each)),
        k => Err(format!("'{}' is {}, not a sequence", c.value_name(v), k.text()).into()),
    }
}

/// The position that `v` gives among `count` items, where it is known; `last`, the last possible, where it is left out.
fn position(c: &Ctx<'_>, v: Option<ValueId>, count: usize, last: usize) -> Option<usize> {
    let Some(v) = v else { return Some(last) };
    let p = c.const_int(v)?;
    let at = if p < 0 { p + count as i64 } else { p };
    usize::try_from(at).ok().filter(|&at| at <= last)
}

/// What `n` takes out of the sequence `v` at a position.
fn item_at<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, v: ValueId, at: Option<ValueId>) -> Lowered<TakenOut> {
    let (items, each) = items(c, v)?;
    let each = each.unwrap_or_default();
    let one = each.len().checked_sub(1).and_then(|last| each.get(position(c, at, each.len(), last)?));
    match one {
        Some(one) => c.ranked(n, one.clone(), &[]),
        None => c.ranked(n, items, &each),
    }
}

/// What the sequence `v` is with one more item, behind the last where no position is given.
fn with_item<'m>(c: &Ctx<'m>, v: ValueId, item: ValueId, at: Option<ValueId>) -> Lowered<Kind> {
    let item = c.kind(item);
    let (_, each) = items(c, v)?;
    let kind = c.kind(v).join(&Kind::seq(item.clone()))?;
    let each = each.and_then(|mut each| {
        each.insert(position(c, at, each.len(), each.len())?, item);
        Some(each)
    });
    Ok(match (kind, each) {
        (Kind::Seq { items, .. }, Some(each)) => Kind::seq_of(*items, each),
        (kind, _) => kind,
    })
}

fn done<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, attrs: Attrs, kind: Kind) -> Lowered {
    let inputs: Vec<ValueId> = n.inputs.iter().copied().flatten().collect();
    let y = c.held_op(n, n.op, attrs, &inputs, n.name(0), kind)?;
    c.set(n, 0, y);
    Ok(())
}

/// As [`done`], of what an operator takes out of its inputs.
fn taken_out<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, attrs: Attrs, taken: TakenOut) -> Lowered {
    let inputs: Vec<ValueId> = n.inputs.iter().copied().flatten().collect();
    let y = c.taken_op(n, n.op, attrs, &inputs, n.name(0), taken)?;
    c.set(n, 0, y);
    Ok(())
}

fn empty<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(0)?;
    let dtype = to_dtype(n.int("dtype", 1)?)?;
    done(c, n, Attrs::new(), Kind::seq_of(Kind::Tensor { dtype, shape: None }, Vec::new()))
}

fn construct<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let each: Vec<Kind> = n.all_inputs()?.iter().map(|&v| c.kind(v)).collect();
    let (first, more) = each.split_first().ok_or("needs an input")?;
    let items = more.iter().try_fold(first.clone(), |a, b| a.join(b))?;
    done(c, n, Attrs::new(), Kind::seq_of(items, each))
}

fn insert<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let kind = with_item(c, n.input(0)?, n.input(1)?, n.opt(2))?;
    done(c, n, Attrs::new(), kind)
}

fn erase<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (items, each) = items(c, n.input(0)?)?;
    let each = each.and_then(|mut each| {
        each.remove(position(c, n.opt(1), each.len(), each.len().checked_sub(1)?)?);
        Some(each)
    });
    done(c, n, Attrs::new(), Kind::Seq { items: Box::new(items), each })
}

fn at<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    n.input(1)?;
    let taken = item_at(c, n, n.input(0)?, n.opt(1))?;
    taken_out(c, n, Attrs::new(), taken)
}

fn length<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let y = count(c, n, n.input(0)?, n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

/// How many items the sequence `v` has.
fn count<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, v: ValueId, name: String) -> Lowered<ValueId> {
    match items(c, v)?.1 {
        Some(each) => c.fill_dims(n, name, &[], DType::I64, &[Dim::from(each.len())]),
        None => c.held_op(n, "SequenceLength", Attrs::new(), &[v], name, Kind::tensor(DType::I64, &[])),
    }
}

fn split<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let axis = axis_of(n.int("axis", 0)?, s.len())?;
    let keep = n.flag("keepdims", true)? || n.opt(1).is_some();
    let part = |extent: Option<Dim>| {
        let mut shape: Vec<Option<Dim>> = s.iter().cloned().map(Some).collect();
        match keep {
            true => shape[axis] = extent,
            false => drop(shape.remove(axis)),
        }
        Kind::Tensor { dtype: c.dtype(x), shape: Some(shape) }
    };
    let (any, each) = extents(c, n, &s[axis]);
    let kind = match each {
        Some(each) => Kind::seq_of(part(any), each.into_iter().map(|k| part(Some(k))).collect()),
        None => Kind::seq(part(any)),
    };
    let attrs = tensor::attrs(vec![
        ("axis", Attr::Int(axis as i64)),
        ("keepdims", Attr::Int(keep as i64)),
    ]);
    done(c, n, attrs, kind)
}

/// The extent that all parts of a split dimension of `whole` have, and that of each, as far as they are known.
fn extents<'m>(c: &Ctx<'m>, n: &NodeView<'m>, whole: &Dim) -> (Option<Dim>, Option<Vec<Dim>>) {
    let Some(sizes) = n.opt(1) else {
        return (Some(Dim::ONE), whole.known().and_then(|whole| equal_parts(whole, 1)));
    };
    match c.const_ints(sizes).as_deref() {
        Some(&[k]) if c.rank(sizes) == 0 && k > 0 => {
            let whole = whole.known();
            let same = whole.filter(|whole| whole % k == 0).map(|_| Dim::Known(k));
            (same, whole.and_then(|whole| equal_parts(whole, k)))
        }
        Some(all) if c.rank(sizes) == 1 && all.iter().all(|&k| k >= 0) => {
            let same = all.windows(2).all(|w| w[0] == w[1]);
            let first = all.first().filter(|_| same).map(|&k| Dim::Known(k));
            (first, Some(all.iter().map(|&k| Dim::Known(k)).collect()))
        }
        _ => (None, None),
    }
}

/// `whole` in few parts of `k`, the last of which may be smaller.
fn equal_parts(whole: i64, k: i64) -> Option<Vec<Dim>> {
    let count = whole / k + i64::from(whole % k > 0);
    (count <= Kind::MAX_ITEMS as i64).then(|| (0..count).map(|i| Dim::Known(k.min(whole - i * k))).collect())
}

fn concat<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let axis = n.int_opt("axis")?.ok_or("attribute 'axis' is missing")?;
    let new = n.flag("new_axis", false)?;
    let taken = match items(c, n.input(0)?)?.0 {
        Kind::Tensor { dtype, shape: Some(mut s) } => {
            let axis = axis_of(axis, s.len() + new as usize)?;
            match new {
                true => s.insert(axis, None),
                false => s[axis] = None,
            }
            let kind = Kind::Tensor { dtype, shape: Some(s) };
            TakenOut { kind, guessed: false }
        }
        items => {
            let taken = c.ranked(n, items, &[])?;
            axis_of(axis, taken.kind.rank().ok_or("joins what are no tensors")?)?;
            taken
        }
    };
    let attrs = tensor::attrs(vec![
        ("axis", Attr::Int(axis)),
        ("new_axis", Attr::Int(new as i64)),
    ]);
    taken_out(c, n, attrs, taken)
}

/// A loop over the first sequence that collects what its body gives.
fn map<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let body = n.graph("body")?;
    let inputs = n.all_inputs()?;
    let first = *inputs.first().ok_or("needs a sequence")?;
    items(c, first)?;
    let count = count(c, n, first, n.tmp("count"))?;
    let mut initial = Vec::new();
    for (i, o) in body.outputs.iter().enumerate() {
        // What the body gives is known when it is lowered; until then only the type that it states.
        let stated = match o.ty.as_ref().map(Kind::stated).transpose()? {
            Some(k @ Kind::Tensor { .. }) => k,
            _ => return Err(LowerError::Unsupported(format!("its body states no tensor type for output '{}'", o.name))),
        };
        let kind = Kind::seq_of(stated, Vec::new());
        initial.push(c.held_op(n, "SequenceEmpty", Attrs::new(), &[], n.tmp(&format!("none{i}")), kind)?);
    }
    let spec = Looped {
        name: format!("{}.body", n.origin.name),
        trip: Some(count),
        cond: None,
        first: 0,
        initial,
        formals: body.outputs.iter().map(|o| o.name.clone()).collect(),
        names: (0..body.outputs.len()).map(|i| n.name(i)).collect(),
    };
    let inline: Inline<'_, 'm> = &|c, prefix, ins| one_item(c, n, body, prefix, ins, &inputs);
    let ys = rounds(c, n, spec, &|c, ins| open(c, n, body, ins, &inputs), inline)?;
    for (i, &o) in n.outputs.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
        match ys.as_ref().map(|ys| ys.get(i)) {
            None => c.bind(o, Item::Poisoned),
            Some(Some(&y)) => c.set(n, i, y),
            Some(None) => return Err(format!("its body has no output {i}").into()),
        }
    }
    Ok(())
}

fn open<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    body: &'m crate::proto::Graph,
    ins: &[BodyInput],
    inputs: &[ValueId],
) -> Lowered<Option<Vec<ValueId>>> {
    c.push_frame(&format!("{}/{}", n.origin.name, body.name), Default::default());
    let names = ["round".to_string(), "go".to_string()].into_iter().chain((0..).map(|i| format!("so_far{i}")));
    let own: Vec<ValueId> = names.zip(ins).map(|(name, i)| c.body_input(n, &name, i)).collect::<Lowered<_>>()?;
    let at = c.frames.len() - 1;
    let inputs: Vec<ValueId> = inputs.iter().map(|&v| c.capture(at, v)).collect::<Lowered<_>>()?;
    one_item(c, n, body, String::new(), &own, &inputs)
}

/// The body on one item of each sequence among `inputs`; `ins`: the round, the condition and what is collected so far.
fn one_item<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    body: &'m crate::proto::Graph,
    prefix: String,
    ins: &[ValueId],
    inputs: &[ValueId],
) -> Lowered<Option<Vec<ValueId>>> {
    let [round, go, so_far @ ..] = ins else {
        return Err("its body lacks a round or a condition".into());
    };
    let mut fed = Vec::new();
    for (i, &x) in inputs.iter().enumerate() {
        fed.push(match c.kind(x) {
            Kind::Seq { .. } => {
                // Requests tell the rank by this name; by that of the map they tell its rounds.
                let item = n.tmp(&format!("{prefix}item{i}"));
                let own = n.called(item.clone());
                let taken = item_at(c, &own, x, Some(*round))?;
                c.taken_op(&own, "SequenceAt", Attrs::new(), &[x, *round], item, taken)?
            }
            _ => x,
        });
    }
    let Some(ys) = c.inline_body(body, prefix, &fed)? else { return Ok(None) };
    let mut outs = vec![*go];
    for ((o, &s), y) in body.outputs.iter().zip(so_far).zip(ys) {
        let kind = with_item(c, s, y, None)?;
        outs.push(c.held_op(n, "SequenceInsert", Attrs::new(), &[s, y], format!("{}.all", o.name), kind)?);
    }
    Ok(Some(outs))
}
