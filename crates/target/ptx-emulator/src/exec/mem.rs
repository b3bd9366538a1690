//! Loads and stores.

use super::Ctx;
use super::access::{How, byte_mask, shared_key};
use crate::checks::Kind;
use crate::counters::{Request, sectors, wavefronts};
use crate::machine::cta::lanes;
use crate::memory::{self, LOCAL_WINDOW, SHARED_WINDOW, WINDOW};
use crate::parse::ast::Space;
use crate::program::*;
use crate::timing::trace::Touch;

/// What lanes load or store: up to four words each.
pub(crate) type Words = [[u32; 32]; 4];

impl Ctx<'_> {
    pub(crate) fn addresses(&self, a: &Addr) -> [u64; 32] {
        let by = a.offset as u64;
        match a.base {
            Base::None => [by; 32],
            Base::R64(r) => self.w.a64(self.k, r).map(|v| v.wrapping_add(by)),
            Base::R32(r) => {
                let by = by as u32;
                self.w.a32(self.k, r).map(|v| u64::from(v.wrapping_add(by)))
            }
        }
    }

    /// Lanes by the memory that their generic addresses lie in.
    fn windows(&self, at: &[u64; 32], act: u32) -> [(Space, u32); 3] {
        let (mut shared, mut local) = (0, 0);
        for l in lanes(act) {
            let v = at[l as usize];
            shared |= u32::from((SHARED_WINDOW..SHARED_WINDOW + WINDOW).contains(&v)) << l;
            local |= u32::from((LOCAL_WINDOW..LOCAL_WINDOW + WINDOW).contains(&v)) << l;
        }
        [
            (Space::Global, act & !shared & !local),
            (Space::Shared, shared),
            (Space::Local, local),
        ]
    }

    /// Runs `f` for the lanes of each memory, with addresses inside it.
    fn by_space(
        &mut self,
        space: Space,
        at: &mut [u64; 32],
        act: u32,
        mut f: impl FnMut(&mut Self, Space, &[u64; 32], u32),
    ) {
        if space != Space::Generic {
            f(self, space, at, act);
            return;
        }
        for (space, part) in self.windows(at, act) {
            if part == 0 {
                continue;
            }
            let base = match space {
                Space::Shared => SHARED_WINDOW,
                Space::Local => LOCAL_WINDOW,
                _ => 0,
            };
            for l in lanes(part) {
                at[l as usize] -= base;
            }
            f(self, space, at, part);
        }
    }

    pub(crate) fn load(&mut self, a: &Access, act: u32) {
        let total = a.bytes * a.lanes;
        let mut at = self.addresses(&a.addr);
        let mut words: Words = [[0; 32]; 4];
        let how = How {
            sem: a.sem,
            scope: a.scope,
            atomic: false,
        };
        self.by_space(a.space, &mut at, act, |c, space, at, act| match space {
            Space::Param => c.param_words(at[0], total, &mut words),
            Space::Local => c.local_read(at, total, act, &mut words),
            Space::Shared => c.by_rank(at, act, |c, at, act| {
                c.shared_read(at, total, act, how, &mut words);
            }),
            _ => c.global_read(at, total, act, how, &mut words),
        });
        for k in 0..a.lanes as usize {
            if a.regs[k] != SINK {
                self.deliver(a, k, act, &words);
            }
        }
    }

    /// Element `k` of what was loaded, into its register.
    fn deliver(&mut self, a: &Access, k: usize, act: u32, words: &Words) {
        let bits = a.bytes * 8;
        if a.bytes == 8 {
            let (lo, hi) = (&words[2 * k], &words[2 * k + 1]);
            let mut v = [0u64; 32];
            for l in 0..32 {
                v[l] = u64::from(lo[l]) | u64::from(hi[l]) << 32;
            }
            self.w.put64(a.regs[k], act, &v);
            return;
        }
        let mut v = [0u32; 32];
        if a.bytes == 4 {
            v = words[k];
        } else {
            let (word, shift) = (k as u32 * bits / 32, k as u32 * bits % 32);
            for l in 0..32 {
                let x = words[word as usize][l] >> shift << (32 - bits);
                v[l] = match a.signed {
                    true => ((x as i32) >> (32 - bits)) as u32,
                    false => x >> (32 - bits),
                };
            }
        }
        match a.width {
            Width::W64 => {
                let wide = v.map(|x| match a.signed {
                    true => x as i32 as i64 as u64,
                    false => u64::from(x),
                });
                self.w.put64(a.regs[k], act, &wide);
            }
            Width::W16 => self.w.put32(a.regs[k], act, &v.map(|x| x & 0xffff)),
            _ => self.w.put32(a.regs[k], act, &v),
        }
    }

    /// What is stored, as words.
    pub(crate) fn collect(&self, a: &Access) -> Words {
        let mut words: Words = [[0; 32]; 4];
        let bits = a.bytes * 8;
        for k in 0..a.lanes as usize {
            if a.bytes == 8 {
                let v = self.w.a64(self.k, a.regs[k]);
                for l in 0..32 {
                    words[2 * k][l] = v[l] as u32;
                    words[2 * k + 1][l] = (v[l] >> 32) as u32;
                }
                continue;
            }
            let v = match a.width {
                Width::W64 => self.w.a64(self.k, a.regs[k]).map(|x| x as u32),
                _ => *self.w.a32(self.k, a.regs[k]),
            };
            if a.bytes == 4 {
                words[k] = v;
            } else {
                let (word, shift) = (k as u32 * bits / 32, k as u32 * bits % 32);
                let mask = (1u32 << bits) - 1;
                for l in 0..32 {
                    words[word as usize][l] |= (v[l] & mask) << shift;
                }
            }
        }
        words
    }

    pub(crate) fn store(&mut self, a: &Access, act: u32) {
        let total = a.bytes * a.lanes;
        let words = self.collect(a);
        let mut at = self.addresses(&a.addr);
        let how = How {
            sem: a.sem,
            scope: a.scope,
            atomic: false,
        };
        self.by_space(a.space, &mut at, act, |c, space, at, act| match space {
            Space::Local => c.local_write(at, total, act, &words),
            Space::Shared => c.by_rank(at, act, |c, at, act| {
                c.shared_write(at, total, act, how, &words);
            }),
            _ => c.global_write(at, total, act, how, &words),
        });
        self.effect();
        if a.sem.releases() {
            self.cta.clock += 1;
        }
    }

    fn param_words(&mut self, at: u64, total: u32, words: &mut Words) {
        for k in 0..total as usize {
            let byte = self.world.params.get(at as usize + k).copied();
            let v = u32::from(byte.unwrap_or(0)) << (k % 4 * 8);
            for x in &mut words[k / 4] {
                *x |= v;
            }
        }
    }

    fn local_lane(&mut self, lane: u32, at: u64, total: u32) -> bool {
        if self.misaligned(lane, at, total) {
            return false;
        }
        let size = u64::from(self.k.local_bytes);
        if at.saturating_add(u64::from(total)) <= size {
            return true;
        }
        self.report(Kind::OutOfBounds, lane, None, || {
            format!("{total} bytes at {at:#x} of local memory, of which there are {size} bytes")
        });
        false
    }

    fn local_read(&mut self, at: &[u64; 32], total: u32, act: u32, words: &mut Words) {
        if let Some(t) = &mut self.w.trace {
            t.touch(Touch::Local(total.div_ceil(4)));
        }
        for l in lanes(act) {
            let (a, li) = (at[l as usize], l as usize);
            if !self.local_lane(l, a, total) {
                continue;
            }
            let (w, mask) = ((a / 4) as usize, byte_mask(a, total));
            for k in 0..total.div_ceil(4) as usize {
                if self.w.local_written[w + k][li] & mask != mask && self.world.checks.uninitialised
                {
                    self.report(Kind::UninitialisedMemory, l, None, || {
                        format!("{total} bytes at {a:#x} of local memory were never written")
                    });
                }
                words[k][li] = self.w.local[w + k][li];
            }
            if total < 4 {
                words[0][li] >>= a % 4 * 8;
            }
        }
    }

    fn local_write(&mut self, at: &[u64; 32], total: u32, act: u32, words: &Words) {
        if let Some(t) = &mut self.w.trace {
            t.touch(Touch::Local(total.div_ceil(4)));
        }
        for l in lanes(act) {
            let (a, li) = (at[l as usize], l as usize);
            if !self.local_lane(l, a, total) {
                continue;
            }
            let (w, mask) = ((a / 4) as usize, byte_mask(a, total));
            for k in 0..total.div_ceil(4) as usize {
                self.w.local_written[w + k][li] |= mask;
                let slot = &mut self.w.local[w + k][li];
                *slot = merge(*slot, words[k][li], a, total);
            }
        }
    }

    /// Keeps a request if it is its instruction's first.
    fn keep(&mut self, at: &[u64; 32], bytes: u32, act: u32, shared: bool) {
        let line = self.world.line_of(self.k, self.pc);
        let Some(kept) = &mut self.world.requests else {
            return;
        };
        kept.entry((self.pc, shared)).or_insert_with(|| {
            let mut one = [None; 32];
            for l in lanes(act) {
                one[l as usize] = Some(at[l as usize]);
            }
            Request {
                line,
                shared,
                cta: self.cta.id,
                warp: self.w.index,
                bytes,
                lanes: one,
            }
        });
    }

    pub(crate) fn count_shared(&mut self, at: &[u64; 32], total: u32, act: u32) {
        if self.world.requests.is_some() {
            self.keep(at, total, act, true);
        }
        let mut list = [(0u32, 0u32); 32];
        let mut n = 0;
        for l in lanes(act) {
            list[n] = (l, at[l as usize] as u32);
            n += 1;
        }
        let (passes, ideal) = wavefronts(&list[..n], total);
        let c = &mut self.world.counts[self.pc as usize];
        c.shared_requests += 1;
        c.wavefronts += passes;
        c.conflicts += passes.saturating_sub(ideal);
        if let Some(t) = &mut self.w.trace {
            t.touch(Touch::Shared(passes as u32));
        }
        if let Some(p) = &self.world.clock.pace {
            self.cta.hand.passes(p, passes);
        }
    }

    /// A bulk copy's bytes in global memory: one request of whole sectors.
    pub(crate) fn count_bulk(&mut self, at: u64, bytes: u32) {
        let end = at + u64::from(bytes.max(1)) - 1;
        let s = (end >> 5) - (at >> 5) + 1;
        let c = &mut self.world.counts[self.pc as usize];
        c.global_requests += 1;
        c.sectors += s;
        c.lines += (end >> 7) - (at >> 7) + 1;
        c.global_bytes += u64::from(bytes);
        if let Some(t) = &mut self.w.trace {
            t.lines(&[at], u64::from(bytes));
        }
        if let Some(p) = &self.world.clock.pace {
            self.cta.hand.sectors(p, s, false);
        }
    }

    pub(crate) fn count_global(
        &mut self,
        at: &[u64; 32],
        total: u32,
        act: u32,
        how: How,
        write: bool,
    ) {
        if self.world.requests.is_some() {
            self.keep(at, total, act, false);
        }
        let mut list = [0u64; 32];
        let mut n = 0;
        for l in lanes(act) {
            list[n] = at[l as usize];
            n += 1;
        }
        let (s, l) = sectors(&list[..n], u64::from(total));
        let c = &mut self.world.counts[self.pc as usize];
        c.global_requests += 1;
        c.sectors += s;
        c.lines += l;
        c.global_bytes += n as u64 * u64::from(total);
        if let Some(t) = &mut self.w.trace {
            t.lines(&list[..n], u64::from(total));
        }
        if let Some(p) = &self.world.clock.pace {
            let found = self.mem.resolve(list[0], 1).ok();
            let host = found.is_some_and(|f| self.mem.allocations[f.0].kind == memory::Kind::Host);
            self.cta
                .hand
                .sectors(p, s, host && how.sem == Sem::Weak && !write);
        }
    }

    pub(crate) fn shared_read(
        &mut self,
        at: &[u64; 32],
        total: u32,
        act: u32,
        how: How,
        words: &mut Words,
    ) {
        self.count_shared(at, total, act);
        for l in lanes(act) {
            let (a, li) = (at[l as usize], l as usize);
            if !self.shared_at(l, a, total, "a read") {
                continue;
            }
            let (w, mask) = ((a / 4) as usize, byte_mask(a, total));
            self.settled(l, a, total);
            for k in 0..total.div_ceil(4) as usize {
                if self.cta.shared_written[w + k] & mask != mask && self.world.checks.uninitialised
                {
                    self.report(Kind::UninitialisedShared, l, None, || {
                        format!("{total} bytes at {a:#x} of shared memory were never written")
                    });
                }
                words[k][li] = self.cta.shared[w + k];
            }
            if total < 4 {
                words[0][li] >>= a % 4 * 8;
            }
            self.note(l, None, a, total, how, false);
            self.polled(shared_key(self.cta.owner, a / 4), words[0][li]);
        }
    }

    /// Reports words that a copy still writes.
    #[inline]
    pub(crate) fn settled(&mut self, lane: u32, a: u64, total: u32) {
        if self.cta.any_flying == 0 {
            return;
        }
        let w = (a / 4) as usize;
        if (w..w + total.div_ceil(4) as usize).any(|w| self.cta.flying[w] > 0) {
            self.report(Kind::EarlyRead, lane, None, || {
                format!(
                    "{total} bytes at {a:#x} of shared memory, which an asynchronous copy still \
                     writes; nothing waited for it"
                )
            });
        }
    }

    /// Reports ordinary writes to a barrier.
    #[inline]
    fn beside_barriers(&mut self, lane: u32, a: u64, total: u32) {
        if self.cta.mbarriers.is_empty() {
            return;
        }
        let at = a as u32;
        let hit = self.cta.mbarriers.range(at.saturating_sub(7)..at + total);
        if let Some((b, _)) = hit.last() {
            let b = *b;
            self.report(Kind::Undefined, lane, None, || {
                format!("a write at shared {a:#x}, where the barrier at shared {b:#x} lies")
            });
        }
    }

    pub(crate) fn shared_write(
        &mut self,
        at: &[u64; 32],
        total: u32,
        act: u32,
        how: How,
        words: &Words,
    ) {
        self.count_shared(at, total, act);
        for l in lanes(act) {
            let (a, li) = (at[l as usize], l as usize);
            if !self.shared_at(l, a, total, "a write") {
                continue;
            }
            self.settled(l, a, total);
            self.beside_barriers(l, a, total);
            let (w, mask) = ((a / 4) as usize, byte_mask(a, total));
            for k in 0..total.div_ceil(4) as usize {
                self.cta.shared_written[w + k] |= mask;
                let slot = &mut self.cta.shared[w + k];
                *slot = merge(*slot, words[k][li], a, total);
            }
            self.note(l, None, a, total, how, true);
            self.wrote(None, a, total);
        }
    }

    pub(crate) fn global_read(
        &mut self,
        at: &[u64; 32],
        total: u32,
        act: u32,
        how: How,
        words: &mut Words,
    ) {
        self.count_global(at, total, act, how, false);
        for l in lanes(act) {
            let (a, li) = (at[l as usize], l as usize);
            let Some((id, offset)) = self.global_at(l, a, total, "a read") else {
                continue;
            };
            let mem: &memory::Memory = self.mem;
            let m = &mem.allocations[id];
            if self.world.checks.uninitialised && !m.was_written(offset, total) {
                self.report(Kind::UninitialisedMemory, l, None, || {
                    format!(
                        "{total} bytes at {a:#x}, {offset} bytes into an allocation, were never \
                         written"
                    )
                });
            }
            self.dependent(l, (id, offset), total, false);
            let v = m.load(offset, total);
            for k in 0..4 {
                words[k][li] = v[k];
            }
            self.note(l, Some((id, offset)), offset, total, how, false);
            self.polled(a / 4, v[0]);
        }
    }

    pub(crate) fn global_write(
        &mut self,
        at: &[u64; 32],
        total: u32,
        act: u32,
        how: How,
        words: &Words,
    ) {
        self.count_global(at, total, act, how, true);
        for l in lanes(act) {
            let (a, li) = (at[l as usize], l as usize);
            let Some((id, offset)) = self.global_at(l, a, total, "a write") else {
                continue;
            };
            let mem: &memory::Memory = self.mem;
            let m = &mem.allocations[id];
            if m.kind == memory::Kind::Const {
                self.report(Kind::ReadOnly, l, None, || {
                    format!("a write at {a:#x}, which is constant memory")
                });
                continue;
            }
            self.dependent(l, (id, offset), total, true);
            let v = [words[0][li], words[1][li], words[2][li], words[3][li]];
            m.store(offset, total, v, self.world.mark);
            self.note(l, Some((id, offset)), offset, total, how, true);
            self.wrote(Some((id, offset)), offset, total);
        }
    }

    pub(crate) fn copy_local(&mut self, d: u32, s: u32, bytes: u32, act: u32) {
        // Places of parameters begin at words.
        for k in 0..bytes.div_ceil(4) as usize {
            let (d, s) = (d as usize / 4 + k, s as usize / 4 + k);
            for l in lanes(act) {
                let l = l as usize;
                self.w.local[d][l] = self.w.local[s][l];
                self.w.local_written[d][l] = self.w.local_written[s][l];
            }
        }
    }
}

/// `new` in the bytes of a word that an access covers.
fn merge(old: u32, new: u32, at: u64, total: u32) -> u32 {
    if total >= 4 {
        return new;
    }
    let shift = (at % 4 * 8) as u32;
    let mask = ((1u32 << (total * 8)) - 1) << shift;
    (old & !mask) | (new << shift & mask)
}
