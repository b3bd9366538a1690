//! Nodes that are lowered as an operator of the standard.
use super::find;
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use std::cell::RefCell;

/// Lowers the node as the standard's operator `op` of version `opset`, whose inputs, outputs and attributes it has once
/// `change` made them so.
pub(crate) fn standard<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    op: &'m str,
    opset: i64,
    change: impl FnOnce(&mut NodeView<'m>),
) -> Lowered {
    let mut twin = NodeView {
        op,
        domain: "",
        opset,
        inputs: n.inputs.clone(),
        outputs: n.outputs.clone(),
        names: n.names.clone(),
        origin: n.origin.clone(),
        attrs: n.attrs.clone(),
        read: RefCell::default(),
    };
    change(&mut twin);
    let lowering = find("", op, opset).map_err(LowerError::Unsupported)?;
    (lowering.lower)(c, &twin)?;
    n.read.borrow_mut().extend(twin.read.into_inner());
    Ok(())
}
