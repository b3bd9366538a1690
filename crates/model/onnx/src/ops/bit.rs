//! Logic and bits.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[
    op("And", lower), op("Or", lower), op("Xor", lower), op("BitwiseAnd", lower), op("BitwiseOr", lower),
    op("BitwiseXor", lower), op("BitShift", lower),
];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let b = super::binary::aligned(c, n, a, b)?;
    let f = match n.op {
        "And" | "BitwiseAnd" => Binary::And,
        "Or" | "BitwiseOr" => Binary::Or,
        "Xor" | "BitwiseXor" => Binary::Xor,
        _ => match n.text("direction", "")?.as_str() {
            "LEFT" => Binary::Shl,
            "RIGHT" => Binary::Shr,
            d => return Err(format!("attribute 'direction' is '{d}', it must be LEFT or RIGHT").into()),
        },
    };
    let logic = matches!(n.op, "And" | "Or" | "Xor");
    let (da, db) = (c.dtype(a), c.dtype(b));
    if da != db || logic != (da == DType::Bool) || da.is_float() {
        return Err(format!("inputs have types {da} and {db}, which {} does not take", n.op).into());
    }
    let arithmetic = f == Binary::Shr && da.is_signed_int();
    let y = c.map(n, n.name(0), &[a, b], |e, x| {
        let y = e.binary(f, x[0], x[1]);
        if !arithmetic {
            return y;
        }
        // A negative number is shifted by its complement, so that ones come in from the left.
        let (zero, ones) = (e.int(0, da), e.int(-1, da));
        let low = e.binary(Binary::Xor, x[0], ones);
        let low = e.binary(f, low, x[1]);
        let low = e.binary(Binary::Xor, low, ones);
        let negative = e.compare(Compare::Lt, x[0], zero);
        e.select(negative, low, y)
    })?;
    c.set(n, 0, y);
    Ok(())
}
