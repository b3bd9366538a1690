//! com.microsoft operators that the standard took up, or that differ from its own in their names alone.
use super::{ALL, OpDef, op_of, standard};
use crate::import::{Ctx, Lowered, NodeView};
use crate::proto::AttributeValue;

const MS: &str = "com.microsoft";
const NEWEST: i64 = ALL.1;

pub(crate) const OPS: &[OpDef] = &[
    op_of(MS, "CausalConvWithState", same), op_of(MS, "ExpandDims", expand), op_of(MS, "GatherND", same),
    op_of(MS, "GridSample", grid_sample), op_of(MS, "LinearAttention", same), op_of(MS, "Pad", same),
    op_of(MS, "Range", range), op_of(MS, "Trilu", same), op_of(MS, "Unique", unique),
];

fn same<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    standard(c, n, n.op, NEWEST, |_| {})
}

fn expand<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    standard(c, n, "Unsqueeze", NEWEST, |_| {})
}

/// Its modes have the names of opset 16.
fn grid_sample<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    standard(c, n, n.op, 16, |_| {})
}

/// The step may be left out.
fn range<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let d = c.dtype(n.input(0)?);
    let step = match n.opt(2) {
        Some(v) => v,
        None => c.fill(n, n.tmp("step"), &[], d, |e| e.constant(1.0, d))?,
    };
    standard(c, n, n.op, NEWEST, |twin| {
        twin.inputs.truncate(2);
        twin.inputs.push(Some(step));
    })
}

/// In the order of the input, and without the first positions.
fn unique<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    static UNSORTED: AttributeValue = AttributeValue::Int(0);
    standard(c, n, n.op, NEWEST, |twin| {
        twin.attrs.insert("sorted", &UNSORTED);
        twin.outputs.insert(1, "");
        twin.names.insert(1, String::new());
    })
}
