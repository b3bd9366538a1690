//! Moves, comparisons and selections.

use super::{Ctx, round::*};
use crate::memory::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, WINDOW};
use crate::parse::ast::{Space, Ty};
use crate::program::*;

pub(crate) fn logic(l: Logic, a: u32, b: u32) -> u32 {
    match l {
        Logic::And => a & b,
        Logic::Or => a | b,
        Logic::Xor => a ^ b,
    }
}

#[inline(always)]
fn ordered<T: PartialOrd>(c: Cmp, a: T, b: T) -> bool {
    match c {
        Cmp::Eq => a == b,
        Cmp::Ne => a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_ne),
        Cmp::Lt => a < b,
        Cmp::Le => a <= b,
        Cmp::Gt => a > b,
        Cmp::Ge => a >= b,
        Cmp::Num => a.partial_cmp(&b).is_some(),
        Cmp::Nan => a.partial_cmp(&b).is_none(),
        Cmp::Equ => a.partial_cmp(&b).is_none() || a == b,
        Cmp::Neu => a != b,
        Cmp::Ltu => a.partial_cmp(&b).is_none() || a < b,
        Cmp::Leu => a.partial_cmp(&b).is_none() || a <= b,
        Cmp::Gtu => a.partial_cmp(&b).is_none() || a > b,
        Cmp::Geu => a.partial_cmp(&b).is_none() || a >= b,
    }
}

#[inline(always)]
fn all32<T: PartialOrd>(c: Cmp, a: &[u32; 32], b: &[u32; 32], f: impl Fn(u32) -> T) -> u32 {
    let mut r = 0;
    for l in 0..32 {
        r |= u32::from(ordered(c, f(a[l]), f(b[l]))) << l;
    }
    r
}

#[inline(always)]
fn all64<T: PartialOrd>(c: Cmp, a: &[u64; 32], b: &[u64; 32], f: impl Fn(u64) -> T) -> u32 {
    let mut r = 0;
    for l in 0..32 {
        r |= u32::from(ordered(c, f(a[l]), f(b[l]))) << l;
    }
    r
}

impl Ctx<'_> {
    fn compare(&self, ty: Ty, c: Cmp, ftz: bool, a: R, b: R) -> u32 {
        if ty.bytes() == 8 {
            let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
            return match ty {
                Ty::F64 => all64(c, a, b, f64::from_bits),
                Ty::S64 => all64(c, a, b, |v| v as i64),
                _ => all64(c, a, b, |v| v),
            };
        }
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        match ty {
            Ty::F32 if ftz => all32(c, a, b, |v| flush(f32::from_bits(v))),
            Ty::F32 => all32(c, a, b, f32::from_bits),
            Ty::S32 => all32(c, a, b, |v| v as i32),
            Ty::S16 => all32(c, a, b, |v| v as i16),
            Ty::F16 | Ty::F16x2 => all32(c, a, b, |v| from_f16(v & 0xffff)),
            Ty::BF16 | Ty::BF16x2 => all32(c, a, b, |v| from_bf16(v & 0xffff)),
            _ => all32(c, a, b, |v| v),
        }
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn setp(
        &mut self,
        ty: Ty,
        c: Cmp,
        ftz: bool,
        (p, q): (R, R),
        a: R,
        b: R,
        with: Option<(Logic, R, bool)>,
        act: u32,
    ) {
        let t = self.compare(ty, c, ftz, a, b);
        let combine = |t: u32| match with {
            Some((l, r, negated)) => logic(l, t, self.w.ap(r, negated)),
            None => t,
        };
        let (first, second) = if matches!(ty, Ty::F16x2 | Ty::BF16x2) {
            let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
            let high = match ty {
                Ty::F16x2 => all32(c, a, b, |v| from_f16(v >> 16)),
                _ => all32(c, a, b, |v| from_bf16(v >> 16)),
            };
            (combine(t), combine(high))
        } else {
            (combine(t), combine(!t))
        };
        self.w.putp(p, act, first);
        self.w.putp(q, act, second);
    }

    pub(crate) fn set(&mut self, s: &SetOp, act: u32) {
        let t = self.compare(s.from, s.cmp, s.ftz, s.a, s.b);
        let t = match s.with {
            Some((l, r, negated)) => logic(l, t, self.w.ap(r, negated)),
            None => t,
        };
        let yes = match s.to {
            Ty::F32 => 1f32.to_bits(),
            Ty::F16 => 0x3c00,
            Ty::BF16 => 0x3f80,
            Ty::U16 | Ty::S16 => 0xffff,
            _ => u32::MAX,
        };
        let mut r = [0; 32];
        for (l, v) in r.iter_mut().enumerate() {
            *v = if t >> l & 1 == 1 { yes } else { 0 };
        }
        self.w.put32(s.d, act, &r);
    }

    #[allow(clippy::too_many_arguments)]
    pub(crate) fn selp(&mut self, w: Width, d: R, a: R, b: R, p: R, negated: bool, act: u32) {
        let p = self.w.ap(p, negated);
        if w == Width::W64 {
            let (a, b) = (self.w.a64(self.k, a), self.w.a64(self.k, b));
            let mut r = *b;
            for l in 0..32 {
                if p >> l & 1 == 1 {
                    r[l] = a[l];
                }
            }
            self.w.put64(d, act, &r);
            return;
        }
        let (a, b) = (self.w.a32(self.k, a), self.w.a32(self.k, b));
        let mut r = [0; 32];
        for l in 0..32 {
            let m = 0u32.wrapping_sub(p >> l & 1);
            r[l] = (a[l] & m) | (b[l] & !m);
        }
        self.w.put32(d, act, &r);
    }

    fn piece(&self, (w, r): Piece) -> [u64; 32] {
        match w {
            Width::W64 => *self.w.a64(self.k, r),
            _ => self.w.a32(self.k, r).map(u64::from),
        }
    }

    fn put_piece(&mut self, (w, r): Piece, act: u32, v: &[u64; 32]) {
        match w {
            Width::W64 => self.w.put64(r, act, v),
            _ => self.w.put32(r, act, &v.map(|x| x as u32)),
        }
    }

    pub(crate) fn pack(&mut self, (pack, whole, pieces): &(bool, Piece, Vec<Piece>), act: u32) {
        let total = match whole.0 {
            Width::W64 => 64,
            Width::W32 => 32,
            _ => 16,
        };
        let bits = total / pieces.len() as u32;
        let mask = if bits == 64 {
            u64::MAX
        } else {
            (1 << bits) - 1
        };
        if *pack {
            let mut all = [0u64; 32];
            for (k, p) in pieces.iter().enumerate() {
                let v = self.piece(*p);
                for l in 0..32 {
                    all[l] |= (v[l] & mask) << (bits * k as u32);
                }
            }
            self.put_piece(*whole, act, &all);
        } else {
            let all = self.piece(*whole);
            for (k, p) in pieces.iter().enumerate() {
                let v = all.map(|x| x >> (bits * k as u32) & mask);
                self.put_piece(*p, act, &v);
            }
        }
    }

    pub(crate) fn special(&mut self, s: Special, d: R, act: u32) {
        // Without a pace, time is counted in instructions of the warp: it goes on, and is the same in every run.
        let t = match self.world.clock.pace {
            Some(p) => self.cta.hand.settle(&p) as u64,
            None => self.w.steps,
        };
        match s {
            Special::Clock => self.w.put32(d, act, &[t as u32; 32]),
            Special::GlobalTimerHi => self.w.put32(d, act, &[(t >> 32) as u32; 32]),
            _ => self.w.put64(d, act, &[t; 32]),
        }
    }

    pub(crate) fn cvta(&mut self, to: bool, s: Space, w: Width, d: R, a: R, act: u32) {
        let base = match s {
            Space::Shared => SHARED_WINDOW,
            Space::Local => LOCAL_WINDOW,
            Space::Param => PARAM_WINDOW,
            _ => 0,
        };
        if w == Width::W64 {
            let by = if to { base } else { base.wrapping_neg() };
            let r = self.w.a64(self.k, a).map(|v| v.wrapping_add(by));
            self.w.put64(d, act, &r);
        } else {
            let r = *self.w.a32(self.k, a);
            self.w.put32(d, act, &r);
        }
    }

    pub(crate) fn is_space(&mut self, s: Space, d: R, w: Width, a: R, act: u32) {
        let v = self.piece((w, a));
        let mut r = 0;
        for (l, v) in v.iter().enumerate() {
            let here = match *v {
                v if (SHARED_WINDOW..SHARED_WINDOW + WINDOW).contains(&v) => Space::Shared,
                v if (LOCAL_WINDOW..LOCAL_WINDOW + WINDOW).contains(&v) => Space::Local,
                v => match self.mem.resolve(v, 0) {
                    Ok((id, _)) if self.mem.allocations[id].kind == crate::memory::Kind::Const => {
                        Space::Const
                    }
                    _ => Space::Global,
                },
            };
            r |= u32::from(here == s) << l;
        }
        self.w.putp(d, act, r);
    }
}
