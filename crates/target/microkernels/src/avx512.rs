//! [`Simd`] with AVX-512 (F, VL, DQ, BW).
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

use super::avx2::{hsum4x256, hsum256};
use super::simd::{Simd, ops};
use std::arch::x86_64::*;

/// Sixteen lanes of AVX-512 (F, VL, DQ, BW).
#[derive(Clone, Copy, Debug)]
pub struct Avx512;

#[inline(always)]
fn lanes(n: usize) -> __mmask16 {
    // n <= 16, so the shift stays inside u32.
    ((1_u32 << n) - 1) as u16
}

// SAFETY: masked instructions touch only the lanes of their mask.
unsafe impl Simd for Avx512 {
    const W: usize = 16;
    const REGISTERS: usize = 32;
    const PARTS: usize = 1;
    const FUSED: bool = true;
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;
    type T = __mmask16;

    ops! {
        fn zero() -> __m512 = _mm512_setzero_ps();
        fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn spread(q: usize, r: usize) -> __m512i = {
            let own = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let first = _mm512_and_si512(own, _mm512_set1_epi32(-(q as i32)));
            _mm512_add_epi32(first, _mm512_set1_epi32(r as i32))
        };
        fn lanes(a: __m512, at: __m512i) -> __m512 = _mm512_permutexvar_ps(at, a);
        fn load(p: *const f32) -> __m512 = _mm512_loadu_ps(p);
        fn store(p: *mut f32, v: __m512) = _mm512_storeu_ps(p, v);
        fn tail(n: usize) -> __mmask16 = lanes(n);
        fn load_t(p: *const f32, t: __mmask16) -> __m512 = _mm512_maskz_loadu_ps(t, p);
        fn store_t(p: *mut f32, v: __m512, t: __mmask16) = _mm512_mask_storeu_ps(p, t, v);
        fn select_t(t: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(t, b, a);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn fnma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
        fn min(a: __m512, b: __m512) -> __m512 = _mm512_min_ps(a, b);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn sqrt(a: __m512) -> __m512 = _mm512_sqrt_ps(a);
        fn abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        fn neg(a: __m512) -> __m512 = _mm512_xor_ps(a, _mm512_set1_ps(-0.0));
        fn with_sign(a: __m512, s: __m512) -> __m512 = _mm512_or_ps(a, _mm512_and_ps(s, _mm512_set1_ps(-0.0)));
        fn round(a: __m512) -> __m512 = _mm512_roundscale_ps::<8>(a);
        fn round_small(a: __m512) -> __m512 = _mm512_roundscale_ps::<8>(a);
        fn floor(a: __m512) -> __m512 = _mm512_roundscale_ps::<9>(a);
        fn ceil(a: __m512) -> __m512 = _mm512_roundscale_ps::<10>(a);
        fn trunc(a: __m512) -> __m512 = _mm512_roundscale_ps::<11>(a);
        fn scale2(a: __m512, n: __m512) -> __m512 = _mm512_scalef_ps(a, n);
        fn isplat(x: i32) -> __m512i = _mm512_set1_epi32(x);
        fn bits(a: __m512) -> __m512i = _mm512_castps_si512(a);
        fn from_bits(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        fn to_int(a: __m512) -> __m512i = _mm512_cvtps_epi32(a);
        fn from_int(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        fn iadd(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn madd(a: __m512i, b: __m512i) -> __m512i = _mm512_madd_epi16(a, b);
        fn low_u8(a: __m512i) -> __m512i = _mm512_and_si512(a, _mm512_set1_epi16(0xff));
        fn high_u8(a: __m512i) -> __m512i = _mm512_srli_epi16::<8>(a);
        fn low_i8(a: __m512i) -> __m512i = _mm512_srai_epi16::<8>(_mm512_slli_epi16::<8>(a));
        fn high_i8(a: __m512i) -> __m512i = _mm512_srai_epi16::<8>(a);
        fn load_u8(p: *const u8) -> __m512i = _mm512_cvtepu8_epi32(_mm_loadu_si128(p.cast()));
        fn load_i8(p: *const i8) -> __m512i = _mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()));
        fn imul(a: __m512i, b: __m512i) -> __m512i = _mm512_mullo_epi32(a, b);
        fn nibble(a: __m512i) -> __m512 = _mm512_permutexvar_ps(a, _mm512_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0));
        fn shr4(a: __m512i) -> __m512i = _mm512_srli_epi32::<4>(a);
        fn isub(a: __m512i, b: __m512i) -> __m512i = _mm512_sub_epi32(a, b);
        fn iand(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        fn ixor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        fn shl23(a: __m512i) -> __m512i = _mm512_slli_epi32::<23>(a);
        fn shl30(a: __m512i) -> __m512i = _mm512_slli_epi32::<30>(a);
        fn sar23(a: __m512i) -> __m512i = _mm512_srai_epi32::<23>(a);
        fn ieq(a: __m512i, b: __m512i) -> __mmask16 = _mm512_cmpeq_epi32_mask(a, b);
        fn lt(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b);
        fn le(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b);
        fn eq(a: __m512, b: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        fn is_nan(a: __m512) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a);
        fn m_or(a: __mmask16, b: __mmask16) -> __mmask16 = a | b;
        fn m_and(a: __mmask16, b: __mmask16) -> __mmask16 = a & b;
        fn m_all(m: __mmask16) -> bool = m == 0xffff;
        fn m_none() -> __mmask16 = 0;
        fn m_any(m: __mmask16) -> bool = m != 0;
        fn select(m: __mmask16, a: __m512, b: __m512) -> __m512 = _mm512_mask_blend_ps(m, b, a);
        fn hsum(a: __m512) -> f32 = hsum256(fold256(a));
        fn hmax(a: __m512) -> f32 = _mm512_reduce_max_ps(a);
        fn hmin(a: __m512) -> f32 = _mm512_reduce_min_ps(a);
        fn hsum4(a: [__m512; 4]) -> [f32; 4] = hsum4x256(fold256(a[0]), fold256(a[1]), fold256(a[2]), fold256(a[3]));
        fn transpose(src: *const f32, sld: usize, dst: *mut f32, dld: usize, rows: usize, cols: usize) = transpose16(src, sld, dst, dld, rows, cols);
        fn prefetch(p: *const f32) = _mm_prefetch::<_MM_HINT_T1>(p.cast());
    }
}

#[inline(always)]
unsafe fn fold256(a: __m512) -> __m256 {
    // SAFETY: the caller vouches for AVX-512.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a)) }
}

/// Transposes a block of at most 16 x 16 with masked loads and stores.
#[inline(always)]
unsafe fn transpose16(
    src: *const f32,
    sld: usize,
    dst: *mut f32,
    dld: usize,
    rows: usize,
    cols: usize,
) {
    // SAFETY: the caller vouches for AVX-512 and for both blocks; masks keep to them.
    unsafe {
        let load_mask = lanes(cols);
        let mut a = [_mm512_setzero_ps(); 16];
        if rows == 16 {
            for (r, v) in a.iter_mut().enumerate() {
                *v = _mm512_maskz_loadu_ps(load_mask, src.add(r * sld));
            }
        } else {
            for (r, v) in a.iter_mut().enumerate() {
                if r < rows {
                    *v = _mm512_maskz_loadu_ps(load_mask, src.add(r * sld));
                }
            }
        }
        let mut b = [_mm512_setzero_ps(); 16];
        for i in 0..8 {
            b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
            b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
        }
        let pd = |v| _mm512_castps_pd(v);
        for i in 0..4 {
            a[4 * i] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(b[4 * i]), pd(b[4 * i + 2])));
            a[4 * i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(b[4 * i]), pd(b[4 * i + 2])));
            a[4 * i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(pd(b[4 * i + 1]), pd(b[4 * i + 3])));
            a[4 * i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(pd(b[4 * i + 1]), pd(b[4 * i + 3])));
        }
        // a[4q + j], 128-bit lane l: rows 4q..4q+4 of column 4l + j.
        for j in 0..4 {
            let (p, q, r, s) = (a[j], a[4 + j], a[8 + j], a[12 + j]);
            let lo01 = _mm512_shuffle_f32x4::<0x88>(p, q);
            let lo23 = _mm512_shuffle_f32x4::<0x88>(r, s);
            let hi01 = _mm512_shuffle_f32x4::<0xdd>(p, q);
            let hi23 = _mm512_shuffle_f32x4::<0xdd>(r, s);
            b[j] = _mm512_shuffle_f32x4::<0x88>(lo01, lo23);
            b[8 + j] = _mm512_shuffle_f32x4::<0xdd>(lo01, lo23);
            b[4 + j] = _mm512_shuffle_f32x4::<0x88>(hi01, hi23);
            b[12 + j] = _mm512_shuffle_f32x4::<0xdd>(hi01, hi23);
        }
        if rows == 16 && cols == 16 {
            for (c, &v) in b.iter().enumerate() {
                _mm512_storeu_ps(dst.add(c * dld), v);
            }
        } else {
            let store_mask = lanes(rows);
            for (c, &v) in b.iter().enumerate() {
                if c < cols {
                    _mm512_mask_storeu_ps(dst.add(c * dld), store_mask, v);
                }
            }
        }
    }
}
