//! Rows folded into a row: every column of a matrix is summed, or its greatest or smallest found.
//!
//! Columns are taken a few vectors at a time, down all rows, with accumulators in registers: several rows at
//! once where the columns alone are too few to hide the latency of an addition. The order of each fold depends
//! on the instruction set and the counts only.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::math;
use super::simd::Simd;

/// Operands of `acc[j] = acc[j] + sum over i < rows of f(x[i * ld + j])` for j < n, and the like for extremes.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// Rows that are folded.
    pub rows: usize,
    /// Columns, contiguous in x, mean and acc.
    pub n: usize,
    /// The first element of the first row.
    pub x: *const f32,
    /// From one row to the next, in elements; any sign.
    pub ld: isize,
    /// What is subtracted from each column before squares are summed, or null; sums and extremes ignore it.
    pub mean: *const f32,
    /// The row that takes the results.
    pub acc: *mut f32,
}

#[inline(always)]
unsafe fn load<S: Simd, const MASKED: bool>(p: *const f32, tail: S::T) -> S::F {
    // SAFETY: the caller vouches for the lanes.
    unsafe {
        if MASKED {
            S::load_t(p, tail)
        } else {
            S::load(p)
        }
    }
}

/// Folds V vectors of columns in U sets of accumulators, the last vector masked when MASKED.
macro_rules! fold {
    ($name:ident, |$v:ident, $m:ident| $f:expr, |$a:ident, $b:ident| $join:expr, $start:expr) => {
        /// As its module says; see [`Columns`].
        #[inline(always)]
        pub(super) unsafe fn $name<S: Simd>(d: &Columns) {
            #[inline(always)]
            unsafe fn strip<S: Simd, const V: usize, const U: usize, const MASKED: bool>(
                d: &Columns,
                c: usize,
                tail: S::T,
            ) {
                // SAFETY: the caller gives columns c.. that exist up to the tail, and every row has them.
                unsafe {
                    let mut mean = [S::zero(); V];
                    if !d.mean.is_null() {
                        for (v, m) in mean.iter_mut().enumerate() {
                            *m = load::<S, MASKED>(d.mean.add(c + v * S::W), tail);
                        }
                    }
                    let mut acc = [[S::splat($start); V]; U];
                    let mut row = d.x.add(c);
                    let mut i = 0;
                    while i + U <= d.rows {
                        for acc in &mut acc {
                            for (v, acc) in acc.iter_mut().enumerate() {
                                let $v = load::<S, MASKED>(row.wrapping_add(v * S::W), tail);
                                let $m = mean[v];
                                let ($a, $b) = (*acc, $f);
                                *acc = $join;
                            }
                            row = row.wrapping_offset(d.ld);
                        }
                        i += U;
                    }
                    while i < d.rows {
                        for (v, acc) in acc[0].iter_mut().enumerate() {
                            let $v = load::<S, MASKED>(row.wrapping_add(v * S::W), tail);
                            let $m = mean[v];
                            let ($a, $b) = (*acc, $f);
                            *acc = $join;
                        }
                        row = row.wrapping_offset(d.ld);
                        i += 1;
                    }
                    for v in 0..V {
                        let p = d.acc.add(c + v * S::W);
                        let mut sum = acc[0][v];
                        for set in &acc[1..] {
                            let ($a, $b) = (sum, set[v]);
                            sum = $join;
                        }
                        let ($a, $b) = (load::<S, MASKED>(p, tail), sum);
                        let sum = $join;
                        if MASKED {
                            S::store_t(p, sum, tail)
                        } else {
                            S::store(p, sum)
                        }
                    }
                }
            }
            let mut c = 0;
            // SAFETY: the loops keep to the columns.
            unsafe {
                let full = S::tail(S::W);
                while c + 4 * S::W <= d.n {
                    strip::<S, 4, 2, false>(d, c, full);
                    c += 4 * S::W;
                }
                while c + S::W <= d.n {
                    strip::<S, 1, 8, false>(d, c, full);
                    c += S::W;
                }
                if c < d.n {
                    strip::<S, 1, 8, true>(d, c, S::tail(d.n - c));
                }
            }
        }
    };
}

fold!(sum, |v, _m| v, |a, b| S::add(a, b), 0.0);
fold!(
    squares,
    |v, m| S::mul(S::sub(v, m), S::sub(v, m)),
    |a, b| S::add(a, b),
    0.0
);
fold!(
    max,
    |v, _m| v,
    |a, b| math::max_nan::<S>(a, b),
    f32::NEG_INFINITY
);
fold!(
    min,
    |v, _m| v,
    |a, b| math::min_nan::<S>(a, b),
    f32::INFINITY
);
