//! Rates of the units, measured with the kernels that plans run: what a unit does is what this program gets
//! out of it. Each is what the unit would do by itself, so that the share of it which the target states for a
//! kernel gives what was measured.
use super::loops;
use super::rate::{Make, Rate};
use crate::exec::copy::strided_copy;
use crate::isa::Isa;
use crate::target::target;
use crate::ukr::kernels::kernels;
use crate::ukr::{Gemm, GemmKernel, Panels, Post, bf16_kernel, gemm_kernel, quad_kernel};
use machine::{NumType, UnitClass};
use std::hint::black_box;

/// Elements of a row: with its result it lies in the nearest cache.
const ROW: usize = 2048;
/// Distance of neighbours that lie apart, in elements: no multiple of a cache line.
const APART: usize = 3;
/// Terms of a product: both factors lie in the nearest cache.
const DEPTH: usize = 128;

/// The rates of the instruction sets `isas`, the best first.
pub(super) fn rates(isas: &[Isa]) -> Vec<Rate> {
    let best = isas.first().copied().unwrap_or(Isa::Portable);
    let mut out: Vec<Rate> = isas.iter().filter_map(|&isa| floats(isa)).collect();
    out.extend(doubles(isas));
    out.extend(halves(best));
    out.extend(bytes(best));
    out.extend([
        rows(best, UnitClass::Simple, |isa| kernels(isa).max),
        rows(best, UnitClass::Divsqrt, |isa| kernels(isa).div),
        exponentials(best),
        elements(best),
    ]);
    out
}

/// The register tile of `isa` that reaches most, with its share of what its unit does.
fn widest(isa: Isa) -> Option<(usize, usize, f64)> {
    let target = target(isa);
    let shapes = target.micro.iter();
    let most = shapes.max_by(|a, b| {
        let size = |s: &kernel::MicroShape| s.efficiency * f64::from(s.mr * s.nr);
        size(a).total_cmp(&size(b))
    })?;
    Some((most.mr as usize, most.nr as usize, most.efficiency))
}

/// Products of a register tile, of elements of 32 bits that hold `terms` numbers each.
fn product(kernel: GemmKernel, terms: usize, share: f64, rate: Rate) -> Rate {
    let (m, n) = (kernel.mr(), kernel.nr());
    let make: Make = Box::new(move || {
        let (a, b) = (vec![0f32; m * DEPTH], vec![0f32; n * DEPTH]);
        let mut c = vec![0f32; m * n];
        Box::new(move |passes| {
            for _ in 0..passes {
                let g = Gemm {
                    m,
                    n,
                    k: DEPTH,
                    a: black_box(a.as_ptr()),
                    lda: DEPTH,
                    a_ks: 1,
                    b: Panels {
                        b: b.as_ptr(),
                        ldb: n,
                        panel: n * DEPTH,
                        padded: true,
                    },
                    c: c.as_mut_ptr(),
                    ldc: n,
                    accumulate: false,
                    post: Post::NONE,
                };
                // SAFETY: the kernel is of an instruction set that is there; m x k, k x n and m x n elements.
                unsafe { kernel.gemm(&g) };
            }
        })
    });
    Rate {
        ops_per_pass: (2 * m * n * DEPTH * terms) as f64 / share,
        make,
        ..rate
    }
}

fn rate(class: UnitClass, dtype: NumType, isa: &'static str, lanes: usize) -> Rate {
    Rate {
        class,
        dtype,
        isa,
        lanes: lanes as u64,
        ops_per_pass: 0.0,
        make: Box::new(|| Box::new(|_| {})),
    }
}

fn floats(isa: Isa) -> Option<Rate> {
    let (m, n, share) = widest(isa)?;
    // The portable kernels are compiled for vectors of 16 bytes.
    let lanes = if isa == Isa::Portable { 4 } else { isa.lanes() };
    let of = rate(UnitClass::Fma, NumType::F32, isa.name(), lanes);
    Some(product(gemm_kernel(isa, m, n)?, 1, share, of))
}

/// No kernel multiplies f64 by vectors of its own choice: what the compiler makes of loops.
fn doubles(isas: &[Isa]) -> Option<Rate> {
    #[cfg(target_arch = "x86_64")]
    {
        let (isa, lanes, chains, run) = match isas {
            _ if isas.contains(&Isa::Avx512) => ("avx512", 8, 24, loops::fma512d as fn(usize)),
            _ if isas.contains(&Isa::Avx2) => ("avx2", 4, 12, loops::fma256d as fn(usize)),
            _ => return None,
        };
        Some(Rate {
            ops_per_pass: (2 * lanes * chains * loops::UNROLL) as f64,
            make: Box::new(move || Box::new(run)),
            ..rate(UnitClass::Fma, NumType::F64, isa, lanes)
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isas;
        None
    }
}

fn halves(isa: Isa) -> Option<Rate> {
    let (m, n, share) = widest(isa)?;
    let of = rate(UnitClass::Fma, NumType::Bf16, "avx512_bf16", 32);
    Some(product(bf16_kernel(isa, m, n)?, 2, share, of))
}

/// Products of small integers, where the processor has an instruction for them.
fn bytes(isa: Isa) -> Option<Rate> {
    #[cfg(target_arch = "x86_64")]
    {
        let name = match isa {
            Isa::Avx512 if std::arch::is_x86_feature_detected!("avx512vnni") => "avx512_vnni",
            Isa::Avx2 if std::arch::is_x86_feature_detected!("avxvnni") => "avx_vnni",
            _ => return None,
        };
        let (m, n, share) = widest(isa)?;
        let of = rate(UnitClass::Fma, NumType::I8, name, 4 * isa.lanes());
        Some(product(quad_kernel(isa, m, n)?, 4, share, of))
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isa;
        None
    }
}

/// What a kernel over rows reaches of its unit, as the target says.
fn share(isa: Isa, class: UnitClass) -> f64 {
    target(isa).efficiencies.default.unit("", class)
}

fn rows(isa: Isa, class: UnitClass, of: fn(Isa) -> crate::ukr::BinaryFn) -> Rate {
    Rate {
        ops_per_pass: ROW as f64 / share(isa, class),
        make: Box::new(move || {
            let f = of(isa);
            let (a, b) = (vec![0.5f32; ROW], vec![0.7f32; ROW]);
            let mut y = vec![0f32; ROW];
            Box::new(move |passes| {
                for _ in 0..passes {
                    // SAFETY: the kernels are those of an instruction set that is there; ROW elements each.
                    unsafe { f(black_box(a.as_ptr()), b.as_ptr(), y.as_mut_ptr(), ROW) };
                }
            })
        }),
        ..rate(class, NumType::F32, isa.name(), isa.lanes())
    }
}

fn exponentials(isa: Isa) -> Rate {
    Rate {
        ops_per_pass: ROW as f64 / share(isa, UnitClass::Transcendental),
        make: Box::new(move || {
            let f = kernels(isa).exp;
            let x = vec![0.5f32; ROW];
            let mut y = vec![0f32; ROW];
            Box::new(move |passes| {
                for _ in 0..passes {
                    // SAFETY: the kernels are those of an instruction set that is there; ROW elements each.
                    unsafe { f(black_box(x.as_ptr()), y.as_mut_ptr(), ROW) };
                }
            })
        }),
        ..rate(UnitClass::Transcendental, NumType::F32, "", isa.lanes())
    }
}

fn elements(isa: Isa) -> Rate {
    Rate {
        ops_per_pass: ROW as f64,
        make: Box::new(move || {
            let k = kernels(isa);
            let x = vec![0.5f32; ROW * APART];
            let mut y = vec![0f32; ROW];
            let (to, from, n) = ([1i64], [APART as i64], [ROW as i64]);
            Box::new(move |passes| {
                for _ in 0..passes {
                    let (y, x) = (y.as_mut_ptr().cast(), black_box(x.as_ptr()).cast());
                    // SAFETY: ROW elements of `y`, and of `x` every APART-th of ROW * APART.
                    unsafe { strided_copy(k, 4, y, &to, x, &from, &n) };
                }
            })
        }),
        ..rate(UnitClass::Element, NumType::F32, "", isa.lanes())
    }
}
