//! [`Simd`] in plain Rust: blocks of eight lanes that the compiler turns into whatever the target has.

use super::simd::Simd;
use std::array::from_fn;

/// Eight lanes in plain Rust.
#[derive(Clone, Copy, Debug)]
pub struct Portable;

pub(super) const MAGIC: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number

type F = [f32; 8];
type I = [i32; 8];
type M = [u32; 8];

#[inline(always)]
fn map1(a: F, f: impl Fn(f32) -> f32) -> F {
    from_fn(|i| f(a[i]))
}
#[inline(always)]
fn map2(a: F, b: F, f: impl Fn(f32, f32) -> f32) -> F {
    from_fn(|i| f(a[i], b[i]))
}
#[inline(always)]
fn imap2(a: I, b: I, f: impl Fn(i32, i32) -> i32) -> I {
    from_fn(|i| f(a[i], b[i]))
}
#[inline(always)]
fn cmp(a: F, b: F, f: impl Fn(f32, f32) -> bool) -> M {
    from_fn(|i| if f(a[i], b[i]) { u32::MAX } else { 0 })
}
#[inline(always)]
fn tree(a: F, f: impl Fn(f32, f32) -> f32) -> f32 {
    f(
        f(f(a[0], a[4]), f(a[2], a[6])),
        f(f(a[1], a[5]), f(a[3], a[7])),
    )
}

/// `f` of both halves of `x`.
#[inline(always)]
fn halves(x: i32, f: impl Fn(i16) -> i16) -> i32 {
    let (low, high) = (f(x as i16), f((x >> 16) as i16));
    i32::from(low as u16) | i32::from(high) << 16
}

// SAFETY: partial loads and stores loop over the first `t` lanes only.
unsafe impl Simd for Portable {
    const W: usize = 8;
    const REGISTERS: usize = 16;
    const PARTS: usize = 2;
    const FUSED: bool = false;
    type F = F;
    type I = I;
    type M = M;
    type T = usize;

    #[inline(always)]
    unsafe fn zero() -> F {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> F {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> F {
        // SAFETY: the caller gives eight readable lanes.
        unsafe { p.cast::<F>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: F) {
        // SAFETY: the caller gives eight writable lanes.
        unsafe { p.cast::<F>().write_unaligned(v) }
    }
    #[inline(always)]
    unsafe fn tail(n: usize) -> usize {
        n
    }
    #[inline(always)]
    unsafe fn load_t(p: *const f32, t: usize) -> F {
        let mut v = [0.0; 8];
        // SAFETY: `t` lanes are readable, and t <= 8.
        unsafe { std::ptr::copy_nonoverlapping(p, v.as_mut_ptr(), t) };
        v
    }
    #[inline(always)]
    unsafe fn store_t(p: *mut f32, v: F, t: usize) {
        // SAFETY: `t` lanes are writable, and t <= 8.
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), p, t) };
    }
    #[inline(always)]
    unsafe fn select_t(t: usize, a: F, b: F) -> F {
        from_fn(|i| if i < t { a[i] } else { b[i] })
    }
    #[inline(always)]
    unsafe fn add(a: F, b: F) -> F {
        map2(a, b, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(a: F, b: F) -> F {
        map2(a, b, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(a: F, b: F) -> F {
        map2(a, b, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(a: F, b: F) -> F {
        map2(a, b, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn fma(a: F, b: F, c: F) -> F {
        from_fn(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    unsafe fn fnma(a: F, b: F, c: F) -> F {
        from_fn(|i| c[i] - a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn min(a: F, b: F) -> F {
        map2(a, b, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn max(a: F, b: F) -> F {
        map2(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn sqrt(a: F) -> F {
        map1(a, f32::sqrt)
    }
    #[inline(always)]
    unsafe fn abs(a: F) -> F {
        map1(a, f32::abs)
    }
    #[inline(always)]
    unsafe fn neg(a: F) -> F {
        map1(a, |a| -a)
    }
    #[inline(always)]
    unsafe fn spread(q: usize, r: usize) -> I {
        std::array::from_fn(|i| (i / q * q + r) as i32)
    }
    #[inline(always)]
    unsafe fn lanes(a: F, at: I) -> F {
        at.map(|i| a[i as usize % a.len()])
    }
    #[inline(always)]
    unsafe fn with_sign(a: F, s: F) -> F {
        map2(a, s, |a, s| {
            f32::from_bits(a.to_bits() | (s.to_bits() & 0x8000_0000))
        })
    }
    #[inline(always)]
    unsafe fn round(a: F) -> F {
        map1(a, f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn round_small(a: F) -> F {
        map1(a, |a| (a + MAGIC) - MAGIC)
    }
    #[inline(always)]
    unsafe fn floor(a: F) -> F {
        map1(a, f32::floor)
    }
    #[inline(always)]
    unsafe fn ceil(a: F) -> F {
        map1(a, f32::ceil)
    }
    #[inline(always)]
    unsafe fn trunc(a: F) -> F {
        map1(a, f32::trunc)
    }
    #[inline(always)]
    unsafe fn scale2(a: F, n: F) -> F {
        // Two exact powers: the first product is exact, the second rounds once into the denormals.
        map2(a, n, |a, n| {
            let n = ((n + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
            let h = n >> 1;
            let p = |e: i32| f32::from_bits((e.wrapping_add(127) as u32) << 23);
            a * p(h) * p(n.wrapping_sub(h))
        })
    }
    #[inline(always)]
    unsafe fn isplat(x: i32) -> I {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn bits(a: F) -> I {
        from_fn(|i| a[i].to_bits() as i32)
    }
    #[inline(always)]
    unsafe fn from_bits(a: I) -> F {
        from_fn(|i| f32::from_bits(a[i] as u32))
    }
    #[inline(always)]
    unsafe fn to_int(a: F) -> I {
        from_fn(|i| ((a[i] + MAGIC).to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32))
    }
    #[inline(always)]
    unsafe fn from_int(a: I) -> F {
        from_fn(|i| a[i] as f32)
    }
    #[inline(always)]
    unsafe fn iadd(a: I, b: I) -> I {
        imap2(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    unsafe fn madd(a: I, b: I) -> I {
        let halves = |x: i32| (i32::from(x as i16), x >> 16);
        imap2(a, b, |a, b| {
            let ((a0, a1), (b0, b1)) = (halves(a), halves(b));
            (a0 * b0).wrapping_add(a1 * b1)
        })
    }
    #[inline(always)]
    unsafe fn low_u8(a: I) -> I {
        from_fn(|i| a[i] & 0x00ff_00ff)
    }
    #[inline(always)]
    unsafe fn high_u8(a: I) -> I {
        from_fn(|i| (a[i] >> 8) & 0x00ff_00ff)
    }
    #[inline(always)]
    unsafe fn low_i8(a: I) -> I {
        from_fn(|i| halves(a[i], |h| (h << 8) >> 8))
    }
    #[inline(always)]
    unsafe fn high_i8(a: I) -> I {
        from_fn(|i| halves(a[i], |h| h >> 8))
    }
    #[inline(always)]
    unsafe fn load_u8(p: *const u8) -> I {
        // SAFETY: the caller gives eight bytes.
        let b = unsafe { p.cast::<[u8; 8]>().read() };
        from_fn(|i| i32::from(b[i]))
    }
    #[inline(always)]
    unsafe fn load_i8(p: *const i8) -> I {
        // SAFETY: the caller gives eight bytes.
        let b = unsafe { p.cast::<[i8; 8]>().read() };
        from_fn(|i| i32::from(b[i]))
    }
    #[inline(always)]
    unsafe fn imul(a: I, b: I) -> I {
        imap2(a, b, i32::wrapping_mul)
    }
    #[inline(always)]
    unsafe fn nibble(a: I) -> F {
        from_fn(|i| (a[i] & 15) as f32)
    }
    #[inline(always)]
    unsafe fn shr4(a: I) -> I {
        from_fn(|i| ((a[i] as u32) >> 4) as i32)
    }
    #[inline(always)]
    unsafe fn isub(a: I, b: I) -> I {
        imap2(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    unsafe fn iand(a: I, b: I) -> I {
        imap2(a, b, |a, b| a & b)
    }
    #[inline(always)]
    unsafe fn ixor(a: I, b: I) -> I {
        imap2(a, b, |a, b| a ^ b)
    }
    #[inline(always)]
    unsafe fn shl23(a: I) -> I {
        from_fn(|i| a[i] << 23)
    }
    #[inline(always)]
    unsafe fn shl30(a: I) -> I {
        from_fn(|i| a[i] << 30)
    }
    #[inline(always)]
    unsafe fn sar23(a: I) -> I {
        from_fn(|i| a[i] >> 23)
    }
    #[inline(always)]
    unsafe fn ieq(a: I, b: I) -> M {
        from_fn(|i| if a[i] == b[i] { u32::MAX } else { 0 })
    }
    #[inline(always)]
    unsafe fn lt(a: F, b: F) -> M {
        cmp(a, b, |a, b| a < b)
    }
    #[inline(always)]
    unsafe fn le(a: F, b: F) -> M {
        cmp(a, b, |a, b| a <= b)
    }
    #[inline(always)]
    unsafe fn eq(a: F, b: F) -> M {
        cmp(a, b, |a, b| a == b)
    }
    #[inline(always)]
    unsafe fn is_nan(a: F) -> M {
        from_fn(|i| if a[i].is_nan() { u32::MAX } else { 0 })
    }
    #[inline(always)]
    unsafe fn m_or(a: M, b: M) -> M {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(always)]
    unsafe fn m_and(a: M, b: M) -> M {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(always)]
    unsafe fn m_all(m: M) -> bool {
        m.iter().fold(u32::MAX, |s, &x| s & x) != 0
    }
    #[inline(always)]
    unsafe fn m_none() -> M {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn m_any(m: M) -> bool {
        m.iter().fold(0, |s, &x| s | x) != 0
    }
    #[inline(always)]
    unsafe fn select(m: M, a: F, b: F) -> F {
        from_fn(|i| f32::from_bits((a[i].to_bits() & m[i]) | (b[i].to_bits() & !m[i])))
    }
    #[inline(always)]
    unsafe fn hsum(a: F) -> f32 {
        tree(a, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn hmax(a: F) -> f32 {
        tree(a, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn hmin(a: F) -> f32 {
        tree(a, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    unsafe fn hsum4(a: [F; 4]) -> [f32; 4] {
        from_fn(|i| tree(a[i], |a, b| a + b))
    }
    #[inline(always)]
    unsafe fn transpose(
        src: *const f32,
        sld: usize,
        dst: *mut f32,
        dld: usize,
        rows: usize,
        cols: usize,
    ) {
        for c in 0..cols {
            for r in 0..rows {
                // SAFETY: the caller gives a readable rows x cols block and a writable cols x rows one.
                unsafe { *dst.add(c * dld + r) = *src.add(r * sld + c) };
            }
        }
    }
    #[inline(always)]
    unsafe fn prefetch(_p: *const f32) {}
}
