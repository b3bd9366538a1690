//! HannWindow, HammingWindow, BlackmanWindow: sums of cosines, by the host only where their length
//! comes from data.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, to_dtype};
use expr::{Binary, ExprBuilder, Ref, Unary};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("BlackmanWindow", lower), op("HammingWindow", lower), op("HannWindow", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let size = c.sizes(n.input(0)?)?.and_then(|s| s.first().cloned());
    let d = to_dtype(n.int("output_datatype", 1)?)?;
    let periodic = n.flag("periodic", true)?;
    let Some(size) = size else {
        return c.host(n, &[(d, vec![None])]);
    };
    let parts = match n.op {
        "HannWindow" => [0.5, 0.5, 0.0],
        "HammingWindow" => [25.0 / 46.0, 21.0 / 46.0, 0.0],
        _ => [0.42, 0.5, 0.08],
    };
    let period = if periodic { size.clone() } else { size.clone() - Dim::ONE };
    let f = DType::F64;
    let y = c.fill(n, n.name(0), &[size], d, |e| {
        let (i, p, one) = (e.index(0), e.dim(&period), e.int(1, DType::I64));
        let p = e.binary(Binary::Max, p, one);
        let (i, p) = (e.cast(i, f), e.cast(p, f));
        let t = e.div(i, p);
        let cosine = |e: &mut ExprBuilder, turns: f64, weight: f64| -> Ref {
            let k = e.constant(turns * std::f64::consts::TAU, f);
            let a = e.mul(t, k);
            let a = e.unary(Unary::Cos, a);
            let w = e.constant(weight, f);
            e.mul(a, w)
        };
        let mean = e.constant(parts[0], f);
        let (first, second) = (cosine(e, 1.0, parts[1]), cosine(e, 2.0, parts[2]));
        let y = e.sub(mean, first);
        let y = e.add(y, second);
        // Integers are made of what a float of 32 bits holds, which the last bits of the sum do not change.
        let y = if d.is_int() { e.cast(y, DType::F32) } else { y };
        if d == f { y } else { e.cast(y, d) }
    })?;
    c.set(n, 0, y);
    Ok(())
}
