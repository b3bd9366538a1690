//! Reductions over a contiguous row, and the vertical forms that fold rows into a row of accumulators.
//!
//! Every reduction has one order, which depends on the instruction set and the length only: four accumulators take
//! vectors in turn, then they are folded pairwise.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::math;
use super::simd::Simd;

/// Folds `f(lanes)` over a row with `join`, in four accumulators that start at `start`. A macro, as are the maps
/// below, because a closure might stay a call without the instruction set.
macro_rules! fold {
    ($simd:ident, $x:expr, $n:expr, $start:expr, |$v:ident| $f:expr, |$a:ident, $b:ident| $join:expr) => {{
        let (x, n) = ($x, $n);
        let mut acc = [$start; 4];
        let mut i = 0;
        while i + 4 * $simd::W <= n {
            for (u, acc) in acc.iter_mut().enumerate() {
                let $v = $simd::load(x.add(i + u * $simd::W));
                let ($a, $b) = (*acc, $f);
                *acc = $join;
            }
            i += 4 * $simd::W;
        }
        for acc in &mut acc {
            // At most three vectors are left, then a part of one.
            if i < n {
                let t = $simd::tail($simd::W.min(n - i));
                let $v = $simd::load_t(x.add(i), t);
                let ($a, $b) = (*acc, $f);
                *acc = $simd::select_t(t, $join, *acc);
                i += $simd::W;
            }
        }
        let ($a, $b) = (acc[0], acc[1]);
        let low = $join;
        let ($a, $b) = (acc[2], acc[3]);
        let high = $join;
        let ($a, $b) = (low, high);
        $join
    }};
}

/// Applies `f` to each vector of a row.
macro_rules! map {
    ($simd:ident, [$($s:ident),+] -> $dst:expr, $n:expr, $f:expr) => {{
        let (n, dst) = ($n, $dst);
        $(let $s: (*const f32, ()) = ($s, ());)+
        let mut i = 0;
        while i + $simd::W <= n {
            let v = { $(let $s = $simd::load($s.0.add(i));)+ $f };
            $simd::store(dst.add(i), v);
            i += $simd::W;
        }
        if i < n {
            let t = $simd::tail(n - i);
            let v = { $(let $s = $simd::load_t($s.0.add(i), t);)+ $f };
            $simd::store_t(dst.add(i), v, t);
        }
    }};
}
pub(super) use map;

/// The sum of n elements.
#[inline(always)]
pub(super) unsafe fn sum<S: Simd>(x: *const f32, n: usize) -> f32 {
    // SAFETY: the caller gives n readable elements.
    unsafe { S::hsum(fold!(S, x, n, S::zero(), |v| v, |a, b| S::add(a, b))) }
}

/// The product of n elements.
#[inline(always)]
pub(super) unsafe fn prod<S: Simd>(x: *const f32, n: usize) -> f32 {
    // SAFETY: the caller gives n readable elements; no vector has more than 16 lanes.
    unsafe {
        let v = fold!(S, x, n, S::splat(1.0), |v| v, |a, b| S::mul(a, b));
        let mut lanes = [1.0f32; 16];
        S::store(lanes.as_mut_ptr(), v);
        lanes.into_iter().product()
    }
}

/// The greatest of n elements; -inf for none, NaN when any is NaN.
#[inline(always)]
pub(super) unsafe fn max<S: Simd>(x: *const f32, n: usize) -> f32 {
    // SAFETY: the caller gives n readable elements.
    unsafe {
        let v = fold!(S, x, n, S::splat(f32::NEG_INFINITY), |v| v, |a, b| {
            math::max_nan::<S>(a, b)
        });
        if S::m_any(S::is_nan(v)) {
            f32::NAN
        } else {
            S::hmax(v)
        }
    }
}

/// The smallest of n elements; inf for none, NaN when any is NaN.
#[inline(always)]
pub(super) unsafe fn min<S: Simd>(x: *const f32, n: usize) -> f32 {
    // SAFETY: the caller gives n readable elements.
    unsafe {
        let v = fold!(S, x, n, S::splat(f32::INFINITY), |v| v, |a, b| {
            math::min_nan::<S>(a, b)
        });
        if S::m_any(S::is_nan(v)) {
            f32::NAN
        } else {
            S::hmin(v)
        }
    }
}

/// The sum of `(x - mean)^2`; mean 0 gives the sum of squares.
#[inline(always)]
pub(super) unsafe fn sum_sq<S: Simd>(x: *const f32, mean: f32, n: usize) -> f32 {
    // SAFETY: the caller gives n readable elements. Partial vectors are masked after the subtraction.
    unsafe {
        let m = S::splat(mean);
        S::hsum(fold!(
            S,
            x,
            n,
            S::zero(),
            |v| S::mul(S::sub(v, m), S::sub(v, m)),
            |a, b| S::add(a, b)
        ))
    }
}

/// The sum of `x[i] * y[i]`.
#[inline(always)]
pub(super) unsafe fn dot1<S: Simd>(x: *const f32, y: *const f32, n: usize) -> f32 {
    // SAFETY: the caller gives n readable elements in both.
    unsafe {
        let mut acc = [S::zero(); 4];
        let mut i = 0;
        while i + 4 * S::W <= n {
            for (u, a) in acc.iter_mut().enumerate() {
                *a = S::fma(
                    S::load(x.add(i + u * S::W)),
                    S::load(y.add(i + u * S::W)),
                    *a,
                );
            }
            i += 4 * S::W;
        }
        while i < n {
            let t = S::tail(S::W.min(n - i));
            acc[0] = S::fma(S::load_t(x.add(i), t), S::load_t(y.add(i), t), acc[0]);
            i += S::W;
        }
        S::hsum(S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3])))
    }
}

/// `dst[i] = e^(scale * (src[i] - shift))` and the sum of the results: the middle of a softmax. In place is allowed.
#[inline(always)]
pub(super) unsafe fn exp_sum<S: Simd>(
    src: *const f32,
    dst: *mut f32,
    n: usize,
    scale: f32,
    shift: f32,
) -> f32 {
    // SAFETY: the caller gives n readable and n writable elements.
    unsafe {
        let (m, k) = (S::splat(shift), S::splat(scale));
        let mut acc = [S::zero(); 2];
        let mut i = 0;
        while i + 2 * S::W <= n {
            for (u, a) in acc.iter_mut().enumerate() {
                let e = math::exp::<S>(S::mul(S::sub(S::load(src.add(i + u * S::W)), m), k));
                S::store(dst.add(i + u * S::W), e);
                *a = S::add(*a, e);
            }
            i += 2 * S::W;
        }
        while i < n {
            let t = S::tail(S::W.min(n - i));
            let e = math::exp::<S>(S::mul(S::sub(S::load_t(src.add(i), t), m), k));
            S::store_t(dst.add(i), e, t);
            acc[0] = S::add(acc[0], S::select_t(t, e, S::zero()));
            i += S::W;
        }
        S::hsum(S::add(acc[0], acc[1]))
    }
}

/// `dst[i] = (src[i] - mean) * rstd * gamma[i] + beta[i]`; gamma and beta may be null (1 and 0). In place is allowed.
#[inline(always)]
pub(super) unsafe fn normalise<S: Simd>(
    src: *const f32,
    dst: *mut f32,
    n: usize,
    mean: f32,
    rstd: f32,
    gamma: *const f32,
    beta: *const f32,
) {
    // SAFETY: the caller gives n readable elements in each that is not null and n writable ones.
    unsafe {
        let (m, r) = (S::splat(mean), S::splat(rstd));
        match (gamma.is_null(), beta.is_null()) {
            (true, true) => map!(S, [src] -> dst, n, S::mul(S::sub(src, m), r)),
            (true, false) => {
                map!(S, [src, beta] -> dst, n, S::add(S::mul(S::sub(src, m), r), beta))
            }
            (false, true) => {
                map!(S, [src, gamma] -> dst, n, S::mul(S::mul(S::sub(src, m), r), gamma))
            }
            (false, false) => {
                map!(S, [src, gamma, beta] -> dst, n, S::fma(S::mul(S::sub(src, m), r), gamma, beta))
            }
        }
    }
}

/// `dst[i] = a[i] * b[i] + c[i]`; `dst` may be any source.
#[inline(always)]
pub(super) unsafe fn fma<S: Simd>(
    a: *const f32,
    b: *const f32,
    c: *const f32,
    dst: *mut f32,
    n: usize,
) {
    // SAFETY: the caller gives n readable elements in all three and n writable ones.
    unsafe { map!(S, [a, b, c] -> dst, n, S::fma(a, b, c)) }
}

/// `dst[i] = a * x[i] + y[i]`; `dst` may be either source.
#[inline(always)]
pub(super) unsafe fn axpy<S: Simd>(a: f32, x: *const f32, y: *const f32, dst: *mut f32, n: usize) {
    // SAFETY: the caller gives n readable elements in both and n writable ones.
    unsafe {
        let a = S::splat(a);
        map!(S, [x, y] -> dst, n, S::fma(a, x, y));
    }
}

/// `dst[i] = if c[i] != 0 { a[i] } else { b[i] }`; NaN counts as true; `dst` may be any source.
#[inline(always)]
pub(super) unsafe fn select<S: Simd>(
    c: *const f32,
    a: *const f32,
    b: *const f32,
    dst: *mut f32,
    n: usize,
) {
    // SAFETY: the caller gives n readable elements in all three and n writable ones.
    unsafe { map!(S, [c, a, b] -> dst, n, S::select(S::eq(c, S::zero()), b, a)) }
}
