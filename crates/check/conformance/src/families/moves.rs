//! Element-wise programs, moves, gathers.
use super::Case;
use crate::Rng;
use crate::build::{B, at, blocked, bound, expr, n};
use expr::{Binary, Compare, Unary, functions};
use kernel::{Access, Family, Indexed, Term};
use layout::DType;

const F: DType = DType::F32;

/// Types that every target has.
const TYPES: [DType; 8] = [
    F,
    F,
    DType::F16,
    DType::BF16,
    DType::I32,
    DType::U8,
    DType::I8,
    DType::Bool,
];

/// A value that lies between two of a narrow type may be rounded to either, several times over.
fn tolerance(d: DType) -> f64 {
    match d {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 1e-5,
    }
}

/// A function of two arguments, one of them broadcast.
pub(super) fn map(rng: &mut Rng) -> Case {
    let d = rng.of(&[
        F,
        F,
        DType::F16,
        DType::BF16,
        DType::I32,
        DType::U8,
        DType::I8,
        DType::I64,
        DType::Bool,
    ]);
    map_of(rng, d)
}

/// The same in a type that GPUs lack.
pub(super) fn wide_map(rng: &mut Rng) -> Case {
    map_of(rng, DType::F64)
}

fn map_of(rng: &mut Rng, d: DType) -> Case {
    let to = rng.of(&TYPES);
    let (r, c) = (rng.extent(20), rng.extent(70));
    let all = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Min,
        Binary::Max,
        Binary::Mod,
    ];
    let g = match d {
        DType::Bool => rng.of(&[Binary::And, Binary::Or, Binary::Xor]),
        _ => rng.of(&all),
    };
    let program = match rng.below(4) {
        0 => expr(|e| {
            let (x, y) = (e.input(0, d), e.input(1, d));
            e.binary(g, x, y)
        }),
        // The broadcast one first.
        3 => expr(|e| {
            let (x, y) = (e.input(0, d), e.input(1, d));
            e.binary(g, y, x)
        }),
        1 => expr(|e| {
            let (x, y) = (e.input(0, d), e.input(1, d));
            let c = e.compare(Compare::Le, x, y);
            let c = e.select(c, x, y);
            let c = e.cast(c, to);
            e.cast(c, d)
        }),
        _ => expr(|e| {
            let (x, y) = (e.input(0, d), e.input(1, d));
            let i = e.index(1);
            let i = e.cast(i, d);
            let s = e.binary(g, x, y);
            e.select_larger(s, i, d)
        }),
    };
    let mut b = B::new("map", Family::Map, &[("m", n(r)), ("n", n(c))]);
    let ox = b.read(d, r * c, at(&[(0, c), (1, 1)]));
    let (axes, access, size): (&[u16], _, _) = match rng.below(3) {
        0 => (&[1], at(&[(1, 1)]), c),
        1 => (&[0], at(&[(0, 1)]), r),
        _ => (&[0, 1], at(&[(0, 1), (1, r)]), r * c),
    };
    let oz = b.read(d, size, access);
    let oy = b.write(d, r * c, at(&[(0, c), (1, 1)]));
    let x = b.load(ox, &[0, 1]);
    let z = b.load(oz, axes);
    let y = b.map(d, &[0, 1], &[x, z], program);
    b.store(oy, y);
    Case::new(b.0.k, tolerance(d))
}

/// The larger of two numbers, whatever their type.
trait Larger {
    fn select_larger(&mut self, a: u32, b: u32, d: DType) -> u32;
}

impl Larger for expr::ExprBuilder {
    fn select_larger(&mut self, a: u32, b: u32, d: DType) -> u32 {
        match d {
            DType::Bool => self.binary(Binary::Or, a, b),
            _ => self.binary(Binary::Max, a, b),
        }
    }
}

/// A function of one argument, followed by an activation; several results.
pub(super) fn unary(rng: &mut Rng) -> Case {
    let d = rng.of(&[F, F, F, DType::F16, DType::BF16]);
    let c = rng.extent(67) * rng.times(3);
    let f = rng.of(&[
        Unary::Exp,
        Unary::Tanh,
        Unary::Erf,
        Unary::Sigmoid,
        Unary::Floor,
        Unary::Sign,
        Unary::Atan,
        Unary::Abs,
        Unary::Neg,
        Unary::Ceil,
        Unary::Sin,
        Unary::Cos,
        Unary::Tan,
        Unary::Asin,
        Unary::Acos,
        Unary::Sinh,
        Unary::Cosh,
        Unary::Asinh,
        Unary::Atanh,
    ]);
    let mut b = B::new(&format!("{f:?}"), Family::Map, &[("n", n(c))]);
    let ox = b.read(d, c, at(&[(0, 1)]));
    let oy = b.write(d, c, at(&[(0, 1)]));
    let oz = b.write(d, c, at(&[(0, 1)]));
    let x = b.load(ox, &[0]);
    let y = b.map(
        d,
        &[0],
        &[x],
        expr(|e| {
            let x = e.input(0, d);
            e.unary(f, x)
        }),
    );
    let z = b.map(
        d,
        &[0],
        &[y],
        expr(|e| {
            let x = e.input(0, d);
            let h = functions::hard_swish(e, x, d);
            let s = functions::silu(e, x);
            let g = functions::gelu_tanh(e, x, d);
            let s = e.add(s, g);
            e.add(h, s)
        }),
    );
    b.store(oy, y);
    b.store(oz, z);
    Case::new(b.0.k, tolerance(d))
}

/// y[...] = x[...] with other strides.
pub(super) fn mover(rng: &mut Rng) -> Case {
    let d = rng.of(&[
        F,
        DType::I64,
        DType::U8,
        DType::F16,
        DType::Bool,
        DType::I32,
    ]);
    let ext = [rng.extent(7), rng.some(17), rng.some(9), rng.some(3)];
    // How what is written lies, and whether the last axis but one is read again and again.
    let (order, again) = rng.of(&[
        ([0usize, 1, 2, 3], false),
        ([3, 2, 1, 0], false),
        ([1, 0, 2, 3], false),
        ([0, 2, 3, 1], false),
        ([0, 1, 2, 3], true),
        ([2, 1, 0, 3], true),
    ]);
    let dense = |order: &[usize]| {
        let (mut strides, mut all) = ([0; 4], 1);
        for &i in order.iter().rev() {
            strides[i] = all;
            all *= ext[i];
        }
        (strides, all)
    };
    let (xs, read) = match again {
        true => dense(&[0, 1, 3]),
        false => dense(&[0, 1, 2, 3]),
    };
    let (ys, written) = dense(&order);
    let names = ["a", "b", "c", "d"];
    let axes: Vec<_> = names.into_iter().zip(ext.map(n)).collect();
    let mut b = B::new("move", Family::Move, &axes);
    let term = |s: [i64; 4]| at(&[(0, s[0]), (1, s[1]), (2, s[2]), (3, s[3])]);
    let ox = b.read(d, read, term(xs));
    let oy = b.write(d, written, term(ys));
    let t = b.load(ox, &[0, 1, 2, 3]);
    b.store(oy, t);
    Case::new(b.0.k, 0.0).exact()
}

impl Case {
    /// Nothing is computed: results are equal.
    fn exact(mut self) -> Case {
        self.limits.tolerance = 1e-12;
        self
    }
}

/// Pads, or packs into panels.
pub(super) fn pad(rng: &mut Rng) -> Case {
    if rng.once_in(2) {
        let (k, nn, size) = (rng.some(17), rng.some(40), rng.of(&[4, 16]));
        let blocks = (nn + size - 1) / size;
        let mut b = B::new(
            "pack",
            Family::Move,
            &[("n", n(blocks * size)), ("k", n(k))],
        );
        let mut w = at(&[(0, k), (1, -1)]);
        w.offset = n(k - 1);
        w.bounds = vec![bound(&[(0, 1)], 0, nn)];
        let ow = b.read(F, nn * k, w);
        let terms = vec![
            blocked(0, blocks, size * k, size, 1),
            Term::flat(1, n(k), n(size)),
        ];
        let op = b.write(F, blocks * size * k, Access::strided(n(0), terms));
        let t = b.load(ow, &[0, 1]);
        b.store(op, t);
        return Case::new(b.0.k, 1e-12);
    }
    let (h, w, before) = (rng.some(9), rng.some(9), rng.of(&[0, 1, 3]));
    let mut b = B::new(
        "pad",
        Family::Move,
        &[("h", n(h + 2 * before)), ("w", n(w + 2 * before))],
    );
    let mut x = at(&[(0, w), (1, 1)]);
    x.offset = n(-before * w - before);
    x.bounds = vec![bound(&[(0, 1)], -before, h), bound(&[(1, 1)], -before, w)];
    x.outside = rng.of(&[0.0, 2.5, f64::NEG_INFINITY]);
    let ox = b.read(F, h * w, x);
    let size = (h + 2 * before) * (w + 2 * before);
    let oy = b.write(F, size, at(&[(0, w + 2 * before), (1, 1)]));
    let t = b.load(ox, &[0, 1]);
    b.store(oy, t);
    Case::new(b.0.k, 1e-12)
}

/// Rows behind others in a larger tensor, the last of which are left out: a piece of a concatenation.
pub(super) fn piece(rng: &mut Rng) -> Case {
    let (h, w) = (rng.some(17), rng.some(17));
    let (before, left_out) = (rng.of(&[0, 3]), rng.of(&[0, 1]));
    let axes = [("h", n(h)), ("w", n(w))];
    let mut b = B::new("piece", Family::Move, &axes);
    let ox = b.read(F, h * w, at(&[(0, w), (1, 1)]));
    let mut y = at(&[(0, w), (1, 1)]);
    y.offset = n(before * w);
    y.bounds = vec![bound(&[(0, 1)], 0, h - left_out)];
    let oy = b.write(F, (before + h) * w, y);
    let t = b.load(ox, &[0, 1]);
    b.store(oy, t);
    Case::new(b.0.k, 0.0).exact()
}

/// y[i, j, c] = 2 x[a[i], b[i, j], c], the channels innermost or outermost in memory.
pub(super) fn gather(rng: &mut Rng) -> Case {
    let (h, w) = (rng.some(7), rng.some(7));
    let (i, j, c) = (rng.extent(33), rng.some(5), rng.some(9));
    let types = rng.of(&[
        (DType::I64, DType::I32),
        (DType::I32, DType::I64),
        (DType::I32, DType::U8),
    ]);
    let axes = [("i", n(i)), ("j", n(j)), ("c", n(c))];
    let mut b = B::new("gather", Family::Map, &axes);
    let oa = b.read(types.0, i, at(&[(0, 1)]));
    let ob = b.read(types.1, i * j, at(&[(0, j), (1, 1)]));
    let (sh, sw, sc) = match rng.once_in(2) {
        true => (w * c, c, 1),
        false => (w, 1, h * w),
    };
    let mut d = at(&[(2, sc)]);
    for (by, stride, extent) in [(oa, sh, h), (ob, sw, w)] {
        d.indexed.push(Indexed {
            by,
            stride: n(stride),
            extent: n(extent),
        });
    }
    let od = b.read(F, h * w * c, d);
    let oy = b.write(F, i * j * c, at(&[(0, j * c), (1, c), (2, 1)]));
    let t = b.load(od, &[0, 1, 2]);
    let twice = expr(|e| {
        let x = e.input(0, F);
        e.add(x, x)
    });
    let t = b.map(F, &[0, 1, 2], &[t], twice);
    b.store(oy, t);
    let mut case = Case::new(b.0.k, 1e-12);
    case.limits.top = h.min(w) as u64;
    case
}
