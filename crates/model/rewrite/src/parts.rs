//! Element-wise programs of a concatenation, done to its parts instead: what makes a part can do that to each element
//! that it has, where the concatenation would be gone through once more.
use crate::edit::Edit;
use crate::moves::pure;
use crate::{Error, Fuel, Rewritten};
use graph::{Graph, NodeId, Op, ValueId, View};

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("parts", graph, fuel);
    for n in e.live() {
        if !e.is_dead(n) && !to_parts(&mut e, n)? {
            break;
        }
    }
    Ok(e.finish())
}

/// The concatenation that `n` goes through element by element, and the views between the two, the last first. Nothing
/// else needs what lies between.
fn under(e: &Edit, n: NodeId) -> Option<(NodeId, Vec<Op>)> {
    let node = e.node(n);
    let (Op::Map(p), &[mut v]) = (&node.op, node.inputs.as_slice()) else {
        return None;
    };
    if !pure(p) || e.value(v).shape != e.value(node.outputs[0]).shape {
        return None;
    }
    let (mut views, mut reader) = (vec![], n);
    loop {
        let w = e.writer(v)?;
        let op = &e.node(w).op;
        if e.only_reader(v) != Some(reader) {
            return None;
        }
        match op {
            Op::Concat { .. } => return Some((w, views)),
            Op::View(View::Reshape(_) | View::Permute(_)) => views.push(op.clone()),
            _ => return None,
        }
        (v, reader) = (e.node(w).inputs[0], w);
    }
}

/// Whether `v` is made by a kernel that goes on with each of its elements, for node `reader` alone.
fn goes_on(e: &Edit, v: ValueId, reader: NodeId) -> bool {
    let maker = e.writer(v).map(|w| &e.node(w).op);
    let goes_on = matches!(
        maker,
        Some(Op::Map(_) | Op::Contract(_) | Op::Conv(_) | Op::Pool(_) | Op::Attention(_))
    );
    goes_on && e.only_reader(v) == Some(reader)
}

/// False when the fuel is spent.
fn to_parts(e: &mut Edit, n: NodeId) -> Result<bool, Error> {
    let Some((concat, views)) = under(e, n) else {
        return Ok(true);
    };
    let parts = e.node(concat).inputs.clone();
    let narrow = |v: ValueId| e.value(v).dtype.bits() < 8 || e.value(v).dtype.is_held();
    let to = e.node(n).outputs[0];
    let any = parts.iter().any(|&v| goes_on(e, v, concat));
    if !any || narrow(to) || narrow(parts[0]) {
        return Ok(true);
    }
    if !e.may(e.title(n), "done to the parts of a concatenation") {
        return Ok(false);
    }
    let (map, origins) = (e.node(n).op.clone(), e.node(n).origins.clone());
    let (joined, name) = (e.node(concat).op.clone(), e.title(n));
    let mut made = vec![];
    for &part in &parts {
        made.push(e.add(map.clone(), &[part], &name, &origins)?);
    }
    // The last of them gives what `n` gave.
    let mut op = joined;
    for next in views.into_iter().rev() {
        made = vec![e.add(op, &made, &name, &origins)?];
        op = next;
    }
    e.set(n, op, &made);
    Ok(true)
}
