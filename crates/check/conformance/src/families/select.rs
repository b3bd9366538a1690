//! The first few of an axis in order, with their indices.
use super::Case;
use crate::Rng;
use crate::build::{B, at, expr, n};
use expr::{Binary, Compare, Monoid};
use kernel::{Family, Stmt};
use layout::DType;

/// Top-k along the inner axis or the outer one.
pub(super) fn select(rng: &mut Rng) -> Case {
    let (k, largest) = (rng.of(&[1usize, 2, 3, 4]), rng.once_in(2));
    let d = rng.of(&[DType::F32, DType::F16, DType::I32, DType::I64]);
    let (rows, cols) = (rng.extent(33), rng.extent(67) + k as i64);
    let inner = rng.once_in(2);
    let axes = [("m", n(rows)), ("n", n(cols)), ("place", n(k as i64))];
    let mut b = B::new("top-k", Family::Select, &axes);
    let x = match inner {
        true => at(&[(0, cols), (1, 1)]),
        false => at(&[(0, 1), (1, rows)]),
    };
    let ox = b.read(d, rows * cols, x);
    let m = Monoid::first(k, d, 0, largest);
    let mut states = vec![];
    for i in 0..2 * k {
        let mut e = m.identity.clone();
        e.outputs = vec![e.outputs[i]];
        let ty = if i < k { d } else { DType::I64 };
        states.push(b.map(ty, &[0], &[], e));
    }
    let x = b.load(ox, &[0, 1]);
    b.k.body.push(Stmt::Fold {
        monoid: m,
        state: states.clone(),
        args: vec![x],
        over: vec![1],
        rescale: None,
    });
    for (i, ty) in [d, DType::I64].into_iter().enumerate() {
        let e = expr(|e| {
            let place = e.index(2);
            let mut out = e.input(0, ty);
            for j in 1..k {
                let (v, number) = (e.input(j as u32, ty), e.int(j as i64, DType::I64));
                let here = e.compare(Compare::Eq, place, number);
                out = e.select(here, v, out);
            }
            out
        });
        let oy = b.write(ty, rows * k as i64, at(&[(0, k as i64), (2, 1)]));
        let y = b.map(ty, &[0, 2], &states[i * k..(i + 1) * k], e);
        b.store(oy, y);
    }
    let mut case = Case::new(b.0.k, 1e-6);
    // Many ties.
    case.limits.top = 5;
    case
}

/// For every element how many come before it, along the inner axis: all are compared with all.
pub(super) fn places(rng: &mut Rng) -> Case {
    let largest = rng.once_in(2);
    let d = rng.of(&[DType::F32, DType::F16, DType::I32, DType::I64]);
    let (rows, cols) = (rng.extent(9), rng.extent(67));
    let axes = [("m", n(rows)), ("own", n(cols)), ("other", n(cols))];
    let mut b = B::new("places", Family::Select, &axes);
    let mine = b.read(d, rows * cols, at(&[(0, cols), (1, 1)]));
    let theirs = b.read(d, rows * cols, at(&[(0, cols), (2, 1)]));
    let oy = b.write(DType::I32, rows * cols, at(&[(0, cols), (1, 1)]));
    let place = b.map(DType::I32, &[0, 1], &[], expr(|e| e.int(0, DType::I32)));
    let (x, y) = (b.load(mine, &[0, 1]), b.load(theirs, &[0, 2]));
    let before = expr(|e| {
        let (x, y) = (e.input(0, d), e.input(1, d));
        let better = if largest { Compare::Gt } else { Compare::Lt };
        let (better, equal) = (e.compare(better, y, x), e.compare(Compare::Eq, y, x));
        let (own, other) = (e.index(1), e.index(2));
        let lower = e.compare(Compare::Lt, other, own);
        let tie = e.binary(Binary::And, equal, lower);
        let first = e.binary(Binary::Or, better, tie);
        let (one, none) = (e.int(1, DType::I32), e.int(0, DType::I32));
        e.select(first, one, none)
    });
    let before = b.map(DType::I32, &[0, 1, 2], &[x, y], before);
    b.fold(
        Monoid::sum(DType::I32, DType::I32),
        place,
        before,
        &[2],
        None,
    );
    b.store(oy, place);
    let mut case = Case::new(b.0.k, 1e-6);
    // Many ties.
    case.limits.top = 5;
    case
}

/// Every place takes the element that says so: one or several that say the same, or none.
pub(super) fn sorted(rng: &mut Rng) -> Case {
    let d = rng.of(&[DType::F32, DType::F16, DType::I32, DType::I64]);
    let (rows, cols, k) = (rng.extent(9), rng.extent(67), rng.extent(19));
    let axes = [("m", n(rows)), ("place", n(k)), ("own", n(cols))];
    let mut b = B::new("sorted", Family::Select, &axes);
    let (of, to) = (at(&[(0, cols), (2, 1)]), at(&[(0, k), (1, 1)]));
    let at = b.read(DType::I32, rows * cols, of.clone());
    let x = b.read(d, rows * cols, of);
    let (at, x) = (b.load(at, &[0, 2]), b.load(x, &[0, 2]));
    for (ty, value) in [(d, true), (DType::I64, false)] {
        let oy = b.write(ty, rows * k, to.clone());
        let max = Monoid::max(ty, ty);
        let state = b.map(ty, &[0, 1], &[], max.identity.clone());
        let one = expr(|e| {
            let at = e.input(0, DType::I32);
            let (at, place) = (e.cast(at, DType::I64), e.index(1));
            let here = e.compare(Compare::Eq, at, place);
            let own = match value {
                true => e.input(1, ty),
                false => e.index(2),
            };
            let none = e.inline(&max.identity, &[], None)[0];
            e.select(here, own, none)
        });
        let args = if value { vec![at, x] } else { vec![at] };
        let one = b.map(ty, &[0, 1, 2], &args, one);
        b.fold(max, state, one, &[2], None);
        b.store(oy, state);
    }
    let mut case = Case::new(b.0.k, 1e-6);
    case.limits.top = 19;
    case
}
