//! Which keys of an attention are gone through, read off its masks.
use crate::common::*;
use crate::kernel;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Ref, Unary};
use kernel::{Edge, Family, KernelBuilder, Rescale, Seen, TileProgram, work};
use layout::{DType, Dim};

const F: DType = DType::F32;
/// Numbers of the axes.
const H: u16 = 0;
const Q: u16 = 1;
const T: u16 = 2;
const D: u16 = 3;
const E: u16 = 4;

fn program(f: impl FnOnce(&mut ExprBuilder) -> Ref) -> Expr {
    let mut b = ExprBuilder::new();
    let r = f(&mut b);
    b.finish(&[r])
}

/// exp(a - b), and `same` where `a` is `at`: of a score and its maximum, or of the old and the new maximum.
fn weight(at: Option<f64>, same: f64) -> Expr {
    program(|b| {
        let (x, y) = (b.input(0, F), b.input(1, F));
        let d = b.sub(x, y);
        let e = b.unary(Unary::Exp, d);
        let other = at.map_or(y, |v| b.constant(v, F));
        let equal = b.compare(Compare::Eq, x, other);
        let same = b.constant(same, F);
        b.select(equal, same, e)
    })
}

/// Attention of 2 heads whose scores `mask` makes of what queries and keys give.
fn attention([q, t]: [Dim; 2], mask: Expr, weights: Expr) -> KernelBuilder {
    let (two, eight) = (Dim::Known(2), Dim::Known(8));
    let axes = [
        ("h", two),
        ("q", q),
        ("t", t),
        ("d", eight.clone()),
        ("e", eight),
    ];
    let mut f = KernelBuilder::new("attention", Family::Attention, &axes);
    let q = f.load_dense("q", F, &[H, Q, D]);
    let k = f.load_dense("k", F, &[H, T, D]);
    let v = f.load_dense("v", F, &[H, T, E]);
    let m = f.fill("m", F, &[H, Q], f64::NEG_INFINITY);
    let l = f.fill("l", F, &[H, Q], 0.0);
    let o = f.fill("o", F, &[H, Q, E], 0.0);
    let s0 = f.fill("s0", F, &[H, Q, T], 0.0);
    f.contract(s0, q, k, &[D]);
    let s = f.map("s", F, &[H, Q, T], mask, &[s0]);
    let rescale = Rescale {
        tiles: vec![l, o],
        factor: weight(None, 1.0),
    };
    f.fold(Monoid::max(F, F), m, s, &[T], Some(rescale));
    let p = f.map("p", F, &[H, Q, T], weights, &[s, m]);
    f.fold(Monoid::sum(F, F), l, p, &[T], None);
    f.contract(o, p, v, &[T]);
    let y = f.map("y", F, &[H, Q, E], binary(Binary::Div, F), &[o, l]);
    f.store_dense("Y", y, &[H, Q, E]);
    f
}

/// Weights that are 0 where a score is minus infinity.
fn guarded() -> Expr {
    weight(Some(f64::NEG_INFINITY), 0.0)
}

/// A score, or `other` where the key is hidden.
fn shown(other: f64, hidden: impl FnOnce(&mut ExprBuilder, Ref, Ref) -> Ref) -> Expr {
    program(|b| {
        let x = b.input(0, F);
        let (q, t) = (b.index(Q.into()), b.index(T.into()));
        let hidden = hidden(b, q, t);
        let low = b.constant(other, F);
        b.select(hidden, low, x)
    })
}

fn seen_by(mask: Expr) -> Seen {
    let kernel = attention([Dim::Known(40), Dim::Known(70)], mask, guarded()).k;
    kernel.verify().unwrap_or_else(|e| panic!("{e}"));
    kernel.seen(T)
}

fn edge(base: i64) -> Edge {
    Edge {
        terms: vec![(Q, Dim::ONE)],
        base: Dim::Known(base),
    }
}

const LOW: f64 = f64::NEG_INFINITY;

fn after(b: &mut ExprBuilder, q: Ref, t: Ref, by: i64) -> Ref {
    let by = b.int(by, DType::I64);
    let last = b.add(q, by);
    b.compare(Compare::Gt, t, last)
}

#[test]
fn keys_behind_a_query_are_left_out() {
    let causal = seen_by(shown(LOW, |b, q, t| after(b, q, t, 30)));
    assert_eq!((causal.from, causal.to), (vec![], vec![edge(31)]));
    // The same, said otherwise.
    let turned = seen_by(shown(LOW, |b, q, t| {
        let (d, by) = (b.sub(t, q), b.int(-30, DType::I64));
        let by = b.unary(Unary::Neg, by);
        let seen = b.compare(Compare::Lt, by, d);
        let not = b.unary(Unary::Not, seen);
        b.unary(Unary::Not, not)
    }));
    assert_eq!(turned.to, vec![edge(31)]);
    // An addend of minus infinity.
    let added = seen_by(program(|b| {
        let (x, zero, low) = (b.input(0, F), b.constant(0.0, F), b.constant(LOW, F));
        let (q, t) = (b.index(Q.into()), b.index(T.into()));
        let hidden = after(b, q, t, 30);
        let addend = b.select(hidden, low, zero);
        b.add(x, addend)
    }));
    assert_eq!(added.to, vec![edge(31)]);
}

#[test]
fn a_window_has_two_ends() {
    let window = seen_by(shown(LOW, |b, q, t| {
        let behind = after(b, q, t, 30);
        let (d, width) = (b.sub(q, t), b.int(-25, DType::I64));
        let before = b.compare(Compare::Ge, d, width);
        b.binary(Binary::Or, behind, before)
    }));
    // Hidden where q - t >= -25: up to t = q + 25.
    assert_eq!((window.from, window.to), (vec![edge(26)], vec![edge(31)]));
}

#[test]
fn what_is_not_hidden_for_certain_is_gone_through() {
    let all = |mask: Expr, weights: Expr, why: &str| {
        let k = attention([Dim::Known(40), Dim::Known(70)], mask, weights).k;
        assert!(k.seen(T).is_all(), "{why}");
    };
    let causal = || shown(LOW, |b, q, t| after(b, q, t, 30));
    all(
        causal(),
        weight(None, 1.0),
        "weights of hidden keys are not 0",
    );
    let finite = shown(-10_000.0, |b, q, t| after(b, q, t, 30));
    all(finite, guarded(), "a finite score");
    let last = shown(LOW, |b, q, t| {
        let hidden = after(b, q, t, 30);
        let end = b.int(39, DType::I64);
        let other = b.compare(Compare::Ne, q, end);
        b.binary(Binary::And, hidden, other)
    });
    all(last, guarded(), "the last query sees all");
    let far = shown(LOW, |b, q, t| after(b, q, t, i64::MAX / 2));
    all(far, guarded(), "coordinates have 32 bits");
    let least = shown(LOW, |b, q, t| after(b, q, t, i64::MIN));
    all(least, guarded(), "coordinates have 32 bits");
    let beyond = shown(LOW, |b, _, t| {
        let end = b.int(70, DType::I64);
        b.compare(Compare::Ge, t, end)
    });
    all(beyond, guarded(), "there are no more keys");
    // Scores that are stored are made for all keys.
    let mut f = attention([Dim::Known(40), Dim::Known(70)], causal(), guarded());
    let s = f.k.tiles.iter().position(|t| t.name == "s").unwrap() as u16;
    f.store_dense("S", s, &[H, Q, T]);
    assert!(f.k.seen(T).is_all(), "scores are a result");
}

#[test]
fn rows_of_several_heads_see_by_their_remainder() {
    // Rows of 5 query heads that share a key head: the query is the remainder by their number.
    let mask = |rows: i64| {
        program(|b| {
            let (x, low) = (b.input(0, F), b.constant(LOW, F));
            let (h, q, t) = (b.index(H.into()), b.index(Q.into()), b.index(T.into()));
            let n = b.int(rows, DType::I64);
            let row = b.mul(h, n);
            let row = b.add(row, q);
            let n = b.int(40, DType::I64);
            let own = b.binary(Binary::Mod, row, n);
            let hidden = after(b, own, t, 30);
            b.select(hidden, low, x)
        })
    };
    assert_eq!(seen_by(mask(40)).to, vec![edge(31)]);
    assert!(seen_by(mask(30)).is_all());
}

#[test]
fn symbols_stand_in_the_text() {
    let (q, past) = (Dim::sym("q"), Dim::sym("past"));
    let mask = program(|b| {
        let (x, low) = (b.input(0, F), b.constant(LOW, F));
        let (qi, t, past) = (b.index(Q.into()), b.index(T.into()), b.dim(&past));
        let last = b.add(qi, past);
        let seen = b.compare(Compare::Le, t, last);
        b.select(seen, x, low)
    });
    let k = attention([q.clone(), past + q], mask, guarded()).k;
    let p = TileProgram::new(k, attention_cpu(16, 32)).unwrap();
    let text = p.to_string();
    assert!(
        text.contains("loop t by 32 where t < q + past + 1"),
        "{text}"
    );
}

/// Pieces that are gone through, of which work is counted, are those with a key that some row sees.
#[test]
fn pieces_and_work_follow_what_rows_see() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..200 {
        let (q, t) = (rng.i64(1..50), rng.i64(1..90));
        let (off, width) = (rng.i64(-60..60), rng.i64(1..40));
        let mask = shown(LOW, |b, qi, ti| {
            let behind = after(b, qi, ti, off);
            let far = b.int(off - width, DType::I64);
            let first = b.add(qi, far);
            let before = b.compare(Compare::Le, ti, first);
            b.binary(Binary::Or, behind, before)
        });
        let k = attention([Dim::Known(q), Dim::Known(t)], mask, guarded()).k;
        let (rows, keys) = (rng.i64(1..20), rng.i64(1..20));
        let seen = k.seen(T);
        let (mut gone, mut pieces) = (0, 0);
        for first in (0..q).step_by(rows as usize) {
            let last = (first + rows).min(q) - 1;
            let range = seen.range(t, &|_| None, &|_| (first, last)).unwrap();
            let (from, count) = seen.pieces(keys, range);
            for piece in 0..(t + keys - 1) / keys {
                let own = (piece * keys)..((piece + 1) * keys).min(t);
                let sees = |i: i64| own.clone().any(|j| j <= i + off && j > i + off - width);
                let any = (first..=last).any(sees);
                let there = (from..from + count).contains(&piece);
                // Between the first and the last piece that is seen all are.
                assert!(there || !any, "{piece} of {q} {t} {off} {width}");
                let end = (piece + 1) * keys;
                let past = own.start > last + off || end <= first + off - width + 1;
                assert!(!(there && past), "{piece} of {q} {t} {off} {width}");
            }
            gone += count;
            pieces += 1;
        }
        let p = TileProgram::new(k, attention_cpu(rows, keys)).unwrap();
        let machine = &machine::catalog()[0].machine;
        let found = work::statements(&p, machine, &|_| None, &|_| f64::INFINITY);
        let (w, parts) = found.unwrap();
        // Copies that statements make first.
        let copies: u64 = parts.iter().map(|part| part.statements).sum();
        let executed = (w.statements - copies) as f64;
        let fixed = p.body().len() as f64 - 1.0;
        let inside = 9.0;
        let want = 2.0 * (pieces as f64 * fixed + gone as f64 * inside);
        assert!((executed - want).abs() <= 2.0, "{executed} {want}\n{p}");
    }
}
