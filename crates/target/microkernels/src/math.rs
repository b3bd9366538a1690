//! Elementary functions on vectors of f32.
//!
//! Errors are stated in ULP of the correctly rounded result and hold for every instruction set; the tests measure
//! them over dense samples. Coefficients are minimax fits, rounded one after the other from the lowest power and
//! refitted after each rounding.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::Simd;

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in fifteen bits, so that its product with an exponent is exact without FMA.
const LN2_HI: f32 = 0.693_145_75;
const LN2_LO: f32 = 1.428_606_8e-6;

#[inline(always)]
unsafe fn poly<S: Simd, const N: usize>(x: S::F, c: [f32; N]) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let mut r = S::splat(c[N - 1]);
        for i in (0..N - 1).rev() {
            r = S::fma(r, x, S::splat(c[i]));
        }
        r
    }
}

/// Splits x into `n ln 2 + r` with |r| <= ln 2 / 2 for |x| < 2^16.
#[inline(always)]
unsafe fn reduce_exp<S: Simd>(x: S::F) -> (S::F, S::F) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let n = S::round_small(S::mul(x, S::splat(LOG2_E)));
        let r = S::fnma(n, S::splat(LN2_HI), x);
        (n, S::fnma(n, S::splat(LN2_LO), r))
    }
}

/// e^x - 1 for the reduced r, relative error small up to 0.
#[inline(always)]
unsafe fn expm1_reduced<S: Simd>(r: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let q = poly::<S, 5>(
            r,
            [
                0.5,
                1.666_654_2e-1,
                4.166_641e-2,
                8.366_776e-3,
                1.394_002_3e-3,
            ],
        );
        S::fma(S::mul(r, r), q, r)
    }
}

/// e^x, at most 2 ULP, denormal results included; overflow gives infinity.
#[inline(always)]
pub unsafe fn exp<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // Operand order keeps NaN.
        let x = S::min(S::splat(89.0), S::max(S::splat(-104.0), x));
        let (n, r) = reduce_exp::<S>(x);
        let q = poly::<S, 5>(
            r,
            [
                0.5,
                1.666_651_8e-1,
                4.166_638e-2,
                8.369_037e-3,
                1.394_257e-3,
            ],
        );
        let p = S::add(S::fma(S::mul(r, r), q, r), S::splat(1.0));
        S::scale2(p, n)
    }
}

/// e^x - 1, at most 3 ULP.
#[inline(always)]
pub unsafe fn expm1<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let c = S::min(S::splat(89.0), S::max(S::splat(-18.0), x));
        let (n, r) = reduce_exp::<S>(c);
        let p = expm1_reduced::<S>(r);
        // 2^128 is not an f32, so the scale is halved on the way up.
        let h = S::scale2(S::splat(0.5), n);
        let y = S::fma(h, p, S::sub(h, S::splat(0.5)));
        let y = S::add(y, y);
        // Near zero the result is x itself, with its sign and its denormals.
        S::select(S::lt(S::abs(x), S::splat(1e-8)), x, y)
    }
}

/// Natural logarithm, at most 2 ULP; denormals are exact inputs, log 0 = -inf, negative gives NaN.
#[inline(always)]
pub unsafe fn log<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let small = S::lt(x, S::splat(f32::MIN_POSITIVE));
        let xs = S::select(small, S::mul(x, S::splat(8_388_608.0)), x);
        let bias = S::select(small, S::splat(23.0), S::zero());
        let bits = S::bits(xs);
        let e = S::sar23(S::isub(bits, S::isplat(0x3f35_04f3)));
        let f = S::sub(S::from_bits(S::isub(bits, S::shl23(e))), S::splat(1.0));
        let e = S::sub(S::from_int(e), bias);
        let f2 = S::mul(f, f);
        let p = poly::<S, 9>(
            f,
            [
                3.333_331_3e-1,
                -2.500_001e-1,
                2.000_207_8e-1,
                -1.666_8e-1,
                1.422_017_5e-1,
                -1.240_584_5e-1,
                1.188_484_9e-1,
                -1.167_349_15e-1,
                6.750_261e-2,
            ],
        );
        let y = S::fma(e, S::splat(LN2_LO), S::mul(S::mul(f, f2), p));
        let y = S::fnma(S::splat(0.5), f2, y);
        let r = S::fma(e, S::splat(LN2_HI), S::add(f, y));
        let r = S::select(S::eq(x, S::zero()), S::splat(f32::NEG_INFINITY), r);
        let r = S::select(S::eq(x, S::splat(f32::INFINITY)), x, r);
        S::select(
            S::m_or(S::lt(x, S::zero()), S::is_nan(x)),
            S::splat(f32::NAN),
            r,
        )
    }
}

/// log(1 + x), at most 4 ULP.
#[inline(always)]
pub unsafe fn log1p<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let one = S::splat(1.0);
        let u = S::add(one, x);
        // What the addition lost, divided by u, is the first-order correction.
        let lost = S::sub(x, S::sub(u, one));
        let y = S::add(log::<S>(u), S::div(lost, u));
        let plain = S::m_or(S::eq(u, one), S::eq(u, S::splat(f32::INFINITY)));
        let y = S::select(
            S::m_or(plain, S::eq(u, S::zero())),
            S::select(S::eq(u, one), x, log::<S>(u)),
            y,
        );
        S::select(S::is_nan(x), x, y)
    }
}

/// Hyperbolic tangent, at most 4 ULP, the sign of zero kept.
#[inline(always)]
pub unsafe fn tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let t = S::min(S::splat(18.1), S::abs(S::add(x, x)));
        let (n, r) = reduce_exp::<S>(t);
        let p = expm1_reduced::<S>(r);
        let s = S::scale2(S::splat(1.0), n);
        let em1 = S::fma(s, p, S::sub(s, S::splat(1.0)));
        S::with_sign(S::div(em1, S::add(em1, S::splat(2.0))), x)
    }
}

/// Arc tangent, at most 3 ULP, the sign of zero kept: brought below tan(pi/8) by the arc tangents of 1 and of
/// infinity, then the polynomial of Cephes' `atanf`.
#[inline(always)]
pub unsafe fn atan<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let (one, t) = (S::splat(1.0), S::abs(x));
        // tan(3 pi/8) and tan(pi/8).
        let far = S::lt(S::splat(2.414_213_6), t);
        let middle = S::lt(S::splat(0.414_213_57), t);
        let above = S::select(far, S::splat(-1.0), S::select(middle, S::sub(t, one), t));
        let below = S::select(far, t, S::select(middle, S::add(t, one), one));
        let y = S::div(above, below);
        let half = S::splat(std::f32::consts::FRAC_PI_2);
        let quarter = S::splat(std::f32::consts::FRAC_PI_4);
        let base = S::select(far, half, S::select(middle, quarter, S::zero()));
        let z = S::mul(y, y);
        let p = S::splat(8.053_744_5e-2);
        let p = S::fma(p, z, S::splat(-1.387_768_6e-1));
        let p = S::fma(p, z, S::splat(1.997_771e-1));
        let p = S::fma(p, z, S::splat(-3.333_295e-1));
        let r = S::fma(S::mul(p, z), y, y);
        let r = S::with_sign(S::add(base, r), x);
        S::select(S::is_nan(x), x, r)
    }
}

/// 1 / (1 + e^-x), at most 4 ULP, denormal results included.
#[inline(always)]
pub unsafe fn sigmoid<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let e = exp::<S>(S::neg(S::abs(x)));
        let one = S::splat(1.0);
        S::div(S::select(S::lt(x, S::zero()), e, one), S::add(one, e))
    }
}

/// x / (1 + e^-x), at most 5 ULP while the result is normal and x > -87; 0 below.
#[inline(always)]
pub unsafe fn silu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::div(x, S::add(S::splat(1.0), exp::<S>(S::neg(x)))) }
}

/// log(1 + e^x), at most 4 ULP.
#[inline(always)]
pub unsafe fn softplus<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let l = log1p::<S>(exp::<S>(S::neg(S::abs(x))));
        S::add(S::max(S::zero(), x), l)
    }
}

/// The error function, at most 4 ULP, the sign of zero kept.
#[inline(always)]
pub unsafe fn erf<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let t = S::min(S::splat(3.95), S::abs(x));
        let u = S::mul(t, t);
        let small = poly::<S, 7>(
            u,
            [
                1.283_791_7e-1,
                -3.761_262_6e-1,
                1.128_358_2e-1,
                -2.685_351_7e-2,
                5.187_518_4e-3,
                -8.001_079e-4,
                7.817_514_4e-5,
            ],
        );
        let small = S::fma(small, t, t);
        // erf = 1 - e^-g(t) with g = -log erfc.
        let g = poly::<S, 7>(
            t,
            [
                3.205_733e-4,
                1.127_171_6,
                6.380_123e-1,
                1.032_180_7e-1,
                -2.188_953_2e-2,
                2.960_070_3e-3,
                -1.875_981_3e-4,
            ],
        );
        let (n, r) = reduce_exp::<S>(S::neg(g));
        let q = poly::<S, 4>(
            r,
            [4.999_913e-1, 1.666_645_4e-1, 4.190_060_5e-2, 8.374_961e-3],
        );
        let p = S::fma(S::mul(r, r), q, r);
        let s = S::scale2(S::splat(1.0), n);
        let large = S::sub(S::sub(S::splat(1.0), s), S::mul(s, p));
        S::with_sign(S::select(S::lt(t, S::splat(1.0)), small, large), x)
    }
}

/// x/2 (1 + erf(x / sqrt 2)); the error is at most 2.5 ULP of |x|, as of the formula evaluated in f32.
#[inline(always)]
pub unsafe fn gelu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // Not as h + h erf, which would make 0 of -0.
        let h = S::mul(x, S::splat(0.5));
        let e = erf::<S>(S::mul(x, S::splat(std::f32::consts::FRAC_1_SQRT_2)));
        S::mul(h, S::add(S::splat(1.0), e))
    }
}

/// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); the error is at most 3 ULP of |x|.
#[inline(always)]
pub unsafe fn gelu_tanh<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        // x / (1 + e^-2u): the same function with one exponential and one division.
        let x2 = S::mul(x, x);
        let u = S::mul(
            x,
            S::fma(x2, S::splat(-0.071_354_814), S::splat(-1.595_769)),
        );
        S::div(x, S::add(S::splat(1.0), exp::<S>(u)))
    }
}

/// Beyond this the vector reduction of sine and cosine is left to the scalar functions.
const TRIG_LIMIT: f32 = 1e4;

#[inline(always)]
unsafe fn sin_cos<S: Simd, const COS: bool>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let t = S::abs(x);
        let n = S::round_small(S::mul(t, S::splat(std::f32::consts::FRAC_2_PI)));
        // pi/2 in three parts of eleven bits, whose products with n are exact, and a rest.
        let r = S::fnma(n, S::splat(1.570_312_5), t);
        let r2 = S::fnma(n, S::splat(4.837_513e-4), r);
        let w = S::mul(n, S::splat(7.549_533_6e-8));
        let r3 = S::sub(r2, w);
        let lost = S::sub(S::sub(r2, r3), w);
        let r = S::add(r3, S::fnma(n, S::splat(2.563_344e-12), lost));
        let u = S::mul(r, r);
        let s = poly::<S, 4>(
            u,
            [
                -1.666_666_7e-1,
                8.333_379e-3,
                -1.985_301_4e-4,
                2.831_522_8e-6,
            ],
        );
        let s = S::fma(S::mul(r, u), s, r);
        let c = poly::<S, 3>(u, [4.166_664_6e-2, -1.388_730_5e-3, 2.443_142_5e-5]);
        let c = S::fma(S::mul(u, u), c, S::fnma(S::splat(0.5), u, S::splat(1.0)));
        let q = S::to_int(n);
        let q = if COS { S::iadd(q, S::isplat(1)) } else { q };
        let swap = S::ieq(S::iand(q, S::isplat(1)), S::isplat(1));
        let y = S::select(swap, c, s);
        let sign = S::shl30(S::iand(q, S::isplat(2)));
        let sign = if COS {
            sign
        } else {
            S::ixor(sign, S::iand(S::bits(x), S::isplat(i32::MIN)))
        };
        let y = S::from_bits(S::ixor(S::bits(y), sign));
        let far = S::m_or(S::lt(S::splat(TRIG_LIMIT), t), S::is_nan(x));
        if S::m_any(far) {
            sin_cos_far::<S, COS>(x, y)
        } else {
            y
        }
    }
}

/// The scalar functions for lanes beyond the limit, infinities and NaN.
#[cold]
#[inline(never)]
unsafe fn sin_cos_far<S: Simd, const COS: bool>(x: S::F, y: S::F) -> S::F {
    let (mut xs, mut ys) = ([0.0_f32; 16], [0.0_f32; 16]);
    // SAFETY: no vector is wider than sixteen lanes.
    unsafe {
        S::store(xs.as_mut_ptr(), x);
        S::store(ys.as_mut_ptr(), y);
        for (x, y) in xs.iter().zip(&mut ys) {
            let big = x.abs() > TRIG_LIMIT || x.is_nan();
            if big {
                *y = (if COS {
                    f64::from(*x).cos()
                } else {
                    f64::from(*x).sin()
                }) as f32;
            }
        }
        S::load(ys.as_ptr())
    }
}

/// Sine, at most 2 ULP; the scalar function beyond |x| = 1e4.
#[inline(always)]
pub unsafe fn sin<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { sin_cos::<S, false>(x) }
}

/// Cosine, at most 2 ULP; the scalar function beyond |x| = 1e4.
#[inline(always)]
pub unsafe fn cos<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { sin_cos::<S, true>(x) }
}

/// Square root, correctly rounded.
#[inline(always)]
pub unsafe fn sqrt<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::sqrt(x) }
}

/// 1 / sqrt x, at most 2 ULP.
#[inline(always)]
pub unsafe fn rsqrt<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::div(S::splat(1.0), S::sqrt(x)) }
}

/// max(x, 0), NaN kept.
#[inline(always)]
pub unsafe fn relu<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::max(S::zero(), x) }
}

/// 1 / x, correctly rounded.
#[inline(always)]
pub unsafe fn recip<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::div(S::splat(1.0), x) }
}

/// The smaller; NaN where either is NaN.
#[inline(always)]
pub unsafe fn min_nan<S: Simd>(a: S::F, b: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::select(S::is_nan(a), a, S::min(a, b)) }
}

/// The greater; NaN where either is NaN.
#[inline(always)]
pub unsafe fn max_nan<S: Simd>(a: S::F, b: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::select(S::is_nan(a), a, S::max(a, b)) }
}

/// `x * max(0, min(1, x/6 + 1/2))`; a NaN stays.
#[inline(always)]
pub unsafe fn hard_swish<S: Simd>(x: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set. NaN times anything stays NaN.
    unsafe {
        let h = S::fma(x, S::splat(1.0 / 6.0), S::splat(0.5));
        S::mul(x, S::max(S::min(h, S::splat(1.0)), S::zero()))
    }
}

/// `exp(x - m)`, 0 where x is -inf.
#[inline(always)]
pub unsafe fn exp_sub<S: Simd>(x: S::F, m: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let none = S::eq(x, S::splat(f32::NEG_INFINITY));
        S::select(none, S::zero(), exp::<S>(S::sub(x, m)))
    }
}
