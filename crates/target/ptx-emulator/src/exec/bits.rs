//! Bits, and integer functions of one and three operands.

use super::Ctx;
use crate::program::*;

#[inline(always)]
fn three(
    a: &[u32; 32],
    b: &[u32; 32],
    c: &[u32; 32],
    f: impl Fn(u32, u32, u32) -> u32,
) -> [u32; 32] {
    let mut r = [0; 32];
    for l in 0..32 {
        r[l] = f(a[l], b[l], c[l]);
    }
    r
}

fn find(v: u64, bits: u32, signed: bool) -> u32 {
    let negative = signed && v >> (bits - 1) & 1 == 1;
    let v = if negative { !v } else { v } & mask(bits);
    match v {
        0 => u32::MAX,
        v => 63 - v.leading_zeros(),
    }
}

fn mask(bits: u32) -> u64 {
    if bits == 64 {
        u64::MAX
    } else {
        (1 << bits) - 1
    }
}

/// A function of one operand of `bits` bits.
fn one(f: I1, v: u64, bits: u32) -> u64 {
    let negative = v >> (bits - 1) & 1 == 1;
    let r = match f {
        I1::Not => !v,
        I1::Neg => v.wrapping_neg(),
        I1::Abs if negative => v.wrapping_neg(),
        I1::Abs => v,
        I1::Cnot => u64::from(v == 0),
        I1::Popc => u64::from(v.count_ones()),
        I1::Clz => u64::from(v.leading_zeros() - (64 - bits)),
        I1::Brev => v.reverse_bits() >> (64 - bits),
        I1::FindU => return u64::from(find(v, bits, false)),
        I1::FindS => return u64::from(find(v, bits, true)),
        I1::FindShiftU | I1::FindShiftS => {
            return match find(v, bits, f == I1::FindShiftS) {
                u32::MAX => u64::from(u32::MAX),
                k => u64::from(bits - 1 - k),
            };
        }
    };
    r & mask(bits)
}

fn bfe(a: u64, p: u32, n: u32, bits: u32, signed: bool) -> u64 {
    let (p, n) = (p & 0xff, n & 0xff);
    let last = bits - 1;
    let sign = if !signed || n == 0 {
        0
    } else {
        a >> (p + n - 1).min(last) & 1
    };
    let mut d = 0;
    for k in 0..bits {
        let bit = if k < n && p + k <= last {
            a >> (p + k) & 1
        } else {
            sign
        };
        d |= bit << k;
    }
    d
}

fn bfi(a: u64, b: u64, p: u32, n: u32, bits: u32) -> u64 {
    let (p, n) = (p & 0xff, n & 0xff);
    let mut d = b;
    for k in 0..n {
        if p + k >= bits {
            break;
        }
        d = (d & !(1 << (p + k))) | (a >> k & 1) << (p + k);
    }
    d
}

fn prmt(mode: Prmt, a: u32, b: u32, c: u32) -> u32 {
    let all = u64::from(b) << 32 | u64::from(a);
    let byte = |k: u32| (all >> (8 * (k & 7))) as u32 & 0xff;
    let s = c & 3;
    let four = |k: [u32; 4]| byte(k[0]) | byte(k[1]) << 8 | byte(k[2]) << 16 | byte(k[3]) << 24;
    match mode {
        Prmt::Index => {
            let mut r = 0;
            for k in 0..4 {
                let sel = c >> (4 * k) & 15;
                let v = byte(sel);
                let v = if sel & 8 != 0 {
                    if v & 0x80 != 0 { 0xff } else { 0 }
                } else {
                    v
                };
                r |= v << (8 * k);
            }
            r
        }
        Prmt::F4e => four([s, s + 1, s + 2, s + 3]),
        Prmt::B4e => four([s, s + 7, s + 6, s + 5]),
        Prmt::Rc8 => four([s; 4]),
        Prmt::Ecl => four([s, s.max(1), s.max(2), 3]),
        Prmt::Ecr => four([0, s.min(1), s.min(2), s]),
        Prmt::Rc16 => {
            let k = (s & 1) * 2;
            four([k, k + 1, k, k + 1])
        }
    }
}

fn lop3(lut: u8, a: u32, b: u32, c: u32) -> u32 {
    let mut r = 0;
    for k in 0..8 {
        if lut >> k & 1 == 1 {
            let x = if k & 4 != 0 { a } else { !a };
            let y = if k & 2 != 0 { b } else { !b };
            let z = if k & 1 != 0 { c } else { !c };
            r |= x & y & z;
        }
    }
    r
}

fn dp4a(sa: bool, sb: bool, a: u32, b: u32, c: u32) -> u32 {
    let mut r = c;
    for k in 0..4 {
        let (x, y) = ((a >> (8 * k)) as u8, (b >> (8 * k)) as u8);
        let x = if sa { i32::from(x as i8) } else { i32::from(x) };
        let y = if sb { i32::from(y as i8) } else { i32::from(y) };
        r = r.wrapping_add((x * y) as u32);
    }
    r
}

impl Ctx<'_> {
    pub(crate) fn int1(&mut self, w: Width, f: I1, d: R, a: R, act: u32) {
        let counts = !matches!(f, I1::Not | I1::Neg | I1::Abs | I1::Cnot | I1::Brev);
        if w == Width::W64 {
            let r = self.w.a64(self.k, a).map(|v| one(f, v, 64));
            match counts {
                true => self.w.put32(d, act, &r.map(|v| v as u32)),
                false => self.w.put64(d, act, &r),
            }
            return;
        }
        let bits = if w == Width::W16 { 16 } else { 32 };
        let a = self.w.a32(self.k, a);
        let r = match f {
            I1::Not if bits == 32 => a.map(|v| !v),
            I1::Neg if bits == 32 => a.map(u32::wrapping_neg),
            _ => a.map(|v| one(f, u64::from(v), bits) as u32),
        };
        self.w.put32(d, act, &r);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn int3(&mut self, w: Width, f: I3, d: R, a: R, b: R, c: R, act: u32) {
        if w == Width::W64 {
            return self.int3_64(f, d, a, b, c, act);
        }
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        let c = self.w.a32(self.k, c);
        let s = |v: u32| i64::from(v as i32);
        let h = |v: u32| i64::from(v as u16 as i16);
        let half = w == Width::W16;
        let r = match f {
            I3::MadLo => three(a, b, c, |x, y, z| x.wrapping_mul(y).wrapping_add(z)),
            I3::MadHiU if half => {
                three(a, b, c, |x, y, z| (x.wrapping_mul(y) >> 16).wrapping_add(z))
            }
            I3::MadHiS | I3::MadHiSat if half => three(a, b, c, |x, y, z| {
                (((h(x) * h(y)) >> 16) as u32).wrapping_add(z)
            }),
            I3::MadHiU => three(a, b, c, |x, y, z| {
                ((u64::from(x) * u64::from(y) >> 32) as u32).wrapping_add(z)
            }),
            I3::MadHiS => three(a, b, c, |x, y, z| {
                ((s(x) * s(y) >> 32) as u32).wrapping_add(z)
            }),
            I3::MadHiSat => three(a, b, c, |x, y, z| {
                ((s(x) * s(y) >> 32) as i32).saturating_add(z as i32) as u32
            }),
            I3::Mad24U => three(a, b, c, |x, y, z| {
                ((u64::from(x & 0xff_ffff) * u64::from(y & 0xff_ffff)) as u32).wrapping_add(z)
            }),
            I3::Mad24S => three(a, b, c, |x, y, z| {
                let t = |v: u32| i64::from((v << 8) as i32 >> 8);
                ((t(x) * t(y)) as u32).wrapping_add(z)
            }),
            I3::SadU => three(a, b, c, |x, y, z| x.abs_diff(y).wrapping_add(z)),
            I3::SadS if half => three(a, b, c, |x, y, z| {
                (h(x).abs_diff(h(y)) as u32).wrapping_add(z)
            }),
            I3::SadS => three(a, b, c, |x, y, z| {
                (x as i32).abs_diff(y as i32).wrapping_add(z)
            }),
            I3::BfeU => three(a, b, c, |x, y, z| bfe(x.into(), y, z, 32, false) as u32),
            I3::BfeS => three(a, b, c, |x, y, z| bfe(x.into(), y, z, 32, true) as u32),
            I3::Lop3(lut) => three(a, b, c, |x, y, z| lop3(lut, x, y, z)),
            I3::Prmt(m) => three(a, b, c, |x, y, z| prmt(m, x, y, z)),
            I3::ShfLeftWrap => three(a, b, c, |x, y, z| {
                ((u64::from(y) << 32 | u64::from(x)) << (z & 31) >> 32) as u32
            }),
            I3::ShfLeftClamp => three(a, b, c, |x, y, z| {
                ((u64::from(y) << 32 | u64::from(x)) << z.min(32) >> 32) as u32
            }),
            I3::ShfRightWrap => three(a, b, c, |x, y, z| {
                ((u64::from(y) << 32 | u64::from(x)) >> (z & 31)) as u32
            }),
            I3::ShfRightClamp => three(a, b, c, |x, y, z| {
                ((u64::from(y) << 32 | u64::from(x)) >> z.min(32)) as u32
            }),
            I3::Dp4a(sa, sb) => three(a, b, c, |x, y, z| dp4a(sa, sb, x, y, z)),
            I3::Slct => three(a, b, c, |x, y, z| if (z as i32) >= 0 { x } else { y }),
        };
        let r = if half { r.map(|v| v & 0xffff) } else { r };
        self.w.put32(d, act, &r);
    }

    fn int3_64(&mut self, f: I3, d: R, a: R, b: R, c: R, act: u32) {
        let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
        let mut r = [0u64; 32];
        if f == I3::Slct {
            let c = self.w.a32(self.k, c);
            for l in 0..32 {
                r[l] = if (c[l] as i32) >= 0 { a[l] } else { b[l] };
            }
        } else {
            let c = self.w.a64(self.k, c);
            for l in 0..32 {
                let v = match f {
                    I3::MadHiU => (u128::from(a[l]) * u128::from(b[l]) >> 64) as u64,
                    I3::MadHiS | I3::MadHiSat => {
                        (i128::from(a[l] as i64) * i128::from(b[l] as i64) >> 64) as u64
                    }
                    I3::SadU => a[l].abs_diff(b[l]),
                    I3::SadS => (a[l] as i64).abs_diff(b[l] as i64),
                    _ => a[l].wrapping_mul(b[l]),
                };
                r[l] = v.wrapping_add(c[l]);
            }
        }
        self.w.put64(d, act, &r);
    }

    pub(crate) fn bfe64(&mut self, s: bool, [d, a, p, n]: [R; 4], act: u32) {
        let a = self.w.a64(self.k, a);
        let (p, n) = (self.w.a32(self.k, p), self.w.a32(self.k, n));
        let mut r = [0u64; 32];
        for l in 0..32 {
            r[l] = bfe(a[l], p[l], n[l], 64, s);
        }
        self.w.put64(d, act, &r);
    }

    pub(crate) fn bfi(&mut self, w: Width, [d, a, b, p, n]: [R; 5], act: u32) {
        let (p, n) = (self.w.a32(self.k, p), self.w.a32(self.k, n));
        if w == Width::W64 {
            let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
            let mut r = [0u64; 32];
            for l in 0..32 {
                r[l] = bfi(a[l], b[l], p[l], n[l], 64);
            }
            self.w.put64(d, act, &r);
            return;
        }
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        let mut r = [0u32; 32];
        for l in 0..32 {
            r[l] = bfi(a[l].into(), b[l].into(), p[l], n[l], 32) as u32;
        }
        self.w.put32(d, act, &r);
    }
}
