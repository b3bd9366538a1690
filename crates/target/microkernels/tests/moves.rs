//! Packing, transposing and strided copies.

use super::{GUARD, Guarded, Rng, fenced, isas};
use shopfloor_microkernels::{Ranks, copy_strided, kernels};

#[test]
fn packing_places_and_pads() {
    let mut rng = Rng::new(21);
    for isa in isas() {
        let table = kernels(isa);
        for _ in 0..300 {
            let (k, n) = (rng.extent(80), rng.extent(150));
            let nr = isa.lanes() * (1 + rng.below(4)) + if rng.below(4) == 0 { 3 } else { 0 };
            let (row_stride, col_stride) = match rng.below(3) {
                0 => (n + rng.below(3), 1),
                1 => (1, k + rng.below(3)),
                _ => (2 * n, 2),
            };
            let len = (k - 1) * row_stride + (n - 1) * col_stride + 1;
            let (src, at) = fenced(&rng.values(len));
            let panels = n.div_ceil(nr);
            let mut dst = Guarded::new(panels * k * nr);
            // SAFETY: the source has len elements, the destination the padded panels.
            unsafe {
                (table.pack_b)(
                    k,
                    n,
                    src[at..].as_ptr(),
                    row_stride,
                    col_stride,
                    nr,
                    dst.ptr(),
                )
            };
            dst.check();
            for panel in 0..panels {
                for p in 0..k {
                    for j in 0..nr {
                        let col = panel * nr + j;
                        let want = if col < n {
                            src[at + p * row_stride + col * col_stride]
                        } else {
                            0.0
                        };
                        assert_eq!(
                            dst.inner()[(panel * k + p) * nr + j],
                            want,
                            "{isa} k {k} n {n} nr {nr} {row_stride} {col_stride}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn transpose_moves_bits() {
    let mut rng = Rng::new(22);
    for isa in isas() {
        let table = kernels(isa);
        for _ in 0..200 {
            let (mut rows, mut cols) = (rng.extent(70), rng.extent(70));
            match rng.below(4) {
                0 => rows = 1 + rng.below(5),
                1 => cols = 1 + rng.below(5),
                _ => {}
            }
            let (sld, dld) = (cols + rng.below(3), rows + rng.below(3));
            let src: Vec<u32> = (0..rows * sld).map(|_| rng.next() as u32).collect();
            let mut dst = Guarded::new((cols - 1) * dld + rows);
            // SAFETY: both areas are as large as the strides say.
            unsafe { (table.transpose32)(rows, cols, src.as_ptr(), sld, dst.ptr().cast(), dld) };
            dst.check();
            for c in 0..cols {
                for r in 0..dld.min(dst.n - c * dld) {
                    let want = if r < rows {
                        src[r * sld + c]
                    } else {
                        GUARD.to_bits()
                    };
                    assert_eq!(dst.inner()[c * dld + r].to_bits(), want);
                }
            }
        }
    }
}

#[test]
fn strided_copies_of_every_size() {
    fn check<T: Copy + PartialEq + std::fmt::Debug>(make: impl Fn(u64) -> T) {
        let src: Vec<T> = (0..200).map(|i| make(1 + i)).collect();
        for n in [0_usize, 1, 3, 4, 5, 7, 9, 33] {
            for (ds, ss) in [(1_isize, 1_isize), (1, 0), (1, 3), (2, 1), (3, -2), (-1, 5)] {
                let mut dst = vec![make(0); 260];
                // SAFETY: offsets stay inside: 33 * 5 < 200 and 130 +- 33 * 3 is inside 260.
                unsafe {
                    copy_strided(
                        dst.as_mut_ptr().add(130),
                        ds,
                        src.as_ptr().add(if ss < 0 { 100 } else { 0 }),
                        ss,
                        n,
                    )
                };
                let mut want = vec![make(0); 260];
                for i in 0..n as isize {
                    let from = (if ss < 0 { 100 } else { 0 }) + i * ss;
                    want[(130 + i * ds) as usize] = src[from as usize];
                }
                assert_eq!(dst, want, "n {n} strides {ds} {ss}");
            }
        }
    }
    check(|i| i as u8);
    check(|i| i as u16);
    check(|i| i as u32 * 3);
    check(|i| i * 5);
    check(|i| i as f32);
}

/// Offsets of indices from both ends, dense and apart, from a beginning or on top of others; one outside is
/// told of wherever it stands.
#[test]
fn indices_become_offsets() {
    let mut rng = Rng::new(31);
    for isa in isas() {
        let table = kernels(isa);
        for round in 0..400 {
            let (n, step) = (rng.extent(200), 1 + rng.below(3));
            let extent = 1 + rng.below(50) as i64;
            let r = Ranks {
                extent,
                stride: [4, 8, 12, 1, 0, 4096][rng.below(6)],
            };
            let one = |rng: &mut Rng| rng.below(2 * extent as usize) as i64 - extent;
            let mut by: Vec<i64> = (0..n * step).map(|_| one(&mut rng)).collect();
            let wrong = (round % 3 == 0).then(|| rng.below(n) * step);
            if let Some(at) = wrong {
                by[at] = [extent, -extent - 1, i64::MAX, i64::MIN][rng.below(4)];
            }
            let before: Vec<i64> = (0..n).map(|_| rng.below(1000) as i64).collect();
            let begin = [None, Some((7, 0)), Some((-5, 16))][rng.below(3)];
            let narrow: Vec<i32> = by.iter().map(|v| *v as i32).collect();
            let (mut wide, mut short) = (before.clone(), before.clone());
            let step = step as isize;
            // SAFETY: n indices, `step` apart, and n offsets.
            let outside = unsafe {
                let to = wide.as_mut_ptr();
                (table.ranks64)(by.as_ptr(), step, &r, begin, to, n)
            };
            // SAFETY: as above.
            let outside32 = unsafe {
                let to = short.as_mut_ptr();
                (table.ranks32)(narrow.as_ptr(), step, &r, begin, to, n)
            };
            assert_eq!(outside, wrong.is_some(), "{isa} {r:?} {by:?}");
            if outside {
                continue;
            }
            let want: Vec<i64> = (0..n)
                .map(|i| {
                    let from = begin.map_or(before[i], |(b, s)| b + s * i as i64);
                    from + by[i * step as usize].rem_euclid(extent) * r.stride
                })
                .collect();
            assert_eq!((&wide, &short), (&want, &want), "{isa} {r:?} {begin:?}");
            assert!(!outside32);
        }
    }
}

/// Elements at offsets that jump, go on for a while, and end before a whole vector.
#[test]
fn elements_at_offsets() {
    let mut rng = Rng::new(32);
    for isa in isas() {
        let table = kernels(isa);
        for _ in 0..300 {
            let n = rng.extent(150);
            let src: Vec<u64> = (0..400).map(|_| rng.next()).collect();
            let mut at = rng.below(400);
            let ranks: Vec<usize> = (0..n)
                .map(|_| {
                    at = match rng.below(20) {
                        0 => rng.below(400),
                        _ => (at + 1) % 400,
                    };
                    at
                })
                .collect();
            macro_rules! check {
                ($take:ident, $t:ty) => {{
                    let src: Vec<$t> = src.iter().map(|v| *v as $t).collect();
                    let size = size_of::<$t>();
                    let offsets: Vec<i64> = ranks.iter().map(|r| (r * size) as i64).collect();
                    let mut dst = vec![0 as $t; n + 1];
                    // SAFETY: n offsets inside the source, n places.
                    unsafe { (table.$take)(src.as_ptr(), offsets.as_ptr(), dst.as_mut_ptr(), n) };
                    let mut want: Vec<$t> = ranks.iter().map(|r| src[*r]).collect();
                    want.push(0);
                    assert_eq!(dst, want, "{isa} {ranks:?}");
                }};
            }
            check!(take8, u8);
            check!(take16, u16);
            check!(take32, u32);
            check!(take64, u64);
        }
    }
}
