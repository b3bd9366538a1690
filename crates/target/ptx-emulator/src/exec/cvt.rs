//! Conversions.

use super::{Ctx, round::*};
use crate::parse::ast::Ty;
use crate::program::*;

/// The value of an integer type in the low bits of `v`.
fn integer(v: u64, ty: Ty) -> i128 {
    match (ty.bytes(), ty.signed()) {
        (1, true) => i128::from(v as i8),
        (1, _) => i128::from(v as u8),
        (2, true) => i128::from(v as i16),
        (2, _) => i128::from(v as u16),
        (4, true) => i128::from(v as i32),
        (4, _) => i128::from(v as u32),
        (_, true) => i128::from(v as i64),
        _ => i128::from(v),
    }
}

fn limits(ty: Ty) -> (i128, i128) {
    let bits = ty.bytes() * 8;
    match ty.signed() {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}

/// An integer to f64 rounded to odd, so that one more rounding is harmless.
fn to_odd(v: i128) -> f64 {
    let f = v as f64;
    // Beyond i128 no f64 comes from 64-bit integers.
    let back = f as i128;
    if back == v || f.to_bits() & 1 == 1 {
        return f;
    }
    if v > back { f.next_up() } else { f.next_down() }
}

fn int_to_f64(v: i128, rnd: Rnd) -> f64 {
    let f = v as f64;
    directed(f, (v - f as i128) as f64, rnd)
}

/// The value of a float type in the low bits of `v`.
fn number(v: u64, ty: Ty, ftz: bool) -> f64 {
    match ty {
        Ty::F16 => f64::from(from_f16(v as u32 & 0xffff)),
        Ty::BF16 => f64::from(from_bf16(v as u32 & 0xffff)),
        Ty::F32 => {
            let x = f32::from_bits(v as u32);
            f64::from(if ftz { flush(x) } else { x })
        }
        _ => f64::from_bits(v),
    }
}

fn to_float(v: f64, c: &Cvt) -> u64 {
    let m = c.mode;
    let v = if m.sat {
        if v > 0.0 { v.min(1.0) } else { 0.0 }
    } else {
        v
    };
    let v = if m.relu && v <= 0.0 { 0.0 } else { v };
    match c.to {
        Ty::F16 => u64::from(to_f16(v, m.rnd)),
        Ty::BF16 => u64::from(to_bf16(v, m.rnd)),
        Ty::F32 => {
            let r = to_f32(v, m.rnd);
            u64::from(canonical(if m.ftz { flush(r) } else { r }))
        }
        Ty::TF32 => u64::from(tf32(v, m.rnd)),
        _ => v.to_bits(),
    }
}

/// tf32 keeps ten bits of mantissa, in the place of an f32.
pub(super) fn tf32(v: f64, rnd: Rnd) -> u32 {
    if v.is_nan() {
        return NAN32;
    }
    pack(v, 10, 8, rnd) << 13
}

fn to_int(v: f64, c: &Cvt) -> u64 {
    let (lo, hi) = limits(c.to);
    if v.is_nan() {
        // Devices give 0 for 32 bits and the sign bit for 64.
        return if c.to.bytes() == 8 { 1 << 63 } else { 0 };
    }
    (integral(v, c.mode.rnd) as i128).clamp(lo, hi) as u64
}

fn convert(c: &Cvt, v: u64) -> u64 {
    match (c.from.float(), c.to.float()) {
        (false, false) => {
            let x = integer(v, c.from);
            let (lo, hi) = limits(c.to);
            let x = if c.mode.sat { x.clamp(lo, hi) } else { x };
            // What does not fit is cut; what is wider is extended by the destination's sign.
            let cut = integer(x as u64, c.to);
            cut as u64
        }
        (false, true) => {
            let x = integer(v, c.from);
            match c.to {
                Ty::F64 => int_to_f64(x, c.mode.rnd).to_bits(),
                _ => to_float(to_odd(x), c),
            }
        }
        (true, false) => to_int(number(v, c.from, c.mode.ftz), c),
        (true, true) => {
            let x = number(v, c.from, c.mode.ftz);
            if c.integer {
                let mut exact = *c;
                exact.mode.rnd = Rnd::Near;
                return to_float(integral(x, c.mode.rnd), &exact);
            }
            to_float(x, c)
        }
    }
}

fn fit(v: u64, w: Width) -> u64 {
    match w {
        Width::W16 => v & 0xffff,
        Width::W32 => v & 0xffff_ffff,
        _ => v,
    }
}

impl Ctx<'_> {
    pub(crate) fn cvt(&mut self, c: &Cvt, act: u32) {
        let mut v = [0u64; 32];
        match c.a_width {
            Width::W64 => v = *self.w.a64(self.k, c.a),
            _ => {
                let a = self.w.a32(self.k, c.a);
                for l in 0..32 {
                    v[l] = u64::from(a[l]);
                }
            }
        }
        let f32_exact = c.to == Ty::F32 && !c.integer && !c.mode.sat && !c.mode.relu;
        match (c.from, c.to) {
            // What address arithmetic and epilogues are full of.
            (Ty::F16, Ty::F32) if f32_exact && !c.mode.ftz => {
                v = v.map(|x| u64::from(canonical(from_f16(x as u32 & 0xffff))));
            }
            (Ty::S32, Ty::S64 | Ty::U64) if !c.mode.sat => {
                v = v.map(|x| x as u32 as i32 as i64 as u64);
            }
            (Ty::U32, Ty::S64 | Ty::U64) => v = v.map(|x| u64::from(x as u32)),
            (Ty::S64 | Ty::U64, Ty::U32 | Ty::S32) if !c.mode.sat && c.d_width == Width::W32 => {
                v = v.map(|x| u64::from(x as u32));
            }
            _ => {
                for l in crate::machine::cta::lanes(act) {
                    let x = &mut v[l as usize];
                    *x = fit(convert(c, *x), c.d_width);
                }
            }
        }
        match c.d_width {
            Width::W64 => self.w.put64(c.d, act, &v),
            _ => self.w.put32(c.d, act, &v.map(|x| x as u32)),
        }
    }

    pub(crate) fn cvt_pair(&mut self, f: Fmt, m: Mode, d: R, hi: R, lo: R, act: u32) {
        let (hi, lo) = (self.w.a32(self.k, hi), self.w.a32(self.k, lo));
        let c = Cvt {
            to: if f == Fmt::F16 { Ty::F16 } else { Ty::BF16 },
            from: Ty::F32,
            integer: false,
            mode: m,
            d,
            a: d,
            d_width: Width::W32,
            a_width: Width::W32,
        };
        let one = |v: u32| to_float(f64::from(f32::from_bits(v)), &c) as u32;
        let mut r = [0u32; 32];
        for l in 0..32 {
            r[l] = one(hi[l]) << 16 | one(lo[l]);
        }
        self.w.put32(d, act, &r);
    }
}
