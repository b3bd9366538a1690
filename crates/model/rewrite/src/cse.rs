//! Merges nodes that compute the same from the same inputs.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use graph::{Graph, NodeId, Op, ValueSource};
use std::collections::BTreeMap;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("cse", graph, fuel);
    // Equal text of op and result types, equal inputs.
    let mut seen: BTreeMap<(Vec<u64>, String), NodeId> = BTreeMap::new();
    for n in e.live() {
        let node = e.node(n);
        if e.is_dead(n) || matches!(node.op, Op::Host { .. } | Op::If { .. } | Op::Loop { .. }) {
            continue;
        }
        // Two values may stand for one constant.
        let inputs: Vec<u64> = node
            .inputs
            .iter()
            .map(|&i| match e.value(i).source {
                ValueSource::Weight(w) => 1 << 32 | u64::from(w),
                _ => u64::from(i.0),
            })
            .collect();
        let mut text = format!("{:?}", node.op);
        for &o in &node.outputs {
            let v = e.value(o);
            text.push_str(&format!(" {}{:?}", v.dtype, v.shape));
        }
        let first = *seen.entry((inputs, text)).or_insert(n);
        if first == n {
            continue;
        }
        let pairs: Vec<_> = node
            .outputs
            .iter()
            .copied()
            .zip(e.node(first).outputs.iter().copied())
            .collect();
        if !pairs.iter().all(|&(old, new)| e.can_replace(old, new)) {
            continue;
        }
        let origins = node.origins.clone();
        if !e.may(e.title(n), format!("the same as {}", e.title(first))) {
            break;
        }
        for (old, new) in pairs {
            e.replace(old, new);
        }
        e.credit(first, &origins);
    }
    Ok(e.finish())
}
