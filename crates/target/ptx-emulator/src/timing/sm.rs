//! An SM: its schedulers, the CTAs on it and their barriers.

use super::cost::{Ask, PIPES, Pipe, rows};
use super::memory::{Far, How, SmMemory};
use super::phases::Phases;
use super::trace::{Touch, Trace};
use super::warps::{Code, WarpRun, WarpState};
use super::{ByReason, Interval, Reason, Timing, WarpStalls};
use crate::program::{Kernel, MmaTy, Op};
use crate::sm90::Sm90;
use std::collections::HashMap;

/// Cycles of an operation on a barrier object.
const MBARRIER: f64 = 20.0;
/// The matrix pipe among a scheduler's own.
const MATRIX: usize = 5;

/// Most warps and stretches that are told one by one.
pub(crate) const TOLD: usize = 4096;

/// What is the same for all SMs, and what they add up in.
pub(crate) struct Ledger<'a> {
    pub k: &'a Kernel,
    pub t: &'a Timing,
    pub code: Code<'a>,
    pub far: Far,
    /// Cycles by instruction and reason.
    pub by_pc: Vec<ByReason>,
    /// Cycles by instruction and the one whose value it waits for.
    pub links: HashMap<(u32, u32), u64>,
    pub total: ByReason,
    pub warps: u64,
    pub slots: u64,
    pub each: Vec<WarpStalls>,
    pub intervals: Vec<Interval>,
}

impl Ledger<'_> {
    fn add(&mut self, w: &mut WarpRun, first: bool, pc: u32, (to, why): (u64, Reason)) {
        let from = w.since;
        if to <= from {
            return;
        }
        w.since = to;
        w.cycles[why as usize] += to - from;
        self.by_pc[pc as usize][why as usize] += to - from;
        if first && w.scheduler == 0 && self.intervals.len() < TOLD {
            self.intervals.push(Interval {
                cta: w.cta,
                warp: w.index,
                from,
                to,
                reason: why,
                line: self.k.code[pc as usize].line,
            });
        }
    }
}

#[derive(Debug, Default)]
struct Barrier {
    /// Warps that came.
    warps: u64,
    /// Threads that came, and for how many it is.
    came: u32,
    expected: u32,
}

#[derive(Debug)]
struct CtaRun {
    warps: Vec<usize>,
    barriers: [Barrier; 16],
    phases: Phases,
    left: u32,
    /// Records and touches of its warps.
    held: usize,
}

#[derive(Debug, Default)]
struct Scheduler {
    warps: Vec<usize>,
    last: usize,
    /// No warp of it can go on before.
    wake: u64,
    free: [f64; PIPES],
}

#[derive(Debug)]
pub(crate) struct Sm {
    number: u32,
    schedulers: Vec<Scheduler>,
    warps: Vec<Option<WarpRun>>,
    ctas: Vec<Option<CtaRun>>,
    memory: SmMemory,
    /// Places whose CTA ended: when, and what was kept of it.
    pub freed: Vec<(u64, usize)>,
}

impl Sm {
    pub fn new(number: u32, t: &Timing) -> Sm {
        Sm {
            number,
            schedulers: (0..t.schedulers).map(|_| Scheduler::default()).collect(),
            warps: Vec::new(),
            ctas: Vec::new(),
            memory: SmMemory::new(t),
            freed: Vec::new(),
        }
    }

    /// Bytes that went through shared memory and L1.
    pub fn bytes(&self) -> [f64; 2] {
        [self.memory.shared_bytes, self.memory.l1_bytes]
    }

    /// The next cycle in which something may happen.
    pub fn next(&self) -> u64 {
        let all = self.schedulers.iter().filter(|s| !s.warps.is_empty());
        all.map(|s| s.wake).min().unwrap_or(u64::MAX)
    }

    /// A CTA gets a place; its warps may go on from `start`.
    pub fn begin(&mut self, l: &mut Ledger, cta: u32, traces: Vec<Trace>, start: u64) {
        let slot = match self.ctas.iter().position(Option::is_none) {
            Some(s) => s,
            None => {
                self.ctas.push(None);
                self.ctas.len() - 1
            }
        };
        let mut own = Vec::new();
        let held = traces.iter().map(Trace::held).sum();
        let phases = Phases::of(&traces);
        for (index, trace) in traces.into_iter().enumerate() {
            let mut w = WarpRun::new(cta, index as u32, trace, rows(l.k), start);
            w.slot = slot;
            w.enter(&l.code, 0);
            w.prepare(&l.code, start);
            let least = (0..self.schedulers.len()).min_by_key(|s| self.schedulers[*s].warps.len());
            let s = least.unwrap_or(0);
            w.scheduler = s as u32;
            let place = match self.warps.iter().position(Option::is_none) {
                Some(p) => p,
                None => {
                    self.warps.push(None);
                    self.warps.len() - 1
                }
            };
            let sched = &mut self.schedulers[s];
            if sched.warps.is_empty() {
                sched.wake = start;
            }
            sched.wake = sched.wake.min(w.ready);
            sched.warps.push(place);
            self.warps[place] = Some(w);
            own.push(place);
            l.warps += 1;
        }
        self.ctas[slot] = Some(CtaRun {
            left: own.len() as u32,
            warps: own.clone(),
            barriers: Default::default(),
            phases,
            held,
        });
        // Warps without an instruction have ended.
        for place in own {
            self.end(l, place, start);
        }
    }

    /// One cycle: every scheduler issues what it can.
    pub fn cycle(&mut self, l: &mut Ledger, now: u64) -> Result<(), u32> {
        for s in 0..self.schedulers.len() {
            if self.schedulers[s].wake <= now && !self.schedulers[s].warps.is_empty() {
                self.turn(l, s, now)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, l: &mut Ledger, s: usize, now: u64) -> Result<(), u32> {
        let mut wake = u64::MAX;
        let (last, n) = (self.schedulers[s].last, self.schedulers[s].warps.len());
        let greedy = self.schedulers[s].warps.iter().position(|p| *p == last);
        let order = greedy
            .into_iter()
            .chain((0..n).filter(|k| Some(*k) != greedy));
        let mut chosen = None;
        for k in order {
            let place = self.schedulers[s].warps[k];
            let Some(w) = &mut self.warps[place] else {
                continue;
            };
            if w.stand != WarpState::Before {
                continue;
            }
            if w.ready > now {
                wake = wake.min(w.ready);
                continue;
            }
            let Some(r) = w.trace.get(w.at) else { continue };
            let pipe = l.code.asks[r.pc as usize].pipe;
            let (from, why) = match pipe.own() {
                Some(p) => (self.schedulers[s].free[p], Reason::Pipe),
                None if pipe == Pipe::Memory => {
                    self.memory.takes(&l.far, l.t, w.trace.touches(w.at))
                }
                None => (0.0, Reason::Pipe),
            };
            if from > now as f64 {
                let from = from.ceil() as u64;
                w.refused = (from, why);
                wake = wake.min(from);
                continue;
            }
            chosen = Some(place);
            break;
        }
        let Some(place) = chosen else {
            self.schedulers[s].wake = wake;
            return Ok(());
        };
        self.schedulers[s].last = place;
        let slots = self.issue(l, s, place, now)?;
        let sched = &mut self.schedulers[s];
        sched.wake = now + slots;
        Ok(())
    }

    /// Issues a warp's next instruction; gives the slots that it takes.
    fn issue(&mut self, l: &mut Ledger, s: usize, place: usize, now: u64) -> Result<u64, u32> {
        let first = self.number == 0;
        let Some(mut w) = self.warps[place].take() else {
            return Ok(1);
        };
        let Some(r) = w.trace.get(w.at) else {
            return Ok(1);
        };
        let pc = r.pc;
        let slots = u64::from(l.code.asks[pc as usize].slots.max(1));
        // What came before this cycle.
        let waited = w.ready.min(now);
        if waited > w.since {
            *l.links.entry((pc, w.from_pc)).or_insert(0) += waited - w.since;
        }
        let (why, refused) = (w.why, w.refused);
        l.add(&mut w, first, pc, (waited, why));
        l.add(&mut w, first, pc, (refused.0.min(now), refused.1));
        l.add(&mut w, first, pc, (now, Reason::Slot));
        l.add(&mut w, first, pc, (now + slots, Reason::Issued));
        l.slots += slots;
        let ask = &l.code.asks[pc as usize];
        let t = l.t;
        let k = l.k;
        let op = &k.code[pc as usize].op;
        let began = now as f64;
        if let Some(p) = ask.pipe.own() {
            let free = &mut self.schedulers[s].free[p];
            let per = per_instruction(t, ask).ok_or(l.k.code[pc as usize].line)?;
            *free = free.max(began) + per * slots as f64;
            let at = began + per * (slots - 1) as f64;
            let at = match ask.pipe {
                Pipe::Special => at + per + t.special_latency,
                Pipe::Matrix => at + per + t.matrix_latency,
                _ => at + t.dependent,
            };
            w.wrote(ask, pc, at, Reason::Dependency);
        } else if ask.pipe == Pipe::Memory && r.lanes != 0 {
            let how = match op {
                Op::St(_) => How::Store,
                Op::Matrix(m) if m.0 => How::Store,
                Op::Atom(_) => How::Atomic,
                Op::CpAsync(_) => How::Copy,
                _ => How::Load,
            };
            let (at, level) = self
                .memory
                .access(&mut l.far, t, w.trace.touches(w.at), how, began);
            match how {
                How::Copy => w.copies.add(pc, at, level),
                How::Store => w.stored = w.stored.max(began + t.l2.latency),
                How::Load | How::Atomic => w.wrote(ask, pc, at.max(began + t.dependent), level),
            }
        } else {
            match op {
                Op::CpCommit => w.copies.commit(),
                Op::Sm90(x) => self.beside(l, s, &mut w, (pc, x), began)?,
                _ => {}
            }
            let later = match op {
                Op::Sm90(x) if matches!(**x, Sm90::MbarrierWait(..)) => MBARRIER,
                _ => t.dependent,
            };
            let ask = &l.code.asks[pc as usize];
            w.wrote(ask, pc, began + later, Reason::Dependency);
        }
        let came = w.barrier();
        let slot = w.slot;
        match came {
            Some((id, threads, expected, waits)) => {
                // It stands before the barrier until that is complete.
                if waits {
                    w.stand = WarpState::Barrier(id);
                } else {
                    w.advance(&l.code);
                    w.prepare(&l.code, now + slots);
                }
                let index = w.index;
                self.warps[place] = Some(w);
                if let Some(b) = self.ctas[slot]
                    .as_mut()
                    .and_then(|c| c.barriers.get_mut(id as usize))
                {
                    b.warps |= 1 << index;
                    b.came += threads;
                    b.expected = b.expected.max(expected);
                }
                self.complete(l, slot, now, false);
            }
            None => {
                self.goes_on(l, w, place, now + slots);
            }
        }
        self.end(l, place, now + slots);
        Ok(slots)
    }

    /// Work that an instruction begins beside its warp.
    fn beside(
        &mut self,
        l: &mut Ledger,
        s: usize,
        w: &mut WarpRun,
        (pc, op): (u32, &Sm90),
        began: f64,
    ) -> Result<(), u32> {
        let touches = w.trace.touches(w.at);
        match op {
            Sm90::Wgmma(_) => {
                let ask = &l.code.asks[pc as usize];
                let free = &mut self.schedulers[s].free[MATRIX];
                let per = per_instruction(l.t, ask).ok_or(l.k.code[pc as usize].line)?;
                *free = free.max(began) + per;
                let at = *free + l.t.matrix_latency;
                w.products.add(pc, at, Reason::Dependency);
            }
            Sm90::WgmmaCommit => w.products.commit(),
            Sm90::BulkStore(..) | Sm90::TensorStore(_) => {
                let (at, why) = self
                    .memory
                    .bulk(&mut l.far, l.t, touches, How::Store, began);
                w.bulk.add(pc, at, why);
            }
            Sm90::BulkCommit => w.bulk.commit(),
            Sm90::BulkLoad(..) | Sm90::TensorLoad(_) | Sm90::BulkPut(..) => {
                let ready = self.memory.bulk(&mut l.far, l.t, touches, How::Copy, began);
                self.comes(l, w, (ready.0.max(began + MBARRIER), ready.1));
            }
            Sm90::CpArrive(..) => {
                let at = w.copies.last().max(began + MBARRIER);
                self.comes(l, w, (at, Reason::Barrier));
            }
            Sm90::MbarrierArrive(_) => self.comes(l, w, (began + MBARRIER, Reason::Barrier)),
            _ => {}
        }
        Ok(())
    }

    /// What the warp's record brings to phases of its CTA is there at a time.
    fn comes(&mut self, l: &mut Ledger, w: &WarpRun, when: (f64, Reason)) {
        for t in w.trace.touches(w.at) {
            let Touch::Comes { barrier, phase } = *t else {
                continue;
            };
            let key = (barrier, phase);
            let cta = self.ctas[w.slot].as_mut();
            if cta.is_some_and(|c| c.phases.comes(key, when.0, when.1)) {
                let all = self.ctas[w.slot].as_ref().and_then(|c| c.phases.done(key));
                self.phase(l, w.slot, Some(key), all.unwrap_or(when));
            }
        }
    }

    /// Warps go on that wait for a phase, or for any.
    fn phase(&mut self, l: &mut Ledger, slot: usize, key: Option<(u32, u32)>, when: (f64, Reason)) {
        let first = self.number == 0;
        let Some(cta) = &self.ctas[slot] else { return };
        for p in &cta.warps {
            let Some(w) = &mut self.warps[*p] else {
                continue;
            };
            let waits = match (w.stand, key) {
                (WarpState::Phase(a, b), Some(k)) => (a, b) == k,
                (WarpState::Phase(..), None) => true,
                _ => false,
            };
            if !waits {
                continue;
            }
            let pc = w.trace.get(w.at).map_or(0, |r| r.pc);
            let go = (when.0 + MBARRIER).ceil() as u64;
            l.add(w, first, pc, (go, when.1));
            w.stand = WarpState::Before;
            w.advance(&l.code);
            w.prepare(&l.code, go.max(w.since));
            let s = &mut self.schedulers[w.scheduler as usize];
            s.wake = s.wake.min(w.ready);
        }
        for p in self.ctas[slot]
            .as_ref()
            .map_or(Vec::new(), |c| c.warps.clone())
        {
            let since = self.warps[p].as_ref().map_or(0, |w| w.since);
            self.end(l, p, since);
        }
    }

    /// A warp goes to its next instruction, from cycle `from` on, or waits for a phase first.
    fn goes_on(&mut self, l: &mut Ledger, mut w: WarpRun, place: usize, from: u64) {
        let waited = w.trace.touches(w.at).iter().find_map(|t| match *t {
            Touch::Waited { barrier, phase } => Some((barrier, phase)),
            _ => None,
        });
        let Some(key) = waited else {
            w.advance(&l.code);
            w.prepare(&l.code, from);
            self.warps[place] = Some(w);
            return;
        };
        let done = self.ctas[w.slot].as_ref().and_then(|c| c.phases.done(key));
        match done {
            Some((at, why)) => {
                let pc = w.trace.get(w.at).map_or(0, |r| r.pc);
                let go = from.max((at + MBARRIER).ceil() as u64);
                l.add(&mut w, self.number == 0, pc, (go, why));
                w.advance(&l.code);
                w.prepare(&l.code, go);
            }
            None => w.stand = WarpState::Phase(key.0, key.1),
        }
        self.warps[place] = Some(w);
    }

    /// Barriers of a CTA that are complete let their warps go on; with `force`, all.
    fn complete(&mut self, l: &mut Ledger, slot: usize, now: u64, force: bool) {
        let Some(cta) = &mut self.ctas[slot] else {
            return;
        };
        let mut alive = 0u64;
        for p in &cta.warps {
            if let Some(w) = &self.warps[*p]
                && w.stand != WarpState::Done
            {
                alive |= 1 << w.index;
            }
        }
        let first = self.number == 0;
        for id in 0..cta.barriers.len() {
            let b = &mut cta.barriers[id];
            let full = match b.expected {
                0 => b.warps != 0 && alive & !b.warps == 0,
                n => b.came >= n,
            };
            if !(full || force && b.warps != 0) {
                continue;
            }
            *b = Barrier::default();
            let go = now + l.t.barrier.ceil() as u64;
            for p in &cta.warps {
                let Some(w) = &mut self.warps[*p] else {
                    continue;
                };
                if w.stand != WarpState::Barrier(id as u32) {
                    continue;
                }
                let pc = w.trace.get(w.at).map_or(0, |r| r.pc);
                l.add(w, first, pc, (go, Reason::Barrier));
                w.stand = WarpState::Before;
                w.advance(&l.code);
                w.prepare(&l.code, go.max(w.since));
                let s = &mut self.schedulers[w.scheduler as usize];
                s.wake = s.wake.min(w.ready);
            }
        }
        // What is left to do may be nothing.
        for p in cta.warps.clone() {
            self.end(l, p, now + 1);
        }
    }

    /// Nothing can go on: barriers that wait for what does not come are let through. Whether any was.
    pub fn force(&mut self, l: &mut Ledger, now: u64) -> bool {
        let waits = |w: &WarpRun| matches!(w.stand, WarpState::Barrier(_) | WarpState::Phase(..));
        let any = self.warps.iter().flatten().any(waits);
        if any {
            for slot in 0..self.ctas.len() {
                self.complete(l, slot, now, true);
                self.phase(l, slot, None, (now as f64, Reason::Barrier));
            }
        }
        any
    }

    /// Takes away a warp that is through with its trace, and its CTA with its last.
    fn end(&mut self, l: &mut Ledger, place: usize, now: u64) {
        let done = |w: &WarpRun| w.stand == WarpState::Done;
        if !self.warps[place].as_ref().is_some_and(done) {
            return;
        }
        let Some(w) = self.warps[place].take() else {
            return;
        };
        for r in Reason::ALL {
            l.total[r as usize] += w.cycles[r as usize];
        }
        if l.each.len() < TOLD {
            l.each.push(WarpStalls {
                cta: w.cta,
                warp: w.index,
                sm: self.number,
                scheduler: w.scheduler,
                from: w.start,
                to: w.since,
                cycles: super::result::some(&w.cycles, |_| true),
            });
        }
        self.schedulers[w.scheduler as usize]
            .warps
            .retain(|p| *p != place);
        let Some(cta) = &mut self.ctas[w.slot] else {
            return;
        };
        cta.left -= 1;
        if cta.left == 0 {
            self.freed.push((now, cta.held));
            self.ctas[w.slot] = None;
        } else {
            self.complete(l, w.slot, now, false);
        }
    }
}

/// Cycles in which a scheduler's pipe takes nothing else; none where there is no such unit.
fn per_instruction(t: &Timing, a: &Ask) -> Option<f64> {
    let schedulers = f64::from(t.schedulers);
    let per_sm = match a.pipe {
        Pipe::Half => t.half / 32.0,
        Pipe::Double => t.double / 32.0,
        Pipe::Alu => t.alu / 32.0,
        Pipe::Special => t.special / 32.0,
        // Products of warpgroups go there beside their warps.
        _ if a.matrix.is_some() => {
            let (flop, ty) = a.matrix?;
            let rate = match ty {
                MmaTy::F16 => t.matrix.half,
                MmaTy::BF16 => t.matrix.bf16,
                MmaTy::TF32 => t.matrix.tf32,
                MmaTy::S8 | MmaTy::U8 => t.matrix.int8,
            };
            rate / flop
        }
        _ => t.fma / 32.0,
    };
    (per_sm > 0.0).then(|| schedulers / per_sm)
}
