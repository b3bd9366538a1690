//! Speed of compiled tile programs: `exec_bench [NAME]`. One worker unless THREADS is set.
#![allow(missing_docs)]
use conformance::build::{B, at, blocked, bound, expr, n};
use conformance::{OneStep, cpu_schedule, panels as gemm};
use expr::{Monoid, Unary, functions};
use kernel::{Access, AxisTile, Family, Kernel, Role, Schedule, Term, TileProgram};
use layout::DType;
use shopfloor_cpu::{CpuDevice, CpuOptions};
use std::time::Instant;

const F: DType = DType::F32;

/// A schedule of these tiles, of tasks and of loops, in place.
fn schedule(
    k: &Kernel,
    grid: &[(u16, i64)],
    loops: &[(u16, i64)],
    micro: Option<(u32, u32)>,
) -> Schedule {
    let tiles = |list: &[(u16, i64)]| {
        let tile = |&(axis, tile): &(u16, i64)| AxisTile { axis, tile };
        list.iter().map(tile).collect()
    };
    cpu_schedule(k, tiles(grid), tiles(loops), true, micro)
}

/// Best seconds of a run.
fn time(k: &Kernel, s: &Schedule) -> f64 {
    let threads = std::env::var("THREADS")
        .ok()
        .and_then(|t| t.parse().ok())
        .unwrap_or(1);
    let d = CpuDevice::new(CpuOptions {
        threads: Some(threads),
        ..Default::default()
    })
    .expect("a device");
    let program = TileProgram::new(k.clone(), s.clone()).expect("a program");
    let mut step = OneStep::new(&d, &program, &[]).expect("compiles");
    let mut drawn = fastrand::Rng::with_seed(5);
    let (mut inputs, mut outputs) = (vec![], vec![]);
    for o in &k.operands {
        let count = o.elements.known().expect("a number");
        let values = (0..count).flat_map(|_| (2.0 * drawn.f32() - 1.0).to_le_bytes());
        match o.role {
            Role::Read => inputs.push(values.collect::<Vec<u8>>()),
            Role::Write => outputs.push(values.collect()),
        }
    }
    let inputs: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
    let mut best = f64::MAX;
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < 0.7 {
        let mut out: Vec<&mut [u8]> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
        let t = Instant::now();
        step.run(&inputs, &mut out).expect("runs");
        best = best.min(t.elapsed().as_secs_f64());
    }
    best
}

fn conv(h: i64, c: i64, oc: i64, r: i64, stride: i64, nr: i64) -> Kernel {
    let pad = r / 2;
    let o = (h + 2 * pad - r) / stride + 1;
    let axes = [
        ("b", n(1)),
        ("oh", n(o)),
        ("ow", n(o)),
        ("r", n(r)),
        ("s", n(r)),
        ("c", n(c)),
        ("oc", n(oc)),
    ];
    let mut b = B::new("conv", Family::Conv, &axes);
    let mut x = at(&[
        (0, h * h * c),
        (1, h * stride * c),
        (2, stride * c),
        (3, h * c),
        (4, c),
        (5, 1),
    ]);
    x.offset = n(-pad * h * c - pad * c);
    x.bounds = vec![
        bound(&[(1, stride), (3, 1)], -pad, h),
        bound(&[(2, stride), (4, 1)], -pad, h),
    ];
    let ox = b.read(F, h * h * c, x);
    let k = r * r * c;
    let ow = b.read(
        F,
        k * oc,
        Access::strided(
            n(0),
            vec![
                blocked(6, oc / nr, k * nr, nr, 1),
                Term::flat(3, n(r), n(r * c * nr)),
                Term::flat(4, n(r), n(c * nr)),
                Term::flat(5, n(c), n(nr)),
            ],
        ),
    );
    let oy = b.write(
        F,
        o * o * oc,
        at(&[(0, o * o * oc), (1, o * oc), (2, oc), (6, 1)]),
    );
    let acc = b.fill(F, &[0, 1, 2, 6], 0.0);
    let x = b.load(ox, &[0, 1, 2, 3, 4, 5]);
    let w = b.load(ow, &[3, 4, 5, 6]);
    b.contract(acc, x, w, &[3, 4, 5]);
    let y = b.map(
        F,
        &[0, 1, 2, 6],
        &[acc],
        expr(|e| {
            let x = e.input(0, F);
            functions::relu(e, x, F)
        }),
    );
    b.store(oy, y);
    b.0.k
}

fn softmax(m: i64, nn: i64) -> Kernel {
    let mut b = B::new("softmax", Family::Row, &[("m", n(m)), ("n", n(nn))]);
    let ox = b.read(F, m * nn, at(&[(0, nn), (1, 1)]));
    let oy = b.write(F, m * nn, at(&[(0, nn), (1, 1)]));
    let x = b.load(ox, &[0, 1]);
    let mx = b.fill(F, &[0], f64::NEG_INFINITY);
    b.fold(Monoid::max(F, F), mx, x, &[1], None);
    let e = b.map(
        F,
        &[0, 1],
        &[x, mx],
        expr(|e| {
            let (x, m) = (e.input(0, F), e.input(1, F));
            let d = e.sub(x, m);
            e.unary(Unary::Exp, d)
        }),
    );
    let s = b.fill(F, &[0], 0.0);
    b.fold(Monoid::sum(F, F), s, e, &[1], None);
    let y = b.map(
        F,
        &[0, 1],
        &[e, s],
        expr(|e| {
            let (x, s) = (e.input(0, F), e.input(1, F));
            e.div(x, s)
        }),
    );
    b.store(oy, y);
    b.0.k
}

fn map(m: i64, f: impl FnOnce(&mut expr::ExprBuilder, expr::Ref) -> expr::Ref) -> Kernel {
    let mut b = B::new("map", Family::Map, &[("m", n(m))]);
    let ox = b.read(F, m, at(&[(0, 1)]));
    let oy = b.write(F, m, at(&[(0, 1)]));
    let x = b.load(ox, &[0]);
    let y = b.map(
        F,
        &[0],
        &[x],
        expr(|e| {
            let x = e.input(0, F);
            f(e, x)
        }),
    );
    b.store(oy, y);
    b.0.k
}

fn mover(ext: &[i64], xs: &[i64], ys: &[i64]) -> Kernel {
    let names = ["a", "b", "c", "d"];
    let axes: Vec<_> = ext.iter().zip(names).map(|(&e, s)| (s, n(e))).collect();
    let mut b = B::new("move", Family::Move, &axes);
    let all: i64 = ext.iter().product();
    let ids: Vec<u16> = (0..ext.len() as u16).collect();
    let term = |s: &[i64]| {
        at(&s
            .iter()
            .enumerate()
            .map(|(i, &s)| (i as u16, s))
            .collect::<Vec<_>>())
    };
    let ox = b.read(F, all, term(xs));
    let oy = b.write(F, all, term(ys));
    let t = b.load(ox, &ids);
    b.store(oy, t);
    b.0.k
}

/// Times kernels whose names contain a text, and prints how fast they are.
struct Bench {
    want: String,
}

impl Bench {
    /// Times `k` under `s`: `amount` of `unit` per nanosecond is its rate.
    fn show(&self, name: &str, k: Kernel, s: Schedule, amount: f64, unit: &str) {
        if name.contains(&self.want) {
            let t = time(&k, &s);
            println!(
                "{name:32} {:9.2} us  {:8.2} {unit}",
                t * 1e6,
                amount / t / 1e9
            );
        }
    }
}

fn matrix_products(bench: &Bench) {
    for (mr, nr, mt, kt) in [
        (6, 64, 126, 256),
        (6, 64, 126, 512),
        (6, 64, 60, 1024),
        (14, 32, 126, 256),
        (8, 48, 120, 256),
    ] {
        if 1024 % nr == 0 {
            let k = gemm(1024, 1024, 1024, nr, false);
            let s = schedule(&k, &[(0, mt), (2, 512)], &[(1, kt)], Some((mr, nr as u32)));
            bench.show(
                &format!("gemm 1024 {mr}x{nr} m{mt} k{kt}"),
                k,
                s,
                2.0 * 1024f64.powi(3),
                "GFLOPS",
            );
        }
    }
    let k = gemm(1024, 1024, 1024, 64, true);
    let s = schedule(&k, &[(0, 126), (2, 256)], &[(1, 256)], Some((6, 64)));
    bench.show("gemm 1024 bias gelu", k, s, 2.0 * 1024f64.powi(3), "GFLOPS");
    for (nr, nt) in [(64, 128), (64, 768), (128, 256)] {
        let k = gemm(1, 3072, 768, nr, false);
        let s = schedule(&k, &[(2, nt)], &[], Some((1, nr as u32)));
        bench.show(
            &format!("gemv 768x3072 nr{nr} n{nt}"),
            k,
            s,
            4.0 * 768.0 * 3072.0,
            "GB/s",
        );
    }
}

fn convolutions(bench: &Bench) {
    for rows in [2, 4, 8] {
        let k = conv(56, 64, 64, 3, 1, 64);
        let s = schedule(&k, &[(1, rows)], &[(3, 1), (4, 1)], Some((6, 64)));
        bench.show(
            &format!("conv 3x3 56x56 64 rows {rows}"),
            k,
            s,
            2.0 * 56.0 * 56.0 * 64.0 * 64.0 * 9.0,
            "GFLOPS",
        );
    }
    let k = conv(14, 256, 256, 3, 1, 64);
    let s = schedule(&k, &[(6, 64), (1, 14)], &[(3, 1), (4, 1)], Some((6, 64)));
    bench.show(
        "conv 3x3 14x14 256",
        k,
        s,
        2.0 * 196.0 * 256.0 * 256.0 * 9.0,
        "GFLOPS",
    );
    let k = conv(14, 256, 1024, 1, 1, 64);
    let s = schedule(&k, &[(6, 64), (1, 14)], &[(3, 1), (4, 1)], Some((6, 64)));
    bench.show(
        "conv 1x1 14x14 256 1024",
        k,
        s,
        2.0 * 196.0 * 256.0 * 1024.0,
        "GFLOPS",
    );
}

fn rows_and_elements(bench: &Bench) {
    for (m, nn) in [(256, 768), (2048, 128), (1024, 4096)] {
        let k = softmax(m, nn);
        let s = schedule(&k, &[(0, (16384 / nn).max(1))], &[], None);
        bench.show(&format!("softmax {m}x{nn}"), k, s, (m * nn) as f64, "el/ns");
    }
    let gelu = || map(1 << 16, |e, x| functions::gelu_erf(e, x, F));
    bench.show(
        "gelu 64k",
        gelu(),
        schedule(&gelu(), &[(0, 4096)], &[], None),
        65536.0,
        "el/ns",
    );
    let relu = || map(1 << 16, |e, x| functions::relu(e, x, F));
    bench.show(
        "relu 64k",
        relu(),
        schedule(&relu(), &[(0, 8192)], &[], None),
        65536.0 * 8.0,
        "GB/s",
    );
}

fn copies(bench: &Bench) {
    let k = mover(&[1024, 1024], &[1024, 1], &[1, 1024]);
    let s = schedule(&k, &[(0, 64), (1, 64)], &[], None);
    bench.show("transpose 1024", k, s, 8.0 * 1024.0 * 1024.0, "GB/s");
    let k = mover(&[64, 1024], &[1024, 1], &[1024, 1]);
    let s = schedule(&k, &[(0, 16)], &[], None);
    bench.show("copy 256 KB", k, s, 8.0 * 65536.0, "GB/s");
}

fn short_tasks(bench: &Bench) {
    let tiny = || map(16, |e, x| functions::relu(e, x, F));
    bench.show(
        "one tiny step",
        tiny(),
        schedule(&tiny(), &[], &[], None),
        16.0,
        "el/ns",
    );
    let many = || map(4096, |e, x| functions::relu(e, x, F));
    bench.show(
        "256 tasks of 16",
        many(),
        schedule(&many(), &[(0, 16)], &[], None),
        256.0,
        "tasks/ns",
    );
}

fn main() {
    let bench = Bench {
        want: std::env::args().nth(1).unwrap_or_default(),
    };
    matrix_products(&bench);
    convolutions(&bench);
    rows_and_elements(&bench);
    copies(&bench);
    short_tasks(&bench);
}
