//! [`Simd`] with AVX2 and FMA.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::simd::{Simd, ops};
use std::arch::x86_64::*;

/// Eight lanes of AVX2 and FMA.
#[derive(Clone, Copy, Debug)]
pub struct Avx2;

static LANES: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

// SAFETY: masked instructions touch only the lanes of their mask.
unsafe impl Simd for Avx2 {
    const W: usize = 8;
    const REGISTERS: usize = 16;
    const PARTS: usize = 1;
    const FUSED: bool = true;
    type F = __m256;
    type I = __m256i;
    type M = __m256;
    type T = __m256i;

    ops! {
        fn zero() -> __m256 = _mm256_setzero_ps();
        fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn spread(q: usize, r: usize) -> __m256i = {
            let own = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let first = _mm256_and_si256(own, _mm256_set1_epi32(-(q as i32)));
            _mm256_add_epi32(first, _mm256_set1_epi32(r as i32))
        };
        fn lanes(a: __m256, at: __m256i) -> __m256 = _mm256_permutevar8x32_ps(a, at);
        fn load(p: *const f32) -> __m256 = _mm256_loadu_ps(p);
        fn store(p: *mut f32, v: __m256) = _mm256_storeu_ps(p, v);
        fn tail(n: usize) -> __m256i = _mm256_loadu_si256(LANES.as_ptr().add(8 - n).cast());
        fn load_t(p: *const f32, t: __m256i) -> __m256 = _mm256_maskload_ps(p, t);
        fn store_t(p: *mut f32, v: __m256, t: __m256i) = _mm256_maskstore_ps(p, t, v);
        fn select_t(t: __m256i, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, _mm256_castsi256_ps(t));
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
        fn min(a: __m256, b: __m256) -> __m256 = _mm256_min_ps(a, b);
        fn max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn sqrt(a: __m256) -> __m256 = _mm256_sqrt_ps(a);
        fn abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        fn neg(a: __m256) -> __m256 = _mm256_xor_ps(a, _mm256_set1_ps(-0.0));
        fn with_sign(a: __m256, s: __m256) -> __m256 = _mm256_or_ps(a, _mm256_and_ps(s, _mm256_set1_ps(-0.0)));
        fn round(a: __m256) -> __m256 = _mm256_round_ps::<8>(a);
        fn round_small(a: __m256) -> __m256 = _mm256_round_ps::<8>(a);
        fn floor(a: __m256) -> __m256 = _mm256_round_ps::<9>(a);
        fn ceil(a: __m256) -> __m256 = _mm256_round_ps::<10>(a);
        fn trunc(a: __m256) -> __m256 = _mm256_round_ps::<11>(a);
        fn scale2(a: __m256, n: __m256) -> __m256 = scale2(a, n);
        fn isplat(x: i32) -> __m256i = _mm256_set1_epi32(x);
        fn bits(a: __m256) -> __m256i = _mm256_castps_si256(a);
        fn from_bits(a: __m256i) -> __m256 = _mm256_castsi256_ps(a);
        fn to_int(a: __m256) -> __m256i = _mm256_cvtps_epi32(a);
        fn from_int(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
        fn iadd(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        fn madd(a: __m256i, b: __m256i) -> __m256i = _mm256_madd_epi16(a, b);
        fn low_u8(a: __m256i) -> __m256i = _mm256_and_si256(a, _mm256_set1_epi16(0xff));
        fn high_u8(a: __m256i) -> __m256i = _mm256_srli_epi16::<8>(a);
        fn low_i8(a: __m256i) -> __m256i = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(a));
        fn high_i8(a: __m256i) -> __m256i = _mm256_srai_epi16::<8>(a);
        fn load_u8(p: *const u8) -> __m256i = _mm256_cvtepu8_epi32(_mm_loadl_epi64(p.cast()));
        fn load_i8(p: *const i8) -> __m256i = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()));
        fn imul(a: __m256i, b: __m256i) -> __m256i = _mm256_mullo_epi32(a, b);
        fn nibble(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(_mm256_and_si256(a, _mm256_set1_epi32(15)));
        fn shr4(a: __m256i) -> __m256i = _mm256_srli_epi32::<4>(a);
        fn isub(a: __m256i, b: __m256i) -> __m256i = _mm256_sub_epi32(a, b);
        fn iand(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        fn ixor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        fn shl23(a: __m256i) -> __m256i = _mm256_slli_epi32::<23>(a);
        fn shl30(a: __m256i) -> __m256i = _mm256_slli_epi32::<30>(a);
        fn sar23(a: __m256i) -> __m256i = _mm256_srai_epi32::<23>(a);
        fn ieq(a: __m256i, b: __m256i) -> __m256 = _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
        fn lt(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LT_OQ>(a, b);
        fn le(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_LE_OQ>(a, b);
        fn eq(a: __m256, b: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        fn is_nan(a: __m256) -> __m256 = _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a);
        fn m_or(a: __m256, b: __m256) -> __m256 = _mm256_or_ps(a, b);
        fn m_and(a: __m256, b: __m256) -> __m256 = _mm256_and_ps(a, b);
        fn m_all(m: __m256) -> bool = _mm256_movemask_ps(m) == 0xff;
        fn m_none() -> __m256 = _mm256_setzero_ps();
        fn m_any(m: __m256) -> bool = _mm256_movemask_ps(m) != 0;
        fn select(m: __m256, a: __m256, b: __m256) -> __m256 = _mm256_blendv_ps(b, a, m);
        fn hsum(a: __m256) -> f32 = hsum256(a);
        fn hmax(a: __m256) -> f32 = hmax256(a);
        fn hmin(a: __m256) -> f32 = -hmax256(_mm256_xor_ps(a, _mm256_set1_ps(-0.0)));
        fn hsum4(a: [__m256; 4]) -> [f32; 4] = hsum4x256(a[0], a[1], a[2], a[3]);
        fn transpose(src: *const f32, sld: usize, dst: *mut f32, dld: usize, rows: usize, cols: usize) = transpose8(src, sld, dst, dld, rows, cols);
        fn prefetch(p: *const f32) = _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
}

/// `a * 2^n` by two exact powers: the first product is exact, the second rounds once into the denormals.
#[inline(always)]
unsafe fn scale2(a: __m256, n: __m256) -> __m256 {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let n = _mm256_cvtps_epi32(n);
        let half = _mm256_srai_epi32::<1>(n);
        let bias = _mm256_set1_epi32(127);
        let power = |e| _mm256_castsi256_ps(_mm256_slli_epi32::<23>(_mm256_add_epi32(e, bias)));
        _mm256_mul_ps(
            _mm256_mul_ps(a, power(half)),
            power(_mm256_sub_epi32(n, half)),
        )
    }
}

/// The sum of eight lanes, pairwise.
#[inline(always)]
pub(super) unsafe fn hsum256(a: __m256) -> f32 {
    // SAFETY: the caller vouches for AVX.
    unsafe {
        let s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps::<1>(s, s)))
    }
}

#[inline(always)]
unsafe fn hmax256(a: __m256) -> f32 {
    // SAFETY: the caller vouches for AVX.
    unsafe {
        let s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
        let s = _mm_max_ps(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps::<1>(s, s)))
    }
}

/// The sums of four vectors by transposing additions.
#[inline(always)]
pub(super) unsafe fn hsum4x256(a: __m256, b: __m256, c: __m256, d: __m256) -> [f32; 4] {
    // SAFETY: the caller vouches for AVX; the result is four lanes.
    unsafe {
        let s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
        let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
        let mut out = [0.0; 4];
        _mm_storeu_ps(out.as_mut_ptr(), s);
        out
    }
}

/// Transposes a block of at most 8 x 8.
#[inline(always)]
unsafe fn transpose8(
    src: *const f32,
    sld: usize,
    dst: *mut f32,
    dld: usize,
    rows: usize,
    cols: usize,
) {
    // SAFETY: the caller vouches for AVX2 and for both blocks; edges go element by element.
    unsafe {
        if rows < 8 || cols < 8 {
            for c in 0..cols {
                for r in 0..rows {
                    *dst.add(c * dld + r) = *src.add(r * sld + c);
                }
            }
            return;
        }
        let mut a = [_mm256_setzero_ps(); 8];
        for (r, v) in a.iter_mut().enumerate() {
            *v = _mm256_loadu_ps(src.add(r * sld));
        }
        let mut b = [_mm256_setzero_ps(); 8];
        for i in 0..4 {
            b[2 * i] = _mm256_unpacklo_ps(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm256_unpackhi_ps(a[2 * i], a[2 * i + 1]);
        }
        for i in 0..2 {
            a[4 * i] = _mm256_shuffle_ps::<0x44>(b[4 * i], b[4 * i + 2]);
            a[4 * i + 1] = _mm256_shuffle_ps::<0xee>(b[4 * i], b[4 * i + 2]);
            a[4 * i + 2] = _mm256_shuffle_ps::<0x44>(b[4 * i + 1], b[4 * i + 3]);
            a[4 * i + 3] = _mm256_shuffle_ps::<0xee>(b[4 * i + 1], b[4 * i + 3]);
        }
        for j in 0..4 {
            _mm256_storeu_ps(
                dst.add(j * dld),
                _mm256_permute2f128_ps::<0x20>(a[j], a[4 + j]),
            );
            _mm256_storeu_ps(
                dst.add((4 + j) * dld),
                _mm256_permute2f128_ps::<0x31>(a[j], a[4 + j]),
            );
        }
    }
}
