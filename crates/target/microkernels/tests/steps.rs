//! Weights of 4 bits, and the way between whole steps and numbers.

use super::{Guarded, Rng, close, isas};
use shopfloor_microkernels::nibbles::GROUP;
use shopfloor_microkernels::{Nibbles, kernels};

#[test]
fn weights_of_four_bits_match_f64() {
    let mut rng = Rng::new(41);
    for isa in isas() {
        let (table, lanes) = (kernels(isa), isa.lanes());
        for round in 0..40 {
            let (m, n) = (rng.extent(9), rng.extent(70));
            let (blocks, block) = (1 + rng.below(5), GROUP * (1 + rng.below(4)));
            let k = blocks * block;
            let signed = rng.below(2) == 0;
            let panels = n.div_ceil(lanes);
            let numbers: Vec<u8> = (0..k * n).map(|_| rng.below(16) as u8).collect();
            let mut w = vec![0u8; panels * k * lanes / 2];
            let mut scales = vec![0f32; panels * blocks * lanes];
            let mut zeros = scales.clone();
            for j in 0..n {
                let (p, l) = (j / lanes, j % lanes);
                for i in 0..k {
                    let lane = ((p * k + i / GROUP * GROUP) * lanes) / 2 + l * GROUP / 2;
                    w[lane + i % GROUP / 2] |= numbers[i * n + j] << (4 * (i % 2));
                }
                for b in 0..blocks {
                    scales[(p * blocks + b) * lanes + l] = rng.value();
                    zeros[(p * blocks + b) * lanes + l] = rng.below(16) as f32;
                }
            }
            let lda = k + rng.below(3);
            let a = rng.values(m * lda);
            let totals: Vec<f32> = (0..m * blocks)
                .map(|i| {
                    let at = i / blocks * lda + i % blocks * block;
                    a[at..at + block].iter().sum()
                })
                .collect();
            let ldc = n + rng.below(4);
            let mut c = Guarded::new((m - 1) * ldc + n);
            let accumulate = rng.below(2) == 0;
            for i in 0..m {
                c.inner_mut()[i * ldc..i * ldc + n].fill(if accumulate { 1.0 } else { f32::NAN });
            }
            let d = Nibbles {
                m,
                n,
                blocks,
                block,
                a: a.as_ptr(),
                lda,
                totals: totals.as_ptr(),
                w: w.as_ptr(),
                signed,
                scales: scales.as_ptr(),
                zeros: if round % 2 == 0 {
                    zeros.as_ptr()
                } else {
                    std::ptr::null()
                },
                zero: 3.0,
                c: c.ptr(),
                ldc,
                accumulate,
            };
            // SAFETY: the operands are as large as the extents say.
            unsafe { (table.nibbles)(&d) };
            c.check();
            for i in 0..m {
                for j in 0..n {
                    let mut want = if accumulate { 1.0 } else { 0.0 };
                    for p in 0..k {
                        let v = i64::from(numbers[p * n + j]);
                        let v = if signed && v > 7 { v - 16 } else { v };
                        let at = (j / lanes * blocks + p / block) * lanes + j % lanes;
                        let zero = if round % 2 == 0 { zeros[at] } else { 3.0 };
                        want += f64::from(a[i * lda + p])
                            * (v as f64 - f64::from(zero))
                            * f64::from(scales[at]);
                    }
                    let what = format!("{isa} {d:?} at {i},{j}");
                    close(c.inner()[i * ldc + j], want, 20.0 * (1.0 + k as f64), &what);
                }
            }
        }
    }
}

#[test]
fn steps_are_those_of_the_operations_one_by_one() {
    let mut rng = Rng::new(42);
    for isa in isas() {
        let k = kernels(isa);
        for _ in 0..40 {
            let n = rng.extent(80);
            let acc: Vec<i32> = (0..n).map(|_| rng.next() as i32 >> 8).collect();
            let off: Vec<i32> = (0..n).map(|_| rng.next() as i32 >> 8).collect();
            let rows: Vec<Vec<f32>> = (0..3).map(|_| rng.values(n)).collect();
            let have: Vec<bool> = (0..4).map(|_| rng.below(2) == 0).collect();
            let row = |i: usize| {
                if have[i] {
                    rows[i].as_ptr()
                } else {
                    std::ptr::null()
                }
            };
            let times = [1, -3, 200][rng.below(3)];
            let mut y = Guarded::new(n);
            let o = if have[3] {
                off.as_ptr()
            } else {
                std::ptr::null()
            };
            // SAFETY: rows of n elements.
            unsafe { (k.scaled)(acc.as_ptr(), o, times, row(0), row(1), row(2), y.ptr(), n) };
            y.check();
            for i in 0..n {
                let more = off[i].wrapping_mul(times);
                let sum = acc[i].wrapping_add(if have[3] { more } else { 0 });
                let mut want = sum as f32;
                want = if have[0] { want + rows[0][i] } else { want };
                want = if have[1] { want * rows[1][i] } else { want };
                want = if have[2] { want + rows[2][i] } else { want };
                assert_eq!(y.inner()[i], want, "{isa} at {i}");
            }
            let mut x: Vec<f32> = rng.values(n).iter().map(|v| v * 40.0).collect();
            x[0] = [f32::NAN, f32::INFINITY, -f32::INFINITY, 2.5, -0.5][rng.below(5)];
            let (by, zero) = ([1.0, 0.1, 0.37][rng.below(3)], rng.below(9) as f32 - 4.0);
            let (lo, hi) = [(0.0, 255.0), (-128.0, 127.0)][rng.below(2)];
            let mut q = vec![0i32; n];
            // SAFETY: rows of n elements.
            unsafe { (k.quantise)(x.as_ptr(), by, zero, lo, hi, q.as_mut_ptr(), n) };
            for i in 0..n {
                let v = (x[i] / by).round_ties_even() + zero;
                let want = if v.is_nan() {
                    0
                } else {
                    v.clamp(lo, hi) as i32
                };
                assert_eq!(q[i], want, "{isa} {} / {by} + {zero}", x[i]);
            }
            let b: Vec<u8> = (0..n).map(|_| rng.next() as u8).collect();
            let signed = rng.below(2) == 0;
            let mut y = Guarded::new(n);
            // SAFETY: rows of n elements.
            unsafe { (k.dequantise)(b.as_ptr(), signed, zero, by, y.ptr(), n) };
            y.check();
            for (got, &byte) in y.inner().iter().zip(&b) {
                let v = if signed {
                    f32::from(byte as i8)
                } else {
                    f32::from(byte)
                };
                assert_eq!(*got, (v - zero) * by, "{isa} {byte} as {signed}");
            }
        }
    }
}
