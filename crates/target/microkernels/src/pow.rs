//! x^y.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::Simd;

/// x^y: at most 4 ULP where x is normal, and positive or y a whole number, y is finite and the result is normal; every
/// other case is the scalar function's, with its IEEE special values. Instruction sets without FMA take the scalar function always.
#[inline(always)]
pub unsafe fn pow<S: Simd>(x: S::F, y: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        if !S::FUSED {
            return scalar::<S>(x, y, S::zero(), true);
        }
        let size = S::abs(x);
        let bits = S::bits(size);
        let e = S::sar23(S::isub(bits, S::isplat(0x3f35_04f3)));
        let f = S::sub(S::from_bits(S::isub(bits, S::shl23(e))), S::splat(1.0));
        let e = S::from_int(e);
        // log(1 + f) = f - f^2/2 + f^3/3 + c f^4 + f^5 R(f), all but the last in two words.
        let f2 = S::mul(f, f);
        let f2_lo = S::fma(f, f, S::neg(f2));
        let f3 = S::mul(f, f2);
        let f3_lo = S::fma(f, f2_lo, S::fma(f, f2, S::neg(f3)));
        let third = S::splat(1.0 / 3.0);
        let t3 = S::mul(f3, third);
        let t3_lo = S::fma(f3, third, S::neg(t3));
        let t3_lo = S::fma(f3_lo, third, S::fma(f3, S::splat(-9.934_107e-9), t3_lo));
        let mut r = S::splat(6.932_454e-2);
        for c in [
            -1.160_449_6e-1,
            1.176_094_9e-1,
            -1.241_175_2e-1,
            1.423_954_4e-1,
            -1.666_815_4e-1,
            2.000_097_8e-1,
        ] {
            r = S::fma(r, f, S::splat(c));
        }
        let fourth = S::splat(-2.499_999_6e-1);
        let f4 = S::mul(f2, f2);
        let f4_lo = S::fma(S::add(f2, f2), f2_lo, S::fma(f2, f2, S::neg(f4)));
        let t4 = S::mul(f4, fourth);
        let t4_lo = S::fma(f4_lo, fourth, S::fma(f4, fourth, S::neg(t4)));
        let rest = S::mul(S::mul(f4, f), r);
        let half = S::splat(0.5);
        // s = e ln2_hi + f - f2/2 + t3 + t4, each sum with its error.
        let (s, l) = two_sum::<S>(S::mul(e, S::splat(0.693_145_75)), f);
        let (s, l2) = two_sum::<S>(s, S::neg(S::mul(half, f2)));
        let (s, l3) = two_sum::<S>(s, t3);
        let (s, l4) = two_sum::<S>(s, t4);
        let low = S::add(S::add(l, l2), S::add(l3, l4));
        let rest = S::add(S::add(t3_lo, t4_lo), rest);
        let low = S::add(low, S::fnma(half, f2_lo, rest));
        let low = S::fma(e, S::splat(1.428_606_8e-6), low);
        // ln 2 in three words: the third matters when y is large and x close to a power of two.
        let low = S::fma(e, S::splat(LN2_THIRD), low);
        let (s, low) = two_sum::<S>(s, low);
        let h = S::mul(s, y);
        let l = S::fma(s, y, S::neg(h));
        let l = S::fma(low, y, l);
        let n = S::round_small(S::mul(h, S::splat(std::f32::consts::LOG2_E)));
        let q = S::fnma(n, S::splat(0.693_145_75), h);
        let q = S::add(S::fnma(n, S::splat(1.428_606_8e-6), q), l);
        let mut p = S::splat(1.394_257e-3);
        for c in [8.369_037e-3, 4.166_638e-2, 1.666_651_8e-1, 0.5] {
            p = S::fma(p, q, S::splat(c));
        }
        let p = S::add(S::fma(S::mul(q, q), p, q), S::splat(1.0));
        let z = S::scale2(p, n);
        // An odd power of a negative number is negative.
        let even = S::mul(half, y);
        let even = S::eq(S::trunc(even), even);
        let negative = S::lt(x, S::zero());
        let z = S::select(even, z, S::select(negative, S::neg(z), z));
        // Out of the way: x no normal number, or negative with a broken power, or an exponent near or beyond the ends
        // (which also catches y not finite).
        let fine_x = S::m_and(
            S::le(S::splat(f32::MIN_POSITIVE), size),
            S::lt(size, S::splat(f32::INFINITY)),
        );
        let whole = S::eq(S::trunc(y), y);
        let fine_x = S::m_and(fine_x, S::m_or(S::le(S::zero(), x), whole));
        let fine = S::m_and(fine_x, S::lt(S::abs(h), S::splat(87.0)));
        if S::m_all(fine) {
            z
        } else {
            scalar::<S>(x, y, S::select(fine, z, S::splat(f32::NAN)), false)
        }
    }
}

/// ln 2 - 0.69314575 - the f32 nearest to the rest.
const LN2_THIRD: f32 = 5.497_923e-14;

/// a + b and its rounding error.
#[inline(always)]
unsafe fn two_sum<S: Simd>(a: S::F, b: S::F) -> (S::F, S::F) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let s = S::add(a, b);
        let t = S::sub(s, a);
        (s, S::add(S::sub(a, S::sub(s, t)), S::sub(b, t)))
    }
}

/// The scalar function for the lanes where z is NaN, or for all.
#[cold]
#[inline(never)]
unsafe fn scalar<S: Simd>(x: S::F, y: S::F, z: S::F, all: bool) -> S::F {
    let (mut xs, mut ys, mut zs) = ([0.0_f32; 16], [0.0_f32; 16], [0.0_f32; 16]);
    // SAFETY: no vector is wider than sixteen lanes.
    unsafe {
        S::store(xs.as_mut_ptr(), x);
        S::store(ys.as_mut_ptr(), y);
        S::store(zs.as_mut_ptr(), z);
        for i in 0..S::W {
            if all || zs[i].is_nan() {
                zs[i] = f64::from(xs[i]).powf(f64::from(ys[i])) as f32;
            }
        }
        S::load(zs.as_ptr())
    }
}
