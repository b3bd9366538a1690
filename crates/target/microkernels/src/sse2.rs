//! [`Simd`] with what every x86-64 CPU has: eight lanes as two vectors, with the bits of [`Portable`], whose arrays
//! the compiler takes apart into single lanes there.
//!
//! # Safety
//!
//! The functions here are unsafe because pointers, strides and counts must describe memory that is valid for the
//! access named in each function's comment; callers are the wrappers of `kernels.rs`, whose table states the
//! contracts.

use super::portable::{MAGIC, Portable};
use super::simd::{Simd, ops};
use std::arch::x86_64::*;

/// Eight lanes of SSE2.
#[derive(Clone, Copy, Debug)]
pub struct Sse2;

type F = [__m128; 2];
type I = [__m128i; 2];

#[inline(always)]
fn one<A: Copy, R>(a: [A; 2], f: impl Fn(A) -> R) -> [R; 2] {
    [f(a[0]), f(a[1])]
}

#[inline(always)]
fn two<A: Copy, R>(a: [A; 2], b: [A; 2], f: impl Fn(A, A) -> R) -> [R; 2] {
    [f(a[0], b[0]), f(a[1], b[1])]
}

/// One expression of intrinsics for both vectors of one or two operands.
macro_rules! both {
    ($a:expr, $f:ident $(::<$n:literal>)?) => { one($a, |a| $f$(::<$n>)?(a)) };
    ($a:expr, $b:expr, $f:ident) => { two($a, $b, |a, b| $f(a, b)) };
}

// SAFETY: partial loads and stores are those of `Portable`.
unsafe impl Simd for Sse2 {
    const W: usize = 8;
    // Sixteen, of which a vector here takes two.
    const REGISTERS: usize = 8;
    const PARTS: usize = 2;
    const FUSED: bool = false;
    type F = F;
    type I = I;
    type M = F;
    type T = usize;

    ops! {
        fn zero() -> F = [_mm_setzero_ps(); 2];
        fn splat(x: f32) -> F = [_mm_set1_ps(x); 2];
        fn load(p: *const f32) -> F = [_mm_loadu_ps(p), _mm_loadu_ps(p.add(4))];
        fn store(p: *mut f32, v: F) = p.cast::<F>().write_unaligned(v);
        fn tail(n: usize) -> usize = n;
        fn load_t(p: *const f32, t: usize) -> F = first(p, t);
        fn store_t(p: *mut f32, v: F, t: usize) = put_first(p, v, t);
        fn select_t(t: usize, a: F, b: F) -> F = floats(Portable::select_t(t, lanes(a), lanes(b)));
        fn add(a: F, b: F) -> F = both!(a, b, _mm_add_ps);
        fn sub(a: F, b: F) -> F = both!(a, b, _mm_sub_ps);
        fn mul(a: F, b: F) -> F = both!(a, b, _mm_mul_ps);
        fn div(a: F, b: F) -> F = both!(a, b, _mm_div_ps);
        fn fma(a: F, b: F, c: F) -> F = Self::add(Self::mul(a, b), c);
        fn fnma(a: F, b: F, c: F) -> F = Self::sub(c, Self::mul(a, b));
        fn min(a: F, b: F) -> F = both!(a, b, _mm_min_ps);
        fn max(a: F, b: F) -> F = both!(a, b, _mm_max_ps);
        fn sqrt(a: F) -> F = both!(a, _mm_sqrt_ps);
        fn abs(a: F) -> F = two(Self::splat(-0.0), a, |sign, a| _mm_andnot_ps(sign, a));
        fn neg(a: F) -> F = both!(a, Self::splat(-0.0), _mm_xor_ps);
        fn spread(q: usize, r: usize) -> I = ints(Portable::spread(q, r));
        fn lanes(a: F, at: I) -> F = permuted(a, at);
        fn with_sign(a: F, s: F) -> F = {
            let sign = both!(s, Self::splat(-0.0), _mm_and_ps);
            both!(a, sign, _mm_or_ps)
        };
        fn round(a: F) -> F = floats(Portable::round(lanes(a)));
        fn round_small(a: F) -> F = Self::sub(Self::add(a, Self::splat(MAGIC)), Self::splat(MAGIC));
        fn floor(a: F) -> F = floats(Portable::floor(lanes(a)));
        fn ceil(a: F) -> F = floats(Portable::ceil(lanes(a)));
        fn trunc(a: F) -> F = floats(Portable::trunc(lanes(a)));
        fn scale2(a: F, n: F) -> F = {
            // Two exact powers: the first product is exact, the second rounds once into the denormals.
            let n = Self::to_int(n);
            let half = both!(n, _mm_srai_epi32::<1>);
            let power = |e| Self::from_bits(Self::shl23(Self::iadd(e, Self::isplat(127))));
            Self::mul(Self::mul(a, power(half)), power(Self::isub(n, half)))
        };
        fn isplat(x: i32) -> I = [_mm_set1_epi32(x); 2];
        fn bits(a: F) -> I = both!(a, _mm_castps_si128);
        fn from_bits(a: I) -> F = both!(a, _mm_castsi128_ps);
        fn to_int(a: F) -> I = both!(a, _mm_cvtps_epi32);
        fn from_int(a: I) -> F = both!(a, _mm_cvtepi32_ps);
        fn iadd(a: I, b: I) -> I = both!(a, b, _mm_add_epi32);
        fn madd(a: I, b: I) -> I = both!(a, b, _mm_madd_epi16);
        fn low_u8(a: I) -> I = both!(a, Self::isplat(0x00ff_00ff), _mm_and_si128);
        fn high_u8(a: I) -> I = both!(a, _mm_srli_epi16::<8>);
        fn low_i8(a: I) -> I = one(a, |a| _mm_srai_epi16::<8>(_mm_slli_epi16::<8>(a)));
        fn high_i8(a: I) -> I = both!(a, _mm_srai_epi16::<8>);
        fn load_u8(p: *const u8) -> I = both!(high(p), _mm_srli_epi32::<24>);
        fn load_i8(p: *const i8) -> I = both!(high(p.cast()), _mm_srai_epi32::<24>);
        fn imul(a: I, b: I) -> I = ints(Portable::imul(int_lanes(a), int_lanes(b)));
        fn nibble(a: I) -> F = Self::from_int(Self::iand(a, Self::isplat(15)));
        fn shr4(a: I) -> I = both!(a, _mm_srli_epi32::<4>);
        fn isub(a: I, b: I) -> I = both!(a, b, _mm_sub_epi32);
        fn iand(a: I, b: I) -> I = both!(a, b, _mm_and_si128);
        fn ixor(a: I, b: I) -> I = both!(a, b, _mm_xor_si128);
        fn shl23(a: I) -> I = both!(a, _mm_slli_epi32::<23>);
        fn shl30(a: I) -> I = both!(a, _mm_slli_epi32::<30>);
        fn sar23(a: I) -> I = both!(a, _mm_srai_epi32::<23>);
        fn ieq(a: I, b: I) -> F = Self::from_bits(both!(a, b, _mm_cmpeq_epi32));
        fn lt(a: F, b: F) -> F = both!(a, b, _mm_cmplt_ps);
        fn le(a: F, b: F) -> F = both!(a, b, _mm_cmple_ps);
        fn eq(a: F, b: F) -> F = both!(a, b, _mm_cmpeq_ps);
        fn is_nan(a: F) -> F = both!(a, a, _mm_cmpunord_ps);
        fn m_or(a: F, b: F) -> F = both!(a, b, _mm_or_ps);
        fn m_and(a: F, b: F) -> F = both!(a, b, _mm_and_ps);
        fn m_all(m: F) -> bool = _mm_movemask_ps(_mm_and_ps(m[0], m[1])) == 0xf;
        fn m_none() -> F = Self::zero();
        fn m_any(m: F) -> bool = _mm_movemask_ps(_mm_or_ps(m[0], m[1])) != 0;
        fn select(m: F, a: F, b: F) -> F = Self::m_or(Self::m_and(m, a), both!(m, b, _mm_andnot_ps));
        fn hsum(a: F) -> f32 = tree(a, |a, b| _mm_add_ps(a, b));
        fn hmax(a: F) -> f32 = tree(a, |a, b| _mm_max_ps(a, b));
        fn hmin(a: F) -> f32 = tree(a, |a, b| _mm_min_ps(a, b));
        fn hsum4(a: [F; 4]) -> [f32; 4] = a.map(|a| Self::hsum(a));
        fn transpose(src: *const f32, sld: usize, dst: *mut f32, dld: usize, rows: usize, cols: usize) = Portable::transpose(src, sld, dst, dld, rows, cols);
        fn prefetch(p: *const f32) = Portable::prefetch(p);
    }
}

// These go lane by lane, so that a call adds little to them, and kernels would have dozens of copies.

#[inline(never)]
unsafe fn first(p: *const f32, t: usize) -> F {
    // SAFETY: the caller gives `t` lanes.
    unsafe { floats(Portable::load_t(p, t)) }
}

#[inline(never)]
unsafe fn put_first(p: *mut f32, v: F, t: usize) {
    // SAFETY: the caller gives `t` lanes.
    unsafe { Portable::store_t(p, lanes(v), t) }
}

#[inline(never)]
unsafe fn permuted(a: F, at: I) -> F {
    // SAFETY: the caller gives lanes below eight.
    unsafe { floats(Portable::lanes(lanes(a), int_lanes(at))) }
}

/// Pairs of lanes that lie as in [`Portable`]'s `tree`.
#[inline(always)]
fn tree(a: F, f: impl Fn(__m128, __m128) -> __m128) -> f32 {
    let s = f(a[0], a[1]);
    // SAFETY: every x86-64 CPU has SSE2.
    unsafe {
        let s = f(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(f(s, _mm_shuffle_ps::<1>(s, s)))
    }
}

/// Eight bytes, each in the highest bits of a lane.
#[inline(always)]
unsafe fn high(p: *const u8) -> I {
    // SAFETY: the caller gives eight bytes.
    unsafe {
        let none = _mm_setzero_si128();
        let halves = _mm_unpacklo_epi8(none, _mm_loadl_epi64(p.cast()));
        [
            _mm_unpacklo_epi16(none, halves),
            _mm_unpackhi_epi16(none, halves),
        ]
    }
}

#[inline(always)]
fn lanes(a: F) -> [f32; 8] {
    // SAFETY: both are eight lanes of any bits.
    unsafe { std::mem::transmute(a) }
}

#[inline(always)]
fn floats(a: [f32; 8]) -> F {
    // SAFETY: as above.
    unsafe { std::mem::transmute(a) }
}

#[inline(always)]
fn int_lanes(a: I) -> [i32; 8] {
    // SAFETY: as above.
    unsafe { std::mem::transmute(a) }
}

#[inline(always)]
fn ints(a: [i32; 8]) -> I {
    // SAFETY: as above.
    unsafe { std::mem::transmute(a) }
}
