//! The vector operations that every micro-kernel is written in.
//!
//! A kernel is one `#[inline(always)]` function generic over [`Simd`]; `kernels.rs` wraps it once per
//! instruction set in a function with `#[target_feature]`, into which everything inlines. Outside such a
//! wrapper these functions are correct but slow.
//!
//! # Safety
//!
//! The functions here are unsafe because the CPU must have the instruction set they are compiled for,
//! and because pointers, strides and counts must describe memory that is valid for the access named in
//! each function's comment; callers are the wrappers of `kernels.rs`, whose table states the contracts.

/// Whether a tile of so many sums and weights stays in registers, with one for what they are multiplied by. A tile that
/// does not is slower than smaller ones, and larger.
pub(super) const fn held<S: Simd>(sums: usize, weights: usize) -> bool {
    sums + weights < S::REGISTERS
}

/// Vectors of f32 of one instruction set.
///
/// # Safety
///
/// An implementation's loads and stores touch exactly the lanes that their contracts name.
/// All functions are unsafe because the CPU must have the instruction set; loads and stores also need pointers
/// that are valid for the lanes touched. No alignment is needed beyond that of an element.
#[allow(missing_docs, reason = "the names are those of the instructions")]
#[allow(
    clippy::missing_safety_doc,
    reason = "the trait's own contract is the contract of each function"
)]
pub unsafe trait Simd: Copy + 'static {
    /// Lanes.
    const W: usize;
    /// Vectors that there are registers for.
    const REGISTERS: usize;
    /// Registers that a vector takes.
    const PARTS: usize;
    /// Whether `fma` rounds once.
    const FUSED: bool;
    /// W lanes of f32.
    type F: Copy;
    /// W lanes of i32.
    type I: Copy;
    /// W truth values.
    type M: Copy;
    /// The first n of W lanes, for partial loads and stores.
    type T: Copy;

    unsafe fn zero() -> Self::F;
    unsafe fn splat(x: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// The first `n` lanes; `n <= W`.
    unsafe fn tail(n: usize) -> Self::T;
    /// Lanes outside `t` are zero and their memory is not touched.
    unsafe fn load_t(p: *const f32, t: Self::T) -> Self::F;
    /// Lanes outside `t` are not touched.
    unsafe fn store_t(p: *mut f32, v: Self::F, t: Self::T);
    /// Lanes of `t` from `a`, the others from `b`.
    unsafe fn select_t(t: Self::T, a: Self::F, b: Self::F) -> Self::F;

    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    /// `a * b + c`, fused where the instruction set can.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c - a * b`, fused where the instruction set can.
    unsafe fn fnma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The smaller; `b` where either is NaN.
    unsafe fn min(a: Self::F, b: Self::F) -> Self::F;
    /// The greater; `b` where either is NaN.
    unsafe fn max(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sqrt(a: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    unsafe fn neg(a: Self::F) -> Self::F;
    /// The magnitude of `a` with the sign of `s`; `a` must not be negative.
    unsafe fn with_sign(a: Self::F, s: Self::F) -> Self::F;
    /// Ties to even.
    unsafe fn round(a: Self::F) -> Self::F;
    /// Ties to even, for |a| < 2^22.
    unsafe fn round_small(a: Self::F) -> Self::F;
    unsafe fn floor(a: Self::F) -> Self::F;
    unsafe fn ceil(a: Self::F) -> Self::F;
    unsafe fn trunc(a: Self::F) -> Self::F;
    /// `a * 2^n` for whole -252 <= n <= 254, rounded once unless it overflows.
    unsafe fn scale2(a: Self::F, n: Self::F) -> Self::F;

    /// The lanes `i / q * q + r` for every lane i; q is 2, 4 or 8 and r below it.
    unsafe fn spread(q: usize, r: usize) -> Self::I;
    /// Lane i takes what lane `at[i]` of `a` has.
    unsafe fn lanes(a: Self::F, at: Self::I) -> Self::F;

    unsafe fn isplat(x: i32) -> Self::I;
    unsafe fn bits(a: Self::F) -> Self::I;
    unsafe fn from_bits(a: Self::I) -> Self::F;
    /// Whole a with |a| < 2^22 to an integer.
    unsafe fn to_int(a: Self::F) -> Self::I;
    unsafe fn from_int(a: Self::I) -> Self::F;
    unsafe fn iadd(a: Self::I, b: Self::I) -> Self::I;
    /// Lanes as two signed halves: the sum of their products.
    unsafe fn madd(a: Self::I, b: Self::I) -> Self::I;
    /// The low bytes of 16 bits, unsigned, as 16 bits.
    unsafe fn low_u8(a: Self::I) -> Self::I;
    /// The high bytes of 16 bits, unsigned, as 16 bits.
    unsafe fn high_u8(a: Self::I) -> Self::I;
    /// The low bytes of 16 bits, signed, as 16 bits.
    unsafe fn low_i8(a: Self::I) -> Self::I;
    /// The high bytes of 16 bits, signed, as 16 bits.
    unsafe fn high_i8(a: Self::I) -> Self::I;
    /// W bytes as integers without sign.
    unsafe fn load_u8(p: *const u8) -> Self::I;
    /// W bytes as integers with sign.
    unsafe fn load_i8(p: *const i8) -> Self::I;
    /// The lowest four bits, 0..16, as f32.
    unsafe fn nibble(a: Self::I) -> Self::F;
    /// Shifted right by four bits, zeros coming in.
    unsafe fn shr4(a: Self::I) -> Self::I;
    /// The low 32 bits of products.
    unsafe fn imul(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn isub(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn iand(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn ixor(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn shl23(a: Self::I) -> Self::I;
    unsafe fn shl30(a: Self::I) -> Self::I;
    unsafe fn sar23(a: Self::I) -> Self::I;
    unsafe fn ieq(a: Self::I, b: Self::I) -> Self::M;

    /// Ordered comparisons: false where either is NaN.
    unsafe fn lt(a: Self::F, b: Self::F) -> Self::M;
    unsafe fn le(a: Self::F, b: Self::F) -> Self::M;
    unsafe fn eq(a: Self::F, b: Self::F) -> Self::M;
    unsafe fn is_nan(a: Self::F) -> Self::M;
    unsafe fn m_or(a: Self::M, b: Self::M) -> Self::M;
    unsafe fn m_and(a: Self::M, b: Self::M) -> Self::M;
    unsafe fn m_all(m: Self::M) -> bool;
    unsafe fn m_none() -> Self::M;
    unsafe fn m_any(m: Self::M) -> bool;
    /// `a` where `m`, else `b`.
    unsafe fn select(m: Self::M, a: Self::F, b: Self::F) -> Self::F;

    /// The sum of all lanes, pairwise in a fixed order.
    unsafe fn hsum(a: Self::F) -> f32;
    unsafe fn hmax(a: Self::F) -> f32;
    unsafe fn hmin(a: Self::F) -> f32;
    /// The sums of four vectors.
    unsafe fn hsum4(a: [Self::F; 4]) -> [f32; 4];
    /// `dst[c * dld + r] = src[r * sld + c]` for `r < rows <= W`, `c < cols <= W`, as bits.
    unsafe fn transpose(
        src: *const f32,
        sld: usize,
        dst: *mut f32,
        dld: usize,
        rows: usize,
        cols: usize,
    );
    /// Asks for the line at `p` in L2; `p` need not be valid.
    unsafe fn prefetch(p: *const f32);
}

/// Writes functions of [`Simd`], each one expression of intrinsics.
#[cfg(target_arch = "x86_64")]
macro_rules! ops {
    ($(fn $name:ident ( $($a:ident : $t:ty),* ) $(-> $r:ty)? = $e:expr;)*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe, reason = "some lines are plain arithmetic")]
            unsafe fn $name($($a: $t),*) $(-> $r)? {
                // SAFETY: the caller vouches for the instruction set and for the lanes touched.
                unsafe { $e }
            }
        )*
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use ops;
