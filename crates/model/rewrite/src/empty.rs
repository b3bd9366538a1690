//! What has no elements, and sums of no terms, are fills: nothing is read for them, and constants that only they
//! would have read are not packed.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::ExprBuilder;
use graph::{Graph, Node, Op};
use layout::{DType, Dim};

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("empty", graph, fuel);
    for n in e.live() {
        let node = e.node(n);
        let [out] = node.outputs[..] else { continue };
        let (dtype, shape) = (e.value(out).dtype, e.value(out).shape.clone());
        let fills = dtype.bits() >= 8 && !dtype.is_held() && dtype != DType::Bool;
        let control = matches!(node.op, Op::If { .. } | Op::Loop { .. });
        // What other sizes are read from is made even where it is empty.
        if !fills || control || node.inputs.is_empty() || e.gives_sizes(out) {
            continue;
        }
        let why = if shape.iter().any(Dim::is_zero) {
            "it has no elements"
        } else if sums_nothing(&e, node) {
            "its sums have no terms"
        } else {
            continue;
        };
        let origins = node.origins.clone();
        if !e.may(e.title(n), why) {
            break;
        }
        let mut b = ExprBuilder::new();
        let zero = match dtype.is_float() {
            true => b.constant(0.0, dtype),
            false => b.int(0, dtype),
        };
        let op = Op::Map(b.finish(&[zero]));
        let name = e.value(out).name.clone();
        let fill = e.add_typed(op, &[], vec![(dtype, shape)], &name, &origins)?;
        e.replace(out, fill);
    }
    Ok(e.finish())
}

/// Whether every element of a node's result is a sum over an extent of 0.
fn sums_nothing(e: &Edit, node: &Node) -> bool {
    let shape = |i: usize| node.inputs.get(i).map(|&v| &e.value(v).shape[..]);
    let none = |d: Option<&Dim>| d.is_some_and(Dim::is_zero);
    match &node.op {
        Op::Contract(spec) => [(&spec.a, 0), (&spec.b, 1)].into_iter().any(|(labels, i)| {
            let dims = shape(i).unwrap_or_default();
            let mut of = labels.iter().zip(dims);
            of.any(|(l, d)| !spec.out.contains(l) && d.is_zero())
        }),
        // Channels; the kernel's extents are not 0.
        Op::Conv(_) => none(shape(0).and_then(|s| s.get(1))),
        // Keys.
        Op::Attention(_) => none(shape(1).and_then(|s| s.iter().rev().nth(1))),
        _ => false,
    }
}
