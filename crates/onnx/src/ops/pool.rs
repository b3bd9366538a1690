//! MaxPool, AveragePool, LpPool.
use super::conv::window;
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use graph::{Op, PadMode, PoolKind, PoolSpec, ValueId};
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] = &[op("MaxPool", lower), op("AveragePool", lower), op("LpPool", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    if let Some(y) = pooled(c, n, n.name(0), x, n.op)? {
        c.set(n, 0, y);
    }
    Ok(())
}

/// The average pool that the node's attributes state, of another input.
pub(crate) fn average<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, x: ValueId) -> Lowered<ValueId> {
    pooled(c, n, name, x, "AveragePool")?.ok_or_else(|| "an average pool has no indices".into())
}

/// The pool of `x`; nothing where a host operator has set the node's outputs.
fn pooled<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, name: String, mut x: ValueId, op: &str) -> Lowered<Option<ValueId>> {
    let shape = c.shape(x);
    if shape.len() < 3 {
        return Err(format!("needs rank 3 or more, its input has {}", shape.len()).into());
    }
    let extents = &shape[2..];
    let kernel = n.ints("kernel_shape")?.ok_or("attribute 'kernel_shape' is missing")?;
    let mut w = window(n, kernel, extents)?;
    let ceil = n.flag("ceil_mode", false)?;
    let include_pad = n.flag("count_include_pad", false)?;
    // It orders indices only; with indices the host gets it.
    n.int("storage_order", 0)?;
    let mut out = shape[..2].to_vec();
    let mut reached = false;
    for (i, d) in extents.iter().enumerate() {
        let (s, k) = (Dim::Known(w.strides[i]), Dim::Known((w.kernel[i] - 1) * w.dilations[i] + 1));
        let free = d.clone() + w.before[i].clone() + w.after[i].clone() - k.clone();
        if free.known().is_some_and(|f| f < 0) {
            return Err(format!("its window is larger than dimension {} with padding", i + 2).into());
        }
        let mut o = free.floor_div(&s) + Dim::ONE;
        if ceil {
            // The last window starts inside the input or the padding before it.
            let inside = (d.clone() + w.before[i].clone()).ceil_div(&s);
            let all = free.ceil_div(&s) + Dim::ONE;
            let o2 = if all.provably_le(&inside) { all } else { all.min_with(&inside) };
            if o2 != o {
                let needed = (o2.clone() - Dim::ONE) * s + k - d.clone() - w.before[i].clone();
                let longer = needed.max_with(&w.after[i]);
                if longer != w.after[i] {
                    reached = true;
                    w.after[i] = longer;
                }
            }
            o = o2;
        }
        out.push(o);
    }
    let d = c.dtype(x);
    if op == "MaxPool" && n.wants(1) {
        let s: Vec<Option<Dim>> = out.into_iter().map(Some).collect();
        return c.host(n, &[(d, s.clone()), (DType::I64, s)]).map(|()| None);
    }
    let kind = match op {
        "MaxPool" => PoolKind::Max,
        "AveragePool" => PoolKind::Average { include_pad: include_pad && !reached },
        _ => PoolKind::Lp { p: n.int("p", 2)? },
    };
    if op == "AveragePool" && include_pad && reached {
        // Stated padding counts, what ceil mode adds does not: the former becomes real zeros.
        let stated = n.ints("pads")?.unwrap_or_default();
        let r = extents.len();
        let (mut before, mut after) = (vec![Dim::ZERO; 2], vec![Dim::ZERO; 2]);
        for i in 0..r {
            let own = stated.get(r + i).map_or(Dim::ZERO, |&p| Dim::Known(p));
            before.push(w.before[i].clone());
            w.after[i] = w.after[i].clone() - own.clone();
            w.before[i] = Dim::ZERO;
            after.push(own);
        }
        x = c.add1(n, Op::Pad { before, after, mode: PadMode::Constant }, &[x], n.tmp("padded"))?;
    }
    let spec = PoolSpec {
        kind,
        kernel: w.kernel,
        strides: w.strides,
        dilations: w.dilations,
        before: w.before,
        after: w.after,
    };
    c.add1(n, Op::Pool(spec), &[x], name).map(Some)
}
