//! Views that do nothing, views of views, and broadcasts that the reader does anyway.
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
        if !e.may(e.title(n), "views of views merged") {
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
            if !e.may(e.title(n), "it broadcasts anyway") {
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
