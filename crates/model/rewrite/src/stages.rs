//! Reductions of everything in two stages: first along the inner dimensions, whose results the second takes
//! along the others. One result is one task; the results of the first stage are shared out among workers.
use crate::edit::Edit;
use crate::{Error, Fuel, Rewritten};
use expr::{Expr, ExprBuilder, Inst, Monoid};
use graph::{Graph, NodeId, Op};
use layout::DType;

/// Elements below which one worker is done before others have heard of it.
const LEAST: i64 = 1 << 14;
/// Elements that a result of the first stage is made of, at least.
const INNER: i64 = 256;

pub(crate) fn run(graph: Graph, fuel: &mut Fuel) -> Result<Rewritten, Error> {
    let mut e = Edit::new("stages", graph, fuel);
    for n in e.live() {
        let Some((inner, first, second)) = halves(&e, n) else {
            continue;
        };
        let why = "workers share its first stage, along the inner dimensions";
        if !e.may(e.title(n), why) {
            break;
        }
        let (x, origins) = (e.node(n).inputs[0], e.node(n).origins.clone());
        let name = format!("{}.stage", e.title(n));
        let v = e.add(first, &[x], &name, &origins)?;
        debug_assert!(inner.iter().all(|&d| e.value(v).shape[d].is_one()));
        e.set(n, second, &[v]);
    }
    Ok(e.finish())
}

/// The inner dimensions, and the reductions along them and along the others.
fn halves(e: &Edit, n: NodeId) -> Option<(Vec<usize>, Op, Op)> {
    let Op::Reduce { monoid, axes, keep } = &e.node(n).op else {
        return None;
    };
    let &[x] = e.node(n).inputs.as_slice() else {
        return None;
    };
    let shape = &e.value(x).shape;
    let long = |d: &usize| !shape[*d].is_one();
    if (0..shape.len()).any(|d| long(&d) && !axes.contains(&d)) {
        return None;
    }
    let known = |d: &usize| shape[*d].known();
    let mut each = axes.iter().map(known);
    let all = each.try_fold(1i64, |n, d| d.map(|d| n.saturating_mul(d)));
    if all.is_some_and(|n| n < LEAST) {
        return None;
    }
    let mut inner = Vec::new();
    let mut elements = 1i64;
    for d in axes.iter().rev().filter(|d| long(d)) {
        if elements >= INNER {
            break;
        }
        elements = elements.saturating_mul(known(d)?);
        inner.push(*d);
    }
    inner.reverse();
    let rest = axes.iter().filter(|d| long(d)).count() - inner.len();
    if rest == 0 || elements < INNER {
        return None;
    }
    let (first, second) = parts(monoid, e.value(x).dtype)?;
    let first = Op::Reduce {
        monoid: first,
        axes: inner.clone(),
        keep: true,
    };
    let second = Op::Reduce {
        monoid: second,
        axes: axes.clone(),
        keep: *keep,
    };
    Some((inner, first, second))
}

/// The monoid that gives its state, and the one that goes on from such states, where a state is one number
/// that does not depend on where an element lies.
fn parts(m: &Monoid, x: DType) -> Option<(Monoid, Monoid)> {
    let [state] = m.identity.output_types().ok()?[..] else {
        return None;
    };
    let positions = |e: &Expr| e.insts.iter().any(|i| matches!(i, Inst::Index { .. }));
    if positions(&m.lift) || x.is_held() {
        return None;
    }
    let same = || {
        let mut b = ExprBuilder::new();
        let s = b.input(0, state);
        b.finish(&[s])
    };
    let first = Monoid {
        finish: same(),
        ..m.clone()
    };
    let second = Monoid {
        lift: same(),
        ..m.clone()
    };
    Some((first, second))
}
