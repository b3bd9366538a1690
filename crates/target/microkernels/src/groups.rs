//! Products of small numbers, several of which make an element of 32 bits: two signed integers of 16 bits,
//! four unsigned ones of A times four signed ones of B of 8 bits, or two bf16. Sums of integers are i32 and
//! wrap, those of bf16 are f32.
//!
//! They are the tiles of [`super::gemm`], whose counts and strides then count such elements; A must be
//! contiguous along k and may lie at any byte.
//!
//! # Safety
//!
//! As for [`super::gemm`].

use super::gemm::{GemmKernel, Product, TileTable, shaped, tiles};
use super::simd::Simd;
use crate::isa::Isa;

/// As [`super::gemm_kernel`], for elements that are pairs of i16 (every count of elements and stride counts
/// pairs) and sums in i32; A must be contiguous along k.
#[must_use]
pub fn pair_kernel(isa: Isa, mr: usize, nr: usize) -> Option<GemmKernel> {
    let (tiles, lanes): (&'static [TileTable], usize) = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => (&pairs512::TILES, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => (&pairs2::TILES, 8),
        _ => (&pairs1::TILES, 8),
    };
    shaped(tiles, lanes, mr, nr)
}

/// As [`pair_kernel`], for elements that are four u8 of A and four i8 of B.
#[must_use]
pub fn quad_kernel(isa: Isa, mr: usize, nr: usize) -> Option<GemmKernel> {
    let (tiles, lanes): (&'static [TileTable], usize) = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if std::arch::is_x86_feature_detected!("avx512vnni") => (&vnni512::TILES, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => (&quads512::TILES, 16),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 if std::arch::is_x86_feature_detected!("avxvnni") => (&vnni2::TILES, 8),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => (&quads2::TILES, 8),
        _ => (&quads1::TILES, 8),
    };
    shaped(tiles, lanes, mr, nr)
}

/// Whether the present CPU sums products of bf16 by one instruction.
#[must_use]
pub fn has_bf16_dots() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        Isa::Avx512.available() && std::arch::is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// As [`pair_kernel`], for elements that are two bf16 and sums in f32; None where the CPU has no such
/// instruction. Numbers too small to be normal count as 0.
#[must_use]
pub fn bf16_kernel(isa: Isa, mr: usize, nr: usize) -> Option<GemmKernel> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 if has_bf16_dots() => shaped(&bf16s::TILES, 16, mr, nr),
        _ => None,
    }
}

/// Elements are two bf16.
#[cfg(target_arch = "x86_64")]
struct Bf16s;

#[cfg(target_arch = "x86_64")]
impl Product<super::avx512::Avx512> for Bf16s {
    const POST: bool = true;
    const INSTRUCTIONS: usize = 1;
    #[inline(always)]
    unsafe fn mac(a: Wide, b: Wide, c: Wide) -> Wide {
        use std::arch::x86_64::{__m512bh, _mm512_dpbf16_ps};
        // SAFETY: the caller vouches for the instruction set; any bits are bf16 numbers.
        unsafe {
            let pairs = |v: Wide| std::mem::transmute::<Wide, __m512bh>(v);
            _mm512_dpbf16_ps(c, pairs(a), pairs(b))
        }
    }

    #[inline(always)]
    unsafe fn plus(a: Wide, b: Wide) -> Wide {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { <super::avx512::Avx512 as Simd>::add(a, b) }
    }
}

/// Elements are pairs of i16.
struct Pairs;

/// Elements are four u8 and four i8, multiplied in 16 bits.
struct Quads;

/// The same by one instruction.
struct Vnni;

/// `a + b` of sums in i32.
#[inline(always)]
unsafe fn plus<S: Simd>(a: S::F, b: S::F) -> S::F {
    // SAFETY: the caller vouches for the instruction set.
    unsafe { S::from_bits(S::iadd(S::bits(a), S::bits(b))) }
}

impl<S: Simd> Product<S> for Pairs {
    const POST: bool = false;
    const INSTRUCTIONS: usize = 3;
    #[inline(always)]
    unsafe fn mac(a: S::F, b: S::F, c: S::F) -> S::F {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { S::from_bits(S::iadd(S::madd(S::bits(a), S::bits(b)), S::bits(c))) }
    }

    #[inline(always)]
    unsafe fn plus(a: S::F, b: S::F) -> S::F {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { plus::<S>(a, b) }
    }
}

impl<S: Simd> Product<S> for Quads {
    const POST: bool = false;
    const INSTRUCTIONS: usize = 6;
    #[inline(always)]
    unsafe fn mac(a: S::F, b: S::F, c: S::F) -> S::F {
        // SAFETY: the caller vouches for the instruction set.
        unsafe {
            let (a, b) = (S::bits(a), S::bits(b));
            let (even, odd) = (S::low_u8(a), S::high_u8(a));
            let low = S::madd(even, S::low_i8(b));
            let high = S::madd(odd, S::high_i8(b));
            S::from_bits(S::iadd(S::iadd(low, high), S::bits(c)))
        }
    }

    #[inline(always)]
    unsafe fn plus(a: S::F, b: S::F) -> S::F {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { plus::<S>(a, b) }
    }
}

#[cfg(target_arch = "x86_64")]
impl Product<super::avx512::Avx512> for Vnni {
    const POST: bool = false;
    const INSTRUCTIONS: usize = 1;
    #[inline(always)]
    unsafe fn mac(a: Wide, b: Wide, c: Wide) -> Wide {
        use std::arch::x86_64::{
            _mm512_castps_si512 as bits, _mm512_castsi512_ps as floats, _mm512_dpbusd_epi32,
        };
        // SAFETY: the caller vouches for the instruction set.
        unsafe { floats(_mm512_dpbusd_epi32(bits(c), bits(a), bits(b))) }
    }

    #[inline(always)]
    unsafe fn plus(a: Wide, b: Wide) -> Wide {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { plus::<super::avx512::Avx512>(a, b) }
    }
}

#[cfg(target_arch = "x86_64")]
type Wide = std::arch::x86_64::__m512;
#[cfg(target_arch = "x86_64")]
type Half = std::arch::x86_64::__m256;

#[cfg(target_arch = "x86_64")]
impl Product<super::avx2::Avx2> for Vnni {
    const POST: bool = false;
    const INSTRUCTIONS: usize = 1;
    #[inline(always)]
    unsafe fn mac(a: Half, b: Half, c: Half) -> Half {
        use std::arch::x86_64::{
            _mm256_castps_si256 as bits, _mm256_castsi256_ps as floats, _mm256_dpbusd_avx_epi32,
        };
        // SAFETY: the caller vouches for the instruction set.
        unsafe { floats(_mm256_dpbusd_avx_epi32(bits(c), bits(a), bits(b))) }
    }

    #[inline(always)]
    unsafe fn plus(a: Half, b: Half) -> Half {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { plus::<super::avx2::Avx2>(a, b) }
    }
}

/// The register tiles of AVX-512.
macro_rules! groups512 {
    ($module:ident, $product:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        tiles!($module, crate::avx512::Avx512, $product, $features, own = false, 4, [
            1: [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16],
            2: [1 2 3 4 5 6 7 8 9 10 11 12 13 14],
            3: [1 2 3 4 5 6 7 8],
            4: [1 2 3 4 5 6]
        ]);
    };
}

/// The register tiles of AVX2. A masked vector costs little beside products of several instructions.
macro_rules! groups2 {
    ($module:ident, $product:ident, $features:literal, own = $own:literal) => {
        #[cfg(target_arch = "x86_64")]
        tiles!($module, crate::avx2::Avx2, $product, $features, own = $own, 4, [
            1: [1 2 3 4 5 6 7 8 9 10 11 12],
            2: [1 2 3 4 5 6],
            3: [1 2 3 4],
            4: [1 2 3]
        ]);
    };
}

/// The register tiles of plain code.
macro_rules! groups1 {
    ($module:ident, $product:ident) => {
        #[cfg(target_arch = "x86_64")]
        tiles!($module, crate::sse2::Sse2, $product, "sse2", own = true, 2, [1: [1 2 3 4 5 6], 2: [1 2 3]]);
        #[cfg(target_arch = "aarch64")]
        tiles!($module, crate::portable::Portable, $product, "neon", own = true, 2, [1: [1 2 3 4 5 6], 2: [1 2 3]]);
    };
}

groups512!(
    pairs512,
    Pairs,
    "avx512f,avx512vl,avx512dq,avx512bw,fma,avx2"
);
groups512!(
    quads512,
    Quads,
    "avx512f,avx512vl,avx512dq,avx512bw,fma,avx2"
);
groups512!(
    vnni512,
    Vnni,
    "avx512f,avx512vl,avx512dq,avx512bw,avx512vnni,fma,avx2"
);
groups512!(
    bf16s,
    Bf16s,
    "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,fma,avx2"
);
groups2!(pairs2, Pairs, "avx2,fma", own = false);
groups2!(quads2, Quads, "avx2,fma", own = false);
groups2!(vnni2, Vnni, "avx2,fma,avxvnni", own = true);
groups1!(pairs1, Pairs);
groups1!(quads1, Quads);
