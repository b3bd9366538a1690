//! Packing of B into panels, and copies that change the order of elements.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::Simd;

/// Packs B (k x n, strides in elements) into panels of `nr` columns: `dst[panel][p][j]`, the last one zero-padded.
///
/// # Safety
///
/// Every B\[p\]\[j\] is readable, `dst` has `n.div_ceil(nr) * k * nr` writable elements, nr > 0, no overlap.
#[inline(always)]
pub(super) unsafe fn pack_b<S: Simd>(
    k: usize,
    n: usize,
    src: *const f32,
    row_stride: usize,
    col_stride: usize,
    nr: usize,
    dst: *mut f32,
) {
    let mut first = 0;
    // SAFETY: loops keep to k, n and the padded panel.
    unsafe {
        while first < n {
            let cols = nr.min(n - first);
            let panel = dst.add(first * k);
            let from = src.add(first * col_stride);
            if col_stride == 1 {
                for p in 0..k {
                    let (s, d) = (from.add(p * row_stride), panel.add(p * nr));
                    let mut j = 0;
                    while j + S::W <= cols {
                        S::store(d.add(j), S::load(s.add(j)));
                        j += S::W;
                    }
                    while j < nr {
                        let t =
                            S::load_t(s.wrapping_add(j), S::tail(cols.saturating_sub(j).min(S::W)));
                        S::store_t(d.add(j), t, S::tail(S::W.min(nr - j)));
                        j += S::W;
                    }
                }
            } else if row_stride == 1 {
                let mut j = 0;
                while j < cols {
                    let c = S::W.min(cols - j);
                    let mut p = 0;
                    while p < k {
                        let r = S::W.min(k - p);
                        S::transpose(
                            from.add(j * col_stride + p),
                            col_stride,
                            panel.add(p * nr + j),
                            nr,
                            c,
                            r,
                        );
                        p += S::W;
                    }
                    j += S::W;
                }
                pad(panel, k, nr, cols);
            } else {
                for p in 0..k {
                    for j in 0..cols {
                        *panel.add(p * nr + j) = *from.add(p * row_stride + j * col_stride);
                    }
                }
                pad(panel, k, nr, cols);
            }
            first += nr;
        }
    }
}

/// Zeroes the columns of a panel from `cols` on.
#[inline(always)]
unsafe fn pad(panel: *mut f32, k: usize, nr: usize, cols: usize) {
    if cols < nr {
        for p in 0..k {
            // SAFETY: the panel has k rows of nr elements.
            unsafe { std::ptr::write_bytes(panel.add(p * nr + cols), 0, nr - cols) };
        }
    }
}

/// `dst[c * dst_ld + r] = src[r * src_ld + c]` for 32-bit elements, moved as bits, in blocks of a vector squared.
///
/// # Safety
///
/// Both areas are valid for the elements named, without overlap.
#[inline(always)]
pub(super) unsafe fn transpose32<S: Simd>(
    rows: usize,
    cols: usize,
    src: *const u32,
    src_ld: usize,
    dst: *mut u32,
    dst_ld: usize,
) {
    let mut c = 0;
    // SAFETY: blocks keep to rows and cols. Loads and stores of lanes do not change bits.
    unsafe {
        // A few rows woven into one, or one taken apart: whole vectors are shuffled, none is cut.
        match (rows, cols) {
            (2, _) if dst_ld == 2 => return weave::<2>(cols, src, src_ld, dst),
            (3, _) if dst_ld == 3 => return weave::<3>(cols, src, src_ld, dst),
            (4, _) if dst_ld == 4 => return weave::<4>(cols, src, src_ld, dst),
            (_, 2) if src_ld == 2 => return part::<2>(rows, src, dst, dst_ld),
            (_, 3) if src_ld == 3 => return part::<3>(rows, src, dst, dst_ld),
            (_, 4) if src_ld == 4 => return part::<4>(rows, src, dst, dst_ld),
            _ => {}
        }
        while c < cols {
            let mut r = 0;
            while r < rows {
                S::transpose(
                    src.add(r * src_ld + c).cast(),
                    src_ld,
                    dst.add(c * dst_ld + r).cast(),
                    dst_ld,
                    S::W.min(rows - r),
                    S::W.min(cols - c),
                );
                r += S::W;
            }
            c += S::W;
        }
    }
}

/// `dst[c * R + r] = src[r * ld + c]` for c < n.
///
/// # Safety
///
/// Both areas are valid for the elements named, without overlap.
#[inline(always)]
unsafe fn weave<const R: usize>(n: usize, src: *const u32, ld: usize, dst: *mut u32) {
    for c in 0..n {
        for r in 0..R {
            // SAFETY: the caller vouches for each element.
            unsafe { *dst.add(c * R + r) = *src.add(r * ld + c) };
        }
    }
}

/// `dst[r * ld + c] = src[c * R + r]` for c < n.
///
/// # Safety
///
/// Both areas are valid for the elements named, without overlap.
#[inline(always)]
unsafe fn part<const R: usize>(n: usize, src: *const u32, dst: *mut u32, ld: usize) {
    for c in 0..n {
        for r in 0..R {
            // SAFETY: the caller vouches for each element.
            unsafe { *dst.add(r * ld + c) = *src.add(c * R + r) };
        }
    }
}

/// Elements of a contiguous run that a call would take longer for than the copy itself.
const FEW: usize = 64;

/// Copies `n` elements, at most [`FEW`], in pieces of 16 bytes of which the last may overlap the one before.
///
/// # Safety
///
/// As for `std::ptr::copy_nonoverlapping`.
#[inline]
unsafe fn copy_few<T: Copy>(src: *const T, dst: *mut T, n: usize) {
    let (bytes, s, d) = (n * size_of::<T>(), src.cast::<u8>(), dst.cast::<u8>());
    // SAFETY: pieces begin and end inside the run.
    unsafe {
        let piece = |at: usize| {
            let v = s.add(at).cast::<[u64; 2]>().read_unaligned();
            d.add(at).cast::<[u64; 2]>().write_unaligned(v);
        };
        if bytes >= 16 {
            let mut at = 0;
            while at + 16 <= bytes {
                piece(at);
                at += 16;
            }
            if at < bytes {
                piece(bytes - 16);
            }
        } else {
            for i in 0..n {
                *dst.add(i) = *src.add(i);
            }
        }
    }
}

/// Copies `n` elements between strides (in elements, may be 0 for a broadcast source, may be negative).
///
/// Works for any plain element: use u8, u16, u32 or u64 by size.
///
/// # Safety
///
/// `src + i * src_stride` is readable and `dst + i * dst_stride` writable for i < n; no overlap.
#[inline]
pub unsafe fn copy_strided<T: Copy>(
    dst: *mut T,
    dst_stride: isize,
    src: *const T,
    src_stride: isize,
    n: usize,
) {
    // SAFETY: the caller vouches for each element.
    unsafe {
        match (dst_stride, src_stride) {
            (1, 1) if n <= FEW => copy_few(src, dst, n),
            (1, 1) => std::ptr::copy_nonoverlapping(src, dst, n),
            (1, 0) => {
                if n > 0 {
                    std::slice::from_raw_parts_mut(dst.cast::<std::mem::MaybeUninit<T>>(), n)
                        .fill(std::mem::MaybeUninit::new(*src));
                }
            }
            _ => {
                let mut i = 0;
                let step = |i: usize| {
                    let i = i as isize;
                    *dst.offset(i * dst_stride) = *src.offset(i * src_stride);
                };
                while i + 4 <= n {
                    step(i);
                    step(i + 1);
                    step(i + 2);
                    step(i + 3);
                    i += 4;
                }
                while i < n {
                    step(i);
                    i += 1;
                }
            }
        }
    }
}
