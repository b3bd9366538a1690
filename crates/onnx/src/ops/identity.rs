//! Identity, and Dropout as in inference.
use super::{OpDef, op};
use crate::import::{Ctx, LowerError, Lowered, NodeView};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("Identity", identity), op("Dropout", dropout)];

fn identity<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    if c.dtype(x).is_held() {
        c.set(n, 0, x);
        return Ok(());
    }
    let s = c.shape(x);
    let y = c.reshape(n, n.name(0), x, s)?;
    c.set(n, 0, y);
    Ok(())
}

fn dropout<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    // They say what training would do.
    n.float("ratio", 0.5)?;
    n.int("seed", 0)?;
    if let Some(t) = n.opt(2)
        && c.const_ints(t).is_none_or(|t| t != [0])
    {
        return Err(LowerError::Unsupported("training mode is on; export the model for inference".into()));
    }
    let s = c.shape(x);
    let y = c.reshape(n, n.name(0), x, s.clone())?;
    c.set(n, 0, y);
    if n.wants(1) {
        let d = if n.opset >= 10 { DType::Bool } else { c.dtype(x) };
        let m = c.fill(n, n.name(1), &s, d, |e| e.constant(1.0, d))?;
        c.set(n, 1, m);
    }
    Ok(())
}
