//! GEMM in both forms, dot, depthwise.

use super::{GUARD, Guarded, Rng, close, fenced, isas};
use shopfloor_microkernels::{Depthwise, Dot, Gemm, Indirect, Panels, kernels};

/// B as the kernel wants it: packed or in place; returns storage, offset and panels' strides.
fn operand_b(
    k: usize,
    n: usize,
    nr: usize,
    packed: bool,
    b: &[f32],
    table: &shopfloor_microkernels::Kernels,
) -> (Vec<f32>, usize, usize, usize) {
    if packed {
        let mut out = vec![GUARD; n.div_ceil(nr) * k * nr];
        // SAFETY: b is k x n and out holds the padded panels.
        unsafe { (table.pack_b)(k, n, b.as_ptr(), n, 1, nr, out.as_mut_ptr()) };
        (out, 0, nr, k * nr)
    } else {
        let (all, at) = fenced(b);
        (all, at, n, nr)
    }
}

#[test]
fn gemm_matches_f64_for_every_shape() {
    let mut rng = Rng::new(11);
    for isa in isas() {
        let table = kernels(isa);
        for (mr, nr) in table.shapes() {
            let kern = table.gemm(mr, nr).expect("listed shapes exist");
            for round in 0..12 {
                let (m, n, k) = (
                    rng.extent(2 * mr + 3),
                    rng.extent(2 * nr + 5),
                    if round == 0 { 0 } else { rng.extent(70) },
                );
                let (packed, accumulate) = (rng.below(2) == 0, rng.below(2) == 0);
                let (lda, a_ks) = match rng.below(3) {
                    0 => (k + rng.below(4), 1),
                    1 => (1, m + rng.below(3)),
                    _ => (2 * k + 1, 2),
                };
                let a = rng.values((m * lda + k * a_ks + 1).max(1));
                let b = rng.values(k * n);
                let (bs, at, ldb, panel) = operand_b(k, n, nr, packed, &b, table);
                let ldc = n + rng.below(5);
                let mut c = Guarded::new((m - 1) * ldc + n);
                for i in 0..m {
                    for j in 0..n {
                        c.inner_mut()[i * ldc + j] =
                            if accumulate { (i + j) as f32 } else { f32::NAN };
                    }
                }
                let g = Gemm {
                    m,
                    n,
                    k,
                    a: a.as_ptr(),
                    lda,
                    a_ks,
                    b: Panels {
                        b: bs[at..].as_ptr(),
                        ldb,
                        panel,
                        padded: packed,
                    },
                    c: c.ptr(),
                    ldc,
                    accumulate,
                    post: shopfloor_microkernels::Post::NONE,
                };
                // SAFETY: the operands are as large as the strides say.
                unsafe { kern.gemm(&g) };
                c.check();
                for i in 0..m {
                    for j in 0..ldc.min(c.n - i * ldc) {
                        let got = c.inner()[i * ldc + j];
                        if j >= n {
                            assert_eq!(got, GUARD, "written between rows");
                            continue;
                        }
                        let start = if accumulate { (i + j) as f64 } else { 0.0 };
                        let sum: f64 = (0..k)
                            .map(|p| f64::from(a[i * lda + p * a_ks]) * f64::from(b[p * n + j]))
                            .sum();
                        close(
                            got,
                            start + sum,
                            1.0 + start + k as f64,
                            &format!("{isa} {mr}x{nr} {g:?} at {i},{j}"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn indirect_matches_f64_for_every_shape() {
    let mut rng = Rng::new(12);
    for isa in isas() {
        let table = kernels(isa);
        for (mr, nr) in table.shapes() {
            let kern = table.gemm(mr, nr).expect("listed shapes exist");
            for _ in 0..6 {
                let (m, n, kc, nkb) = (
                    rng.extent(2 * mr + 3),
                    rng.extent(2 * nr + 5),
                    rng.extent(20),
                    rng.extent(9),
                );
                let (packed, accumulate, a_ks) =
                    (rng.below(2) == 0, rng.below(2) == 0, 1 + rng.below(2));
                let (table_ld, a_offset) = (m + rng.below(3), rng.below(5));
                let pool = rng.values(400);
                let offsets: Vec<usize> = (0..nkb * table_ld)
                    .map(|_| rng.below(400 - kc * a_ks - a_offset))
                    .collect();
                let pointers: Vec<*const f32> =
                    offsets.iter().map(|&o| pool[o..].as_ptr()).collect();
                let k = nkb * kc;
                let b = rng.values(k * n);
                let (bs, at, ldb, panel) = operand_b(k, n, nr, packed, &b, table);
                let mut c = Guarded::new(m * n);
                c.inner_mut().fill(if accumulate { 1.5 } else { f32::NAN });
                let g = Indirect {
                    m,
                    n,
                    nkb,
                    kc,
                    table: pointers.as_ptr(),
                    table_ld,
                    a_offset,
                    a_ks,
                    b: Panels {
                        b: bs[at..].as_ptr(),
                        ldb,
                        panel,
                        padded: packed,
                    },
                    c: c.ptr(),
                    ldc: n,
                    accumulate,
                    post: shopfloor_microkernels::Post::NONE,
                };
                // SAFETY: every pointer has kc elements behind its offset.
                unsafe { kern.indirect(&g) };
                c.check();
                for i in 0..m {
                    for j in 0..n {
                        let mut sum = if accumulate { 1.5 } else { 0.0 };
                        for kb in 0..nkb {
                            for p in 0..kc {
                                let x = pool[offsets[kb * table_ld + i] + a_offset + p * a_ks];
                                sum += f64::from(x) * f64::from(b[(kb * kc + p) * n + j]);
                            }
                        }
                        close(
                            c.inner()[i * n + j],
                            sum,
                            2.0 + k as f64,
                            &format!("{isa} {mr}x{nr} {g:?} at {i},{j}"),
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn dot_matches_f64() {
    let mut rng = Rng::new(13);
    for isa in isas() {
        let table = kernels(isa);
        for _ in 0..300 {
            let (m, n, k) = (rng.extent(9), rng.extent(70), rng.extent(150));
            let (lda, ldb, ldc) = (k + rng.below(3), k + rng.below(3), n + rng.below(3));
            let (a, a_at) = fenced(&rng.values(m * lda));
            let (b, b_at) = fenced(&rng.values(n * ldb));
            let accumulate = rng.below(2) == 0;
            let mut c = Guarded::new((m - 1) * ldc + n);
            for i in 0..m {
                for j in 0..n {
                    c.inner_mut()[i * ldc + j] = if accumulate { 2.0 } else { f32::NAN };
                }
            }
            let d = Dot {
                m,
                n,
                k,
                a: a[a_at..].as_ptr(),
                lda,
                b: b[b_at..].as_ptr(),
                ldb,
                c: c.ptr(),
                ldc,
                scale: 0.5,
                accumulate,
            };
            // SAFETY: the operands are as large as the strides say.
            unsafe { (table.dot)(&d) };
            c.check();
            for i in 0..m {
                for j in 0..n {
                    let sum: f64 = (0..k)
                        .map(|p| {
                            f64::from(a[a_at + i * lda + p]) * f64::from(b[b_at + j * ldb + p])
                        })
                        .sum();
                    let start = if accumulate { 2.0 } else { 0.0 };
                    close(
                        c.inner()[i * ldc + j],
                        start + 0.5 * sum,
                        2.0 + k as f64,
                        &format!("{isa} {d:?} at {i},{j}"),
                    );
                }
                for j in n..ldc.min(c.n - i * ldc) {
                    assert_eq!(c.inner()[i * ldc + j], GUARD);
                }
            }
        }
    }
}

/// Channels of their own, and groups of them that share their inputs; in runs of taps and without, inside and at
/// the rim.
#[test]
fn depthwise_and_grouped_match_f64() {
    let mut rng = Rng::new(14);
    for isa in isas() {
        let table = kernels(isa);
        for _ in 0..300 {
            let (run, group) = (1 + rng.below(7), [1, 2, 4, 8][rng.below(4)]);
            let channels = group * rng.extent(70 / group);
            let (pixels, taps) = (rng.extent(20), run * rng.extent(5));
            let (bias, accumulate, affine) =
                (rng.below(2) == 0, rng.below(2) == 0, rng.below(2) == 0);
            let (table_step, x_step) = if affine {
                (0, channels + 1)
            } else {
                (1 + rng.below(taps), 0)
            };
            let run = if affine { run } else { 1 };
            let pool = rng.values(2000 + (pixels + run) * (channels + 1));
            let offsets: Vec<usize> = (0..pixels * table_step.max(1) + taps)
                .map(|_| rng.below(2000 - channels))
                .collect();
            // Taps of a run lie x_step apart.
            let offsets: Vec<usize> = (0..offsets.len())
                .map(|i| offsets[i - i % run] + i % run * x_step)
                .collect();
            let pointers: Vec<*const f32> = offsets.iter().map(|&o| pool[o..].as_ptr()).collect();
            let (ldw, out_step) = (channels + rng.below(3), channels + rng.below(4));
            let (w, b) = (rng.values(taps * group * ldw), rng.values(channels));
            let mut out = Guarded::new((pixels - 1) * out_step + channels);
            for p in 0..pixels {
                out.inner_mut()[p * out_step..p * out_step + channels].fill(if accumulate {
                    1.0
                } else {
                    f32::NAN
                });
            }
            let bounds = [(f32::NEG_INFINITY, f32::INFINITY), (-2.0, 2.0)][rng.below(2)];
            let d = Depthwise {
                pixels,
                channels,
                taps,
                run,
                table: pointers.as_ptr(),
                table_step,
                x_step,
                x_offset: 0,
                w: w.as_ptr(),
                ldw,
                out: out.ptr(),
                out_step,
                bias: if bias { b.as_ptr() } else { std::ptr::null() },
                accumulate,
                lo: bounds.0,
                hi: bounds.1,
            };
            // SAFETY: the pool holds every offset plus the steps.
            unsafe {
                match group {
                    1 => (table.depthwise)(&d),
                    _ => (table.grouped)(&d, group),
                }
            }
            out.check();
            for p in 0..pixels {
                for c in 0..out_step.min(out.n - p * out_step) {
                    let got = out.inner()[p * out_step + c];
                    if c >= channels {
                        assert_eq!(got, GUARD);
                        continue;
                    }
                    let mut want =
                        f64::from(u8::from(accumulate)) + if bias { f64::from(b[c]) } else { 0.0 };
                    for t in 0..taps {
                        let at = offsets[p * table_step + t] + p * x_step + c / group * group;
                        for r in 0..group {
                            let x = pool[at + r];
                            want += f64::from(x) * f64::from(w[(t * group + r) * ldw + c]);
                        }
                    }
                    let want = want.clamp(f64::from(bounds.0), f64::from(bounds.1));
                    let scale = (taps * group) as f64 + 2.0;
                    close(
                        got,
                        want,
                        scale,
                        &format!("{isa} groups of {group} {d:?} at {p},{c}"),
                    );
                }
            }
        }
    }
}
