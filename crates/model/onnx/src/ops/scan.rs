//! Scan: a loop whose body takes a slice of each scanned input.
use super::control::{Looped, looped};
use super::{OpDef, op};
use crate::import::{BodyInput, Ctx, Item, LowerError, Lowered, NodeView, axis_of};
use expr::{Binary, Compare};
use graph::{Op, ValueId, View};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("Scan", scan)];

/// Entries of a batch that are scanned one by one, each with a loop of its own.
const MAX_BATCH: i64 = 64;

fn scan<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let body = n.graph("body")?;
    let scanned = usize::try_from(n.int("num_scan_inputs", -1)?).map_err(|_| "attribute 'num_scan_inputs' is missing")?;
    let batched = n.opset < 9;
    let mut given = n.inputs.clone();
    let mut lengths = None;
    if batched {
        // Before opset 9 input 0 gives lengths, and everything has a leading batch.
        if given.is_empty() {
            return Err("has no inputs".into());
        }
        lengths = given.remove(0);
    }
    let states = given.len().checked_sub(scanned).filter(|_| scanned > 0).ok_or("has fewer inputs than it scans")?;
    let inputs: Option<Vec<ValueId>> = given.iter().copied().collect();
    let inputs = inputs.ok_or("an input is missing")?;
    let mut batch = None;
    if batched {
        let first = c.shape(inputs[0]).first().cloned().ok_or("its inputs need a batch before opset 9")?;
        let known = first.known().filter(|b| (1..=MAX_BATCH).contains(b));
        batch = Some(known.ok_or_else(|| {
            LowerError::Unsupported(format!("scans a batch of {first}; give it from 1 to {MAX_BATCH} entries or export to opset 9 or later"))
        })?);
    }
    let formals = Ctx::real_inputs(body);
    if formals.len() != inputs.len() || body.outputs.len() < states {
        return Err(format!("its body has {} inputs and {} outputs, the node {} inputs", formals.len(), body.outputs.len(), inputs.len()).into());
    }
    let stacked = body.outputs.len() - states;
    let list = |name: &str, count: usize| -> Lowered<Vec<i64>> {
        let v = n.ints(name)?.unwrap_or_else(|| vec![0; count]);
        if v.len() != count {
            return Err(format!("attribute '{name}' has {} entries, {count} are needed", v.len()).into());
        }
        Ok(v)
    };
    let (in_axes, out_axes, in_ways, out_ways) = match batched {
        true => (vec![0; scanned], vec![0; stacked], list("directions", scanned)?, vec![0; stacked]),
        false => (
            list("scan_input_axes", scanned)?,
            list("scan_output_axes", stacked)?,
            list("scan_input_directions", scanned)?,
            list("scan_output_directions", stacked)?,
        ),
    };
    if in_ways.iter().chain(&out_ways).any(|&w| w != 0 && w != 1) {
        return Err("its directions must be 0 or 1".into());
    }
    let ways = Ways { states, in_axes, in_ways, out_axes, out_ways };
    let lengths = lengths.map(|v| within(c, n, v, inputs[states])).transpose()?;
    let Some(entries) = batch else {
        let Some(ys) = one(c, n, body, &inputs, &ways, None)? else { { poisoned(c, n); return Ok(()) } };
        for (i, y) in ys.into_iter().enumerate() {
            let code = c.narrow(y);
            let y = c.reshape(n, n.name(i), y, c.shape(y))?;
            c.set_narrow(y, code);
            c.set(n, i, y);
        }
        return Ok(());
    };
    // Each entry of the batch is scanned by itself.
    let mut joined: Vec<Vec<ValueId>> = vec![Vec::new(); body.outputs.len()];
    for e in 0..entries {
        let mut own = Vec::new();
        for (i, &v) in inputs.iter().enumerate() {
            let s = c.shape(v);
            if s.first().and_then(Dim::known) != Some(entries) {
                return Err(format!("input {i} has a batch of another size than {entries}").into());
            }
            let v = c.slice(n, n.tmp(&format!("entry{e}.{i}")), v, 0, Dim::Known(e), Dim::ONE)?;
            own.push(c.reshape(n, n.tmp(&format!("in{e}.{i}")), v, s[1..].to_vec())?);
        }
        let own_length = match lengths {
            Some(v) => {
                let v = c.slice(n, n.tmp(&format!("length{e}.0")), v, 0, Dim::Known(e), Dim::ONE)?;
                Some(c.reshape(n, n.tmp(&format!("length{e}")), v, vec![])?)
            }
            None => None,
        };
        let Some(ys) = one(c, n, body, &own, &ways, own_length)? else { { poisoned(c, n); return Ok(()) } };
        for (i, y) in ys.into_iter().enumerate() {
            let mut s = c.shape(y);
            s.insert(0, Dim::ONE);
            let name = if entries == 1 { n.name(i) } else { n.tmp(&format!("out{e}.{i}")) };
            joined[i].push(c.reshape(n, name, y, s)?);
        }
    }
    for (i, all) in joined.iter().enumerate() {
        let y = match all.as_slice() {
            [y] => *y,
            all => c.add1(n, Op::Concat { axis: 0 }, all, n.name(i))?,
        };
        c.set(n, i, y);
    }
    Ok(())
}

/// The lengths of a batch's entries, which must not be longer than the sequence that is scanned.
fn within<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, lengths: ValueId, scanned: ValueId) -> Lowered<ValueId> {
    let most = c.shape(scanned).get(1).cloned().ok_or("scans an input without a sequence")?;
    let v = c.cast(n, n.tmp("lengths"), lengths, DType::I64)?;
    c.lengths(n, v, &most)
}

/// What is scanned how.
struct Ways {
    /// States come first among the inputs and outputs.
    states: usize,
    in_axes: Vec<i64>,
    in_ways: Vec<i64>,
    out_axes: Vec<i64>,
    out_ways: Vec<i64>,
}

fn poisoned<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) {
    for &o in n.outputs.iter().filter(|o| !o.is_empty()) {
        c.bind(o, Item::Poisoned);
    }
}

/// One scan over `inputs`; `None` where its body is not supported. After `rounds` rounds, where that is given, states
/// stay as they are and outputs are 0.
fn one<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    body: &'m crate::proto::Graph,
    inputs: &[ValueId],
    ways: &Ways,
    rounds: Option<ValueId>,
) -> Lowered<Option<Vec<ValueId>>> {
    let states = ways.states;
    let formals = Ctx::real_inputs(body);
    let mut taken = Vec::new();
    let mut length: Option<Dim> = None;
    for ((&v, &a), &w) in inputs[states..].iter().zip(&ways.in_axes).zip(&ways.in_ways) {
        let s = c.shape(v);
        let axis = axis_of(a, s.len())?;
        let l = length.get_or_insert_with(|| s[axis].clone()).clone();
        if let (Some(a), Some(b)) = (l.known(), s[axis].known())
            && a != b
        {
            return Err(format!("scans inputs of {a} and {b} elements").into());
        }
        c.assume(n, &s[axis], &l);
        taken.push((v, axis, w == 1));
    }
    let length = length.ok_or("scans nothing")?;
    let trip = c.fill_dims(n, n.tmp("trip"), &[], DType::I64, std::slice::from_ref(&length))?;
    let names = (0..body.outputs.len()).map(|i| n.tmp(&format!("out{i}"))).collect();
    let spec = Looped {
        name: if body.name.is_empty() { format!("{}.body", n.origin.name) } else { body.name.clone() },
        trip: Some(trip),
        cond: None,
        first: 0,
        initial: inputs[..states].to_vec(),
        formals: formals[..states].iter().map(|f| f.name.clone()).collect(),
        names,
    };
    let scanned = Scanned { taken, length, rounds };
    let Some(mut ys) = looped(c, n, spec, &|c, ins| open(c, n, body, ins, &scanned))? else {
        return Ok(None);
    };
    for (k, y) in ys.iter_mut().skip(states).enumerate() {
        let code = c.narrow(*y);
        *y = placed(c, n, states + k, *y, ways.out_axes[k], ways.out_ways[k] == 1)?;
        c.set_narrow(*y, code);
    }
    Ok(Some(ys))
}

/// A stacked output, whose rounds lie along the first dimension, where the node wants them.
fn placed<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, i: usize, y: ValueId, axis: i64, backwards: bool) -> Lowered<ValueId> {
    let s = c.shape(y);
    let axis = axis_of(axis, s.len())?;
    let mut y = y;
    if backwards {
        let mut starts = vec![Dim::ZERO; s.len()];
        let mut steps = vec![1; s.len()];
        starts[0] = s[0].clone() - Dim::ONE;
        steps[0] = -1;
        y = c.add1(n, Op::View(View::Slice { starts, steps, extents: s.clone() }), &[y], n.tmp(&format!("flip{i}")))?;
    }
    if axis > 0 {
        let perm = (1..=axis).chain([0]).chain(axis + 1..s.len()).collect();
        y = c.permute(n, n.tmp(&format!("turn{i}")), y, perm)?;
    }
    Ok(y)
}

/// What a scan takes its slices from.
struct Scanned {
    /// Value, dimension, and whether from the end.
    taken: Vec<(ValueId, usize, bool)>,
    length: Dim,
    /// After how many rounds nothing changes any more.
    rounds: Option<ValueId>,
}

/// The body as one of a loop: it picks its slices by the round.
fn open<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    body: &'m crate::proto::Graph,
    ins: &[BodyInput],
    of: &Scanned,
) -> Lowered<Option<Vec<ValueId>>> {
    let scope = c.scope_of(body, String::new())?;
    c.push_frame(&format!("{}/{}", n.origin.name, body.name), scope);
    let round = c.b().input("round", ins[0].dtype, vec![]);
    let go = c.b().input_with_ints("go", ins[1].dtype, vec![], ins[1].ints.clone());
    let formals = Ctx::real_inputs(body);
    let states = ins.len() - 2;
    let mut before = Vec::new();
    for (f, i) in formals.iter().zip(&ins[2..]) {
        let v = c.body_input(n, &f.name, i)?;
        c.bind(&f.name, Item::Value(v));
        before.push(v);
    }
    let at = c.frames.len() - 1;
    let rounds = of.rounds.map(|v| c.capture(at, v)).transpose()?;
    for (f, &(v, axis, backwards)) in formals[states..].iter().zip(&of.taken) {
        let x = c.capture(at, v)?;
        let i = match backwards {
            false => round,
            true => {
                let last = of.length.clone() - Dim::ONE;
                let inputs: Vec<_> = [round].into_iter().chain(rounds).collect();
                c.map(n, format!("{}.at", f.name), &inputs, |e, a| {
                    let (zero, one) = (e.int(0, DType::I64), e.int(1, DType::I64));
                    let last = match a.get(1) {
                        Some(&rounds) => e.sub(rounds, one),
                        None => e.dim(&last),
                    };
                    let at = e.sub(last, a[0]);
                    e.binary(Binary::Max, at, zero)
                })?
            }
        };
        let code = c.narrow(x);
        let x = c.add1(n, Op::Gather { axis, batch: 0 }, &[x, i], f.name.clone())?;
        c.set_narrow(x, code);
        c.bind(&f.name, Item::Value(x));
    }
    c.nodes(&body.nodes)?;
    let mut outs = vec![go];
    for (i, o) in body.outputs.iter().enumerate() {
        let Item::Value(v) = c.lookup(&o.name)? else { return Ok(None) };
        let Some(rounds) = rounds else {
            outs.push(v);
            continue;
        };
        let d = c.dtype(v);
        let inputs: Vec<_> = [v, round, rounds].into_iter().chain(before.get(i).copied()).collect();
        outs.push(c.map(n, format!("{}.kept", o.name), &inputs, |e, a| {
            let goes_on = e.compare(Compare::Lt, a[1], a[2]);
            let still = a.get(3).copied().unwrap_or_else(|| e.constant(0.0, d));
            e.select(goes_on, a[0], still)
        })?);
    }
    Ok(Some(outs))
}
