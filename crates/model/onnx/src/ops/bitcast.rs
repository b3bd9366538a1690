//! BitCast: the same bits under another type of the same width.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, to_dtype};

pub(crate) const OPS: &[OpDef] = &[op("BitCast", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let to = to_dtype(n.int_opt("to")?.ok_or("attribute 'to' is missing")?)?;
    let (from, s) = (c.dtype(x), c.shape(x));
    if from.bits() != to.bits() || from.is_held() {
        return Err(format!("casts {from} to {to}, whose elements have another width").into());
    }
    if from == to {
        let y = c.reshape(n, n.name(0), x, s)?;
        c.set(n, 0, y);
        return Ok(());
    }
    // No scalar program sees the bits of a float; the host copies them.
    let mut attrs = n.host_attrs()?;
    attrs.insert("to".into(), tensor::Attr::Str(to.name().into()));
    c.host_with(n, attrs, &[(to, s.into_iter().map(Some).collect())])
}
