//! An Elman network by hand: `h[t] = tanh(x[t] + h[t-1] R)`.
use crate::common::*;
use crate::kernel;
use expr::{Binary, ExprBuilder, Unary};
use kernel::*;
use layout::{DType, Dim};

pub const T: AxisId = 0;
pub const K: AxisId = 2;
pub const N: AxisId = 3;

/// Axes t, b, k, n (k and n are the units); tiles h, r, acc, x, y; operands H0, R, X, Y, H.
pub fn elman(t: Dim, b: Dim, units: i64) -> Kernel {
    let u = Dim::Known(units);
    let mut f = Make::new(
        "elman",
        Family::Recurrent,
        &[("t", t), ("b", b), ("k", u.clone()), ("n", u)],
    );
    let h = f.load_dense("h", DType::F32, &[1, K]);
    let r = f.load_dense("r", DType::F32, &[K, N]);
    let acc = f.fill("acc", DType::F32, &[T, 1, N], 0.0);
    f.contract(acc, h, r, &[K]);
    let x = f.load_dense("x", DType::F32, &[T, 1, N]);
    let mut e = ExprBuilder::new();
    let (p, q) = (e.input(0, DType::F32), e.input(1, DType::F32));
    let s = e.binary(Binary::Add, p, q);
    let s = e.unary(Unary::Tanh, s);
    let e = e.finish(&[s]);
    let y = f.map("y", DType::F32, &[T, 1, N], e, &[acc, x]);
    f.store_dense("Y", y, &[T, 1, N]);
    f.k.body.push(Stmt::Relabel {
        dst: h,
        src: y,
        labels: vec![Label {
            from: N,
            to: K,
            first: Dim::ZERO,
        }],
        along: Some(T),
    });
    f.store_dense("END", h, &[1, K]);
    f.k
}

pub fn elman_cpu(rows: i64) -> Schedule {
    Schedule {
        grid: vec![AxisTile {
            axis: 1,
            tile: rows,
        }],
        loops: vec![AxisTile { axis: T, tile: 1 }],
        places: vec![
            Place::Register,
            Place::InPlace,
            Place::Register,
            Place::InPlace,
            Place::Register,
        ],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: Some(MicroKernel { mr: 4, nr: 16 }),
            rows: vec![1],
            lanes: Some(N),
        }),
    }
}
