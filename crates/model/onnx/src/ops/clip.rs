//! Clip: bounds as attributes before opset 11, as inputs since.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::Binary;

pub(crate) const OPS: &[OpDef] = &[op("Clip", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = n.input(0)?;
    let d = c.dtype(x);
    let mut bounds: [Option<f64>; 2] = [None, None];
    let mut inputs = vec![x];
    let mut slots = [None, None];
    if n.opset < 11 {
        // Without them infinities are clipped too.
        let most = f32::MAX;
        bounds = [Some(n.float("min", -most)?), Some(n.float("max", most)?)];
    } else {
        n.at_most(3)?;
        for i in 0..2 {
            let Some(v) = n.opt(i + 1) else { continue };
            if c.dtype(v) != d {
                return Err("bounds must have the type of the input".into());
            }
            // 64-bit integers beyond 2^53 would not survive a float.
            match c.scalar(v) {
                Some(b) if c.rank(v) <= c.rank(x) && b.abs() < 9e15 => bounds[i] = Some(b),
                _ => {
                    slots[i] = Some(inputs.len());
                    inputs.push(v);
                }
            }
        }
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let mut y = a[0];
        for (i, f) in [Binary::Max, Binary::Min].into_iter().enumerate() {
            let b = match (bounds[i], slots[i]) {
                (Some(b), _) => Some(e.constant(b, d)),
                (_, Some(s)) => Some(a[s]),
                _ => None,
            };
            if let Some(b) = b {
                y = e.binary(f, y, b);
            }
        }
        y
    })?;
    c.set(n, 0, y);
    Ok(())
}
