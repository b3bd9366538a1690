//! f16 and bf16 arithmetic, one or two in a register.

use super::{Ctx, float, round::*};
use crate::program::*;

fn widen(f: Fmt, h: u32) -> f64 {
    f64::from(match f {
        Fmt::F16 => from_f16(h & 0xffff),
        _ => from_bf16(h & 0xffff),
    })
}

fn narrow(f: Fmt, v: f64, m: Mode) -> u32 {
    let v = if m.sat {
        if v > 0.0 { v.min(1.0) } else { 0.0 }
    } else {
        v
    };
    let v = if m.relu && v <= 0.0 { 0.0 } else { v };
    let r = match f {
        Fmt::F16 => to_f16(v, m.rnd),
        _ => to_bf16(v, m.rnd),
    };
    if m.ftz && f == Fmt::F16 && r & 0x7c00 == 0 {
        r & 0x8000
    } else {
        r
    }
}

fn load(f: Fmt, h: u32, m: Mode) -> f64 {
    let flush = m.ftz && f == Fmt::F16 && h & 0x7c00 == 0;
    widen(f, if flush { h & 0x8000 } else { h })
}

fn one(f: Fmt, what: F1, m: Mode, h: u32) -> u32 {
    match what {
        F1::Neg => (h ^ 0x8000) & 0xffff,
        F1::Abs => h & 0x7fff,
        _ => narrow(f, float::closely(what, load(f, h, m)), m),
    }
}

/// A function of two halves.
pub(crate) fn two(f: Fmt, what: F2, m: Mode, a: u32, b: u32) -> u32 {
    narrow(f, float::exactly(what, load(f, a, m), load(f, b, m), m), m)
}

fn three(f: Fmt, m: Mode, a: u32, b: u32, c: u32) -> u32 {
    narrow(f, add_odd(load(f, a, m) * load(f, b, m), load(f, c, m)), m)
}

impl Ctx<'_> {
    /// Whether `r` holds two halves is known by the operation: single ones keep the high half 0.
    pub(crate) fn half1(&mut self, f: Fmt, what: F1, m: Mode, d: R, a: R, act: u32) {
        let r = self
            .w
            .a32(self.k, a)
            .map(|v| one(f, what, m, v & 0xffff) | one(f, what, m, v >> 16) << 16);
        self.put_half(d, act, &r);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn half2(&mut self, f: Fmt, what: F2, m: Mode, d: R, a: R, b: R, act: u32) {
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        let mut r = [0u32; 32];
        for l in 0..32 {
            r[l] = two(f, what, m, a[l] & 0xffff, b[l] & 0xffff)
                | two(f, what, m, a[l] >> 16, b[l] >> 16) << 16;
        }
        self.put_half(d, act, &r);
    }

    pub(crate) fn half_fma(&mut self, f: Fmt, m: Mode, [d, a, b, c]: [R; 4], act: u32) {
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        let c = self.w.a32(self.k, c);
        let mut r = [0u32; 32];
        for l in 0..32 {
            r[l] = three(f, m, a[l] & 0xffff, b[l] & 0xffff, c[l] & 0xffff)
                | three(f, m, a[l] >> 16, b[l] >> 16, c[l] >> 16) << 16;
        }
        self.put_half(d, act, &r);
    }

    fn put_half(&mut self, d: R, act: u32, r: &[u32; 32]) {
        let pair = matches!(
            self.k.code[self.pc as usize].op,
            Op::H1(..) | Op::H2(..) | Op::HFma(..)
        );
        if pair {
            self.w.put32(d, act, r);
        } else {
            self.w.put32(d, act, &r.map(|v| v & 0xffff));
        }
    }
}
