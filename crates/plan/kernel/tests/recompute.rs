//! Tiles that are computed anew where they are read.
use crate::common::Make;
use expr::{Compare, ExprBuilder, Monoid, Unary};
use layout::{DType, Dim};
use shopfloor_kernel as kernel;

use kernel::{Family, TileId};

const F: DType = DType::F32;

/// Scores, a multiple of products, with their largest and their weights, and the tile of the multiple; what else reads it
/// and the products.
fn scores(by: f64, more: fn(&mut Make, [TileId; 2])) -> (kernel::Kernel, [TileId; 2]) {
    let axes = [("q", 64), ("t", 64), ("d", 64)].map(|(n, e)| (n, Dim::Known(e)));
    let mut f = Make::new("scores", Family::Attention, &axes);
    let (q, k) = (f.load_dense("q", F, &[0, 2]), f.load_dense("k", F, &[1, 2]));
    let m = f.fill("m", F, &[0], f64::NEG_INFINITY);
    let s = f.fill("s", F, &[0, 1], 0.0);
    f.contract(s, q, k, &[2]);
    let mut b = ExprBuilder::new();
    let (x, c) = (b.input(0, F), b.constant(by, F));
    let y = b.mul(x, c);
    let score = f.map("score", F, &[0, 1], b.finish(&[y]), &[s]);
    f.fold(Monoid::max(F, F), m, score, &[1], None);
    let mut b = ExprBuilder::new();
    let (x, m0) = (b.input(0, F), b.input(1, F));
    let (low, zero) = (b.constant(f64::NEG_INFINITY, F), b.constant(0.0, F));
    let unseen = b.compare(Compare::Eq, x, low);
    let d = b.sub(x, m0);
    let e = b.unary(Unary::Exp, d);
    let y = b.select(unseen, zero, e);
    let p = f.map("p", F, &[0, 1], b.finish(&[y]), &[score, m]);
    more(&mut f, [s, score]);
    f.store_dense("P", p, &[0, 1]);
    (f.k, [s, score])
}

#[test]
fn a_multiple_costs_nothing_where_largest_elements_and_weights_alone_read_it() {
    let (k, [s, score]) = scores(0.125, |_, _| {});
    assert_eq!(kernel::scaled(&k, score), Some((s, 0.125)));
    assert_eq!(kernel::scaled(&k, s), None);
    // The largest of these is that of the smallest.
    let (k, [_, score]) = scores(-0.125, |_, _| {});
    assert_eq!(kernel::scaled(&k, score), None);
    let (k, [_, score]) = scores(0.125, |f, [_, score]| f.store_dense("S", score, &[0, 1]));
    assert_eq!(kernel::scaled(&k, score), None);
    let (k, [_, score]) = scores(0.125, |f, [s, _]| f.store_dense("S", s, &[0, 1]));
    assert_eq!(kernel::scaled(&k, score), None);
}
