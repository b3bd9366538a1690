//! Sequences: host operators between blocks, with what they hold known where the graph is built.
use super::control::{Looped, looped};
use super::{OpDef, op};
use crate::import::{BodyInput, Ctx, Item, Kind, LowerError, Lowered, NodeView, axis_of, to_dtype};
use graph::{Op, ValueId};
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
}

/// Items of a sequence input.
fn items<'m>(c: &Ctx<'m>, v: ValueId) -> Lowered<(Kind, bool)> {
    match c.kind(v) {
        Kind::Seq { items, empty } => Ok((*items, empty)),
        k => Err(format!("'{}' is {}, not a sequence", c.value_name(v), k.text()).into()),
    }
}

fn done<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, attrs: Attrs, kind: Kind) -> Lowered {
    let inputs: Vec<ValueId> = n.inputs.iter().copied().flatten().collect();
    let y = c.held_op(n, n.op, attrs, &inputs, n.name(0), kind)?;
    c.set(n, 0, y);
    Ok(())
}

fn empty<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(0)?;
    let dtype = to_dtype(n.int("dtype", 1)?)?;
    let items = Box::new(Kind::Tensor { dtype, shape: None });
    done(c, n, Attrs::new(), Kind::Seq { items, empty: true })
}

fn construct<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let inputs = n.all_inputs()?;
    let first = inputs.first().ok_or("needs an input")?;
    let mut kind = c.kind(*first);
    for v in &inputs[1..] {
        kind = kind.join(&c.kind(*v))?;
    }
    done(c, n, Attrs::new(), Kind::seq(kind))
}

fn insert<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let seq = c.kind(n.input(0)?);
    items(c, n.input(0)?)?;
    let kind = seq.join(&Kind::seq(c.kind(n.input(1)?)))?;
    done(c, n, Attrs::new(), kind)
}

fn erase<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    items(c, n.input(0)?)?;
    let kind = c.kind(n.input(0)?);
    done(c, n, Attrs::new(), kind)
}

fn at<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    n.input(1)?;
    let (kind, _) = items(c, n.input(0)?)?;
    done(c, n, Attrs::new(), kind)
}

fn length<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    items(c, n.input(0)?)?;
    done(c, n, Attrs::new(), Kind::tensor(DType::I64, &[]))
}

fn split<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let x = n.input(0)?;
    let s = c.shape(x);
    let axis = axis_of(n.int("axis", 0)?, s.len())?;
    let keep = n.flag("keepdims", true)? || n.opt(1).is_some();
    let mut item: Vec<Option<Dim>> = s.iter().cloned().map(Some).collect();
    match n.opt(1) {
        None if keep => item[axis] = Some(Dim::ONE),
        None => {
            item.remove(axis);
        }
        Some(sizes) => {
            item[axis] = match (c.const_ints(sizes), s[axis].known()) {
                (Some(k), Some(extent)) if c.rank(sizes) == 0 && k.len() == 1 && k[0] > 0 && extent % k[0] == 0 => Some(Dim::Known(k[0])),
                (Some(k), _) if c.rank(sizes) == 1 && k.windows(2).all(|w| w[0] == w[1]) => k.first().map(|&k| Dim::Known(k)),
                _ => None,
            };
        }
    }
    let attrs = Attrs::from([
        ("axis".to_string(), Attr::Int(axis as i64)),
        ("keepdims".to_string(), Attr::Int(keep as i64)),
    ]);
    let kind = Kind::seq(Kind::Tensor { dtype: c.dtype(x), shape: Some(item) });
    done(c, n, attrs, kind)
}

fn concat<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let axis = n.int_opt("axis")?.ok_or("attribute 'axis' is missing")?;
    let new = n.flag("new_axis", false)?;
    let (kind, _) = items(c, n.input(0)?)?;
    let Kind::Tensor { dtype, shape: Some(mut s) } = kind else {
        return Err(LowerError::Unsupported("the rank of the sequence's items is unknown; put tensors of one rank in".into()));
    };
    let axis = axis_of(axis, s.len() + new as usize)?;
    match new {
        true => s.insert(axis, None),
        false => s[axis] = None,
    }
    let attrs = Attrs::from([
        ("axis".to_string(), Attr::Int(axis as i64)),
        ("new_axis".to_string(), Attr::Int(new as i64)),
    ]);
    done(c, n, attrs, Kind::Tensor { dtype, shape: Some(s) })
}

/// A loop over the first sequence that collects what its body gives.
fn map<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let body = n.graph("body")?;
    let inputs = n.all_inputs()?;
    let first = *inputs.first().ok_or("needs a sequence")?;
    items(c, first)?;
    let count = c.held_op(n, "SequenceLength", Attrs::new(), &[first], n.tmp("count"), Kind::tensor(DType::I64, &[]))?;
    let mut initial = Vec::new();
    for (i, o) in body.outputs.iter().enumerate() {
        // What the body gives is known when it is lowered; until then only the type that it states.
        let stated = match o.ty.as_ref().map(Kind::stated).transpose()? {
            Some(k @ Kind::Tensor { .. }) => k,
            _ => return Err(LowerError::Unsupported(format!("its body states no tensor type for output '{}'", o.name))),
        };
        let kind = Kind::Seq { items: Box::new(stated), empty: true };
        initial.push(c.held_op(n, "SequenceEmpty", Attrs::new(), &[], n.tmp(&format!("none{i}")), kind)?);
    }
    let spec = Looped {
        name: format!("{}.body", n.origin.name),
        trip: Some(count),
        cond: None,
        initial,
        formals: body.outputs.iter().map(|o| o.name.clone()).collect(),
        names: (0..body.outputs.len()).map(|i| n.name(i)).collect(),
    };
    let ys = looped(c, n, spec, &|c, ins| open(c, n, body, ins, &inputs))?;
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
    let scope = c.scope_of(body, String::new())?;
    c.push_frame(&format!("{}/{}", n.origin.name, body.name), scope);
    let round = c.b().input("round", ins[0].dtype, vec![]);
    let go = c.b().input_with_ints("go", ins[1].dtype, vec![], ins[1].ints.clone());
    let mut so_far = Vec::new();
    for (i, input) in ins[2..].iter().enumerate() {
        let v = c.b().input(&format!("so_far{i}"), input.dtype, vec![]);
        if let Some(k) = &input.kind {
            c.set_kind(v, k.clone());
        }
        so_far.push(v);
    }
    let formals = Ctx::real_inputs(body);
    if formals.len() != inputs.len() {
        return Err(format!("its body has {} inputs, {} are fed", formals.len(), inputs.len()).into());
    }
    let at = c.frames.len() - 1;
    for (f, &v) in formals.iter().zip(inputs) {
        let mut x = c.capture(at, v)?;
        if let Kind::Seq { items, .. } = c.kind(x) {
            x = c.held_op(n, "SequenceAt", Attrs::new(), &[x, round], f.name.clone(), *items)?;
        }
        c.bind(&f.name, Item::Value(x));
    }
    c.nodes(&body.nodes)?;
    let mut outs = vec![go];
    for (o, s) in body.outputs.iter().zip(so_far) {
        let v = match c.lookup(&o.name)? {
            Item::Value(v) => v,
            Item::Poisoned => return Ok(None),
        };
        let kind = c.kind(s).join(&Kind::seq(c.kind(v)))?;
        outs.push(c.held_op(n, "SequenceInsert", Attrs::new(), &[s, v], format!("{}.all", o.name), kind)?);
    }
    Ok(Some(outs))
}
