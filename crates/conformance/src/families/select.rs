//! The first few of an axis in order, with their indices.
use super::Case;
use crate::Rng;
use crate::build::{B, at, expr, n};
use expr::{Compare, Monoid};
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
    let mut case = Case::new(b.k, 1e-6);
    // Many ties.
    case.top = 5;
    case
}
