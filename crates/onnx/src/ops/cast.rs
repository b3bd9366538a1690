//! Conversions: Cast, CastLike.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, to_dtype};

pub(crate) const OPS: &[OpDef] = &[op("Cast", lower), op("CastLike", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    // They matter for 8-bit floats only, which no value here has.
    n.int("saturate", 1)?;
    n.text("round_mode", "up")?;
    let to = match n.op {
        "Cast" => to_dtype(n.int_opt("to")?.ok_or("attribute 'to' is missing")?)?,
        _ => c.dtype(n.input(1)?),
    };
    if c.dtype(x).is_held() || to.is_held() {
        return super::text::cast(c, n, x, to);
    }
    let y = match c.dtype(x) == to {
        true => {
            let s = c.shape(x);
            c.reshape(n, n.name(0), x, s)?
        }
        false => c.map(n, n.name(0), &[x], |e, a| e.cast(a[0], to))?,
    };
    c.set(n, 0, y);
    Ok(())
}
