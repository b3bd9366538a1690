//! Products of small integers and depthwise convolutions of bytes: exact.

use super::{Rng, isas};
use shopfloor_microkernels::isa::Isa;
use shopfloor_microkernels::{
    Depthwise8, Gemm, GemmKernel, Indirect, Panels, Post, kernels, pair_kernel, quad_kernel, shapes,
};

/// Bytes of elements of 4 bytes with every value, extremes often.
fn bytes(r: &mut Rng, n: usize) -> Vec<u8> {
    let pick = [0, 127, 128, 255];
    (0..n)
        .map(|_| match r.below(3) {
            0 => pick[r.below(4)],
            _ => r.next() as u8,
        })
        .collect()
}

/// Number `i` of element `e`: of pairs, or of quads with a sign where `signed`.
fn number(b: &[u8], e: usize, i: usize, pairs: bool, signed: bool) -> i64 {
    match (pairs, signed) {
        (true, _) => i64::from(i16::from_le_bytes([b[4 * e + 2 * i], b[4 * e + 2 * i + 1]])),
        (false, true) => i64::from(b[4 * e + i] as i8),
        (false, false) => i64::from(b[4 * e + i]),
    }
}

fn product(a: &[u8], b: &[u8], ea: usize, eb: usize, pairs: bool) -> i64 {
    (0..if pairs { 2 } else { 4 })
        .map(|i| number(a, ea, i, pairs, false) * number(b, eb, i, pairs, true))
        .sum()
}

fn every(mut f: impl FnMut(Isa, GemmKernel, bool, usize, usize)) {
    for isa in isas() {
        for (mr, nr) in shapes(isa) {
            for pairs in [true, false] {
                let make = if pairs { pair_kernel } else { quad_kernel };
                if let Some(k) = make(isa, mr, nr) {
                    f(isa, k, pairs, mr, nr);
                }
            }
        }
    }
}

#[test]
fn groups_are_exact_for_every_shape() {
    let mut rng = Rng::new(31);
    every(|isa, kern, pairs, mr, nr| {
        for round in 0..6 {
            let (m, n) = (rng.extent(2 * mr + 3), rng.extent(2 * nr + 5));
            let k = if round == 0 { 0 } else { rng.extent(40) };
            // Rows of A begin at any byte.
            let off = rng.below(4);
            let lda = k + rng.below(3);
            let mut a = bytes(&mut rng, off + 4 * (m * lda + k + 1));
            let panels = n.div_ceil(nr);
            let b = bytes(&mut rng, 4 * panels * k * nr);
            let accumulate = rng.below(2) == 0;
            let mut c: Vec<i32> = (0..m * n).map(|i| i as i32 - 7).collect();
            let old = c.clone();
            a.push(0);
            let g = Gemm {
                m,
                n,
                k,
                a: a[off..].as_ptr().cast(),
                lda,
                a_ks: 1,
                b: Panels {
                    b: b.as_ptr().cast(),
                    ldb: nr,
                    panel: k * nr,
                    padded: true,
                },
                c: c.as_mut_ptr().cast(),
                ldc: n,
                accumulate,
                post: Post::NONE,
            };
            // SAFETY: the operands are as large as the strides say.
            unsafe { kern.gemm(&g) };
            for i in 0..m {
                for j in 0..n {
                    let at = |p: usize| (j / nr * k + p) * nr + j % nr;
                    let sum: i64 = (0..k)
                        .map(|p| product(&a[off..], &b, i * lda + p, at(p), pairs))
                        .sum();
                    let start = if accumulate { old[i * n + j] } else { 0 };
                    let want = i64::from(start).wrapping_add(sum) as i32;
                    assert_eq!(
                        c[i * n + j],
                        want,
                        "{isa} {mr}x{nr} pairs {pairs} {g:?} at {i},{j}"
                    );
                }
            }
        }
    });
}

#[test]
fn groups_of_a_table_are_exact() {
    let mut rng = Rng::new(32);
    every(|isa, kern, pairs, mr, nr| {
        let (m, n) = (rng.extent(2 * mr + 3), rng.extent(2 * nr + 5));
        let (kc, nkb) = (rng.extent(20), rng.extent(9));
        let pool = bytes(&mut rng, 4 * (200 + kc));
        let offsets: Vec<usize> = (0..nkb * m).map(|_| rng.below(800)).collect();
        let table: Vec<*const f32> = offsets.iter().map(|&o| pool[o..].as_ptr().cast()).collect();
        let k = nkb * kc;
        let b = bytes(&mut rng, 4 * n.div_ceil(nr) * k * nr);
        let mut c = vec![0i32; m * n];
        let g = Indirect {
            m,
            n,
            nkb,
            kc,
            table: table.as_ptr(),
            table_ld: m,
            a_offset: 0,
            a_ks: 1,
            b: Panels {
                b: b.as_ptr().cast(),
                ldb: nr,
                panel: k * nr,
                padded: true,
            },
            c: c.as_mut_ptr().cast(),
            ldc: n,
            accumulate: false,
            post: Post::NONE,
        };
        // SAFETY: every pointer has kc elements.
        unsafe { kern.indirect(&g) };
        for i in 0..m {
            for j in 0..n {
                let mut want = 0i64;
                for p in 0..k {
                    let row = &pool[offsets[p / kc * m + i]..];
                    let at = (j / nr * k + p) * nr + j % nr;
                    want += product(row, &b, p % kc, at, pairs);
                }
                // Sums of pairs of any 16 bits leave 32 bits, and wrap.
                assert_eq!(c[i * n + j], want as i32, "{isa} {mr}x{nr} pairs {pairs}");
            }
        }
    });
}

#[test]
fn depthwise_of_bytes_is_exact() {
    let mut rng = Rng::new(33);
    for isa in isas() {
        for _ in 0..60 {
            let (pixels, channels) = (rng.extent(20), rng.extent(70));
            let (taps, x_step) = (1 + rng.below(12), channels + rng.below(5));
            let shared = rng.below(2) == 0;
            let step = if shared { 0 } else { taps };
            let pool = bytes(&mut rng, 600 + pixels * x_step + channels);
            let count = if shared { taps } else { pixels * taps };
            let offsets: Vec<usize> = (0..count).map(|_| rng.below(600)).collect();
            let table: Vec<*const u8> = offsets.iter().map(|&o| pool[o..].as_ptr()).collect();
            let w: Vec<i8> = bytes(&mut rng, taps * channels)
                .iter()
                .map(|&b| b as i8)
                .collect();
            let accumulate = rng.below(2) == 0;
            let mut out = vec![5i32; pixels * channels];
            let d = Depthwise8 {
                pixels,
                channels,
                taps,
                table: table.as_ptr(),
                table_step: step,
                x_step,
                x_offset: 0,
                w: w.as_ptr(),
                ldw: channels,
                out: out.as_mut_ptr(),
                out_step: channels,
                accumulate,
            };
            // SAFETY: every pointer has the pixels' channels.
            unsafe { (kernels(isa).depthwise8)(&d) };
            for p in 0..pixels {
                for c in 0..channels {
                    let sum: i32 = (0..taps)
                        .map(|t| {
                            let x = pool[offsets[p * step + t] + p * x_step + c];
                            i32::from(x) * i32::from(w[t * channels + c])
                        })
                        .sum();
                    let want = sum + if accumulate { 5 } else { 0 };
                    assert_eq!(out[p * channels + c], want, "{isa} {d:?} at {p},{c}");
                }
            }
        }
    }
}
