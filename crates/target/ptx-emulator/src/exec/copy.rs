//! `cp.async`: bytes that arrive when somebody waits, and fences.

use super::Ctx;
use super::access::How;
use crate::checks::Kind;
use crate::clocks;
use crate::machine::cta::lanes;
use crate::machine::warp::Copy;
use crate::memory::SHARED_WINDOW;
use crate::program::*;

impl Ctx<'_> {
    pub(crate) fn cp_async(&mut self, (to, from, size, read): &(Addr, Addr, u32, R), act: u32) {
        let (to, from) = (self.addresses(to), self.addresses(from));
        let to = to.map(|v| {
            if v >= SHARED_WINDOW {
                v - SHARED_WINDOW
            } else {
                v
            }
        });
        let read = *self.w.a32(self.k, *read);
        let reading = lanes(act)
            .filter(|l| read[*l as usize] > 0)
            .fold(0, |m, l| m | 1 << l);
        if reading != 0 {
            self.count_global(&from, *size, reading, How::WEAK, false);
        }
        self.count_shared(&to, *size, act);
        for l in lanes(act) {
            let (d, s) = (to[l as usize], from[l as usize]);
            let wanted = read[l as usize].min(*size);
            if !self.shared_at(l, d, *size, "an asynchronous write") {
                continue;
            }
            if self.misaligned(l, s, *size) {
                continue;
            }
            let (mut data, mut written) = ([0u32; 4], true);
            if wanted > 0 {
                // Bounds hold for the bytes that are read; the rest is zeros.
                let found = self.mem.resolve(s, u64::from(wanted));
                let Ok((id, offset)) = found else {
                    self.global_at(l, s, wanted.next_power_of_two(), "an asynchronous read");
                    continue;
                };
                self.dependent(l, (id, offset), wanted, false);
                let m = &self.mem.allocations[id];
                for k in 0..u64::from(wanted) {
                    let byte = m.load(offset + k, 1)[0];
                    written &= m.was_written(offset + k, 1);
                    data[k as usize / 4] |= byte << (k % 4 * 8);
                }
                if !written && self.world.checks.uninitialised {
                    self.report(Kind::UninitialisedMemory, l, None, || {
                        format!("{wanted} bytes at {s:#x} were never written")
                    });
                }
                let mut k = 0;
                while k < wanted {
                    let step = if wanted - k >= 4 { 4 } else { 1 };
                    let at = offset + u64::from(k);
                    self.note(l, Some((id, at)), at, step, How::WEAK, false);
                    k += step;
                }
            }
            // Readers of what was there before must be done when the copy begins.
            self.note(l, None, d, *size, How::WEAK, true);
            let w = (d / 4) as usize;
            for f in &mut self.cta.flying[w..w + *size as usize / 4] {
                *f = f.saturating_add(1);
            }
            self.cta.any_flying += 1;
            let group = self.w.committed[l as usize];
            self.w.copied += 1;
            self.w.copies.push(Copy {
                number: self.w.copied,
                lane: l,
                to: d as u32,
                bytes: *size,
                data,
                group,
                pc: self.pc,
                written,
            });
        }
        self.effect();
    }

    /// Lands all but the newest `keep` committed groups of each lane; all of them for
    /// [`u32::MAX`].
    pub(crate) fn cp_wait(&mut self, keep: u32, act: u32) {
        let mut k = 0;
        let copies = std::mem::take(&mut self.w.copies);
        let mut stay = Vec::with_capacity(copies.len());
        while k < copies.len() {
            let c = copies[k];
            k += 1;
            let committed = self.w.committed[c.lane as usize];
            let lands = act >> c.lane & 1 == 1
                && (keep == u32::MAX || c.group < committed.saturating_sub(keep));
            if !lands {
                stay.push(c);
                continue;
            }
            self.cta.land(&c);
            // From here on it counts as a write of the lane that waited.
            let pc = std::mem::replace(&mut self.pc, c.pc);
            self.note(c.lane, None, u64::from(c.to), c.bytes, How::WEAK, true);
            self.pc = pc;
            self.wrote(None, u64::from(c.to), c.bytes);
        }
        self.w.copies = stay;
        self.effect();
    }

    pub(crate) fn fence(&mut self, scope: Scope, act: u32) {
        for l in lanes(act) {
            let sync = &mut self.w.sync[l as usize];
            let (cta, index) = (&*self.cta, self.w.index);
            clocks::fence(sync, scope, |s| cta.known(s, index, l));
        }
        self.cta.clock += 1;
    }
}
