//! Integer arithmetic.

use super::Ctx;
use crate::program::*;

#[inline(always)]
fn two(a: &[u32; 32], b: &[u32; 32], f: impl Fn(u32, u32) -> u32) -> [u32; 32] {
    let mut r = [0; 32];
    for l in 0..32 {
        r[l] = f(a[l], b[l]);
    }
    r
}

#[inline(always)]
fn two64(a: &[u64; 32], b: &[u64; 32], f: impl Fn(u64, u64) -> u64) -> [u64; 32] {
    let mut r = [0; 32];
    for l in 0..32 {
        r[l] = f(a[l], b[l]);
    }
    r
}

fn s24(v: u32) -> i64 {
    i64::from((v << 8) as i32 >> 8)
}

fn apply32(f: I2, a: &[u32; 32], b: &[u32; 32]) -> [u32; 32] {
    let s = |v: u32| v as i32;
    match f {
        I2::Add => two(a, b, u32::wrapping_add),
        I2::Sub => two(a, b, u32::wrapping_sub),
        I2::Mul => two(a, b, u32::wrapping_mul),
        I2::MulHiU => two(a, b, |x, y| (u64::from(x) * u64::from(y) >> 32) as u32),
        I2::MulHiS => two(a, b, |x, y| {
            (i64::from(s(x)) * i64::from(s(y)) >> 32) as u32
        }),
        // Division by zero gives all ones, the remainder the dividend, as devices do.
        I2::DivU => two(a, b, |x, y| x.checked_div(y).unwrap_or(u32::MAX)),
        I2::DivS => two(a, b, |x, y| match y {
            0 => u32::MAX,
            _ => s(x).wrapping_div(s(y)) as u32,
        }),
        I2::RemU => two(a, b, |x, y| x.checked_rem(y).unwrap_or(x)),
        I2::RemS => two(a, b, |x, y| match y {
            0 => x,
            _ => s(x).wrapping_rem(s(y)) as u32,
        }),
        I2::MinU => two(a, b, u32::min),
        I2::MinS => two(a, b, |x, y| s(x).min(s(y)) as u32),
        I2::MaxU => two(a, b, u32::max),
        I2::MaxS => two(a, b, |x, y| s(x).max(s(y)) as u32),
        I2::And => two(a, b, |x, y| x & y),
        I2::Or => two(a, b, |x, y| x | y),
        I2::Xor => two(a, b, |x, y| x ^ y),
        I2::Shl => two(a, b, |x, y| if y > 31 { 0 } else { x << y }),
        I2::ShrU => two(a, b, |x, y| if y > 31 { 0 } else { x >> y }),
        I2::ShrS => two(a, b, |x, y| (s(x) >> y.min(31)) as u32),
        I2::AddSat => two(a, b, |x, y| s(x).saturating_add(s(y)) as u32),
        I2::SubSat => two(a, b, |x, y| s(x).saturating_sub(s(y)) as u32),
        I2::Mul24U => two(a, b, |x, y| {
            (u64::from(x & 0xff_ffff) * u64::from(y & 0xff_ffff)) as u32
        }),
        I2::Mul24S => two(a, b, |x, y| (s24(x) * s24(y)) as u32),
        I2::Mul24HiU => two(a, b, |x, y| {
            (u64::from(x & 0xff_ffff) * u64::from(y & 0xff_ffff) >> 16) as u32
        }),
        I2::Mul24HiS => two(a, b, |x, y| (s24(x) * s24(y) >> 16) as u32),
    }
}

fn apply64(f: I2, a: &[u64; 32], b: &[u64; 32]) -> [u64; 32] {
    let s = |v: u64| v as i64;
    match f {
        I2::Add => two64(a, b, u64::wrapping_add),
        I2::Sub => two64(a, b, u64::wrapping_sub),
        I2::Mul => two64(a, b, u64::wrapping_mul),
        I2::MulHiU => two64(a, b, |x, y| (u128::from(x) * u128::from(y) >> 64) as u64),
        I2::MulHiS => two64(a, b, |x, y| {
            (i128::from(s(x)) * i128::from(s(y)) >> 64) as u64
        }),
        I2::DivU => two64(a, b, |x, y| x.checked_div(y).unwrap_or(u64::MAX)),
        I2::DivS => two64(a, b, |x, y| match y {
            0 => u64::MAX,
            _ => s(x).wrapping_div(s(y)) as u64,
        }),
        I2::RemU => two64(a, b, |x, y| x.checked_rem(y).unwrap_or(x)),
        I2::RemS => two64(a, b, |x, y| match y {
            0 => x,
            _ => s(x).wrapping_rem(s(y)) as u64,
        }),
        I2::MinU => two64(a, b, u64::min),
        I2::MinS => two64(a, b, |x, y| s(x).min(s(y)) as u64),
        I2::MaxU => two64(a, b, u64::max),
        I2::MaxS => two64(a, b, |x, y| s(x).max(s(y)) as u64),
        I2::And => two64(a, b, |x, y| x & y),
        I2::Or => two64(a, b, |x, y| x | y),
        I2::Xor => two64(a, b, |x, y| x ^ y),
        // Others have no 64-bit form that gets here.
        _ => *a,
    }
}

fn sext16(v: &[u32; 32]) -> [u32; 32] {
    v.map(|x| x as u16 as i16 as i32 as u32)
}

fn mask16(v: [u32; 32]) -> [u32; 32] {
    v.map(|x| x & 0xffff)
}

fn signed(f: I2) -> bool {
    matches!(
        f,
        I2::DivS | I2::RemS | I2::MinS | I2::MaxS | I2::ShrS | I2::MulHiS
    )
}

/// 16-bit functions by way of 32 bits.
fn apply16(f: I2, a: &[u32; 32], b: &[u32; 32]) -> [u32; 32] {
    let shift = matches!(f, I2::Shl | I2::ShrU | I2::ShrS);
    let (a, b) = if signed(f) {
        (sext16(a), if shift { *b } else { sext16(b) })
    } else {
        (*a, *b)
    };
    mask16(match f {
        I2::MulHiU => two(&a, &b, |x, y| x.wrapping_mul(y) >> 16),
        I2::MulHiS => two(&a, &b, |x, y| {
            ((x as i32).wrapping_mul(y as i32) >> 16) as u32
        }),
        I2::AddSat | I2::SubSat => two(&sext16(&a), &sext16(&b), |x, y| {
            let (x, y) = (x as i32, y as i32);
            let v = if f == I2::AddSat { x + y } else { x - y };
            v.clamp(-32768, 32767) as u32
        }),
        f => apply32(f, &a, &b),
    })
}

impl Ctx<'_> {
    pub(crate) fn int2(&mut self, w: Width, f: I2, d: R, a: R, b: R, act: u32) {
        if w == Width::W64 {
            let r = apply64(f, self.w.a64(self.k, a), self.w.a64(self.k, b));
            self.w.put64(d, act, &r);
            return;
        }
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        let r = match w {
            Width::W16 => apply16(f, a, b),
            _ => apply32(f, a, b),
        };
        self.w.put32(d, act, &r);
    }

    pub(crate) fn pair16(&mut self, f: I2, d: R, a: R, b: R, act: u32) {
        let (a, b) = (*self.w.a32(self.k, a), *self.w.a32(self.k, b));
        let lo = apply16(f, &mask16(a), &mask16(b));
        let hi = apply16(f, &a.map(|x| x >> 16), &b.map(|x| x >> 16));
        self.w.put32(d, act, &two(&lo, &hi, |l, h| l | h << 16));
    }

    pub(crate) fn shift64(&mut self, f: I2, d: R, a: R, b: R, act: u32) {
        let (a, b) = (self.w.a64(self.k, a), self.w.a32(self.k, b));
        let mut r = [0u64; 32];
        for l in 0..32 {
            let (x, y) = (a[l], b[l]);
            r[l] = match f {
                I2::Shl if y > 63 => 0,
                I2::Shl => x << y,
                I2::ShrS => ((x as i64) >> y.min(63)) as u64,
                _ if y > 63 => 0,
                _ => x >> y,
            };
        }
        self.w.put64(d, act, &r);
    }

    pub(crate) fn mul_wide(&mut self, s: bool, w: Width, d: R, a: R, b: R, act: u32) {
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        if w == Width::W16 {
            let r = match s {
                true => two(&sext16(a), &sext16(b), u32::wrapping_mul),
                false => two(a, b, u32::wrapping_mul),
            };
            self.w.put32(d, act, &r);
            return;
        }
        let r = wide(s, a, b);
        self.w.put64(d, act, &r);
    }

    pub(crate) fn mad_wide(&mut self, s: bool, w: Width, [d, a, b, c]: [R; 4], act: u32) {
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        if w == Width::W16 {
            let p = match s {
                true => two(&sext16(a), &sext16(b), u32::wrapping_mul),
                false => two(a, b, u32::wrapping_mul),
            };
            let r = two(&p, self.w.a32(self.k, c), u32::wrapping_add);
            self.w.put32(d, act, &r);
            return;
        }
        let r = two64(&wide(s, a, b), self.w.a64(self.k, c), u64::wrapping_add);
        self.w.put64(d, act, &r);
    }

    pub(crate) fn carry(
        &mut self,
        sub: bool,
        cin: bool,
        cout: bool,
        w: Width,
        [d, a, b]: [R; 3],
        act: u32,
    ) {
        let old = self.w.carry;
        let mut out = 0u32;
        // A borrow is kept as it is, 1 where one was taken.
        let one = |x: u128, y: u128, c: u128, bits: u32| -> (u128, bool) {
            let m = (1u128 << bits) - 1;
            if sub {
                (x.wrapping_sub(y).wrapping_sub(c) & m, x < y + c)
            } else {
                let v = x + y + c;
                (v & m, v > m)
            }
        };
        if w == Width::W64 {
            let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
            let mut r = [0u64; 32];
            for l in 0..32 {
                let c = u128::from(cin && old >> l & 1 == 1);
                let (v, o) = one(a[l].into(), b[l].into(), c, 64);
                r[l] = v as u64;
                out |= u32::from(o) << l;
            }
            self.w.put64(d, act, &r);
        } else {
            let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
            let mut r = [0u32; 32];
            for l in 0..32 {
                let c = u128::from(cin && old >> l & 1 == 1);
                let (v, o) = one(a[l].into(), b[l].into(), c, 32);
                r[l] = v as u32;
                out |= u32::from(o) << l;
            }
            self.w.put32(d, act, &r);
        }
        if cout {
            self.w.carry = (out & act) | (old & !act);
        }
    }

    pub(crate) fn mad_carry(
        &mut self,
        [high, signed, cin, cout]: [bool; 4],
        [d, a, b, c]: [R; 4],
        act: u32,
    ) {
        let p = wide(signed, self.w.a32(self.k, a), self.w.a32(self.k, b));
        let c = self.w.a32(self.k, c);
        let (old, mut out, mut r) = (self.w.carry, 0u32, [0u32; 32]);
        for l in 0..32 {
            let part = if high { p[l] >> 32 } else { p[l] & 0xffff_ffff };
            let v = part + u64::from(c[l]) + u64::from(cin && old >> l & 1 == 1);
            r[l] = v as u32;
            out |= u32::from(v >> 32 != 0) << l;
        }
        self.w.put32(d, act, &r);
        if cout {
            self.w.carry = (out & act) | (old & !act);
        }
    }
}

fn wide(s: bool, a: &[u32; 32], b: &[u32; 32]) -> [u64; 32] {
    let mut r = [0u64; 32];
    for l in 0..32 {
        r[l] = match s {
            true => (i64::from(a[l] as i32) * i64::from(b[l] as i32)) as u64,
            false => u64::from(a[l]) * u64::from(b[l]),
        };
    }
    r
}
