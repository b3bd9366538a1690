//! Optional values.
use super::{OpDef, op};
use crate::import::{Ctx, Kind, Lowered, NodeView};
use crate::proto::AttributeValue;
use layout::DType;
use tensor::{Attrs, Tensor};

pub(crate) const OPS: &[OpDef] = &[
    op("Optional", optional),
    op("OptionalGetElement", get),
    op("OptionalHasElement", has),
];

fn optional<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    n.read.borrow_mut().insert("type".into());
    let stated = match n.attrs.get("type") {
        Some(AttributeValue::Type(t)) => Some(Kind::stated(t)?),
        Some(_) => return Err("attribute 'type' must be a type".into()),
        None => None,
    };
    let (inputs, inner) = match (n.opt(0), stated) {
        (Some(v), _) => (vec![v], c.kind(v)),
        (None, Some(k)) => (vec![], k),
        (None, None) => return Err("needs an input or the attribute 'type'".into()),
    };
    let y = c.held_op(n, "Optional", Attrs::new(), &inputs, n.name(0), Kind::Opt(Box::new(inner)))?;
    c.set(n, 0, y);
    Ok(())
}

fn has<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let known = match n.opt(0) {
        None => Some(false),
        Some(v) => (!matches!(c.kind(v), Kind::Opt(_))).then_some(true),
    };
    let y = match (known, n.opt(0)) {
        (Some(k), _) => c.constant(&n.name(0), Tensor::from_bytes(DType::Bool, &[], vec![k as u8])?)?,
        (None, Some(v)) => c.held_op(n, "OptionalHasElement", Attrs::new(), &[v], n.name(0), Kind::tensor(DType::Bool, &[]))?,
        (None, None) => return Err("needs an input".into()),
    };
    c.set(n, 0, y);
    Ok(())
}

fn get<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let v = n.input(0)?;
    let y = match c.kind(v) {
        Kind::Opt(k) => {
            let taken = c.ranked(n, *k, &[])?;
            c.taken_op(n, "OptionalGetElement", Attrs::new(), &[v], n.name(0), taken)?
        }
        _ => v,
    };
    c.set(n, 0, y);
    Ok(())
}
