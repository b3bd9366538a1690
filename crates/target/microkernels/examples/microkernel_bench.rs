//! Measures the micro-kernels on one core: FMA peak, GEMM, convolution, elementwise functions, GEMV.
//!
//! `cargo run --release -p shopfloor-microkernels --example microkernel_bench [isa] [section]`; best of many runs.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use cpu_bench::*;
use shopfloor_microkernels::isa::Isa;
use shopfloor_microkernels::{Depthwise, Gemm, GemmKernel, Indirect, Kernels, Panels, kernels};

mod cpu_bench {
    use std::time::Instant;

    /// The shortest of many runs within about `budget` seconds, in seconds per call.
    pub fn best(budget: f64, mut f: impl FnMut()) -> f64 {
        f();
        let start = Instant::now();
        f();
        let once = start.elapsed().as_secs_f64().max(1e-7);
        let inner = (2e-4 / once).ceil().max(1.0) as usize;
        let (start, mut best) = (Instant::now(), f64::MAX);
        while start.elapsed().as_secs_f64() < budget {
            let t = Instant::now();
            for _ in 0..inner {
                f();
            }
            best = best.min(t.elapsed().as_secs_f64() / inner as f64);
        }
        best
    }

    /// Values in -1..1 from a fixed generator.
    pub fn values(n: usize, seed: u32) -> Vec<f32> {
        let mut s = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
        (0..n)
            .map(|_| {
                s ^= s << 13;
                s ^= s >> 17;
                s ^= s << 5;
                (s >> 8) as f32 / 8_388_608.0 - 1.0
            })
            .collect()
    }
}

#[cfg(target_arch = "x86_64")]
mod peak {
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx512f")]
    pub unsafe fn fma512(n: usize, start: [f32; 24]) -> f32 {
        let (x, y) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
        let mut a = start.map(|v| _mm512_set1_ps(v));
        for _ in 0..n {
            for v in &mut a {
                *v = _mm512_fmadd_ps(*v, x, y);
            }
        }
        a.iter().fold(0.0, |s, &v| s + _mm512_reduce_add_ps(v))
    }

    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn fma256(n: usize, start: [f32; 12]) -> f32 {
        let (x, y) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
        let mut a = start.map(|v| _mm256_set1_ps(v));
        for _ in 0..n {
            for v in &mut a {
                *v = _mm256_fmadd_ps(*v, x, y);
            }
        }
        let mut s = _mm256_setzero_ps();
        for v in a {
            s = _mm256_add_ps(s, v);
        }
        _mm256_cvtss_f32(s)
    }
}

/// FLOP per second of the best loop in registers.
fn fma_peak(isa: Isa) -> f64 {
    let n = 100_000;
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => {
            // SAFETY: the instruction set was checked.
            let t = best(0.5, || {
                std::hint::black_box(unsafe {
                    peak::fma512(std::hint::black_box(n), std::hint::black_box([1.0; 24]))
                });
            });
            (n * 24 * 32) as f64 / t
        }
        #[cfg(target_arch = "x86_64")]
        _ if Isa::Avx2.available() => {
            // SAFETY: the instruction set was checked.
            let t = best(0.5, || {
                std::hint::black_box(unsafe {
                    peak::fma256(std::hint::black_box(n), std::hint::black_box([1.0; 12]))
                });
            });
            (n * 12 * 16) as f64 / t
        }
        _ => f64::NAN,
    }
}

/// C = A B with B packed and A in place: mc rows at a time over all panels.
#[allow(clippy::too_many_arguments, reason = "a benchmark's operands")]
fn gemm(
    kern: GemmKernel,
    mc: usize,
    kc: usize,
    m: usize,
    n: usize,
    k: usize,
    a: &[f32],
    packed: &[f32],
    c: &mut [f32],
) {
    let nr = kern.nr();
    let mut p = 0;
    while p < k {
        let kk = kc.min(k - p);
        let mut i = 0;
        while i < m {
            let g = Gemm {
                m: mc.min(m - i),
                n,
                k: kk,
                a: a[i * k + p..].as_ptr(),
                lda: k,
                a_ks: 1,
                b: Panels {
                    b: packed[p * nr..].as_ptr(),
                    ldb: nr,
                    panel: k * nr,
                    padded: true,
                },
                c: c[i * n..].as_mut_ptr(),
                ldc: n,
                accumulate: p > 0,
                post: shopfloor_microkernels::Post::NONE,
            };
            // SAFETY: a is m x k, packed k x n in panels, c m x n.
            unsafe { kern.gemm(&g) };
            i += mc;
        }
        p += kc;
    }
}

fn pack(k: &Kernels, b: &[f32], rows: usize, cols: usize, nr: usize) -> Vec<f32> {
    let mut out = vec![0.0; cols.div_ceil(nr) * rows * nr];
    // SAFETY: b is rows x cols, out holds the padded panels.
    unsafe { (k.pack_b)(rows, cols, b.as_ptr(), cols, 1, nr, out.as_mut_ptr()) };
    out
}

fn gemms(isa: Isa, k: &Kernels, peak: f64) {
    let budget = 0.12;
    for m in [1024, 64, 16, 4, 1] {
        let (n, kk) = (1024, 1024);
        let (a, b) = (values(m * kk, 1), values(kk * n, 2));
        let mut c = vec![0.0; m * n];
        let mut rows = Vec::new();
        for (mr, nr) in k.shapes() {
            if mr > m
                || mr * nr < 4 * isa.lanes()
                || (m >= 16 && isa != Isa::Portable && mr * nr < 8 * isa.lanes())
                || (m == 1024 && isa == Isa::Avx512 && mr * nr < 18 * isa.lanes())
            {
                continue;
            }
            let packed = pack(k, &b, kk, n, nr);
            let kern = k.gemm(mr, nr).expect("legal shape");
            let blocks: &[(usize, usize)] = if m == 1024 {
                &[(1024, 1024), (192, 1024), (96, 1024)]
            } else {
                &[(1024, 1024), (1024, 256)]
            };
            for &(mc, kc) in blocks {
                let t = best(budget, || gemm(kern, mc, kc, m, n, kk, &a, &packed, &mut c));
                rows.push((t, mr, nr, mc, kc));
            }
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("gemm {m} x {n} x {kk}:");
        for (t, mr, nr, mc, kc) in rows.iter().take(6) {
            let rate = 2.0 * (m * n * kk) as f64 / t;
            println!(
                "  {mr:2}x{nr:<3} mc {mc:4} kc {kc:4}: {:8.1} us {:6.1} GFLOPS {:5.1}% of peak, weights {:5.1} GB/s",
                t * 1e6,
                rate / 1e9,
                100.0 * rate / peak,
                (n * kk * 4) as f64 / t / 1e9
            );
        }
    }
}

/// Every register tile alone, its operands in the nearest cache: a compiler that keeps sums of one in memory is seen
/// here.
fn tiles(isa: Isa, k: &Kernels, peak: f64) {
    let depth = 256;
    let mut rows: Vec<(f64, usize, usize)> = Vec::new();
    for (mr, nr) in k.shapes() {
        // Smaller ones cannot reach the peak.
        if mr * nr < 20 * isa.lanes() && isa == Isa::Avx512 || mr * nr < 6 * isa.lanes() {
            continue;
        }
        let (a, b) = (values(mr * depth, 1), values(depth * nr, 2));
        let mut c = vec![0.0; mr * nr];
        let kern = k.gemm(mr, nr).expect("legal shape");
        let t = best(0.05, || {
            gemm(kern, mr, depth, mr, nr, depth, &a, &b, &mut c)
        });
        rows.push((t / (mr * nr) as f64, mr, nr));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!("tile that is slowest of {}, operands in L1:", rows.len());
    for (t, mr, nr) in rows {
        let rate = 2.0 * depth as f64 / t;
        println!(
            "  {mr:2}x{nr:<3} k {depth:4}: {:8.1} us {:6.1} GFLOPS {:5.1}% of peak",
            t * 1e6 * (mr * nr) as f64,
            rate / 1e9,
            100.0 * rate / peak
        );
    }
}

struct Conv {
    name: &'static str,
    size: usize,
    cin: usize,
    cout: usize,
    filter: usize,
}

const CONVS: [Conv; 4] = [
    Conv {
        name: "3x3 56x56 64->64",
        size: 56,
        cin: 64,
        cout: 64,
        filter: 3,
    },
    Conv {
        name: "3x3 28x28 128->128",
        size: 28,
        cin: 128,
        cout: 128,
        filter: 3,
    },
    Conv {
        name: "3x3 14x14 256->256",
        size: 14,
        cin: 256,
        cout: 256,
        filter: 3,
    },
    Conv {
        name: "1x1 56x56 64->256",
        size: 56,
        cin: 64,
        cout: 256,
        filter: 1,
    },
];

impl Conv {
    /// What every tap of every pixel reads: rows of `x`, and `zeros` outside.
    fn table(&self, x: &[f32], zeros: &[f32]) -> Vec<*const f32> {
        let (size, half) = (self.size as isize, (self.filter / 2) as isize);
        let mut table = Vec::new();
        for ky in 0..self.filter as isize {
            for kx in 0..self.filter as isize {
                for oy in 0..size {
                    for ox in 0..size {
                        let (y, c) = (oy + ky - half, ox + kx - half);
                        let inside = y >= 0 && c >= 0 && y < size && c < size;
                        table.push(match inside {
                            true => x[(y * size + c) as usize * self.cin..].as_ptr(),
                            false => zeros.as_ptr(),
                        });
                    }
                }
            }
        }
        table
    }

    fn measure(&self, isa: Isa, k: &Kernels, peak: f64) {
        let (cin, cout, taps) = (self.cin, self.cout, self.filter * self.filter);
        let (pixels, depth) = (self.size * self.size, taps * cin);
        let (x, w) = (values(pixels * cin, 3), values(depth * cout, 4));
        let zeros = vec![0.0_f32; cin];
        let table = self.table(&x, &zeros);
        let mut out = vec![0.0_f32; pixels * cout];
        let mut rows = Vec::new();
        for (mr, nr) in k.shapes() {
            if mr * nr < 16 * 16 && isa == Isa::Avx512 || mr * nr < 4 * isa.lanes() {
                continue;
            }
            let packed = pack(k, &w, depth, cout, nr);
            let kern = k.gemm(mr, nr).expect("legal shape");
            for mc in [56, 112, pixels] {
                let t = best(0.12, || {
                    let mut i = 0;
                    while i < pixels {
                        let g = Indirect {
                            m: mc.min(pixels - i),
                            n: cout,
                            nkb: taps,
                            kc: cin,
                            table: table[i..].as_ptr(),
                            table_ld: pixels,
                            a_offset: 0,
                            a_ks: 1,
                            b: Panels {
                                b: packed.as_ptr(),
                                ldb: nr,
                                panel: depth * nr,
                                padded: true,
                            },
                            c: out[i * cout..].as_mut_ptr(),
                            ldc: cout,
                            accumulate: false,
                            post: shopfloor_microkernels::Post::NONE,
                        };
                        // SAFETY: the table names every pixel's taps or zeros.
                        unsafe { kern.indirect(&g) };
                        i += mc;
                    }
                });
                rows.push((t, mr, nr, mc));
            }
        }
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        println!("conv {}:", self.name);
        for (t, mr, nr, mc) in rows.iter().take(4) {
            let rate = 2.0 * (pixels * depth * cout) as f64 / t;
            println!(
                "  {mr:2}x{nr:<3} mc {mc:4}: {:8.1} us {:6.1} GFLOPS {:5.1}% of peak",
                t * 1e6,
                rate / 1e9,
                100.0 * rate / peak
            );
        }
    }
}

fn convs(isa: Isa, k: &Kernels, peak: f64) {
    for conv in CONVS {
        conv.measure(isa, k, peak);
    }
    for (size, c) in [(56, 72), (28, 240), (14, 480)] {
        depthwise(k, peak, size, c);
    }
}

/// 3x3 taps over `size` x `size` pixels of `c` channels.
fn depthwise(k: &Kernels, peak: f64, size: usize, c: usize) {
    let wide = size + 2;
    let (x, w) = (values(wide * wide * c, 5), values(9 * c, 6));
    let mut out = vec![0.0_f32; size * size * c];
    for run in [1, 3] {
        let t = best(0.2, || {
            for y in 0..size {
                let table: [*const f32; 9] =
                    std::array::from_fn(|t| x[((y + t / 3) * wide + t % 3) * c..].as_ptr());
                let d = Depthwise {
                    pixels: size,
                    channels: c,
                    taps: 9,
                    run,
                    table: table.as_ptr(),
                    table_step: 0,
                    x_step: c,
                    x_offset: 0,
                    w: w.as_ptr(),
                    ldw: c,
                    out: out[y * size * c..].as_mut_ptr(),
                    out_step: c,
                    bias: std::ptr::null(),
                    accumulate: false,
                    lo: f32::NEG_INFINITY,
                    hi: f32::INFINITY,
                };
                // SAFETY: x is padded by one pixel all around.
                unsafe { (k.depthwise)(&d) };
            }
        });
        let rate = 18.0 * (size * size * c) as f64 / t;
        println!(
            "depthwise 3x3 {size}x{size}x{c} in runs of {run}: {:.1} us {:.1} GFLOPS {:.1}% of peak",
            t * 1e6,
            rate / 1e9,
            100.0 * rate / peak
        );
    }
}

fn maths(k: &Kernels) {
    let n = 2048;
    let x: Vec<f32> = values(n, 7).iter().map(|v| v * 4.0).collect();
    let positive: Vec<f32> = x.iter().map(|v| v.abs() + 0.01).collect();
    let mut y = vec![0.0_f32; n];
    for (name, f) in [
        ("exp", k.exp),
        ("tanh", k.tanh),
        ("erf", k.erf),
        ("gelu", k.gelu),
        ("gelu_tanh", k.gelu_tanh),
        ("sigmoid", k.sigmoid),
        ("log", k.log),
        ("sin", k.sin),
        ("sqrt", k.sqrt),
        ("abs", k.abs),
    ] {
        // SAFETY: both slices have n elements.
        let t = best(0.1, || unsafe { f(positive.as_ptr(), y.as_mut_ptr(), n) })
            .min(best(0.1, || unsafe { f(x.as_ptr(), y.as_mut_ptr(), n) }));
        println!("{name}: {:.2} elements per ns", n as f64 / t / 1e9);
    }
    // SAFETY: as above.
    let t = best(0.1, || unsafe {
        (k.pow)(positive.as_ptr(), x.as_ptr(), y.as_mut_ptr(), n)
    });
    println!("pow: {:.2} elements per ns", n as f64 / t / 1e9);
    let t = best(0.1, || {
        // SAFETY: as above.
        std::hint::black_box(unsafe { (k.exp_sum)(x.as_ptr(), y.as_mut_ptr(), n, 1.0, 4.0) });
    });
    println!("exp_sum: {:.2} elements per ns", n as f64 / t / 1e9);
}

fn gemvs(isa: Isa, k: &Kernels) {
    for (name, kk, n) in [
        ("L2 (512 KiB)", 512, 256),
        ("L3 (6 MiB)", 1536, 1024),
        ("DRAM (256 MiB)", 8192, 8192),
    ] {
        let (a, b) = (values(kk, 1), values(kk * n, 2));
        let mut c = vec![0.0; n];
        let t = best(0.3, || {
            // SAFETY: b has kk * n elements.
            std::hint::black_box(unsafe { (k.row_sum)(b.as_ptr(), kk * n) });
        });
        println!(
            "gemv {name}: plain read {:.1} GB/s",
            (kk * n * 4) as f64 / t / 1e9
        );
        for nv in [2, 4, 8] {
            let Some(kern) = k.gemm(1, nv * isa.lanes()) else {
                continue;
            };
            let nr = kern.nr();
            let packed = pack(k, &b, kk, n, nr);
            let t = best(0.3, || gemm(kern, 1, kk, 1, n, kk, &a, &packed, &mut c));
            let in_place = Gemm {
                m: 1,
                n,
                k: kk,
                a: a.as_ptr(),
                lda: kk,
                a_ks: 1,
                b: Panels {
                    b: b.as_ptr(),
                    ldb: n,
                    panel: nr,
                    padded: false,
                },
                c: c.as_mut_ptr(),
                ldc: n,
                accumulate: false,
                post: shopfloor_microkernels::Post::NONE,
            };
            // SAFETY: b is kk x n.
            let u = best(0.3, || unsafe { kern.gemm(&in_place) });
            let rate = |t: f64| (kk * n * 4) as f64 / t / 1e9;
            println!(
                "  1x{nr}: packed {:.1} GB/s, in place {:.1} GB/s",
                rate(t),
                rate(u)
            );
        }
        let d = shopfloor_microkernels::Dot {
            m: 1,
            n,
            k: kk,
            a: a.as_ptr(),
            lda: kk,
            b: b.as_ptr(),
            ldb: kk,
            c: c.as_mut_ptr(),
            ldc: n,
            scale: 1.0,
            accumulate: false,
        };
        // SAFETY: b is n x kk.
        let t = best(0.3, || unsafe { (k.dot)(&d) });
        println!("  dot: {:.1} GB/s", (kk * n * 4) as f64 / t / 1e9);
        let nr = 4 * isa.lanes();
        let mut packed = vec![0.0_f32; n.div_ceil(nr) * nr * kk];
        for (form, rs, cs) in [("row-major", n, 1), ("transposed", 1, kk)] {
            // SAFETY: b has kk * n elements in either form.
            let t = best(0.3, || unsafe {
                (k.pack_b)(kk, n, b.as_ptr(), rs, cs, nr, packed.as_mut_ptr())
            });
            println!(
                "  pack {form}: {:.1} GB/s written",
                (kk * n * 4) as f64 / t / 1e9
            );
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let isa = args
        .iter()
        .find_map(|a| Isa::from_name(a))
        .unwrap_or_else(Isa::detect);
    if !isa.available() {
        eprintln!("this CPU has no {isa}");
        return;
    }
    let only = args
        .iter()
        .find(|a| Isa::from_name(a).is_none())
        .map(String::as_str);
    let k = kernels(isa);
    let peak = fma_peak(isa);
    println!("{isa}: FMA peak {:.1} GFLOPS", peak / 1e9);
    if only.is_none_or(|o| o == "gemm") {
        gemms(isa, k, peak);
    }
    if only.is_none_or(|o| o == "tiles") {
        tiles(isa, k, peak);
    }
    if only.is_none_or(|o| o == "conv") {
        convs(isa, k, peak);
    }
    if only.is_none_or(|o| o == "math") {
        maths(k);
    }
    if only.is_none_or(|o| o == "gemv") {
        gemvs(isa, k);
    }
}
