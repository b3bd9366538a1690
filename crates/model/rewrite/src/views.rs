//! Views that do nothing, views of views, broadcasts that the reader does anyway, and gathers and pads that only
//! look at their input.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use graph::{ContractSpec, Graph, NodeId, Op, ValueId, View};
use layout::Dim;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("views", graph, fuel);
    for n in e.live() {
        if e.is_dead(n) {
            continue;
        }
        let more = match &e.node(n).op {
            Op::View(_) => view(&mut e, n)?,
            Op::Map(_) => map(&mut e, n)?,
            Op::Contract(_) => contract(&mut e, n)?,
            Op::Pad { before, after, .. } if before.iter().chain(after).all(Dim::is_zero) => {
                unpadded(&mut e, n)
            }
            &Op::Gather { axis, batch: 0 } => gathered(&mut e, n, axis)?,
            _ => true,
        };
        if !more {
            break;
        }
    }
    Ok(e.finish())
}

fn is_identity(view: &View, from: &[Dim]) -> bool {
    match view {
        View::Reshape(s) | View::Expand(s) => s == from,
        View::Permute(p) => p.iter().enumerate().all(|(i, p)| i == *p),
        View::Slice {
            starts,
            steps,
            extents,
        } => starts.iter().all(Dim::is_zero) && steps.iter().all(|s| *s == 1) && extents == from,
    }
}

/// `second` after `first` as one view.
fn merged(first: &View, second: &View) -> Option<View> {
    match (first, second) {
        (View::Reshape(_), View::Reshape(s)) => Some(View::Reshape(s.clone())),
        (View::Expand(_), View::Expand(s)) => Some(View::Expand(s.clone())),
        (View::Permute(a), View::Permute(b)) => {
            Some(View::Permute(b.iter().map(|&i| a[i]).collect()))
        }
        (
            View::Slice {
                starts: s1,
                steps: t1,
                ..
            },
            View::Slice {
                starts: s2,
                steps: t2,
                extents,
            },
        ) => {
            let mut steps = Vec::new();
            for (a, b) in t1.iter().zip(t2) {
                steps.push(a.checked_mul(*b)?);
            }
            let starts = s1
                .iter()
                .zip(s2)
                .zip(t1)
                .map(|((a, b), t)| a.clone() + b.clone() * Dim::Known(*t))
                .collect();
            Some(View::Slice {
                starts,
                steps,
                extents: extents.clone(),
            })
        }
        _ => None,
    }
}

/// False when the fuel is spent.
fn view(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let (x, out) = (e.node(n).inputs[0], e.node(n).outputs[0]);
    let Op::View(mut view) = e.node(n).op.clone() else {
        return Ok(true);
    };
    let mut from = x;
    while let Some((Op::View(inner), y)) = e.unary(from) {
        let Some(both) = merged(inner, &view) else {
            break;
        };
        (view, from) = (both, y);
    }
    if from != x {
        if !e.may(e.title(n), "a view of a view became one view") {
            return Ok(false);
        }
        e.set(n, Op::View(view.clone()), &[from]);
    }
    if is_identity(&view, &e.value(from).shape) && e.can_replace(out, from) {
        if !e.may_silently() {
            return Ok(false);
        }
        e.replace(out, from);
    }
    Ok(true)
}

/// A pad by nothing is its input.
fn unpadded(e: &mut Edit, n: NodeId) -> bool {
    let (x, out) = (e.node(n).inputs[0], e.node(n).outputs[0]);
    if e.value(x).shape != e.value(out).shape || !e.can_replace(out, x) {
        return true;
    }
    let may = e.may(e.title(n), "nothing is padded");
    if may {
        e.replace(out, x);
    }
    may
}

/// Known indices that count up evenly are a slice, whose result has the shape of the gather's.
fn gathered(e: &mut Edit, n: NodeId, axis: usize) -> Result<bool, Error> {
    let (x, by, out) = (
        e.node(n).inputs[0],
        e.node(n).inputs[1],
        e.node(n).outputs[0],
    );
    let from = e.value(x).shape.clone();
    let Some((start, step, count)) = evenly(&e.value(by).ints, &from[axis]) else {
        return Ok(true);
    };
    if e.value(x).dtype.is_held() {
        return Ok(true);
    }
    if !e.may(
        e.title(n),
        "its indices are evenly spaced, so it is a slice",
    ) {
        return Ok(false);
    }
    let (mut starts, mut steps, mut extents) =
        (vec![Dim::ZERO; from.len()], vec![1; from.len()], from);
    (starts[axis], steps[axis]) = (Dim::Known(start), step);
    extents[axis] = Dim::Known(count);
    let origins = e.node(n).origins.clone();
    let (dtype, shape) = (e.value(out).dtype, e.value(out).shape.clone());
    let name = e.value(out).name.clone();
    let slice = View::Slice {
        starts,
        steps,
        extents,
    };
    let part = e.add(Op::View(slice), &[x], &format!("{name}.slice"), &origins)?;
    let spelt = Op::View(View::Reshape(shape.clone()));
    let seen = e.add_typed(spelt, &[part], vec![(dtype, shape)], &name, &origins)?;
    e.replace(out, seen);
    Ok(true)
}

/// Start, step and count of indices into an axis of `extent`; `None` unless all are known to be inside and each is
/// as much above the one before.
fn evenly(indices: &Option<Vec<Dim>>, extent: &Dim) -> Option<(i64, i64, i64)> {
    let extent = extent.known()?;
    let at = |i: &Dim| i.known().map(|i| if i < 0 { i + extent } else { i });
    let all: Vec<i64> = indices.as_ref()?.iter().map(at).collect::<Option<_>>()?;
    let step = match all.as_slice() {
        [] => return None,
        [_] => 1,
        [a, b, ..] => b - a,
    };
    let even = step > 0 && all.windows(2).all(|w| w[1] - w[0] == step);
    let inside = all.iter().all(|i| (0..extent).contains(i));
    (even && inside).then_some((all[0], step, all.len() as i64))
}

/// What `v` broadcasts, when it is an Expand.
fn expanded(e: &Edit, v: ValueId) -> Option<ValueId> {
    match e.unary(v)? {
        (Op::View(View::Expand(_)), x) => Some(x),
        _ => None,
    }
}

fn map(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let out_shape = e.value(e.node(n).outputs[0]).shape.clone();
    for slot in 0..e.node(n).inputs.len() {
        let mut inputs = e.node(n).inputs.clone();
        let Some(x) = expanded(e, inputs[slot]) else {
            continue;
        };
        inputs[slot] = x;
        let op = e.node(n).op.clone();
        // Another input must still reach the full shape.
        if e.infer(&op, &inputs).is_ok_and(|t| t[0].1 == out_shape) {
            if !e.may(e.title(n), "it broadcasts this input itself") {
                return Ok(false);
            }
            e.set(n, op, &inputs);
        }
    }
    Ok(true)
}

/// A batch dimension of extent 1 that was broadcast needs no label in that operand.
fn contract(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    for side in 0..2 {
        let inputs = e.node(n).inputs.clone();
        let Op::Contract(spec) = e.node(n).op.clone() else {
            return Ok(true);
        };
        let Some(x) = expanded(e, inputs[side]) else {
            continue;
        };
        let (mine, other) = match side {
            0 => (&spec.a, &spec.b),
            _ => (&spec.b, &spec.a),
        };
        let from = e.value(x).shape.clone();
        let to = e.value(inputs[side]).shape.clone();
        let added = to.len() - from.len();
        let stays: Vec<bool> = (0..to.len())
            .map(|d| d >= added && from[d - added] == to[d])
            .collect();
        let droppable = stays.iter().zip(mine).enumerate().all(|(d, (stay, l))| {
            *stay
                || (d < added || from[d - added].is_one())
                    && other.contains(l)
                    && spec.out.contains(l)
        });
        // The other operand alone must give the full extent.
        let full = stays.iter().zip(mine).enumerate().all(|(d, (stay, l))| {
            *stay
                || other
                    .iter()
                    .position(|o| o == l)
                    .is_some_and(|at| e.value(inputs[1 - side]).shape[at] == to[d])
        });
        if !droppable || !full || stays.iter().all(|s| *s) {
            continue;
        }
        if !e.may(e.title(n), "a broadcast batch dimension needs no label") {
            return Ok(false);
        }
        let labels: Vec<u8> = mine
            .iter()
            .zip(&stays)
            .filter(|(_, s)| **s)
            .map(|(l, _)| *l)
            .collect();
        let shape: Vec<Dim> = to
            .iter()
            .zip(&stays)
            .filter(|(_, s)| **s)
            .map(|(d, _)| d.clone())
            .collect();
        let origins = e.node(n).origins.clone();
        let hint = e.value(x).name.clone();
        let small = e.add(Op::View(View::Reshape(shape)), &[x], &hint, &origins)?;
        let mut inputs = inputs;
        inputs[side] = small;
        let (a, b) = match side {
            0 => (labels, spec.b.clone()),
            _ => (spec.a.clone(), labels),
        };
        let out = spec.out.clone();
        e.set(n, Op::Contract(ContractSpec { a, b, out }), &inputs);
    }
    Ok(true)
}
