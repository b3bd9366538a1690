//! Attention with online softmax.
use super::Case;
use super::dense::{FACTORS, fragment_extent};
use crate::Rng;
use crate::build::{B, at, blocked, expr, n};
use expr::{Binary, Compare, Expr, Monoid, Unary};
use kernel::{Access, Family, Kernel, Rescale, Term};
use layout::{DType, Dim};

const F: DType = DType::F32;

/// Heads that share keys, masked.
pub(super) fn attention(rng: &mut Rng) -> Case {
    let (h, groups) = rng.of(&[(4, 2), (3, 3), (2, 1), (1, 1)]);
    let sq = rng.some(20);
    let st = sq + rng.extent(20);
    let sizes = [h, groups, sq, st, rng.some(32), rng.some(32)];
    case(sizes, F, rng.of(&Mask::ALL), 2e-5)
}

/// Which keys a query sees.
#[derive(Clone, Copy, PartialEq)]
enum Mask {
    /// All up to its own; weights are not chosen to be 0 elsewhere, so that every key is gone through.
    Unguarded,
    /// All up to its own.
    Causal,
    /// The same, of a symbolic number of keys.
    Symbolic,
    /// Some up to its own.
    Window,
    /// Some up to one far before its own, which there may not be: some queries see none.
    Shifted,
}

impl Mask {
    const ALL: [Mask; 5] = [
        Mask::Unguarded,
        Mask::Causal,
        Mask::Symbolic,
        Mask::Window,
        Mask::Shifted,
    ];

    /// How many keys a query sees, unless all up to its last.
    fn width(self) -> Option<i64> {
        match self {
            Mask::Window => Some(5),
            Mask::Shifted => Some(19),
            _ => None,
        }
    }
}

/// A case with `mask`.
fn case(sizes: [i64; 6], factors: DType, mask: Mask, tolerance: f64) -> Case {
    let mut case = Case::new(kernel(sizes, factors, mask), tolerance);
    if mask == Mask::Symbolic {
        case.symbols = vec![("t".into(), sizes[3])];
    }
    case
}

/// The same for matrix instructions, which take weights of a factor's type.
pub fn matrix_attention(rng: &mut Rng) -> Case {
    let (h, groups) = rng.of(&[(4, 2), (2, 2), (2, 1), (1, 1)]);
    let sq = fragment_extent(rng);
    let st = sq + rng.extent(40);
    let sizes = [16, 32, 64, 128];
    let (d, e) = (rng.of(&sizes), rng.of(&sizes));
    let factors = rng.of(&FACTORS);
    let digits = match factors {
        DType::BF16 => 8,
        DType::F16 => 11,
        _ => 18,
    };
    let sizes = [h, groups, sq, st, d, e];
    case(sizes, factors, rng.of(&Mask::ALL), 2f64.powi(1 - digits))
}

/// Online softmax over t with a mask, for heads that share keys, of factors of type `factors`.
fn kernel([h, groups, sq, st, d, e]: [i64; 6], factors: DType, mask: Mask) -> Kernel {
    let keys = match mask {
        Mask::Symbolic => Dim::sym("t"),
        _ => n(st),
    };
    let behind = match mask {
        Mask::Shifted => n(st / 2 - sq),
        _ => keys.clone() - n(sq),
    };
    let axes = [
        ("h", n(h)),
        ("q", n(sq)),
        ("t", keys),
        ("d", n(d)),
        ("e", n(e)),
    ];
    let mut b = B::new("attention", Family::Attention, &axes);
    let g = h / groups;
    let head = |stride: i64| blocked(0, groups, stride, g, 0);
    let oq = b.read(factors, h * sq * d, at(&[(0, sq * d), (1, d), (3, 1)]));
    let ok = b.read(
        factors,
        groups * st * d,
        Access::strided(
            n(0),
            vec![
                head(st * d),
                Term::flat(2, n(st), n(d)),
                Term::flat(3, n(d), n(1)),
            ],
        ),
    );
    let ov = b.read(
        factors,
        groups * st * e,
        Access::strided(
            n(0),
            vec![
                head(st * e),
                Term::flat(2, n(st), n(e)),
                Term::flat(4, n(e), n(1)),
            ],
        ),
    );
    let oy = b.write(F, h * sq * e, at(&[(0, sq * e), (1, e), (4, 1)]));
    let q = b.load(oq, &[0, 1, 3]);
    let m = b.fill(F, &[0, 1], f64::NEG_INFINITY);
    let l = b.fill(F, &[0, 1], 0.0);
    let o = b.fill(F, &[0, 1, 4], 0.0);
    let k = b.load(ok, &[0, 2, 3]);
    let s = b.fill(F, &[0, 1, 2], 0.0);
    b.contract(s, q, k, &[3]);
    let p = b.map(F, &[0, 1, 2], &[s], masked(&behind, mask.width()));
    let rescale = Rescale {
        tiles: vec![l, o],
        factor: factor(),
    };
    b.fold(Monoid::max(F, F), m, p, &[2], Some(rescale));
    let w = b.map(F, &[0, 1, 2], &[p, m], weight(mask));
    b.fold(Monoid::sum(F, F), l, w, &[2], None);
    let v = b.load(ov, &[0, 2, 4]);
    let w = match factors {
        F => w,
        d => b.map(
            d,
            &[0, 1, 2],
            &[w],
            expr(|x| {
                let w = x.input(0, F);
                x.cast(w, d)
            }),
        ),
    };
    b.contract(o, w, v, &[2]);
    let y = b.map(
        F,
        &[0, 1, 4],
        &[o, l],
        expr(|x| {
            let (o, l) = (x.input(0, F), x.input(1, F));
            x.div(o, l)
        }),
    );
    b.store(oy, y);
    b.0.k
}

/// Scores, scaled; a query sees no key more than `off` after its own, and so many up to there.
fn masked(off: &Dim, width: Option<i64>) -> Expr {
    expr(|x| {
        let (v, c) = (x.input(0, F), x.constant(0.3, F));
        let v = x.mul(v, c);
        let (t, q) = (x.index(2), x.index(1));
        let off = x.dim(off);
        let limit = x.add(q, off);
        let mut seen = x.compare(Compare::Le, t, limit);
        if let Some(width) = width {
            let width = x.int(width, DType::I64);
            let before = x.sub(limit, width);
            let near = x.compare(Compare::Gt, t, before);
            seen = x.binary(Binary::And, seen, near);
        }
        let none = x.constant(f64::NEG_INFINITY, F);
        x.select(seen, v, none)
    })
}

/// A score's weight beside the maximum; 0 where the key is hidden, but for [`Mask::Unguarded`].
fn weight(mask: Mask) -> Expr {
    expr(|x| {
        let (p, m) = (x.input(0, F), x.input(1, F));
        let d = x.sub(p, m);
        let w = x.unary(Unary::Exp, d);
        if mask == Mask::Unguarded {
            return w;
        }
        let (none, zero) = (x.constant(f64::NEG_INFINITY, F), x.constant(0.0, F));
        let hidden = x.compare(Compare::Eq, p, none);
        x.select(hidden, zero, w)
    })
}

/// What sums of weights are multiplied by when the maximum goes from the first argument to the second.
fn factor() -> Expr {
    expr(|x| {
        let (a, b) = (x.input(0, F), x.input(1, F));
        let same = x.compare(Compare::Eq, a, b);
        let d = x.sub(a, b);
        let r = x.unary(Unary::Exp, d);
        let one = x.constant(1.0, F);
        x.select(same, one, r)
    })
}
