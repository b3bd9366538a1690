//! com.microsoft DynamicQuantizeLSTM: an LSTM with weights of 8 bits, whose inputs are quantised as
//! one tensor and whose state is quantised anew in every round. Where sequences have lengths of their own, onnxruntime
//! reads what is quantised off its buffers: inputs up to the longest sequence, and as states of ended sequences the zeros
//! that stand in the results, or the last states where no results are asked for. Its answers also depend on how many
//! threads share a batch; those here are those of one.
use super::control::{Looped, looped};
use super::ms_integer::measured;
use super::whole_steps::steps;
use super::reverse_sequence::reversed;
use super::{OpDef, matmul, op_of};
use crate::import::{BodyInput, Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Compare, ExprBuilder, Ref, Unary};
use graph::{Op, ValueId, View};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op_of("com.microsoft", "DynamicQuantizeLSTM", lower)];

const F: DType = DType::F32;
/// What a layer's gates may be made of: those that the standard takes where none are named.
const USUAL: [&str; 3] = ["Sigmoid", "Tanh", "Tanh"];

/// One direction of the layer.
struct Way {
    /// Its number among the directions.
    index: usize,
    /// Rounds go from the last position to the first; where sequences have lengths they are turned around instead.
    backwards: bool,
    hidden: i64,
    length: Dim,
    batch: Dim,
    /// What the inputs give every gate, [length, batch, 4 * hidden].
    gates: ValueId,
    /// Steps of the state's weights as f32, [hidden, 4 * hidden], and their scale.
    weights: ValueId,
    scale: ValueId,
    /// Weights of the cell's state, [1, hidden] each: input, output, forget gate.
    peep: Option<[ValueId; 3]>,
    /// Lengths of the sequences, [batch, 1].
    lens: Option<ValueId>,
    /// Whether ended sequences have a state of zeros where it is quantised.
    cleared: bool,
}

/// Entry `d` along the first dimension, which is dropped.
fn entry<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: &str, v: ValueId, d: usize) -> Lowered<ValueId> {
    let s = c.shape(v);
    let one = c.slice(n, n.tmp(&format!("{name}{d}.one")), v, 0, Dim::from(d), Dim::ONE)?;
    c.reshape(n, n.tmp(&format!("{name}{d}")), one, s[1..].to_vec())
}

/// Scales or zero points of direction `d`: one number, or one per column.
fn columns<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: &str, v: ValueId, d: usize) -> Lowered<ValueId> {
    let s = c.shape(v);
    match s.len() {
        0 => Ok(v),
        1 if s[0].is_one() => c.reshape(n, n.tmp(&format!("{name}{d}")), v, vec![]),
        1 | 2 => entry(c, n, name, v, d),
        r => Err(format!("its {name} has rank {r}, not 1 or 2").into()),
    }
}

fn sigmoid(e: &mut ExprBuilder, x: Ref) -> Ref {
    e.unary(Unary::Sigmoid, x)
}

/// What the inputs `x`, in steps of `step`, give every gate of direction `d`; and the state's weights as f32, with
/// their scale.
fn gates<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    (x, step): (ValueId, ValueId),
    d: usize,
    hidden: i64,
) -> Lowered<(ValueId, ValueId, ValueId)> {
    let part = |c: &mut Ctx<'m>, what: &str, i: usize| -> Lowered<(ValueId, ValueId)> {
        let (v, scale) = (n.input(i)?, n.input(if i == 1 { 8 } else { 10 })?);
        let v = entry(c, n, what, v, d)?;
        let zero = match n.opt(if i == 1 { 9 } else { 11 }) {
            Some(z) => Some(columns(c, n, &format!("{what}.zero"), z, d)?),
            None => None,
        };
        let scale = columns(c, n, &format!("{what}.scale"), scale, d)?;
        Ok((steps(c, n, &format!("{what}{d}.steps"), v, zero, 1)?, scale))
    };
    let (w, by) = part(c, "w", 1)?;
    let (weights, scale) = part(c, "r", 2)?;
    let sums = matmul::product(c, n, n.tmp(&format!("sums{d}")), x, w, (false, false))?;
    let mut inputs = vec![sums, step, by];
    if let Some(b) = n.opt(3) {
        let b = entry(c, n, "b", b, d)?;
        for (i, what) in ["wb", "rb"].into_iter().enumerate() {
            let from = Dim::Known(4 * hidden * i as i64);
            inputs.push(c.slice(n, n.tmp(&format!("{what}{d}")), b, 0, from, Dim::Known(4 * hidden))?);
        }
    }
    let gates = c.map(n, n.tmp(&format!("gates{d}")), &inputs, |e, a| {
        let by = e.mul(a[1], a[2]);
        let y = e.mul(a[0], by);
        a[3..].iter().fold(y, |y, b| e.add(y, *b))
    })?;
    Ok((gates, weights, scale))
}

/// Weights of the cell's state of direction `d`, where there are any.
fn peepholes<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, d: usize, hidden: i64) -> Lowered<Option<[ValueId; 3]>> {
    let Some(p) = n.opt(7) else { return Ok(None) };
    let p = entry(c, n, "p", p, d)?;
    let cut = |c: &mut Ctx<'m>, i: i64| -> Lowered<ValueId> {
        let v = c.slice(n, n.tmp(&format!("p{d}.{i}.flat")), p, 0, Dim::Known(i * hidden), Dim::Known(hidden))?;
        c.reshape(n, n.tmp(&format!("p{d}.{i}")), v, vec![Dim::ONE, Dim::Known(hidden)])
    };
    Ok(Some([cut(c, 0)?, cut(c, 1)?, cut(c, 2)?]))
}

/// The inputs with zeros behind the longest sequence, which change no range.
fn up_to_longest<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId, lens: ValueId) -> Lowered<ValueId> {
    let d = c.dtype(lens);
    let most = c.reduce(n, n.tmp("most"), lens, monoids::max(d), &[0], false)?;
    c.map(n, n.tmp("seen"), &[x, most], |e, a| {
        let t = e.index(0);
        let most = e.cast(a[1], DType::I64);
        let (on, zero) = (e.compare(Compare::Lt, t, most), e.constant(0.0, F));
        e.select(on, a[0], zero)
    })
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(12)?;
    let (x, w, r) = (n.input(0)?, n.input(1)?, n.input(2)?);
    let (s, weights) = (c.shape(x), c.shape(r));
    if s.len() != 3 || weights.len() != 3 || c.rank(w) != 3 {
        return Err("needs an input and weights of rank 3".into());
    }
    let hidden = n.int_opt("hidden_size")?.or(weights[1].known()).filter(|h| *h > 0);
    let hidden = hidden.ok_or("attribute 'hidden_size' must be a positive number")?;
    let ways: &[bool] = match n.text("direction", "forward")?.as_str() {
        "forward" => &[false],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        d => return Err(format!("attribute 'direction' is '{d}', it must be forward, reverse or bidirectional").into()),
    };
    let named = n.texts("activations")?.unwrap_or_default();
    n.floats("activation_alpha")?;
    n.floats("activation_beta")?;
    let usual = named.iter().zip(USUAL.iter().cycle()).all(|(a, b)| a.eq_ignore_ascii_case(b));
    if !usual || n.float_opt("clip")?.is_some_and(|v| v > 0.0) || n.flag("input_forget", false)? {
        return Err(LowerError::Unsupported("has activations, a clip or coupled gates of its own; quantise without LSTM".into()));
    }
    let (length, batch) = (s[0].clone(), s[1].clone());
    let state = vec![batch.clone(), Dim::Known(hidden)];
    let lens = n.opt(4).map(|v| c.lengths(n, v, &length)).transpose()?;
    let x = match lens {
        Some(l) => up_to_longest(c, n, x, l)?,
        None => x,
    };
    let (x, step) = measured(c, n, "x", x)?;
    let mut all: [Vec<ValueId>; 3] = Default::default();
    for (d, &backwards) in ways.iter().enumerate() {
        let (mut gates, weights, scale) = gates(c, n, (x, step), d, hidden)?;
        let turned = lens.filter(|_| backwards);
        if let Some(l) = turned {
            gates = reversed(c, n, n.tmp(&format!("gates{d}.turned")), gates, l, (1, 0))?;
        }
        let column = |c: &mut Ctx<'m>, l| c.reshape(n, n.tmp(&format!("lens{d}")), l, vec![batch.clone(), Dim::ONE]);
        let column = lens.map(|l| column(c, l)).transpose()?;
        let peep = peepholes(c, n, d, hidden)?;
        let first = |c: &mut Ctx<'m>, what: &str, i: usize| -> Lowered<ValueId> {
            match n.opt(i) {
                Some(v) => entry(c, n, what, v, d),
                None => c.fill(n, n.tmp(&format!("{what}{d}")), &state, F, |e| e.constant(0.0, F)),
            }
        };
        let mut initial = vec![first(c, "h", 5)?, first(c, "c", 6)?];
        let cleared = lens.is_some() && n.wants(0);
        initial.extend(cleared.then_some(initial[0]));
        let carried = &["h", "c", "cleared"][..initial.len()];
        let trip = c.fill_dims(n, n.tmp(&format!("trip{d}")), &[], DType::I64, std::slice::from_ref(&length))?;
        let way = Way {
            index: d,
            backwards: backwards && turned.is_none(),
            hidden,
            length: length.clone(),
            batch: batch.clone(),
            gates,
            weights,
            scale,
            peep,
            lens: column,
            cleared,
        };
        let spec = Looped {
            name: format!("{}.rounds{d}", n.origin.name),
            trip: Some(trip),
            cond: None,
            first: 0,
            initial,
            formals: carried.iter().map(|v| format!("{v}{d}")).collect(),
            names: carried.iter().chain(&["y"]).map(|v| n.tmp(&format!("{v}{d}.out"))).collect(),
        };
        let ys = looped(c, n, spec, &|c, ins| round(c, n, &way, ins).map(Some))?;
        let Some(&[h, cell, .., mut y]) = ys.as_deref() else { return Err("its rounds have no results".into()) };
        if let Some(l) = turned {
            y = reversed(c, n, n.tmp(&format!("y{d}.back")), y, l, (1, 0))?;
        } else if backwards {
            let extents = c.shape(y);
            let mut starts = vec![Dim::ZERO; 3];
            starts[0] = length.clone() - Dim::ONE;
            let flip = View::Slice { starts, steps: vec![-1, 1, 1], extents };
            y = c.add1(n, Op::View(flip), &[y], n.tmp(&format!("y{d}.back")))?;
        }
        for (i, (v, axis)) in [(y, 1), (h, 0), (cell, 0)].into_iter().enumerate() {
            let mut to = c.shape(v);
            to.insert(axis, Dim::ONE);
            all[i].push(c.reshape(n, n.tmp(&format!("y{d}.{i}")), v, to)?);
        }
    }
    for (i, parts) in all.iter().enumerate().filter(|(i, _)| n.wants(*i)) {
        let axis = usize::from(i == 0);
        let y = c.add1(n, Op::Concat { axis }, parts, n.name(i))?;
        c.set(n, i, y);
    }
    Ok(())
}

/// One round: the state goes through its weights, and the gates say what becomes of it.
fn round<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, way: &Way, ins: &[BodyInput]) -> Lowered<Vec<ValueId>> {
    let d = way.index;
    c.push_frame(&format!("{}/rounds{d}", n.origin.name), Default::default());
    let round = c.b().input("round", ins[0].dtype, vec![]);
    let go = c.b().input_with_ints("go", ins[1].dtype, vec![], ins[1].ints.clone());
    let h = c.b().input(&format!("h{d}"), F, ins[2].shape.clone());
    let cell = c.b().input(&format!("c{d}"), F, ins[3].shape.clone());
    let seen = match way.cleared {
        true => c.b().input(&format!("cleared{d}"), F, ins[4].shape.clone()),
        false => h,
    };
    let at = c.frames.len() - 1;
    let name = |what: &str| n.tmp(&format!("round{d}.{what}"));
    let place = match way.backwards {
        false => round,
        true => {
            let last = way.length.clone() - Dim::ONE;
            c.map(n, name("at"), &[round], |e, a| {
                let last = e.dim(&last);
                e.sub(last, a[0])
            })?
        }
    };
    let gates = c.capture(at, way.gates)?;
    let given = c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[gates, place], name("given"))?;
    let (q, step) = measured(c, n, &format!("round{d}.h"), seen)?;
    let weights = c.capture(at, way.weights)?;
    let sums = matmul::product(c, n, name("sums"), q, weights, (false, false))?;
    let scale = c.capture(at, way.scale)?;
    let all = c.map(n, name("gates"), &[given, sums, step, scale], |e, a| {
        let by = e.mul(a[2], a[3]);
        let own = e.mul(a[1], by);
        e.add(a[0], own)
    })?;
    // Input, output, forget gate, candidate.
    let mut parts = Vec::new();
    for i in 0..4 {
        let from = Dim::Known(i * way.hidden);
        parts.push(c.slice(n, name(&format!("gate{i}")), all, 1, from, Dim::Known(way.hidden))?);
    }
    let mut inputs = vec![cell, parts[0], parts[2], parts[3]];
    let peep = match way.peep {
        Some(p) => Some([c.capture(at, p[0])?, c.capture(at, p[1])?, c.capture(at, p[2])?]),
        None => None,
    };
    inputs.extend(peep.iter().flat_map(|p| [p[0], p[2]]));
    let next = c.map(n, name("cell"), &inputs, |e, a| {
        let seen = |e: &mut ExprBuilder, x: Ref, p: usize| match a.get(p) {
            Some(&p) => {
                let y = e.mul(a[0], p);
                e.add(x, y)
            }
            None => x,
        };
        let (i, f) = (seen(e, a[1], 4), seen(e, a[2], 5));
        let (i, f, g) = (sigmoid(e, i), sigmoid(e, f), e.unary(Unary::Tanh, a[3]));
        let (kept, new) = (e.mul(f, a[0]), e.mul(i, g));
        e.add(kept, new)
    })?;
    let mut inputs = vec![next, parts[1]];
    inputs.extend(peep.iter().map(|p| p[1]));
    let out = c.map(n, name("out"), &inputs, |e, a| {
        let mut o = a[1];
        if let Some(&p) = a.get(2) {
            let y = e.mul(a[0], p);
            o = e.add(o, y);
        }
        let (o, t) = (sigmoid(e, o), e.unary(Unary::Tanh, a[0]));
        e.mul(o, t)
    })?;
    let mut all = match way.lens {
        Some(l) => ended(c, n, d, (place, l), [(h, out), (cell, next)])?,
        None => vec![out, next, out],
    };
    let state = vec![way.batch.clone(), Dim::Known(way.hidden)];
    for v in &mut all {
        *v = c.reshaped(n, name("state"), *v, state.clone())?;
    }
    // A body's outputs are values of their own.
    let [out, next, y] = all[..] else { return Err("a round has no results".into()) };
    let cleared = way.cleared.then_some(y);
    let y = c.rename(y, &name("stacked"), &n.origin)?;
    Ok([go, out, next].into_iter().chain(cleared).chain([y]).collect())
}

/// What a round at `place` makes of the states `pairs`, each before and after it, of sequences of lengths `lens`, and
/// what it gives: behind a sequence's end nothing changes, and the result is 0.
fn ended<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    d: usize,
    (place, lens): (ValueId, ValueId),
    pairs: [(ValueId, ValueId); 2],
) -> Lowered<Vec<ValueId>> {
    let at = c.frames.len() - 1;
    let lens = c.capture(at, lens)?;
    let length = c.dtype(lens);
    let chosen = |c: &mut Ctx<'m>, what: &str, new: ValueId, old: Option<ValueId>| {
        let inputs: Vec<ValueId> = [place, lens, new].into_iter().chain(old).collect();
        c.map(n, n.tmp(&format!("round{d}.{what}")), &inputs, |e, a| {
            let t = e.cast(a[0], length);
            let on = e.compare(Compare::Lt, t, a[1]);
            let zero = e.constant(0.0, F);
            e.select(on, a[2], a.get(3).copied().unwrap_or(zero))
        })
    };
    let [(h, out), (cell, next)] = pairs;
    Ok(vec![chosen(c, "held", out, Some(h))?, chosen(c, "kept", next, Some(cell))?, chosen(c, "shown", out, None)?])
}
