//! Rims that repeat the input (reflected, wrapped, edge) as one gather: where each output coordinate
//! comes from is a table computed from its index, and the padded dimensions, taken as one, are read
//! through it. A rim of one value is a move of its own and stays.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Binary, Compare, ExprBuilder, Ref};
use graph::{Graph, NodeId, Op, PadMode, View};
use layout::{DType, Dim};

const I: DType = DType::I64;
/// Elements of a table beyond which dimensions go one after the other.
const TABLE: i64 = 1 << 18;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("pads", graph, fuel);
    for n in e.live() {
        let Op::Pad {
            before,
            after,
            mode,
        } = e.node(n).op.clone()
        else {
            continue;
        };
        if mode == PadMode::Constant {
            continue;
        }
        let x = e.value(e.node(n).inputs[0]);
        let out = e.value(e.node(n).outputs[0]).shape.clone();
        let (s, dtype) = (x.shape.clone(), x.dtype);
        if dtype.bits() < 8 || dtype.is_held() {
            e.why_not(
                e.title(n),
                format!("elements of {dtype} are moved by plain code"),
            );
            continue;
        }
        if s.iter().chain(&out).any(Dim::is_zero) || s.len() != out.len() {
            e.why_not(e.title(n), "it is empty");
            continue;
        }
        let padded = |d: &usize| !before[*d].is_zero() || !after[*d].is_zero();
        let axes: Vec<Axis> = (0..s.len())
            .filter(padded)
            .map(|d| Axis {
                dim: d,
                from: s[d].clone(),
                to: out[d].clone(),
                before: before[d].clone(),
            })
            .collect();
        if !e.may(
            e.title(n),
            "it reads its elements through a table of positions",
        ) {
            break;
        }
        lower(&mut e, n, &axes, mode, &out)?;
    }
    Ok(e.finish())
}

/// A dimension that changes.
struct Axis {
    dim: usize,
    from: Dim,
    to: Dim,
    before: Dim,
}

/// Runs of dimensions that one table covers: neighbours whose product of extents is small.
fn groups(axes: &[Axis]) -> Vec<&[Axis]> {
    let mut groups = Vec::new();
    let mut start = 0;
    for end in 1..=axes.len() {
        let joins = axes.get(end).is_some_and(|a| {
            let all = axes[start..=end]
                .iter()
                .try_fold(1i64, |p, a| a.to.known().and_then(|n| p.checked_mul(n)));
            a.dim == axes[end - 1].dim + 1 && all.is_some_and(|n| n <= TABLE)
        });
        if !joins {
            groups.push(&axes[start..end]);
            start = end;
        }
    }
    groups
}

/// The input coordinate of output coordinate `o`.
fn source(b: &mut ExprBuilder, o: Ref, a: &Axis, mode: PadMode) -> Ref {
    let (before, n) = (b.dim(&a.before), b.dim(&a.from));
    let (zero, one) = (b.int(0, I), b.int(1, I));
    let c = b.sub(o, before);
    let last = b.sub(n, one);
    match mode {
        PadMode::Reflect => {
            let two = b.int(2, I);
            let period = b.mul(last, two);
            let period = b.binary(Binary::Max, period, one);
            let r = b.binary(Binary::Mod, c, period);
            let back = b.sub(period, r);
            let near = b.compare(Compare::Lt, r, n);
            b.select(near, r, back)
        }
        PadMode::Wrap => b.binary(Binary::Mod, c, n),
        _ => {
            let c = b.binary(Binary::Min, c, last);
            b.binary(Binary::Max, c, zero)
        }
    }
}

fn lower(e: &mut Edit, n: NodeId, axes: &[Axis], mode: PadMode, out: &[Dim]) -> Result<(), Error> {
    let origins = e.node(n).origins.clone();
    let (mut x, y) = (e.node(n).inputs[0], e.node(n).outputs[0]);
    let name = e.value(y).name.clone();
    // Inner dimensions first: they are the shorter copies while the outer ones are still small.
    for g in groups(axes).into_iter().rev() {
        let (first, last) = (g[0].dim, g[g.len() - 1].dim);
        let hint = format!("{name}.d{first}");
        if g.len() > 1 {
            let mut flat = e.value(x).shape[..first].to_vec();
            flat.push(g.iter().fold(Dim::ONE, |p, a| p * a.from.clone()));
            flat.extend_from_slice(&e.value(x).shape[last + 1..]);
            let flat = Op::View(View::Reshape(flat));
            x = e.add(flat, &[x], &format!("{hint}.flat"), &origins)?;
        }
        let mut b = ExprBuilder::new();
        let mut at: Option<Ref> = None;
        for (k, a) in g.iter().enumerate() {
            let o = b.index(k as u32);
            let i = source(&mut b, o, a, mode);
            at = Some(match at {
                None => i,
                Some(at) => {
                    let size = b.dim(&a.from);
                    let at = b.mul(at, size);
                    b.add(at, i)
                }
            });
        }
        let zero = b.int(0, I);
        let op = Op::Map(b.finish(&[at.unwrap_or(zero)]));
        let shape = g.iter().map(|a| a.to.clone()).collect();
        let at = format!("{hint}.at");
        let table = e.add_typed(op, &[], vec![(I, shape)], &at, &origins)?;
        x = e.add(
            Op::Gather {
                axis: first,
                batch: 0,
            },
            &[x, table],
            &hint,
            &origins,
        )?;
    }
    // Extents that differ in form only are declared as they were.
    if e.value(x).shape != out || axes.is_empty() {
        let dtype = e.value(x).dtype;
        let spell = Op::View(View::Reshape(out.to_vec()));
        x = e.add_typed(spell, &[x], vec![(dtype, out.to_vec())], &name, &origins)?;
    }
    e.replace(y, x);
    Ok(())
}
