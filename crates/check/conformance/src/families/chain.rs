//! Kernels that read each other's results, row by row: a small plan.
use crate::Rng;
use crate::build::{B, at, expr, n};
use crate::gpu_schedules;
use expr::{Monoid, Unary};
use kernel::{AxisId, Family, Kernel, TileProgram};
use layout::DType;

const F: DType = DType::F32;

/// A step of a chain: what it reads and writes are numbers of buffers.
pub struct Link {
    /// The program.
    pub program: TileProgram,
    /// Buffer of every operand.
    pub args: Vec<usize>,
    /// Elements of an f32 buffer that one block of its tasks reads and makes: its rows.
    pub rows: i64,
}

/// Scaling: `[m, k]` to `[m, k]`.
fn map(m: i64, k: i64) -> Kernel {
    let mut b = B::new("scale", Family::Map, &[("m", n(m)), ("k", n(k))]);
    let x = b.read(F, m * k, at(&[(0, k), (1, 1)]));
    let y = b.write(F, m * k, at(&[(0, k), (1, 1)]));
    let t = b.load(x, &[0, 1]);
    let t = b.map(
        F,
        &[0, 1],
        &[t],
        expr(|e| {
            let (x, c) = (e.input(0, F), e.constant(1.5, F));
            let p = e.mul(x, c);
            e.add(p, c)
        }),
    );
    b.store(y, t);
    b.0.k
}

/// Product with a constant factor: `[m, k]` to `[m, c]`.
fn product(m: i64, k: i64, c: i64) -> Kernel {
    let axes = [("m", n(m)), ("k", n(k)), ("n", n(c))];
    let mut b = B::new("product", Family::Contract, &axes);
    let x = b.read(F, m * k, at(&[(0, k), (1, 1)]));
    let w = b.read(F, k * c, at(&[(1, c), (2, 1)]));
    let y = b.write(F, m * c, at(&[(0, c), (2, 1)]));
    let acc = b.fill(F, &[0, 2], 0.0);
    let (x, w) = (b.load(x, &[0, 1]), b.load(w, &[1, 2]));
    b.contract(acc, x, w, &[1]);
    b.store(y, acc);
    b.0.k
}

/// Softmax of rows: `[m, c]` to `[m, c]`.
fn rows(m: i64, c: i64) -> Kernel {
    let mut b = B::new("softmax", Family::Row, &[("m", n(m)), ("n", n(c))]);
    let x = b.read(F, m * c, at(&[(0, c), (1, 1)]));
    let y = b.write(F, m * c, at(&[(0, c), (1, 1)]));
    let t = b.load(x, &[0, 1]);
    let top = b.fill(F, &[0], f64::NEG_INFINITY);
    b.fold(Monoid::max(F, F), top, t, &[1], None);
    let e = b.map(
        F,
        &[0, 1],
        &[t, top],
        expr(|e| {
            let (x, m) = (e.input(0, F), e.input(1, F));
            let d = e.sub(x, m);
            e.unary(Unary::Exp, d)
        }),
    );
    let sum = b.fill(F, &[0], 0.0);
    b.fold(Monoid::sum(F, F), sum, e, &[1], None);
    let out = b.map(
        F,
        &[0, 1],
        &[e, sum],
        expr(|e| {
            let (x, s) = (e.input(0, F), e.input(1, F));
            e.div(x, s)
        }),
    );
    b.store(y, out);
    b.0.k
}

/// A schedule whose tasks go through the rows in blocks, and through nothing else.
fn by_rows(k: &Kernel, rng: &mut Rng) -> Option<(TileProgram, i64)> {
    for _ in 0..400 {
        for s in gpu_schedules(k, &|_| None, rng) {
            let [cut] = s.grid[..] else { continue };
            if cut.axis != 0 as AxisId {
                continue;
            }
            if let Ok(p) = TileProgram::new(k.clone(), s) {
                return Some((p, cut.tile));
            }
        }
    }
    None
}

/// Scale, product, softmax, scale: buffer 0 is the input, 1 the factor, the rest is made; every step's
/// tasks are blocks of rows, each step's of their own height.
pub fn chain(m: i64, k: i64, c: i64, rng: &mut Rng) -> Option<(Vec<Link>, Vec<usize>)> {
    let kernels = [
        (map(m, k), vec![0, 2]),
        (product(m, k, c), vec![2, 1, 3]),
        (rows(m, c), vec![3, 4]),
        (map(m, c), vec![4, 5]),
    ];
    let mut out = vec![];
    for (kernel, args) in kernels {
        let (program, rows) = by_rows(&kernel, rng)?;
        out.push(Link {
            program,
            args,
            rows,
        });
    }
    let sizes = [m * k, k * c, m * k, m * c, m * c, m * c];
    Some((out, sizes.iter().map(|s| *s as usize * 4).collect()))
}
