//! Products of f32 rows with weights of 4 bits, which become f32 in registers.
//!
//! Weights lie in panels of as many columns as a vector has lanes; a vector of a panel holds eight
//! neighbours along k of each column, the first one in the lowest bits. Each block along k has a scale per
//! column and, perhaps, a zero point: `w = (number - zero) * scale`. Sums of a block are taken of whole
//! numbers first, so that scale and zero point cost one step per block.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! [`Nibbles`]; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::{Simd, held};

/// Neighbours along k in a lane.
pub const GROUP: usize = 8;

/// Operands of `C[i][j] (+)= sum_p A[i][p] * W[p][j]` for i < m, j < n, p < k. Strides count elements.
#[derive(Clone, Copy, Debug)]
pub struct Nibbles {
    /// Rows of C.
    pub m: usize,
    /// Columns of C.
    pub n: usize,
    /// Blocks along k.
    pub blocks: usize,
    /// Terms per block, a multiple of [`GROUP`].
    pub block: usize,
    /// A\[0\]\[0\]; contiguous along k.
    pub a: *const f32,
    /// From a row of A to the next.
    pub lda: usize,
    /// Sums of the blocks of each row of A, row by row.
    pub totals: *const f32,
    /// The first panel; panels follow one another, k * lanes / 2 bytes each, padded to whole vectors.
    pub w: *const u8,
    /// Whether numbers are -8..8 rather than 0..16.
    pub signed: bool,
    /// Scales of the first panel: a row of lanes per block, padded; panels follow one another.
    pub scales: *const f32,
    /// Zero points that lie alike, or null for `zero` everywhere.
    pub zeros: *const f32,
    /// The zero point where there is no row of them.
    pub zero: f32,
    /// C\[0\]\[0\]; a row's columns are contiguous.
    pub c: *mut f32,
    /// From a row of C to the next.
    pub ldc: usize,
    /// Whether to add to what C holds, or to overwrite it without reading.
    pub accumulate: bool,
}

/// MR rows by NV panels from row `row` and column `col` on; the last panel has `last` columns.
#[inline(always)]
unsafe fn tile<S: Simd, const MR: usize, const NV: usize>(
    d: &Nibbles,
    row: usize,
    col: usize,
    last: usize,
) {
    let k = d.blocks * d.block;
    // SAFETY: the caller gives rows and panels that exist.
    unsafe {
        let first = col / S::W;
        let flip = S::isplat(if d.signed { 0x8888_8888_u32 as i32 } else { 0 });
        let shift = if d.signed { 8.0 } else { 0.0 };
        let mut acc = [[S::zero(); NV]; MR];
        for b in 0..d.blocks {
            let mut sums = [[S::zero(); NV]; MR];
            for g in 0..d.block / GROUP {
                let at = b * d.block + g * GROUP;
                let mut v = [flip; NV];
                for (j, v) in v.iter_mut().enumerate() {
                    let p = d.w.add(((first + j) * k + at) * S::W / 2);
                    *v = S::ixor(S::bits(S::load(p.cast())), flip);
                }
                for i in 0..GROUP {
                    let mut w = [S::zero(); NV];
                    for (w, v) in w.iter_mut().zip(&mut v) {
                        *w = S::nibble(*v);
                        *v = S::shr4(*v);
                    }
                    for r in 0..MR {
                        let x = *d.a.add((row + r) * d.lda + at + i);
                        let x = S::splat(x);
                        for j in 0..NV {
                            sums[r][j] = S::fma(x, w[j], sums[r][j]);
                        }
                    }
                }
            }
            for j in 0..NV {
                let at = ((first + j) * d.blocks + b) * S::W;
                let scale = S::load(d.scales.add(at));
                let zero = if d.zeros.is_null() {
                    S::splat(d.zero + shift)
                } else {
                    S::add(S::load(d.zeros.add(at)), S::splat(shift))
                };
                for r in 0..MR {
                    let total = S::splat(*d.totals.add((row + r) * d.blocks + b));
                    let s = S::fnma(total, zero, sums[r][j]);
                    acc[r][j] = S::fma(s, scale, acc[r][j]);
                }
            }
        }
        for (r, acc) in acc.iter().enumerate() {
            for (j, &v) in acc.iter().enumerate() {
                let p = d.c.add((row + r) * d.ldc + col + j * S::W);
                if j == NV - 1 && last < S::W {
                    let tail = S::tail(last);
                    let v = if d.accumulate {
                        S::add(v, S::load_t(p, tail))
                    } else {
                        v
                    };
                    S::store_t(p, v, tail);
                } else {
                    let v = if d.accumulate {
                        S::add(v, S::load(p))
                    } else {
                        v
                    };
                    S::store(p, v);
                }
            }
        }
    }
}

/// All rows of NV panels.
#[inline(always)]
unsafe fn panels<S: Simd, const NV: usize>(d: &Nibbles, col: usize, last: usize) {
    let mut row = 0;
    // SAFETY: the caller's contract; rows stay below their number.
    unsafe {
        while const { held::<S>(4 * NV, NV) } && d.m - row >= 4 {
            tile::<S, 4, NV>(d, row, col, last);
            row += 4;
        }
        while const { held::<S>(3 * NV, NV) } && d.m - row >= 3 {
            tile::<S, 3, NV>(d, row, col, last);
            row += 3;
        }
        while d.m - row >= 2 {
            tile::<S, 2, NV>(d, row, col, last);
            row += 2;
        }
        if row < d.m {
            tile::<S, 1, NV>(d, row, col, last);
        }
    }
}

/// The product.
///
/// # Safety
///
/// The elements that [`Nibbles`] names are readable, C\[i\]\[j\] is writable and overlaps nothing, and
/// initialised when `accumulate`.
#[inline(always)]
pub(super) unsafe fn nibbles<S: Simd>(d: &Nibbles) {
    let mut col = 0;
    // SAFETY: the caller's contract; panels stay inside n.
    unsafe {
        while d.n - col > S::W {
            let last = (d.n - col - S::W).min(S::W);
            panels::<S, 2>(d, col, last);
            col += S::W + last;
        }
        if col < d.n {
            panels::<S, 1>(d, col, d.n - col);
        }
    }
}
