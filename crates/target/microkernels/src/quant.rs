//! Between whole steps and numbers: sums of products scaled, quantising, its inverse.
//!
//! Each step rounds as the operations do one by one, so that results do not depend on what is joined.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers and counts must describe memory that is valid for the access named in each
//! function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::Simd;

/// Elements `at..at + W` of a row, or the first `t` of them.
#[inline(always)]
unsafe fn load<S: Simd>(p: *const f32, whole: bool, t: S::T) -> S::F {
    // SAFETY: the caller's contract.
    unsafe { if whole { S::load(p) } else { S::load_t(p, t) } }
}

/// `dst = (f32(acc + off * times) + before) * scale + after`; rows that are null are left out.
///
/// # Safety
///
/// Every row that is not null has `n` elements.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "rows of one expression")]
pub(super) unsafe fn scaled<S: Simd>(
    acc: *const i32,
    off: *const i32,
    times: i32,
    before: *const f32,
    scale: *const f32,
    after: *const f32,
    dst: *mut f32,
    n: usize,
) {
    let mut i = 0;
    while i < n {
        let whole = i + S::W <= n;
        // SAFETY: the rows have n elements; the last vector is cut.
        unsafe {
            let t = S::tail(S::W.min(n - i));
            let row = |p: *const f32| load::<S>(p.add(i), whole, t);
            let mut sum = S::bits(row(acc.cast()));
            if !off.is_null() {
                let off = S::bits(row(off.cast()));
                let off = match times {
                    1 => off,
                    k => S::imul(off, S::isplat(k)),
                };
                sum = S::iadd(sum, off);
            }
            let mut v = S::from_int(sum);
            if !before.is_null() {
                v = S::add(v, row(before));
            }
            if !scale.is_null() {
                v = S::mul(v, row(scale));
            }
            if !after.is_null() {
                v = S::add(v, row(after));
            }
            if whole {
                S::store(dst.add(i), v);
            } else {
                S::store_t(dst.add(i), v, t);
            }
        }
        i += S::W;
    }
}

/// `dst = saturated(round(src / by) + zero)` as integers between `lo` and `hi`, which are between the
/// bounds of 16 bits; 0 for a NaN.
///
/// # Safety
///
/// Both rows have `n` elements.
#[inline(always)]
pub(super) unsafe fn quantise<S: Simd>(
    src: *const f32,
    by: f32,
    zero: f32,
    lo: f32,
    hi: f32,
    dst: *mut i32,
    n: usize,
) {
    // SAFETY: the rows have n elements; the last vector is cut.
    unsafe {
        let (lo, hi, z, d) = (S::splat(lo), S::splat(hi), S::splat(zero), S::splat(by));
        let mut i = 0;
        while i < n {
            let whole = i + S::W <= n;
            let t = S::tail(S::W.min(n - i));
            let mut v = load::<S>(src.add(i), whole, t);
            if by != 1.0 {
                v = S::div(v, d);
            }
            let v = S::add(S::round(v), z);
            let nan = S::is_nan(v);
            let v = S::min(S::max(v, lo), hi);
            let v = S::select(nan, S::zero(), v);
            let v = S::from_bits(S::to_int(v));
            if whole {
                S::store(dst.add(i).cast(), v);
            } else {
                S::store_t(dst.add(i).cast(), v, t);
            }
            i += S::W;
        }
    }
}

/// `dst = (f32(src) - zero) * by` of bytes, signed ones where `signed`.
///
/// # Safety
///
/// Both rows have `n` elements.
#[inline(always)]
pub(super) unsafe fn dequantise<S: Simd>(
    src: *const u8,
    signed: bool,
    zero: f32,
    by: f32,
    dst: *mut f32,
    n: usize,
) {
    // SAFETY: the rows have n elements; the last vector is cut, its bytes from memory of its own.
    unsafe {
        let (z, s) = (S::splat(zero), S::splat(by));
        let get = |p: *const u8| {
            let v = if signed {
                S::load_i8(p.cast())
            } else {
                S::load_u8(p)
            };
            S::mul(S::sub(S::from_int(v), z), s)
        };
        let mut i = 0;
        while i + S::W <= n {
            S::store(dst.add(i), get(src.add(i)));
            i += S::W;
        }
        if i < n {
            let mut own = [0u8; 16];
            std::ptr::copy_nonoverlapping(src.add(i), own.as_mut_ptr(), n - i);
            S::store_t(dst.add(i), get(own.as_ptr()), S::tail(n - i));
        }
    }
}
