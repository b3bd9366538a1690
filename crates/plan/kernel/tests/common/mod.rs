//! Kernels and schedules written by hand, for tests of this crate and of those above it.
#![allow(dead_code)]
use crate::kernel;
use expr::{Binary, Compare, Expr, ExprBuilder, Monoid, Unary};
use kernel::*;
use layout::{DType, Dim};

pub use kernel::KernelBuilder as Make;

/// One-argument program.
pub fn unary(f: Unary, d: DType) -> Expr {
    let mut b = ExprBuilder::new();
    let x = b.input(0, d);
    let y = b.unary(f, x);
    b.finish(&[y])
}

/// Two-argument program.
pub fn binary(f: Binary, d: DType) -> Expr {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(0, d), b.input(1, d));
    let z = b.binary(f, x, y);
    b.finish(&[z])
}

/// `cast(gelu(acc + c))`, the program of the page's first example.
pub fn bias_gelu(out: DType) -> Expr {
    let mut b = ExprBuilder::new();
    let (x, c) = (b.input(0, DType::F32), b.input(1, DType::F32));
    let s = b.add(x, c);
    let g = expr::functions::gelu_tanh(&mut b, s, DType::F32);
    let y = if out == DType::F32 { g } else { b.cast(g, out) };
    b.finish(&[y])
}

/// y[m,n] = gelu(sum_k a[m,k] b[n,k] + c[n]).
pub fn gemm(m: Dim, n: Dim, k: Dim, dtype: DType) -> Kernel {
    let mut f = Make::new("gemm", Family::Contract, &[("m", m), ("n", n), ("k", k)]);
    let a = f.load_dense("a", dtype, &[0, 2]);
    let b = f.load_dense("b", dtype, &[1, 2]);
    let acc = f.fill("acc", DType::F32, &[0, 1], 0.0);
    f.contract(acc, a, b, &[2]);
    let c = f.load_dense("c", DType::F32, &[1]);
    let y = f.map("y", dtype, &[0, 1], bias_gelu(dtype), &[acc, c]);
    f.store_dense("Y", y, &[0, 1]);
    f.k
}

pub fn at(axis: AxisId, tile: i64) -> AxisTile {
    AxisTile { axis, tile }
}

/// The A100 schedule of the page's first example.
pub fn gemm_gpu() -> Schedule {
    let shared = Place::Shared {
        swizzle: Swizzle {
            bits: 3,
            base: 3,
            shift: 3,
        },
        stages: 3,
    };
    Schedule {
        grid: vec![at(0, 128), at(1, 128)],
        loops: vec![at(2, 32)],
        places: vec![
            shared,
            shared,
            Place::Register,
            Place::Register,
            Place::Register,
        ],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Gpu(GpuMapping {
            threads: 256,
            warps: [2, 4],
            copiers: 0,
            walkers: 0,
            cluster: 1,
            combined: kernel::Combined::ByLast,
            store_bytes: 0,
            rows: vec![0],
            columns: vec![1],
            fragment: Some(Fragment {
                m: 16,
                n: 8,
                k: 16,
                input: DType::F16,
                acc: DType::F32,
                factors: Factors::Whole,
                right: None,
            }),
            load_bytes: 16,
            unroll: 1,
            registers: 168,
            spread: vec![],
            code: None,
            constants: vec![],
            triggers: false,
        }),
    }
}

/// A CPU schedule: rows in pieces of `tile_m`, micro-kernel 6x64.
pub fn gemm_cpu(tile_m: i64, tile_n: i64, tile_k: i64) -> Schedule {
    Schedule {
        grid: vec![at(0, tile_m), at(1, tile_n)],
        loops: vec![at(2, tile_k)],
        places: vec![
            Place::InPlace,
            Place::InPlace,
            Place::Register,
            Place::InPlace,
            Place::InPlace,
        ],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: Some(MicroKernel { mr: 6, nr: 64 }),
            rows: vec![0],
            lanes: Some(1),
        }),
    }
}

/// 3x3 convolution, stride and padding as given, channels last: y[oh,ow,oc] over (r,s,c).
pub fn conv(h: i64, w: i64, c: i64, oc: i64, stride: i64) -> Kernel {
    let (oh, ow) = ((h - 1) / stride + 1, (w - 1) / stride + 1);
    let axes = [
        ("oh", oh),
        ("ow", ow),
        ("oc", oc),
        ("r", 3),
        ("s", 3),
        ("c", c),
    ]
    .map(|(n, e)| (n, Dim::Known(e)));
    let mut f = Make::new("conv", Family::Conv, &axes);
    let d = Dim::Known;
    let access = Access {
        offset: d(-(w * c) - c),
        terms: vec![
            Term::flat(0, d(oh), d(stride * w * c)),
            Term::flat(1, d(ow), d(stride * c)),
            Term::flat(3, d(3), d(w * c)),
            Term::flat(4, d(3), d(c)),
            Term::flat(5, d(c), d(1)),
        ],
        bounds: vec![
            Bound {
                terms: vec![(0, d(stride)), (3, d(1))],
                base: d(-1),
                extent: d(h),
            },
            Bound {
                terms: vec![(1, d(stride)), (4, d(1))],
                base: d(-1),
                extent: d(w),
            },
        ],
        outside: 0.0,
        indexed: vec![],
    };
    let x = f.load("x", DType::F32, access, d(h * w * c));
    let wt = f.load_dense("w", DType::F32, &[3, 4, 5, 2]);
    let acc = f.fill("acc", DType::F32, &[0, 1, 2], 0.0);
    f.contract(acc, x, wt, &[3, 4, 5]);
    let y = f.map(
        "y",
        DType::F32,
        &[0, 1, 2],
        unary(Unary::Abs, DType::F32),
        &[acc],
    );
    f.store_dense("Y", y, &[0, 1, 2]);
    f.k
}

pub fn conv_cpu(rows: i64) -> Schedule {
    Schedule {
        grid: vec![at(0, rows)],
        loops: vec![],
        places: vec![
            Place::InPlace,
            Place::InPlace,
            Place::Register,
            Place::InPlace,
        ],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: Some(MicroKernel { mr: 6, nr: 64 }),
            rows: vec![0, 1],
            lanes: Some(2),
        }),
    }
}

/// Causal online-softmax attention over (h, q, t, d, e) in f32, as the page's third example.
pub fn attention(h: Dim, q: Dim, t: Dim, d: Dim) -> Kernel {
    let mut f = Make::new(
        "attention",
        Family::Attention,
        &[("h", h), ("q", q), ("t", t), ("d", d.clone()), ("e", d)],
    );
    let f32t = DType::F32;
    let qt = f.load_dense("q", f32t, &[0, 1, 3]);
    let kt = f.load_dense("k", f32t, &[0, 2, 3]);
    let vt = f.load_dense("v", f32t, &[0, 2, 4]);
    let m = f.fill("m", f32t, &[0, 1], f64::NEG_INFINITY);
    let l = f.fill("l", f32t, &[0, 1], 0.0);
    let o = f.fill("o", f32t, &[0, 1, 4], 0.0);
    let s0 = f.fill("s0", f32t, &[0, 1, 2], 0.0);
    f.contract(s0, qt, kt, &[3]);
    // Masked scores.
    let mut b = ExprBuilder::new();
    let x = b.input(0, f32t);
    let scale = b.constant(0.125, f32t);
    let x = b.mul(x, scale);
    let (qi, ti) = (b.index(1), b.index(2));
    let keep = b.compare(Compare::Le, ti, qi);
    let low = b.constant(f64::NEG_INFINITY, f32t);
    let r = b.select(keep, x, low);
    let s = f.map("s", f32t, &[0, 1, 2], b.finish(&[r]), &[s0]);
    let mut b = ExprBuilder::new();
    let (old, new) = (b.input(0, f32t), b.input(1, f32t));
    let diff = b.sub(old, new);
    let r = b.unary(Unary::Exp, diff);
    let factor = b.finish(&[r]);
    f.fold(
        Monoid::max(f32t, f32t),
        m,
        s,
        &[2],
        Some(Rescale {
            tiles: vec![l, o],
            factor: factor.clone(),
        }),
    );
    let p = f.map("p", f32t, &[0, 1, 2], factor, &[s, m]);
    f.fold(Monoid::sum(f32t, f32t), l, p, &[2], None);
    f.contract(o, p, vt, &[2]);
    let y = f.map("y", f32t, &[0, 1, 4], binary(Binary::Div, f32t), &[o, l]);
    f.store_dense("Y", y, &[0, 1, 4]);
    f.k
}

pub fn attention_cpu(tq: i64, tt: i64) -> Schedule {
    let mut places = vec![Place::Register; 10];
    places[0] = Place::InPlace;
    places[1] = Place::InPlace;
    places[2] = Place::InPlace;
    places[9] = Place::InPlace;
    Schedule {
        grid: vec![at(0, 1), at(1, tq)],
        loops: vec![at(2, tt)],
        places,
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: Some(MicroKernel { mr: 6, nr: 64 }),
            rows: vec![1],
            lanes: Some(4),
        }),
    }
}

/// Row softmax over n, rows cut in the grid.
pub fn softmax(m: Dim, n: Dim) -> Kernel {
    let mut f = Make::new("softmax", Family::Row, &[("m", m), ("n", n)]);
    let d = DType::F32;
    let x = f.load_dense("x", d, &[0, 1]);
    let top = f.fill("top", d, &[0], f64::NEG_INFINITY);
    f.fold(Monoid::max(d, d), top, x, &[1], None);
    let mut b = ExprBuilder::new();
    let (v, t) = (b.input(0, d), b.input(1, d));
    let s = b.sub(v, t);
    let e = b.unary(Unary::Exp, s);
    let e = f.map("e", d, &[0, 1], b.finish(&[e]), &[x, top]);
    let sum = f.fill("sum", d, &[0], 0.0);
    f.fold(Monoid::sum(d, d), sum, e, &[1], None);
    let y = f.map("y", d, &[0, 1], binary(Binary::Div, d), &[e, sum]);
    f.store_dense("Y", y, &[0, 1]);
    f.k
}

pub fn softmax_cpu(rows: i64) -> Schedule {
    Schedule {
        grid: vec![at(0, rows)],
        loops: vec![],
        places: vec![
            Place::InPlace,
            Place::Register,
            Place::Register,
            Place::Register,
            Place::InPlace,
        ],
        chunk: 2,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: None,
            rows: vec![0],
            lanes: Some(1),
        }),
    }
}

/// y[n] = x[index[n]].
pub fn gather(n: Dim, rows: i64, cols: i64) -> Kernel {
    let mut f = Make::new("gather", Family::Move, &[("n", n), ("c", Dim::Known(cols))]);
    let access = f.dense(&[0]);
    let by = f.operand("index", DType::I64, Role::Read, access, f.extent(0));
    let mut access = Access::strided(Dim::ZERO, vec![Term::flat(1, Dim::Known(cols), Dim::ONE)]);
    access.indexed.push(Indexed {
        by,
        stride: Dim::Known(cols),
        extent: Dim::Known(rows),
    });
    let elements = f.extent(0) * Dim::Known(cols);
    let x = f.load("x", DType::F32, access, elements);
    f.store_dense("Y", x, &[0, 1]);
    f.k
}

pub fn gather_cpu(rows: i64) -> Schedule {
    Schedule {
        grid: vec![at(0, rows)],
        loops: vec![],
        places: vec![Place::Register],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: None,
            rows: vec![0],
            lanes: Some(1),
        }),
    }
}

/// y = f(x) element by element.
pub fn pointwise(m: Dim, n: Dim, f: Unary) -> Kernel {
    let mut k = Make::new("map", Family::Map, &[("m", m), ("n", n)]);
    let x = k.load_dense("x", DType::F32, &[0, 1]);
    let y = k.map("y", DType::F32, &[0, 1], unary(f, DType::F32), &[x]);
    k.store_dense("Y", y, &[0, 1]);
    k.k
}

pub fn pointwise_cpu(rows: i64) -> Schedule {
    Schedule {
        grid: vec![at(0, rows)],
        loops: vec![],
        places: vec![Place::InPlace, Place::InPlace],
        chunk: 1,
        raster: 1,
        mapping: Mapping::Cpu(CpuMapping {
            micro: None,
            rows: vec![0],
            lanes: Some(1),
        }),
    }
}
