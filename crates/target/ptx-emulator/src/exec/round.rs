//! Rounding: exact results to a format, in any direction.

use crate::program::Rnd;

/// The NaN that f32 instructions give.
pub(crate) const NAN32: u32 = 0x7fff_ffff;

/// f16 bits to f32.
#[inline(always)]
pub(crate) fn from_f16(h: u32) -> f32 {
    let sign = (h & 0x8000) << 16;
    let body = (h & 0x7fff) << 13;
    // Exponents move by the difference of the biases; subnormals become normal on the way.
    let v = f32::from_bits(body) * f32::from_bits(0x7780_0000);
    let special = if body >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
    f32::from_bits(v.to_bits() | special | sign)
}

/// bf16 bits to f32.
#[inline(always)]
pub(crate) fn from_bf16(h: u32) -> f32 {
    f32::from_bits(h << 16)
}

/// The nearest value above (or below) in magnitude terms of the bits, towards `e`'s sign.
fn toward(s: f64, e: f64) -> f64 {
    if e > 0.0 { s.next_up() } else { s.next_down() }
}

/// `s` rounded to odd when `e`, the sign of what was lost, is not zero: rounding that once more
/// to fewer bits is as good as rounding the exact value.
fn odd(s: f64, e: f64) -> f64 {
    if e == 0.0 || e.is_nan() || !s.is_finite() || s.to_bits() & 1 == 1 {
        return s;
    }
    toward(s, e)
}

/// a + b and what the sum lost.
pub(crate) fn two_sum(a: f64, b: f64) -> (f64, f64) {
    let s = a + b;
    let bb = s - a;
    (s, (a - (s - bb)) + (b - bb))
}

pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let (s, e) = two_sum(a, b);
    odd(s, e)
}

pub(crate) fn div_odd(a: f64, b: f64) -> f64 {
    let q = a / b;
    let r = (-q).mul_add(b, a);
    odd(q, if b < 0.0 { -r } else { r })
}

pub(crate) fn sqrt_odd(a: f64) -> f64 {
    let s = a.sqrt();
    odd(s, (-s).mul_add(s, a))
}

/// An f64, exact or rounded to odd, to f32.
pub(crate) fn to_f32(v: f64, rnd: Rnd) -> f32 {
    let t = v as f32;
    if rnd == Rnd::Near || f64::from(t) == v || v.is_nan() {
        return t;
    }
    let wide = f64::from(t);
    match rnd {
        Rnd::Zero if wide.abs() > v.abs() => f32::from_bits(t.to_bits() - 1),
        Rnd::Down if wide > v => t.next_down(),
        Rnd::Up if wide < v => t.next_up(),
        _ => t,
    }
}

/// An f64, exact or rounded to odd, to a format of `m` mantissa and `e` exponent bits.
pub(crate) fn pack(v: f64, m: u32, e: u32, rnd: Rnd) -> u32 {
    let bits = v.to_bits();
    let sign = (bits >> 63) as u32;
    let infinity = ((1u32 << e) - 1) << m;
    let out = |b: u32| sign << (m + e) | b;
    if v.is_nan() {
        return (1 << (m + e)) - 1;
    }
    if v.is_infinite() {
        return out(infinity);
    }
    let field = (bits >> 52) as i32 & 0x7ff;
    let mant = (bits & ((1 << 52) - 1)) | if field > 0 { 1 << 52 } else { 0 };
    if mant == 0 {
        return out(0);
    }
    let t = field.max(1) - 1023 + (1 << (e - 1)) - 1;
    let shift = 52 - m as i32 + if t <= 0 { 1 - t } else { 0 };
    let (q, rest, half) = if shift > 60 {
        (0, 1u64, 1u64 << 60)
    } else {
        (
            mant >> shift,
            mant & ((1 << shift) - 1),
            1u64 << (shift - 1),
        )
    };
    let up = match rnd {
        Rnd::Near => rest > half || (rest == half && q & 1 == 1),
        Rnd::Away => rest >= half,
        Rnd::Zero => false,
        Rnd::Down => rest > 0 && sign == 1,
        Rnd::Up => rest > 0 && sign == 0,
    };
    let q = (q + u64::from(up)) as u32;
    let b = if t <= 0 {
        q
    } else {
        (((t - 1) as u32) << m).saturating_add(q)
    };
    if b >= infinity {
        let stays = match rnd {
            Rnd::Near | Rnd::Away => false,
            Rnd::Zero => true,
            Rnd::Down => sign == 0,
            Rnd::Up => sign == 1,
        };
        return out(if stays { infinity - 1 } else { infinity });
    }
    out(b)
}

pub(crate) fn to_f16(v: f64, rnd: Rnd) -> u32 {
    pack(v, 10, 5, rnd)
}

/// An f64, exact or rounded to odd, to bf16 bits.
pub fn to_bf16(v: f64, rnd: Rnd) -> u32 {
    pack(v, 7, 8, rnd)
}

/// f64 functions that round in a direction, from the nearest result and what it lost.
pub(crate) fn directed(s: f64, lost: f64, rnd: Rnd) -> f64 {
    if lost == 0.0 || lost.is_nan() || s.is_nan() {
        return s;
    }
    match rnd {
        Rnd::Zero if (lost < 0.0) != (s < 0.0) => toward(s, lost),
        Rnd::Down if lost < 0.0 => s.next_down(),
        Rnd::Up if lost > 0.0 => s.next_up(),
        _ => s,
    }
}

/// The sign of a * b + c - s, without rounding errors as long as nothing underflows.
pub(crate) fn fma_lost(a: f64, b: f64, c: f64, s: f64) -> f64 {
    let p = a * b;
    let mut parts = [a.mul_add(b, -p), p, 0.0, 0.0];
    for (n, x) in [(2, c), (3, -s)] {
        let mut q = x;
        for part in parts.iter_mut().take(n) {
            let (sum, low) = two_sum(q, *part);
            *part = low;
            q = sum;
        }
        parts[n] = q;
    }
    parts
        .iter()
        .rev()
        .copied()
        .find(|v| *v != 0.0)
        .unwrap_or(0.0)
}

/// Rounds to an integer.
pub(crate) fn integral(v: f64, rnd: Rnd) -> f64 {
    match rnd {
        Rnd::Near => v.round_ties_even(),
        Rnd::Away => v.round(),
        Rnd::Zero => v.trunc(),
        Rnd::Down => v.floor(),
        Rnd::Up => v.ceil(),
    }
}

/// Subnormal numbers become zero, with their sign.
#[inline(always)]
pub(crate) fn flush(v: f32) -> f32 {
    if v.to_bits() & 0x7f80_0000 == 0 {
        f32::from_bits(v.to_bits() & 0x8000_0000)
    } else {
        v
    }
}

/// The one NaN.
#[inline(always)]
pub(crate) fn canonical(v: f32) -> u32 {
    if v.is_nan() { NAN32 } else { v.to_bits() }
}

/// To 0..1; NaN to 0.
#[inline(always)]
pub(crate) fn saturate(v: f32) -> f32 {
    if v > 0.0 { v.min(1.0) } else { 0.0 }
}
