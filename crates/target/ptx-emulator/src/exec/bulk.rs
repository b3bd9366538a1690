//! Bulk copies: bytes that arrive at a later step, in an order of the seed's.

use super::Ctx;
use super::cvt::tf32;
use super::proxy::Agent;
use crate::checks::Kind;
use crate::clocks::LaneSync;
use crate::machine::cta::lanes;
use crate::machine::later::{Later, Piece, Step};
use crate::machine::warp::Copy;
use crate::memory::shadow::Actor;
use crate::program::*;
use crate::tensor_map::Convert;
use crate::timing::trace::Touch;

/// The bits of an address that say where in a CTA's shared memory.
const INSIDE: u64 = (1 << 24) - 1;

/// What comes to shared memory: bytes that count, and what becomes of its elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source {
    pub bytes: u32,
    pub convert: Convert,
}

/// An element on its way; the rounding is to nearest, ties to even.
fn converted(v: u32, c: Convert) -> u32 {
    let Convert::Float(round, flush) = c else {
        return v;
    };
    let v = match flush && v & 0x7f80_0000 == 0 {
        true => v & 0x8000_0000,
        false => v,
    };
    match round {
        true => tf32(f64::from(f32::from_bits(v)), Rnd::Near),
        false => v,
    }
}

impl Ctx<'_> {
    /// What was begun earlier ends now.
    pub(crate) fn land(&mut self, l: Later) {
        self.world.later -= 1;
        let (pc, line) = (self.pc, self.line);
        self.pc = l.pc;
        self.line = self.world.line_of(self.k, l.pc);
        if l.late && !matches!(l.step, Step::Arrive { .. }) {
            self.report(Kind::Undefined, l.lane, None, || {
                "the CTA ended while a bulk copy still used its shared memory".into()
            });
        }
        match &l.step {
            Step::Load {
                pieces,
                bytes,
                convert,
                barrier,
                phase,
            } => self.land_load(&l, pieces, *convert, (*bytes, *barrier, *phase)),
            Step::Put {
                to,
                data,
                barrier,
                phase,
            } => self.land_put(&l, *to, data, (*barrier, *phase)),
            Step::Store { pieces, .. } => self.land_store(pieces),
            Step::Arrive { upto, barrier } => self.land_arrival(&l, *upto, *barrier),
        }
        (self.pc, self.line) = (pc, line);
    }

    fn land_load(
        &mut self,
        l: &Later,
        pieces: &[Piece],
        convert: Convert,
        (bytes, barrier, phase): (u32, u32, u32),
    ) {
        for p in pieces {
            self.bring(p, convert);
            self.flies(words(p), false);
        }
        if let Some(agent) = self.counts(l, (bytes, barrier, phase)) {
            self.write_all(&agent, pieces);
        }
    }

    /// Bytes have come and count at their barrier; who wrote them, when that is in a later phase than when
    /// the copy began.
    fn counts(&mut self, l: &Later, (bytes, barrier, phase): (u32, u32, u32)) -> Option<Agent> {
        self.cta.any_flying = self.cta.any_flying.saturating_sub(1);
        let Some(b) = self.cta.mbarriers.get_mut(&barrier) else {
            self.report(Kind::Undefined, l.lane, None, || {
                format!("a copy ends, and its barrier at shared {barrier:#x} is no more")
            });
            return None;
        };
        let (now, agent) = (b.phase, b.agents[0]);
        if b.brought(bytes) {
            self.phase_done(u64::from(barrier));
        }
        (now != phase && self.world.checks.races).then(|| Agent {
            id: agent,
            clock: now,
            knows: vec![l.knows.clone()],
        })
    }

    fn land_put(&mut self, l: &Later, to: u32, data: &[(u32, bool)], (barrier, phase): (u32, u32)) {
        let first = (to / 4) as usize;
        for (k, (v, set)) in data.iter().enumerate() {
            self.cta.shared[first + k] = *v;
            self.cta.shared_written[first + k] = if *set { 15 } else { 0 };
        }
        self.flies(first..first + data.len(), false);
        let bytes = 4 * data.len() as u32;
        if let Some(agent) = self.counts(l, (bytes, barrier, phase)) {
            for w in first..first + data.len() {
                self.async_touch(&agent, w, 15, true);
            }
        }
    }

    fn write_all(&mut self, agent: &Agent, pieces: &[Piece]) {
        for p in pieces {
            for w in words(p) {
                self.async_touch(agent, w, mask(p, w), true);
            }
        }
    }

    /// Bytes from global to shared memory.
    fn bring(&mut self, p: &Piece, convert: Convert) {
        let mem = self.mem;
        for (k, at) in chunks(p) {
            let (v, set) = match p.global {
                None => (0, true),
                Some((id, offset)) => {
                    let m = &mem.allocations[id];
                    let o = offset + u64::from(k);
                    let v = m.load(o, at.1)[0];
                    (converted(v, convert), m.was_written(o, at.1))
                }
            };
            let (w, shift) = ((at.0 / 4) as usize, at.0 % 4 * 8);
            let bits = if at.1 == 4 { 15 } else { 1 << (at.0 % 4) };
            let keep = if at.1 == 4 { 0 } else { !(0xff << shift) };
            let slot = &mut self.cta.shared[w];
            *slot = (*slot & keep) | v << shift;
            if set {
                self.cta.shared_written[w] |= bits;
            } else {
                self.cta.shared_written[w] &= !bits;
            }
        }
    }

    fn land_store(&mut self, pieces: &[Piece]) {
        for p in pieces {
            let Some((id, offset)) = p.global else {
                continue;
            };
            let mem = self.mem;
            for (k, at) in chunks(p) {
                let v = self.cta.shared[(at.0 / 4) as usize] >> (at.0 % 4 * 8);
                let o = offset + u64::from(k);
                let v = if at.1 == 4 { v } else { v & 0xff };
                mem.allocations[id].store(o, at.1, [v, 0, 0, 0]);
            }
            self.wrote(Some((id, offset)), offset, p.bytes);
        }
    }

    fn land_arrival(&mut self, l: &Later, upto: u32, barrier: u32) {
        let copies = std::mem::take(&mut self.w.copies);
        let own = |c: &Copy| c.lane == l.lane && c.number <= upto;
        let (come, stay): (Vec<Copy>, Vec<Copy>) = copies.into_iter().partition(own);
        self.w.copies = stay;
        let Some(b) = self.cta.mbarriers.get(&barrier) else {
            return;
        };
        let agent = Agent {
            id: b.agents[1],
            clock: b.phase,
            knows: vec![l.knows.clone()],
        };
        for c in come {
            self.cta.land(&c);
            if self.world.checks.races {
                for w in c.to / 4..(c.to + c.bytes) / 4 {
                    self.async_touch(&agent, w as usize, 15, true);
                }
            }
            self.wrote(None, u64::from(c.to), c.bytes);
        }
        let knows = l.knows.vc.clone();
        let done = self.cta.mbarriers.get_mut(&barrier);
        match done.and_then(|b| b.arrive(1, Some(&knows))) {
            Some(true) => self.phase_done(u64::from(barrier)),
            Some(false) => {}
            None => self.report(Kind::Undefined, l.lane, None, || {
                format!("copies arrive at the barrier at shared {barrier:#x}, which expects none")
            }),
        }
    }

    /// `cp.async.bulk` from global memory.
    pub(crate) fn bulk_load(
        &mut self,
        (to, from, size): (&Addr, &Addr, R),
        barrier: &Addr,
        ranks: R,
        act: u32,
    ) {
        let (to, from) = (self.shared_addresses(to), self.addresses(from));
        let (sizes, bars) = (*self.w.a32(self.k, size), self.shared_addresses(barrier));
        for l in lanes(act) {
            let (d, s, n) = (to[l as usize], from[l as usize], sizes[l as usize]);
            let bar = bars[l as usize];
            for to in self.targets(l, ranks, d) {
                self.placed(to, |c, d| {
                    if let Some(p) = c.bulk_piece(l, d, s, n, "an asynchronous read") {
                        let source = Source {
                            bytes: n,
                            convert: Convert::Nothing,
                        };
                        c.begin_load(l, vec![p], source, bar & INSIDE);
                    }
                });
            }
        }
        self.cta.clock += 1;
        self.effect();
    }

    /// The same place in every CTA of the cluster that a mask names, or the one place.
    pub(crate) fn targets(&mut self, lane: u32, ranks: R, to: u64) -> Vec<u64> {
        if ranks == SINK {
            return vec![to];
        }
        let mask = self.w.a32(self.k, ranks)[lane as usize] & 0xffff;
        let size = self.world.clusters.size();
        if mask == 0 || mask >> size != 0 {
            self.report(Kind::Undefined, lane, None, || {
                format!("a copy to the CTAs {mask:#x} of a cluster of {size}")
            });
        }
        let all = lanes(mask & ((1 << size) - 1));
        all.map(|r| (to & INSIDE) | u64::from(r + 1) << 24)
            .collect()
    }

    /// Who writes for copies that a barrier counts, as of its phase now.
    pub(crate) fn counted_by(&mut self, lane: u32, barrier: u64) -> Option<Agent> {
        let b = self.mbarrier(lane, barrier)?;
        let (id, clock) = (b.agents[0], b.phase);
        self.counts_at(Touch::Comes {
            barrier: barrier as u32,
            phase: clock,
        });
        Some(Agent {
            id,
            clock,
            knows: vec![self.lane_knows(lane)],
        })
    }

    /// Words that a copy begins or ends to write.
    pub(crate) fn flies(&mut self, words: std::ops::Range<usize>, begins: bool) {
        for f in &mut self.cta.flying[words] {
            *f = match begins {
                true => f.saturating_add(1),
                false => f.saturating_sub(1),
            };
        }
    }

    /// A copy to shared memory begins: what it will write is in flight from here on.
    pub(crate) fn begin_load(
        &mut self,
        lane: u32,
        pieces: Vec<Piece>,
        source: Source,
        barrier: u64,
    ) {
        let Some(agent) = self.counted_by(lane, barrier) else {
            return;
        };
        self.global_pieces(lane, &agent, &pieces, false);
        if self.world.checks.races {
            self.write_all(&agent, &pieces);
        }
        for p in &pieces {
            self.flies(words(p), true);
        }
        self.cta.any_flying += 1;
        let step = Step::Load {
            pieces,
            bytes: source.bytes,
            convert: source.convert,
            barrier: barrier as u32,
            phase: agent.clock,
        };
        self.later(lane, step);
    }

    /// `cp.async.bulk` to global memory.
    pub(crate) fn bulk_store(&mut self, to: &Addr, from: &Addr, size: R, act: u32) {
        let (to, from) = (self.addresses(to), self.shared_addresses(from));
        let sizes = *self.w.a32(self.k, size);
        for l in lanes(act) {
            let (d, s, n) = (to[l as usize], from[l as usize], sizes[l as usize]);
            if let Some(p) = self.bulk_piece(l, s, d, n, "an asynchronous write") {
                self.begin_store(l, vec![p]);
            }
        }
        self.cta.clock += 1;
        self.effect();
    }

    pub(crate) fn begin_store(&mut self, lane: u32, pieces: Vec<Piece>) {
        let knows = vec![self.lane_knows(lane)];
        let li = lane as usize;
        if self.w.bulk[li].agents[0] == 0 {
            self.w.bulk[li].agents = [self.world.agent(false), self.world.agent(false)];
        }
        let (agents, group) = (self.w.bulk[li].agents, self.w.bulk[li].committed);
        (self.w.bulk[li].begun, self.w.bulk[li].pc) = (group + 1, self.pc);
        let reader = Agent {
            id: agents[0],
            clock: group,
            knows,
        };
        for p in &pieces {
            for at in (p.shared & !15..p.shared + p.bytes).step_by(16) {
                self.async_read(&reader, u64::from(at));
            }
        }
        let writer = Agent {
            id: agents[1],
            ..reader
        };
        self.global_pieces(lane, &writer, &pieces, true);
        self.later(lane, Step::Store { pieces, group });
    }

    /// Waits for all but the newest groups of each lane; `read` alone for what they read.
    pub(crate) fn bulk_wait(&mut self, keep: u32, read: bool, act: u32) {
        let first = lanes(act).map(|l| {
            let b = &self.w.bulk[l as usize];
            (l, b.committed.saturating_sub(keep), b.agents)
        });
        let all: Vec<(u32, u32, [u32; 2])> = first.collect();
        for (l, upto, agents) in all {
            let warp = self.w.index;
            let covered = |x: &Later| {
                let own = x.warp == warp && x.lane == l;
                own && matches!(x.step, Step::Store { group, .. } if group < upto)
            };
            let later = std::mem::take(&mut self.cta.later);
            let (now, rest): (Vec<Later>, Vec<Later>) = later.into_iter().partition(covered);
            self.cta.later = rest;
            for x in now {
                self.land(x);
            }
            let own = &mut self.w.bulk[l as usize];
            own.waited = own.waited.max(upto);
            if agents[0] != 0 {
                self.learn(1 << l, |vc, _| {
                    vc.set_thread(agents[0], upto);
                    if !read {
                        vc.set_thread(agents[1], upto);
                    }
                });
            }
        }
        self.effect();
    }

    /// Lanes end: what they copy from must have been read.
    pub(crate) fn bulk_ends(&mut self, act: u32) {
        for l in lanes(act) {
            let b = self.w.bulk[l as usize];
            if b.begun <= b.waited {
                continue;
            }
            let line = std::mem::replace(&mut self.line, self.world.line_of(self.k, b.pc));
            self.report(Kind::Undefined, l, None, || {
                "the thread ends without cp.async.bulk.wait_group for its copies from shared memory"
                    .into()
            });
            self.line = line;
        }
    }

    /// A whole copy: multiples of 16 bytes that lie in both memories.
    fn bulk_piece(
        &mut self,
        lane: u32,
        shared: u64,
        global: u64,
        bytes: u32,
        what: &str,
    ) -> Option<Piece> {
        for (v, name) in [
            (shared, "its shared address"),
            (global, "its global address"),
            (u64::from(bytes), "its size"),
        ] {
            if !v.is_multiple_of(16) {
                self.report(Kind::Misaligned, lane, None, || {
                    format!("a bulk copy: {name} is {v:#x}, which is no multiple of 16")
                });
                return None;
            }
        }
        if bytes == 0 || !self.shared_range(lane, shared, bytes, what) {
            return None;
        }
        let place = self.global_range(lane, global, bytes, what)?;
        Some(Piece {
            global: Some(place),
            shared: shared as u32,
            bytes,
        })
    }

    /// Notes what a copy reads or writes in global memory.
    fn global_pieces(&mut self, lane: u32, agent: &Agent, pieces: &[Piece], write: bool) {
        let mem = self.mem;
        for (id, offset, bytes) in runs(pieces) {
            let m = &mem.allocations[id];
            if write && m.kind == crate::memory::Kind::Const {
                self.report(Kind::ReadOnly, lane, None, || {
                    "a bulk copy to constant memory".into()
                });
                continue;
            }
            let written = || match offset.is_multiple_of(4) && bytes.is_multiple_of(4) {
                true => m.was_written(offset, bytes),
                false => (0..u64::from(bytes)).all(|k| m.was_written(offset + k, 1)),
            };
            let at = m.base + offset;
            if !write && self.world.checks.uninitialised && !written() {
                self.report(Kind::UninitialisedMemory, lane, None, || {
                    format!("some of {bytes} bytes at {at:#x} were never written")
                });
            }
            self.count_bulk(at, bytes);
            if self.world.checks.races {
                self.global_touches(lane, agent, (id, offset, bytes), write);
            }
        }
    }

    fn global_touches(
        &mut self,
        lane: u32,
        agent: &Agent,
        (id, offset, bytes): (usize, u64, u32),
        write: bool,
    ) {
        let knows: &LaneSync = &agent.knows[0];
        let whole = Piece {
            global: None,
            shared: (offset % 4) as u32,
            bytes,
        };
        for w in words(&whole) {
            let word = offset / 4 + w as u64;
            let actor = Actor {
                thread: agent.id,
                clock: agent.clock,
                cta: (
                    self.cta.first_thread,
                    self.cta.first_thread + self.cta.threads,
                ),
                sync: knows,
                threads_per_cta: self.cta.threads,
                pc: self.pc,
                strength: 0,
            };
            let shadow = self.world.shadow(id);
            let found = shadow.touch(word as usize, mask(&whole, w), &actor, write);
            if let Some(c) = found {
                self.race(lane, Some((id, offset)), word, c, write);
            }
        }
    }
}

/// Bytes in a row of global memory: allocation, offset and how many.
fn runs(pieces: &[Piece]) -> Vec<(usize, u64, u32)> {
    let mut out: Vec<(usize, u64, u32)> = Vec::new();
    for p in pieces {
        let Some((id, offset)) = p.global else {
            continue;
        };
        match out.last_mut() {
            Some(r) if r.0 == id && r.1 + u64::from(r.2) == offset => r.2 += p.bytes,
            _ => out.push((id, offset, p.bytes)),
        }
    }
    out
}

/// Words of shared memory that a piece touches.
fn words(p: &Piece) -> std::ops::Range<usize> {
    (p.shared / 4) as usize..(p.shared + p.bytes).div_ceil(4) as usize
}

/// The bytes of word `w` in a piece.
fn mask(p: &Piece, w: usize) -> u8 {
    let at = 4 * w as u32;
    let inside = |b: &u32| (p.shared..p.shared + p.bytes).contains(&(at + b));
    (0..4).filter(inside).fold(0, |m, b| m | 1 << b)
}

/// A piece in words, or in bytes where it does not begin and end with words: how far each is in, where
/// in shared memory, and its bytes.
fn chunks(p: &Piece) -> impl Iterator<Item = (u32, (u32, u32))> + use<> {
    let offset = p.global.map_or(0, |g| g.1);
    let even = p.shared.is_multiple_of(4) && p.bytes.is_multiple_of(4) && offset.is_multiple_of(4);
    let (step, from) = (if even { 4 } else { 1 }, p.shared);
    (0..p.bytes)
        .step_by(step as usize)
        .map(move |k| (k, (from + k, step)))
}
