//! Products with both operands contiguous along k: `C[i][j] = sum_p A[i][p] * B[j][p]`.
//!
//! This is A times B transposed with B read in place (the scores of attention in a decode step): the sum runs
//! along the vectors, and four accumulators at a time are folded by transposing additions.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::{Simd, held};

/// Operands of `C[i * ldc + j] (+)= scale * sum_p A[i * lda + p] * B[j * ldb + p]`; strides count elements.
#[derive(Clone, Copy, Debug)]
pub struct Dot {
    /// Rows of A; any number, fast in fours.
    pub m: usize,
    /// Rows of B, which are columns of C; any number.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// The rows that are kept.
    pub a: *const f32,
    /// From one row of A to the next.
    pub lda: usize,
    /// The rows that are streamed.
    pub b: *const f32,
    /// From one row of B to the next.
    pub ldb: usize,
    /// The result.
    pub c: *mut f32,
    /// From one row of C to the next.
    pub ldc: usize,
    /// Multiplies each sum.
    pub scale: f32,
    /// Whether to add to what C holds, or to overwrite it without reading.
    pub accumulate: bool,
}

/// I rows of A against G groups of four rows of B.
#[inline(always)]
unsafe fn block<S: Simd, const I: usize, const G: usize>(d: &Dot, i: usize, j: usize) {
    // SAFETY: the caller gives i + I <= m and j + 4 G <= n.
    unsafe {
        let mut acc = [[[S::zero(); 4]; G]; I];
        let a = d.a.add(i * d.lda);
        let b = d.b.add(j * d.ldb);
        let mut p = 0;
        while p + S::W <= d.k {
            let mut av = [S::zero(); I];
            for (r, v) in av.iter_mut().enumerate() {
                *v = S::load(a.add(r * d.lda + p));
            }
            for g in 0..G {
                for q in 0..4 {
                    let bv = S::load(b.add((4 * g + q) * d.ldb + p));
                    for r in 0..I {
                        acc[r][g][q] = S::fma(av[r], bv, acc[r][g][q]);
                    }
                }
            }
            p += S::W;
        }
        if p < d.k {
            let t = S::tail(d.k - p);
            let mut av = [S::zero(); I];
            for (r, v) in av.iter_mut().enumerate() {
                *v = S::load_t(a.add(r * d.lda + p), t);
            }
            for g in 0..G {
                for q in 0..4 {
                    let bv = S::load_t(b.add((4 * g + q) * d.ldb + p), t);
                    for r in 0..I {
                        acc[r][g][q] = S::fma(av[r], bv, acc[r][g][q]);
                    }
                }
            }
        }
        for r in 0..I {
            for g in 0..G {
                let sums = S::hsum4(acc[r][g]);
                let c = d.c.add((i + r) * d.ldc + j + 4 * g);
                for (q, s) in sums.into_iter().enumerate() {
                    *c.add(q) = if d.accumulate {
                        *c.add(q) + s * d.scale
                    } else {
                        s * d.scale
                    };
                }
            }
        }
    }
}

/// I rows of A against one row of B.
#[inline(always)]
unsafe fn single<S: Simd, const I: usize>(d: &Dot, i: usize, j: usize) {
    // SAFETY: the caller gives i + I <= m and j < n.
    unsafe {
        let mut acc = [[S::zero(); 2]; I];
        let a = d.a.add(i * d.lda);
        let b = d.b.add(j * d.ldb);
        let mut p = 0;
        while p + 2 * S::W <= d.k {
            for u in 0..2 {
                let bv = S::load(b.add(p + u * S::W));
                for r in 0..I {
                    acc[r][u] = S::fma(S::load(a.add(r * d.lda + p + u * S::W)), bv, acc[r][u]);
                }
            }
            p += 2 * S::W;
        }
        while p < d.k {
            let t = S::tail(S::W.min(d.k - p));
            let bv = S::load_t(b.add(p), t);
            for r in 0..I {
                acc[r][0] = S::fma(S::load_t(a.add(r * d.lda + p), t), bv, acc[r][0]);
            }
            p += S::W;
        }
        for r in 0..I {
            let s = S::hsum(S::add(acc[r][0], acc[r][1])) * d.scale;
            let c = d.c.add((i + r) * d.ldc + j);
            *c = if d.accumulate { *c + s } else { s };
        }
    }
}

#[inline(always)]
unsafe fn rows<S: Simd, const I: usize, const G: usize>(d: &Dot, i: usize) {
    let mut j = 0;
    // SAFETY: the loops keep to j < n.
    unsafe {
        while j + 4 * G <= d.n {
            block::<S, I, G>(d, i, j);
            j += 4 * G;
        }
        while j + 4 <= d.n {
            block::<S, I, 1>(d, i, j);
            j += 4;
        }
        while j < d.n {
            single::<S, I>(d, i, j);
            j += 1;
        }
    }
}

#[inline(always)]
pub(super) unsafe fn dot<S: Simd>(d: &Dot) {
    let mut i = 0;
    // SAFETY: the loop keeps to i < m.
    unsafe {
        while i < d.m {
            // Sums of two rows and weights of one vector: where they are not held, rows go one by one.
            let one = const { !held::<S>(2 * 4, 2) };
            match d.m - i {
                _ if one => rows::<S, 1, 1>(d, i),
                1 => rows::<S, 1, 2>(d, i),
                2 => rows::<S, 2, 1>(d, i),
                3 => rows::<S, 3, 1>(d, i),
                _ => rows::<S, 4, 1>(d, i),
            }
            i += if one { 1 } else { 4.min(d.m - i) };
        }
    }
}
