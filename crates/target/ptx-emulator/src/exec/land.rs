//! What was begun earlier ends: bytes of bulk copies come or go, and count.

use super::Ctx;
use super::cvt::tf32;
use super::proxy::Agent;
use crate::checks::Kind;
use crate::machine::later::{Later, Piece, Step};
use crate::machine::warp::Copy;
use crate::program::*;
use crate::tensor_map::Convert;

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
            self.flies(p.words(), false);
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
                mem.allocations[id].store(o, at.1, [v, 0, 0, 0], self.world.mark);
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
