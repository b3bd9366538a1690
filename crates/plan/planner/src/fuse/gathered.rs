//! Gathers that need no kernel of their own: their only reader loads through the indices.
use graph::{Graph, NodeId, Op, ValueId, ValueSource, View};
use layout::{DType, Dim};

/// Whether gather `n` is left to its reader: one element-wise node that reads every gathered element
/// once. Gathered constants are computed when the model is loaded.
pub(super) fn folds(graph: &Graph, readers: &[Vec<NodeId>], n: NodeId) -> bool {
    let node = graph.node(n);
    if !matches!(node.op, Op::Gather { .. }) || node.inputs.iter().all(|&v| constant(graph, v, 0)) {
        return false;
    }
    // Indices of other types are read by no kernel.
    let index = graph.value(node.inputs[1]).dtype;
    let data = graph.value(node.inputs[0]).dtype;
    if !matches!(index, DType::I64 | DType::I32) || data.bits() < 8 || data.is_held() {
        return false;
    }
    let mut v = node.outputs[0];
    let size = Dim::product(&graph.value(v).shape);
    loop {
        if graph.outputs.contains(&v) {
            return false;
        }
        let &[reader] = readers[v.0 as usize].as_slice() else {
            return false;
        };
        let r = graph.node(reader);
        match &r.op {
            Op::View(View::Reshape(_) | View::Permute(_)) => v = r.outputs[0],
            Op::Map(_) => {
                let times = r.inputs.iter().filter(|&&i| i == v).count();
                // Each brings its indices.
                let gathers = r.inputs.iter().filter(|&&i| gathered(graph, i)).count();
                let few = r.inputs.len() + gathers <= super::MAX_READS;
                return few && times == 1 && Dim::product(&graph.value(r.outputs[0]).shape) == size;
            }
            _ => return false,
        }
    }
}

/// Whether `v` is what a gather gives, under another shape or not.
fn gathered(graph: &Graph, mut v: ValueId) -> bool {
    while let Some(n) = graph.producer(v) {
        match &n.op {
            Op::View(View::Reshape(_) | View::Permute(_)) => v = n.inputs[0],
            op => return matches!(op, Op::Gather { .. }),
        }
    }
    false
}

/// Nodes that are looked through for constants.
const DEPTH: usize = 16;

/// Whether `v` is computed from constants only, as far as a short look shows.
pub(crate) fn constant(graph: &Graph, v: ValueId, depth: usize) -> bool {
    match graph.value(v).source {
        ValueSource::Weight(_) => true,
        ValueSource::Input(_) => false,
        ValueSource::Node(n, _) => {
            let inputs = &graph.node(n).inputs;
            depth < DEPTH && inputs.iter().all(|&i| constant(graph, i, depth + 1))
        }
    }
}
