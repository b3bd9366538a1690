//! Any number of arguments: Max, Min, Sum, Mean.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, monoids};
use expr::{Binary, Ref};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("Max", lower), op("Min", lower), op("Sum", lower), op("Mean", lower)];

/// Most arguments of one program: what a program needs grows with them, so longer lists are taken in parts.
const WIDE: usize = 8;

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let xs = n.all_inputs()?;
    let Some(&first) = xs.first() else {
        return Err("needs at least one input".into());
    };
    let own = c.dtype(first);
    if xs.iter().any(|&x| c.dtype(x) != own) {
        return Err("inputs must have one type".into());
    }
    let f = match n.op {
        "Max" => Binary::Max,
        "Min" => Binary::Min,
        _ => Binary::Add,
    };
    // Sums of half precision are rounded once.
    let d = if f == Binary::Add { monoids::accumulator(own) } else { own };
    let count = xs.len() as f64;
    let mut rest = &xs[1..];
    let mut y = first;
    loop {
        let (now, later) = rest.split_at(rest.len().min(WIDE - 1));
        let (last, of) = (later.is_empty(), [&[y], now].concat());
        let name = if last { n.name(0) } else { n.tmp(&later.len().to_string()) };
        let types: Vec<DType> = of.iter().map(|&x| c.dtype(x)).collect();
        y = c.map(n, name, &of, |e, a| {
            let a: Vec<Ref> = a.iter().zip(types).map(|(&x, t)| if t == d { x } else { e.cast(x, d) }).collect();
            let mut all = a.into_iter().reduce(|x, y| e.binary(f, x, y)).unwrap_or(0);
            if n.op == "Mean" && last {
                let k = e.constant(count, d);
                all = e.div(all, k);
            }
            if last && d != own { e.cast(all, own) } else { all }
        })?;
        if last {
            break;
        }
        rest = later;
    }
    c.set(n, 0, y);
    Ok(())
}
