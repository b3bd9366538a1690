//! Shape rules of every core op, and the symbolic contents of small integer tensors.
//!
//! Extents that are only known to be equal when the model runs are unified: equal forms are equal;
//! 1 gives way to anything when broadcasting; a number wins over a symbol; of two symbols that
//! are not provably equal the left one stands. Two different numbers are an error.
mod contents;
mod product;
mod recurrent;
mod rules;
mod view;
mod window;

pub(crate) use contents::contents;
pub use rules::product_type;
pub(crate) use rules::{ReliedEqualities, Type, list, may_equal, program_types, same_len};

use crate::{Graph, Op, Value, ValueId, View};
use expr::{Expr, Monoid};
use layout::{DType, Dim};

/// Highest rank that is accepted.
pub(crate) const MAX_RANK: usize = 64;

/// Output dtypes and shapes of `op` on `inputs`; the error says what does not fit.
pub(crate) fn infer(
    graph: &Graph,
    op: &Op,
    inputs: &[ValueId],
    relied: &mut ReliedEqualities,
) -> Result<Vec<Type>, String> {
    let mut v: Vec<&Value> = Vec::with_capacity(inputs.len());
    for i in inputs {
        v.push(
            graph
                .values
                .get(i.0 as usize)
                .ok_or_else(|| format!("there is no value {}", i.0))?,
        );
    }
    let v = v.as_slice();
    let out = match op {
        Op::Map(e) => {
            if v.is_empty() {
                return Err(
                    "a fill's shape does not follow from inputs; give it with node_with_shapes"
                        .into(),
                );
            }
            let shape = relied.broadcast_all(v)?;
            map_types(e, v, shape.len())?
                .into_iter()
                .map(|d| (d, shape.clone()))
                .collect()
        }
        Op::View(view) => {
            let x = exactly(v, 1)?[0];
            vec![(x.dtype, view::shape(view, &x.shape, relied)?)]
        }
        Op::Concat { axis } => vec![concat(v, *axis, relied)?],
        Op::Pad { before, after, .. } => vec![padded(before, after, v)?],
        Op::Gather { axis, batch } => vec![gathered(*axis, *batch, exactly(v, 2)?, relied)?],
        Op::ScatterNd(_) => vec![scatter(exactly(v, 3)?, relied)?],
        Op::Contract(spec) => vec![product::contract(spec, exactly(v, 2)?, relied)?],
        Op::Conv(spec) => vec![window::conv(spec, exactly(v, 2)?, relied)?],
        Op::Pool(spec) => vec![window::pool(spec, exactly(v, 1)?[0])?],
        Op::Reduce { monoid, axes, keep } => reduced(monoid, axes, *keep, v, relied)?,
        Op::Scan { monoid, axis, .. } => {
            let shape = relied.broadcast_all(v)?;
            if *axis >= shape.len() {
                return Err(format!(
                    "axis {axis} does not fit {} dimensions",
                    shape.len()
                ));
            }
            let types = monoid_types(monoid, v)?;
            types.into_iter().map(|d| (d, shape.clone())).collect()
        }
        Op::Attention(spec) => vec![product::attention(spec, v, relied)?],
        Op::Recurrent(spec) => recurrent::outputs(spec, v)?,
        Op::Sort { axis, k, .. } => {
            let x = exactly(v, 1)?[0];
            in_rank(*axis, x)?;
            if x.shape[*axis].provably_lt(k) {
                return Err(format!("{k} elements do not fit {}", x.shape[*axis]));
            }
            relied.at_most(k, &x.shape[*axis]);
            let mut shape = x.shape.clone();
            shape[*axis] = k.clone();
            vec![(x.dtype, shape.clone()), (DType::I64, shape)]
        }
        Op::Resample(spec) => vec![window::resample(spec, exactly(v, 1)?[0])?],
        Op::Kernel(_) | Op::Host { .. } | Op::If { .. } | Op::Loop { .. } => {
            return Err(format!(
                "the shapes of {} do not follow from its inputs; give them with node_with_shapes",
                op.name()
            ));
        }
    };
    for (_, shape) in &out {
        check_shape(shape)?;
    }
    Ok(out)
}

/// A padded input, and the scalar outside of it if there is one.
fn padded(before: &[Dim], after: &[Dim], v: &[&Value]) -> Result<Type, String> {
    between(v, 1, 2)?;
    let x = v[0];
    if let Some(c) = v.get(1) {
        if c.dtype != x.dtype {
            return Err(format!("the outside value is {}, not {}", c.dtype, x.dtype));
        }
        if Dim::product(&c.shape).known().is_some_and(|n| n != 1) {
            return Err("the outside value is not a scalar".into());
        }
    }
    same_len("padding", before.len(), x.shape.len())?;
    same_len("padding", after.len(), x.shape.len())?;
    let each = x.shape.iter().zip(before.iter().zip(after));
    let shape = each.map(|(d, (b, a))| d.clone() + b.clone() + a.clone());
    Ok((x.dtype, shape.collect()))
}

/// Data and indices whose first `batch` dimensions are common.
fn gathered(
    axis: usize,
    batch: usize,
    v: &[&Value],
    relied: &mut ReliedEqualities,
) -> Result<Type, String> {
    in_rank(axis, v[0])?;
    if batch > axis || batch > v[1].shape.len() {
        return Err(format!(
            "{batch} common dimensions do not fit axis {axis} and indices of rank {}",
            v[1].shape.len()
        ));
    }
    let common = v[0].shape.iter().zip(v[1].shape.iter()).take(batch);
    for (d, (x, i)) in common.enumerate() {
        if !relied.same(x, i) {
            return Err(format!(
                "dimension {d} is {x} of the data and {i} of the indices"
            ));
        }
    }
    if !v[1].dtype.is_int() {
        return Err(format!("indices are {}, not integers", v[1].dtype));
    }
    let mut shape = v[0].shape[..axis].to_vec();
    shape.extend(v[1].shape[batch..].iter().cloned());
    shape.extend(v[0].shape[axis + 1..].iter().cloned());
    Ok((v[0].dtype, shape))
}

fn reduced(
    monoid: &Monoid,
    axes: &[usize],
    keep: bool,
    v: &[&Value],
    relied: &mut ReliedEqualities,
) -> Result<Vec<Type>, String> {
    let shape = relied.broadcast_all(v)?;
    if axes.iter().any(|&a| a >= shape.len()) {
        return Err(format!(
            "axes {axes:?} do not fit {} dimensions",
            shape.len()
        ));
    }
    if axes.windows(2).any(|w| w[0] >= w[1]) {
        return Err(format!("axes {axes:?} are not ascending"));
    }
    let types = monoid_types(monoid, v)?;
    let mut out = Vec::new();
    for (d, e) in shape.into_iter().enumerate() {
        match (axes.contains(&d), keep) {
            (true, true) => out.push(Dim::ONE),
            (true, false) => {}
            (false, _) => out.push(e),
        }
    }
    Ok(types.into_iter().map(|d| (d, out.clone())).collect())
}

/// Checks `op` on `inputs` against outputs of the given types: as [`infer`], where an op leaves
/// room for choice (fills, broadcast of Maps, output padding, sizes of a Resample) any fitting
/// choice is accepted.
pub(crate) fn check(
    graph: &Graph,
    op: &Op,
    inputs: &[ValueId],
    outputs: &[Type],
    relied: &mut ReliedEqualities,
) -> Result<(), String> {
    for (_, shape) in outputs {
        check_shape(shape)?;
    }
    let want = match op {
        Op::Kernel(k) => {
            relied
                .0
                .extend(k.equal.iter().filter(|(a, b)| a != b).cloned());
            return Ok(());
        }
        Op::Host { .. } | Op::If { .. } | Op::Loop { .. } => return Ok(()),
        Op::Resample(s) if inputs.len() == 1 && outputs.len() == 1 => {
            return window::resample_fits(s, graph.value(inputs[0]), &outputs[0]);
        }
        Op::Map(e) => {
            let mut v = Vec::new();
            for i in inputs {
                v.push(
                    graph
                        .values
                        .get(i.0 as usize)
                        .ok_or_else(|| format!("there is no value {}", i.0))?,
                );
            }
            let shape = match outputs.first() {
                Some((_, s)) => s.clone(),
                None => return Err("a map without results does nothing; remove it".into()),
            };
            for x in &v {
                if !relied.broadcasts_to(&x.shape, &shape) {
                    return Err(format!(
                        "input '{}' {} does not broadcast to {}",
                        x.name,
                        list(&x.shape),
                        list(&shape)
                    ));
                }
            }
            map_types(e, &v, shape.len())?
                .into_iter()
                .map(|d| (d, shape.clone()))
                .collect()
        }
        _ => infer(graph, op, inputs, relied)?,
    };
    if want.len() != outputs.len() {
        return Err(format!(
            "it has {} results, but {} outputs are declared",
            want.len(),
            outputs.len()
        ));
    }
    for (i, (w, o)) in want.iter().zip(outputs).enumerate() {
        if w.0 != o.0 {
            return Err(format!("output {i} is {}, but {} is declared", w.0, o.0));
        }
        let free = match op {
            Op::Resample(_) => 0..o.1.len(),
            Op::Conv(c) if c.transposed => 2..o.1.len(),
            _ => 0..0,
        };
        let fits = w.1.len() == o.1.len()
            && w.1
                .iter()
                .zip(&o.1)
                .enumerate()
                .all(|(d, (a, b))| free.contains(&d) || relied.same(a, b));
        if !fits {
            return Err(format!(
                "output {i} has shape {}, but {} is declared",
                list(&w.1),
                list(&o.1)
            ));
        }
    }
    Ok(())
}

/// Largest expression that an extent may be ([`Dim::size`]).
const MAX_SIZE: usize = 4096;

fn check_shape(shape: &[Dim]) -> Result<(), String> {
    if let Some(n) = shape.iter().map(Dim::size).find(|n| *n > MAX_SIZE) {
        return Err(format!(
            "an extent is an expression of {n} terms and factors, more than {MAX_SIZE}; bind its symbols to numbers"
        ));
    }
    if shape.len() > MAX_RANK {
        return Err(format!(
            "{} dimensions are more than {MAX_RANK}",
            shape.len()
        ));
    }
    match shape
        .iter()
        .any(|d| d.known().is_some_and(|n| !(0..1 << 48).contains(&n)))
    {
        true => Err(format!("the shape {} has no sensible extent", list(shape))),
        false => Ok(()),
    }
}

pub(crate) fn exactly<'a, 'b>(v: &'a [&'b Value], n: usize) -> Result<&'a [&'b Value], String> {
    between(v, n, n).map(|_| v)
}

pub(crate) fn between(v: &[&Value], lo: usize, hi: usize) -> Result<(), String> {
    match (lo..=hi).contains(&v.len()) {
        true => Ok(()),
        false if lo == hi => Err(format!("it takes {lo} inputs, but has {}", v.len())),
        false => Err(format!("it takes {lo} to {hi} inputs, but has {}", v.len())),
    }
}

pub(crate) fn in_rank(axis: usize, x: &Value) -> Result<(), String> {
    match axis < x.shape.len() {
        true => Ok(()),
        false => Err(format!(
            "axis {axis} does not fit '{}' {}",
            x.name,
            list(&x.shape)
        )),
    }
}

/// Types of the results of `e` with its slots bound to `v`, coordinates to `rank` dimensions.
pub(crate) fn map_types(e: &Expr, v: &[&Value], rank: usize) -> Result<Vec<DType>, String> {
    let slots: Vec<DType> = v.iter().map(|x| x.dtype).collect();
    program_types(e, &slots, rank)
}

/// Types of the results of `m` over elements of `v`.
fn monoid_types(m: &Monoid, v: &[&Value]) -> Result<Vec<DType>, String> {
    let say = |part: &'static str| move |e: String| format!("{part} of '{}': {e}", m.name);
    let state = program_types(&m.identity, &[], 0).map_err(say("identity"))?;
    let lifted = map_types(&m.lift, v, 1).map_err(say("lift"))?;
    let twice: Vec<DType> = state.iter().chain(&state).copied().collect();
    let combined = program_types(&m.combine, &twice, 0).map_err(say("combine"))?;
    if lifted != state || combined != state {
        return Err(format!("the states of '{}' have different types", m.name));
    }
    program_types(&m.finish, &state, 0).map_err(say("finish"))
}

fn concat(v: &[&Value], axis: usize, relied: &mut ReliedEqualities) -> Result<Type, String> {
    let first = *v.first().ok_or("it needs an input")?;
    in_rank(axis, first)?;
    let mut shape = first.shape.clone();
    for x in &v[1..] {
        if x.dtype != first.dtype {
            return Err(format!("'{}' is {}, not {}", x.name, x.dtype, first.dtype));
        }
        if x.shape.len() != shape.len() {
            return Err(format!(
                "'{}' has {} dimensions, not {}",
                x.name,
                x.shape.len(),
                shape.len()
            ));
        }
        for (d, (n, m)) in shape.iter_mut().zip(&x.shape).enumerate() {
            *n = if d == axis {
                // Nobody else has the sum so far: terms are added to it, not to a copy.
                std::mem::replace(n, Dim::ZERO) + m.clone()
            } else {
                relied
                    .unify(n, m)
                    .map_err(|e| format!("'{}': {e}", x.name))?
            };
        }
    }
    Ok((first.dtype, shape))
}

fn scatter(v: &[&Value], relied: &mut ReliedEqualities) -> Result<Type, String> {
    let (data, indices, updates) = (v[0], v[1], v[2]);
    if !indices.dtype.is_int() {
        return Err(format!("indices are {}, not integers", indices.dtype));
    }
    if updates.dtype != data.dtype {
        return Err(format!(
            "updates are {}, data {}",
            updates.dtype, data.dtype
        ));
    }
    let Some((last, lead)) = indices.shape.split_last() else {
        return Err("indices need at least one dimension".into());
    };
    let k = last
        .known()
        .and_then(|k| usize::try_from(k).ok())
        .ok_or_else(|| format!("the last extent of indices, {last}, is not a number"))?;
    if k > data.shape.len() {
        return Err(format!(
            "indices of {k} coordinates do not fit {}",
            list(&data.shape)
        ));
    }
    let want: Vec<Dim> = lead.iter().chain(&data.shape[k..]).cloned().collect();
    let fits = want.len() == updates.shape.len()
        && want
            .iter()
            .zip(&updates.shape)
            .all(|(a, b)| relied.same(a, b));
    if !fits {
        return Err(format!(
            "updates are {}, not {}",
            list(&updates.shape),
            list(&want)
        ));
    }
    Ok((data.dtype, data.shape.clone()))
}

impl View {
    /// The shape of this view of a tensor of shape `input`; the error says what does not fit.
    pub fn output_shape(&self, input: &[Dim]) -> Result<Vec<Dim>, String> {
        view::shape(self, input, &mut ReliedEqualities::default())
    }
}
