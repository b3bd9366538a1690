//! Atomic operations.

use super::Ctx;
use super::access::{How, shared_key};
use super::half;
use crate::checks::Kind;
use crate::machine::cta::lanes;
use crate::memory::{self, SHARED_WINDOW, WINDOW};
use crate::parse::ast::{Space, Ty};
use crate::program::*;

/// The new value.
fn apply(op: AtomOp, ty: Ty, old: u64, a: u64, b: u64) -> u64 {
    let m = Mode::default();
    let halves = |f: Fmt, what: F2| -> u64 {
        let (o, a) = (old as u32, a as u32);
        let lo = half::two(f, what, m, o & 0xffff, a & 0xffff);
        match ty {
            Ty::F16x2 | Ty::BF16x2 => u64::from(lo | half::two(f, what, m, o >> 16, a >> 16) << 16),
            _ => u64::from(lo),
        }
    };
    let what = match op {
        AtomOp::Min => F2::Min,
        AtomOp::Max => F2::Max,
        _ => F2::Add,
    };
    match (op, ty) {
        (AtomOp::Exch, _) => a,
        (AtomOp::Cas, _) => {
            if old == a {
                b
            } else {
                old
            }
        }
        (AtomOp::And, _) => old & a,
        (AtomOp::Or, _) => old | a,
        (AtomOp::Xor, _) => old ^ a,
        (AtomOp::Inc, _) => {
            if old >= a {
                0
            } else {
                old + 1
            }
        }
        (AtomOp::Dec, _) => {
            if old == 0 || old > a {
                a
            } else {
                old - 1
            }
        }
        (_, Ty::F16 | Ty::F16x2) => halves(Fmt::F16, what),
        (_, Ty::BF16 | Ty::BF16x2) => halves(Fmt::BF16, what),
        (_, Ty::F32) => {
            let (x, y) = (f32::from_bits(old as u32), f32::from_bits(a as u32));
            u64::from((x + y).to_bits())
        }
        (_, Ty::F64) => (f64::from_bits(old) + f64::from_bits(a)).to_bits(),
        (AtomOp::Add, Ty::U64 | Ty::S64 | Ty::B64) => old.wrapping_add(a),
        (AtomOp::Add, _) => u64::from((old as u32).wrapping_add(a as u32)),
        (AtomOp::Min, Ty::S32) => u64::from((old as i32).min(a as i32) as u32),
        (AtomOp::Max, Ty::S32) => u64::from((old as i32).max(a as i32) as u32),
        (AtomOp::Min, Ty::S64) => (old as i64).min(a as i64) as u64,
        (AtomOp::Max, Ty::S64) => (old as i64).max(a as i64) as u64,
        (AtomOp::Min, _) => old.min(a),
        (AtomOp::Max, _) => old.max(a),
    }
}

/// The bytes of a word, as bits, in which a reduction by `and` or `or` sets bits whatever was there: elements of fewer
/// than 8 bits are stored so. `None` for what depends on all of the word.
fn set_bytes(a: &Atom, x: u64) -> Option<u8> {
    let leaves = match a.op {
        AtomOp::And => 0xff,
        AtomOp::Or => 0,
        _ => return None,
    };
    let word = (x as u32).to_le_bytes();
    let changed = (0..4).filter(|&k| word[k] != leaves);
    (a.d == SINK && a.ty.bytes() == 4).then(|| changed.fold(0, |set, k| set | 1 << k))
}

impl Ctx<'_> {
    pub(crate) fn atomic(&mut self, a: &Atom, act: u32) {
        let bytes = a.ty.bytes();
        let mut at = self.addresses(&a.addr);
        let mut shared = if a.space == Space::Shared { act } else { 0 };
        if a.space == Space::Generic {
            for l in lanes(act) {
                let v = &mut at[l as usize];
                if (SHARED_WINDOW..SHARED_WINDOW + WINDOW).contains(v) {
                    *v -= SHARED_WINDOW;
                    shared |= 1 << l;
                }
            }
        }
        if shared != 0 {
            self.count_shared(&at, bytes, shared);
        }
        let wide = |c: &Self, r: R| match bytes {
            8 => *c.w.a64(c.k, r),
            _ => c.w.a32(c.k, r).map(u64::from),
        };
        let (x, y) = (wide(self, a.a), wide(self, a.b));
        let how = How {
            sem: a.sem,
            scope: a.scope,
            atomic: true,
        };
        if act & !shared != 0 {
            self.count_global(&at, bytes, act & !shared, how, true);
        }
        let mut out = [0u64; 32];
        for l in lanes(act) {
            let li = l as usize;
            let of = (a, at[li], x[li], y[li]);
            let old = match shared >> l & 1 {
                1 => self.placed(at[li], |c, at| {
                    c.shared_atomic(l, (a, at, x[li], y[li]), how)
                }),
                _ => self.global_atomic(l, of, how),
            };
            out[li] = old.unwrap_or(0);
        }
        if a.sem.releases() {
            self.cta.clock += 1;
        }
        match bytes {
            8 => self.w.put64(a.d, act, &out),
            _ => self.w.put32(a.d, act, &out.map(|v| v as u32)),
        }
    }

    fn shared_atomic(
        &mut self,
        l: u32,
        (a, at, x, y): (&Atom, u64, u64, u64),
        how: How,
    ) -> Option<u64> {
        let bytes = a.ty.bytes();
        if !self.shared_at(l, at, bytes, "an atomic operation") {
            return None;
        }
        self.settled(l, at, bytes);
        let w = (at / 4) as usize;
        let mask = super::access::byte_mask(at, bytes);
        let words = bytes.div_ceil(4) as usize;
        let mut written = true;
        let mut all = 0u64;
        for k in 0..words {
            written &= self.cta.shared_written[w + k] & mask == mask;
            all |= u64::from(self.cta.shared[w + k]) << (32 * k);
        }
        let old = if bytes < 4 {
            all >> (at % 4 * 8) & 0xffff
        } else {
            all
        };
        self.unwritten(written, l, at, bytes);
        let new = apply(a.op, a.ty, old, x, y);
        let shift = if bytes < 4 { at % 4 * 8 } else { 0 };
        let keep = if bytes < 4 {
            all & !(0xffff << shift)
        } else {
            0
        };
        for k in 0..words {
            self.cta.shared[w + k] = ((keep | new << shift) >> (32 * k)) as u32;
            self.cta.shared_written[w + k] |= mask;
        }
        self.judge(l, None, at, a, how, old != new);
        self.polled(shared_key(self.cta.owner, at / 4), old as u32);
        Some(old)
    }

    fn global_atomic(
        &mut self,
        l: u32,
        (a, at, x, y): (&Atom, u64, u64, u64),
        how: How,
    ) -> Option<u64> {
        let bytes = a.ty.bytes();
        let (id, offset) = self.global_at(l, at, bytes, "an atomic operation")?;
        let mem: &memory::Memory = self.mem;
        let m = &mem.allocations[id];
        if m.kind == memory::Kind::Const {
            self.report(Kind::ReadOnly, l, None, || {
                format!("an atomic operation at {at:#x}, which is constant memory")
            });
            return None;
        }
        self.dependent(l, (id, offset), bytes, true);
        let some = set_bytes(a, x);
        if some.is_none() {
            self.unwritten(m.was_written(offset, bytes), l, at, bytes);
        }
        let v = m.load(offset, bytes);
        let old = u64::from(v[0]) | u64::from(v[1]) << 32;
        let new = apply(a.op, a.ty, old, x, y);
        match some {
            Some(set) => m.store_some(offset, new as u32, set, self.world.mark),
            None => {
                let words = [new as u32, (new >> 32) as u32, 0, 0];
                m.store(offset, bytes, words, self.world.mark);
            }
        }
        self.judge(l, Some((id, offset)), offset, a, how, old != new);
        self.polled(at / 4, old as u32);
        Some(old)
    }

    fn unwritten(&mut self, written: bool, l: u32, at: u64, bytes: u32) {
        if !written && self.world.checks.uninitialised {
            self.report(Kind::UninitialisedMemory, l, None, || {
                format!("an atomic operation on {bytes} bytes at {at:#x}, which were never written")
            });
        }
    }

    fn judge(
        &mut self,
        l: u32,
        place: Option<(usize, u64)>,
        offset: u64,
        a: &Atom,
        how: How,
        changed: bool,
    ) {
        let bytes = a.ty.bytes();
        if a.op == AtomOp::Cas && !changed {
            // It found something else, and wrote nothing.
            self.note(l, place, offset, bytes, how, false);
            return;
        }
        self.observe(l, place, offset / 4, how);
        if how.sem.acquires() {
            self.timed(place, offset / 4, false);
        }
        self.note(l, place, offset, bytes, how, true);
        if changed {
            self.wrote(place, offset, bytes);
            self.effect();
        }
    }
}
