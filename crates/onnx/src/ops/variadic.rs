//! Any number of arguments: Max, Min, Sum, Mean.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::Binary;

pub(crate) const OPS: &[OpDef] = &[op("Max", lower), op("Min", lower), op("Sum", lower), op("Mean", lower)];

/// Most arguments of one program: what a program needs grows with them, so longer lists are taken in parts.
const WIDE: usize = 8;

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let xs = n.all_inputs()?;
    let Some(&first) = xs.first() else {
        return Err("needs at least one input".into());
    };
    let d = c.dtype(first);
    if xs.iter().any(|&x| c.dtype(x) != d) {
        return Err("inputs must have one type".into());
    }
    let f = match n.op {
        "Max" => Binary::Max,
        "Min" => Binary::Min,
        _ => Binary::Add,
    };
    let count = xs.len() as f64;
    let mut rest = &xs[1..];
    let mut y = first;
    loop {
        let (now, later) = rest.split_at(rest.len().min(WIDE - 1));
        let (last, of) = (later.is_empty(), [&[y], now].concat());
        let name = if last { n.name(0) } else { n.tmp(&later.len().to_string()) };
        y = c.map(n, name, &of, |e, a| {
            let all = a.iter().copied().reduce(|x, y| e.binary(f, x, y)).unwrap_or(0);
            if n.op == "Mean" && last {
                let k = e.constant(count, d);
                e.div(all, k)
            } else {
                all
            }
        })?;
        if last {
            break;
        }
        rest = later;
    }
    c.set(n, 0, y);
    Ok(())
}
