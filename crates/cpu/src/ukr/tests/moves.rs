//! Packing, transposing and strided copies.

use super::{GUARD, Guarded, Rng, fenced, isas};
use crate::ukr::{copy_strided, kernels};

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
