//! f32 and f64 arithmetic.

use super::{Ctx, round::*, simd};
use crate::program::*;

#[inline(always)]
fn each2(a: &[u32; 32], b: &[u32; 32], f: impl Fn(f32, f32) -> u32) -> [u32; 32] {
    let mut r = [0; 32];
    for l in 0..32 {
        r[l] = f(f32::from_bits(a[l]), f32::from_bits(b[l]));
    }
    r
}

/// Smaller or larger of two, as IEEE 754-2008 has it; NaN only if both are, or if `m.nan`.
pub(crate) fn extreme(a: f64, b: f64, max: bool, m: Mode) -> f64 {
    let sign = m.xorsign && (a.is_sign_negative() != b.is_sign_negative());
    let (x, y) = if m.abs { (a.abs(), b.abs()) } else { (a, b) };
    let v = match (x.is_nan(), y.is_nan()) {
        (true, true) => f64::NAN,
        (true, _) | (_, true) if m.nan => f64::NAN,
        (true, _) => y,
        (_, true) => x,
        _ if x == y => {
            // Zeros differ in their signs.
            let negative = x.is_sign_negative();
            if negative == max { y } else { x }
        }
        _ if (x < y) == max => y,
        _ => x,
    };
    match m.xorsign && !v.is_nan() {
        true => v.abs() * if sign { -1.0 } else { 1.0 },
        false => v,
    }
}

/// Two-operand functions of numbers that f64 holds exactly, rounded to odd.
pub(crate) fn exactly(f: F2, a: f64, b: f64, m: Mode) -> f64 {
    match f {
        F2::Add => add_odd(a, b),
        F2::Sub => add_odd(a, -b),
        F2::Mul => a * b,
        F2::Div => div_odd(a, b),
        F2::Min => extreme(a, b, false, m),
        F2::Max => extreme(a, b, true, m),
        F2::Copysign => b.abs().copysign(a),
    }
}

/// One-operand functions, as well as f64 computes them.
pub(crate) fn closely(f: F1, a: f64) -> f64 {
    match f {
        F1::Neg => -a,
        F1::Abs => a.abs(),
        F1::Sqrt => sqrt_odd(a),
        F1::Rsqrt => 1.0 / a.sqrt(),
        F1::Rcp => div_odd(1.0, a),
        F1::Ex2 => a.exp2(),
        F1::Lg2 => a.log2(),
        F1::Sin => a.sin(),
        F1::Cos => a.cos(),
        F1::Tanh => a.tanh(),
    }
}

impl Ctx<'_> {
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn float2(&mut self, f: Fmt, what: F2, m: Mode, d: R, a: R, b: R, act: u32) {
        match f {
            Fmt::F64 => self.double2(what, m, d, a, b, act),
            Fmt::F32 => {
                let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
                let r = single2(what, m, a, b);
                self.w.put32(d, act, &r);
            }
            _ => self.half2(f, what, m, d, a, b, act),
        }
    }

    fn double2(&mut self, what: F2, m: Mode, d: R, a: R, b: R, act: u32) {
        let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
        let mut r = [0u64; 32];
        for l in 0..32 {
            let (x, y) = (f64::from_bits(a[l]), f64::from_bits(b[l]));
            let v = match what {
                F2::Add => {
                    let (s, e) = two_sum(x, y);
                    directed(s, e, m.rnd)
                }
                F2::Sub => {
                    let (s, e) = two_sum(x, -y);
                    directed(s, e, m.rnd)
                }
                F2::Mul if m.rnd == Rnd::Near => x * y,
                F2::Mul => directed(x * y, x.mul_add(y, -(x * y)), m.rnd),
                F2::Div if m.rnd == Rnd::Near => x / y,
                F2::Div => {
                    let q = x / y;
                    let e = (-q).mul_add(y, x);
                    directed(q, if y < 0.0 { -e } else { e }, m.rnd)
                }
                F2::Min => extreme(x, y, false, m),
                F2::Max => extreme(x, y, true, m),
                F2::Copysign => y.abs().copysign(x),
            };
            r[l] = v.to_bits();
        }
        self.w.put64(d, act, &r);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn fma(&mut self, f: Fmt, m: Mode, d: R, a: R, b: R, c: R, act: u32) {
        match f {
            Fmt::F64 => {
                let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
                let c = self.w.a64(self.k, c);
                let mut r = simd::fma64(a, b, c);
                if m.rnd != Rnd::Near {
                    for l in 0..32 {
                        let (x, y) = (f64::from_bits(a[l]), f64::from_bits(b[l]));
                        let (z, s) = (f64::from_bits(c[l]), f64::from_bits(r[l]));
                        r[l] = directed(s, fma_lost(x, y, z, s), m.rnd).to_bits();
                    }
                }
                self.w.put64(d, act, &r);
            }
            Fmt::F32 => {
                let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
                let c = self.w.a32(self.k, c);
                let r = single_fma(m, a, b, c);
                self.w.put32(d, act, &r);
            }
            _ => self.half_fma(f, m, [d, a, b, c], act),
        }
    }

    pub(crate) fn float1(&mut self, f: Fmt, what: F1, m: Mode, d: R, a: R, act: u32) {
        match f {
            Fmt::F64 => {
                let r = self.w.a64(self.k, a).map(|v| {
                    let x = f64::from_bits(v);
                    let r = match what {
                        F1::Neg => return v ^ 1 << 63,
                        F1::Abs => return v & !(1 << 63),
                        F1::Sqrt => {
                            let s = x.sqrt();
                            directed(s, (-s).mul_add(s, x), m.rnd)
                        }
                        F1::Rcp => {
                            let q = 1.0 / x;
                            let e = (-q).mul_add(x, 1.0);
                            directed(q, if x < 0.0 { -e } else { e }, m.rnd)
                        }
                        what => closely(what, x),
                    };
                    r.to_bits()
                });
                self.w.put64(d, act, &r);
            }
            Fmt::F32 => {
                let r = self.w.a32(self.k, a).map(|v| single1(what, m, v));
                self.w.put32(d, act, &r);
            }
            _ => self.half1(f, what, m, d, a, act),
        }
    }

    pub(crate) fn testp(&mut self, f: Fmt, t: Test, d: R, a: R, act: u32) {
        let mut bits = 0u32;
        for l in 0..32 {
            let (v, normal, subnormal) = match f {
                Fmt::F64 => {
                    let v = f64::from_bits(self.w.a64(self.k, a)[l]);
                    (v, v.is_normal(), v.is_subnormal())
                }
                _ => {
                    let v = f32::from_bits(self.w.a32(self.k, a)[l]);
                    (f64::from(v), v.is_normal(), v.is_subnormal())
                }
            };
            let yes = match t {
                Test::Finite => v.is_finite(),
                Test::Infinite => v.is_infinite(),
                Test::Number => !v.is_nan(),
                Test::NotANumber => v.is_nan(),
                Test::Normal => normal,
                Test::Subnormal => subnormal,
            };
            bits |= u32::from(yes) << l;
        }
        self.w.putp(d, act, bits);
    }
}

fn single1(what: F1, m: Mode, v: u32) -> u32 {
    let x = f32::from_bits(v);
    let x = if m.ftz { flush(x) } else { x };
    match what {
        F1::Neg => return x.to_bits() ^ 0x8000_0000,
        F1::Abs => return x.to_bits() & 0x7fff_ffff,
        _ => {}
    }
    let r = match what {
        F1::Sqrt if m.rnd == Rnd::Near => x.sqrt(),
        what => to_f32(closely(what, f64::from(x)), m.rnd),
    };
    let r = if m.ftz { flush(r) } else { r };
    canonical(if m.sat { saturate(r) } else { r })
}

fn single2(what: F2, m: Mode, a: &[u32; 32], b: &[u32; 32]) -> [u32; 32] {
    let near = m.rnd == Rnd::Near;
    let end = |v: f32| {
        let v = if m.ftz { flush(v) } else { v };
        canonical(if m.sat { saturate(v) } else { v })
    };
    let start = |v: f32| if m.ftz { flush(v) } else { v };
    match what {
        F2::Add if near => each2(a, b, |x, y| end(start(x) + start(y))),
        F2::Sub if near => each2(a, b, |x, y| end(start(x) - start(y))),
        F2::Mul if near => each2(a, b, |x, y| end(start(x) * start(y))),
        F2::Div if near => each2(a, b, |x, y| end(start(x) / start(y))),
        F2::Min | F2::Max if !m.nan && !m.abs && !m.xorsign => {
            let max = what == F2::Max;
            each2(a, b, |x, y| {
                let (x, y) = (start(x), start(y));
                // Of equal numbers, zeros are told apart by their signs.
                let smaller = x < y || (x == y && x.to_bits() > y.to_bits());
                let v = if y.is_nan() || (!x.is_nan() && smaller != max) {
                    x
                } else {
                    y
                };
                canonical(v)
            })
        }
        F2::Copysign => each2(a, b, |x, y| {
            (y.to_bits() & 0x7fff_ffff) | (x.to_bits() & 0x8000_0000)
        }),
        _ => each2(a, b, |x, y| {
            let v = exactly(what, f64::from(start(x)), f64::from(start(y)), m);
            end(to_f32(v, m.rnd))
        }),
    }
}

fn single_fma(m: Mode, a: &[u32; 32], b: &[u32; 32], c: &[u32; 32]) -> [u32; 32] {
    let flushed = |v: &[u32; 32]| v.map(|x| flush(f32::from_bits(x)).to_bits());
    let (a, b, c) = match m.ftz {
        true => (flushed(a), flushed(b), flushed(c)),
        false => (*a, *b, *c),
    };
    let mut r = if m.rnd == Rnd::Near {
        simd::fma32(&a, &b, &c)
    } else {
        let mut r = [0u32; 32];
        for l in 0..32 {
            let of = |v: u32| f64::from(f32::from_bits(v));
            // The product of two f32 is exact in f64.
            let v = add_odd(of(a[l]) * of(b[l]), of(c[l]));
            r[l] = canonical(to_f32(v, m.rnd));
        }
        r
    };
    if m.ftz {
        r = flushed(&r);
    }
    if m.sat {
        r = r.map(|v| saturate(f32::from_bits(v)).to_bits());
    }
    r
}
