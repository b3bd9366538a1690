//! Values whose contents are known while the graph is built: what is used as data is filled in
//! directly (from the dimensions, or as a constant), so that the shape arithmetic before it dies.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Compare, Expr, ExprBuilder};
use graph::{Graph, Op};
use layout::{DType, Dim};
use tensor::Tensor;

/// Elements up to which unrelated contents are written as a chain of choices.
const MAX_CHAIN: usize = 64;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("shapes", graph, fuel);
    // From the last to the first: what only fed a filled value is gone when its turn comes.
    for n in e.live().into_iter().rev() {
        if e.is_dead(n) {
            continue;
        }
        let node = e.node(n);
        if !matches!(
            node.op,
            Op::Map(_)
                | Op::View(_)
                | Op::Concat { .. }
                | Op::Pad { .. }
                | Op::Gather { .. }
                | Op::ScatterNd(_)
                | Op::Reduce { .. }
                | Op::Scan { .. }
        ) {
            continue;
        }
        let [out] = node.outputs.as_slice() else {
            continue;
        };
        let out = *out;
        let fill = node.inputs.is_empty();
        let v = e.value(out).clone();
        let Some(ints) = v.ints.clone() else {
            continue;
        };
        let numbers: Option<Vec<i64>> = ints.iter().map(Dim::known).collect();
        if let Some(numbers) = numbers
            && !e.is_pinned(out)
        {
            let shape: Option<Vec<usize>> = v
                .shape
                .iter()
                .map(|d| d.known().and_then(|d| usize::try_from(d).ok()))
                .collect();
            let Some(shape) = shape else { continue };
            // Regular fills cost less than a constant in memory.
            if fill && numbers.len() > 1 && filled(&v.shape, &ints, v.dtype).is_some_and(|f| f.1) {
                continue;
            }
            if !e.may(v.name.clone(), "its contents are numbers: now a constant") {
                break;
            }
            let mut t = Tensor::zeros(v.dtype, &shape)?;
            for (i, x) in numbers.into_iter().enumerate() {
                t.set_i64(i, x);
            }
            let c = e.constant(&v.name, t, Some(ints))?;
            e.replace(out, c);
            continue;
        }
        if fill {
            continue;
        }
        if let Some((program, _)) = filled(&v.shape, &ints, v.dtype) {
            if !e.may(
                v.name.clone(),
                "its contents follow from dimensions: now filled in",
            ) {
                break;
            }
            e.set(n, Op::Map(program), &[]);
        }
    }
    Ok(e.finish())
}

/// A program without arguments that gives `ints` under `shape`, and whether it is regular (one
/// value, or evenly spaced ones).
fn filled(shape: &[Dim], ints: &[Dim], dtype: DType) -> Option<(Expr, bool)> {
    let mut b = ExprBuilder::new();
    let leaf = |b: &mut ExprBuilder, d: &Dim| match d {
        Dim::Known(n) => b.int(*n, DType::I64),
        d => b.dim(d),
    };
    let first = ints.first()?;
    let mut stride = Dim::ONE;
    let mut rank = b.int(0, DType::I64);
    for (axis, d) in shape.iter().enumerate().rev() {
        if !d.is_one() {
            let i = b.index(axis as u32);
            let s = leaf(&mut b, &stride);
            let term = if stride.is_one() { i } else { b.mul(i, s) };
            rank = if stride.is_one() {
                term
            } else {
                b.add(rank, term)
            };
        }
        stride = stride * d.clone();
    }
    // The distance of two numbers may be none.
    let apart = |w: &[Dim]| match (w[0].known(), w[1].known()) {
        (Some(a), Some(b)) => b.checked_sub(a).map(Dim::Known),
        _ => Some(w[1].clone() - w[0].clone()),
    };
    let step = ints.get(..2).and_then(apart);
    let regular = step.is_some() && ints.windows(2).all(|w| apart(w) == step);
    let value = match step {
        _ if ints.iter().all(|d| d == first) => leaf(&mut b, first),
        Some(step) if regular => {
            let s = leaf(&mut b, &step);
            let scaled = if step.is_one() { rank } else { b.mul(rank, s) };
            let base = leaf(&mut b, first);
            if first.is_zero() {
                scaled
            } else {
                b.add(scaled, base)
            }
        }
        _ if ints.len() <= MAX_CHAIN => {
            let last = ints.last()?;
            let mut r = leaf(&mut b, last);
            for (i, d) in ints.iter().enumerate().rev().skip(1) {
                let at = b.int(i as i64, DType::I64);
                let c = b.compare(Compare::Eq, rank, at);
                let d = leaf(&mut b, d);
                r = b.select(c, d, r);
            }
            r
        }
        _ => return None,
    };
    let value = match dtype {
        DType::I64 => value,
        d => b.cast(value, d),
    };
    Some((b.finish(&[value]), regular))
}
