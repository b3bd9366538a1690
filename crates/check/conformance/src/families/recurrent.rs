//! A recurrence: `h[t] = tanh(x[t] + h[t-1] R)`.
use super::Case;
use crate::Rng;
use crate::build::{B, at, expr, n};
use expr::Unary;
use kernel::{Family, Label, Stmt};
use layout::{DType, Dim};

const F: DType = DType::F32;

/// An Elman network over a sequence.
pub(super) fn recurrent(rng: &mut Rng) -> Case {
    let (t, b_, u) = (rng.some(5), rng.some(5), rng.some(33));
    let axes = [("t", n(t)), ("b", n(b_)), ("k", n(u)), ("n", n(u))];
    let mut b = B::new("elman", Family::Recurrent, &axes);
    let oh = b.read(F, b_ * u, at(&[(1, u), (2, 1)]));
    let or = b.read(F, u * u, at(&[(2, u), (3, 1)]));
    let ox = b.read(F, t * b_ * u, at(&[(0, b_ * u), (1, u), (3, 1)]));
    let oy = b.write(F, t * b_ * u, at(&[(0, b_ * u), (1, u), (3, 1)]));
    let oe = b.write(F, b_ * u, at(&[(1, u), (2, 1)]));
    let h = b.load(oh, &[1, 2]);
    let acc = b.fill(F, &[0, 1, 3], 0.0);
    let r = b.load(or, &[2, 3]);
    b.contract(acc, h, r, &[2]);
    let x = b.load(ox, &[0, 1, 3]);
    let y = b.map(
        F,
        &[0, 1, 3],
        &[acc, x],
        expr(|e| {
            let (p, q) = (e.input(0, F), e.input(1, F));
            let s = e.add(p, q);
            e.unary(Unary::Tanh, s)
        }),
    );
    b.store(oy, y);
    b.k.body.push(Stmt::Relabel {
        dst: h,
        src: y,
        labels: vec![Label {
            from: 3,
            to: 2,
            first: Dim::ZERO,
        }],
        along: Some(0),
    });
    b.store(oe, h);
    // A sum of `u` products with weights of 1 grows from step to step, and every rounding with it.
    let mut case = Case::new(b.0.k, 1e-4);
    case.limits.floats = 1.0 / (u as f64).sqrt().max(1.0);
    case
}
