//! Bulk copies: bytes that arrive at a later step, in an order of the seed's.

use super::Ctx;
use super::proxy::Agent;
use crate::checks::Kind;
use crate::clocks::LaneSync;
use crate::machine::cta::lanes;
use crate::machine::later::{Later, Piece, Step};
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
    /// What goes to several CTAs is read from global memory once, for the first.
    pub again: bool,
}

impl Ctx<'_> {
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
            for (nth, to) in self.targets(l, ranks, d).into_iter().enumerate() {
                self.placed(to, |c, d| {
                    if let Some(p) = c.bulk_piece(l, d, s, n, "an asynchronous read") {
                        let source = Source {
                            bytes: n,
                            convert: Convert::Nothing,
                            again: nth > 0,
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
        let knows = self.lane_knows(lane);
        self.made_visible(lane, barrier, &knows);
        Some(Agent {
            id,
            clock,
            knows: vec![knows],
        })
    }

    /// Notes that an agent writes pieces.
    pub(crate) fn write_all(&mut self, agent: &Agent, pieces: &[Piece]) {
        for p in pieces {
            for w in p.words() {
                self.async_touch(agent, w, p.mask(w), true);
            }
        }
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
        self.global_pieces(lane, &agent, &pieces, (false, !source.again));
        if self.world.checks.races {
            self.write_all(&agent, &pieces);
        }
        for p in &pieces {
            self.flies(p.words(), true);
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
        self.global_pieces(lane, &writer, &pieces, (true, true));
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
                self.learn(1 << l, |vc| {
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

    /// Notes what a copy reads or writes in global memory, which counts unless another has.
    fn global_pieces(
        &mut self,
        lane: u32,
        agent: &Agent,
        pieces: &[Piece],
        (write, counts): (bool, bool),
    ) {
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
            self.dependent(lane, (id, offset), bytes, write);
            let at = m.base + offset;
            if !write && self.world.checks.uninitialised && !written() {
                self.report(Kind::UninitialisedMemory, lane, None, || {
                    format!("some of {bytes} bytes at {at:#x} were never written")
                });
            }
            if counts {
                self.count_bulk(at, bytes);
            }
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
        for w in whole.words() {
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
            let found = shadow.touch(word as usize, whole.mask(w), &actor, write);
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
