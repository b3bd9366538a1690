//! Gemm.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("Gemm", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(3)?;
    let (a, b, bias) = (n.input(0)?, n.input(1)?, n.opt(2));
    let (alpha, beta) = (n.float("alpha", 1.0)?, n.float("beta", 1.0)?);
    let t = (n.flag("transA", false)?, n.flag("transB", false)?);
    if n.opset < 7 {
        n.flag("broadcast", true)?;
    }
    if c.rank(a) != 2 || c.rank(b) != 2 {
        return Err(format!("needs matrices, its inputs have ranks {} and {}", c.rank(a), c.rank(b)).into());
    }
    let d = c.dtype(a);
    let la: [u8; 2] = if t.0 { *b"km" } else { *b"mk" };
    let lb: [u8; 2] = if t.1 { *b"nk" } else { *b"kn" };
    let bias = bias.filter(|_| beta != 0.0);
    let plain = bias.is_none() && alpha == 1.0;
    let name = if plain { n.name(0) } else { n.tmp("product") };
    let y = c.contract(n, name, (a, &la), (b, &lb), b"mn")?;
    let y = match bias {
        _ if plain => y,
        bias => {
            let inputs: Vec<_> = [y].into_iter().chain(bias).collect();
            // Integers are scaled as floats that hold them.
            let whole = |k: f64| k.fract() == 0.0;
            let t = if d.is_float() || (whole(alpha) && whole(beta)) { d } else { DType::F64 };
            c.map(n, n.name(0), &inputs, |e, x| {
                let (ka, kb) = (e.constant(alpha, t), e.constant(beta, t));
                let x: Vec<_> = x.iter().map(|&v| if t == d { v } else { e.cast(v, t) }).collect();
                let mut v = if alpha == 1.0 { x[0] } else { e.mul(x[0], ka) };
                if let Some(&b) = x.get(1) {
                    let b = if beta == 1.0 { b } else { e.mul(b, kb) };
                    v = e.add(v, b);
                }
                if t == d { v } else { e.cast(v, d) }
            })?
        }
    };
    c.set(n, 0, y);
    Ok(())
}
