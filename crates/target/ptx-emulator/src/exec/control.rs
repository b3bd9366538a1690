//! Branches, calls, ends and CTA barriers.

use super::{Ctx, Flow};
use crate::checks::Kind;
use crate::machine::cta::BarrierResult;
use crate::machine::later::{Later, Step};
use crate::machine::warp::{Divergence, GroupState, NONE};
use crate::program::*;
use crate::timing::trace::Touch;

impl Ctx<'_> {
    pub(crate) fn branch(&mut self, to: u32, meet: u32, act: u32, mask: u32) -> Flow {
        if act == mask {
            self.go(to);
            if to <= self.pc {
                self.went_back();
            }
            return Flow::Moved;
        }
        self.w.split(&[(act, to), (mask & !act, self.pc + 1)], meet);
        // A loop that some lanes left goes on for the others.
        if to <= self.pc
            && let Some(k) = self
                .w
                .fragments
                .iter()
                .position(|f| f.mask == act && f.pc == to)
        {
            self.w.current = k;
            self.effect();
        }
        Flow::Moved
    }

    fn go(&mut self, to: u32) {
        let cur = self.w.current;
        self.w.fragments[cur].pc = to;
        if self.w.fragments[cur].node != NONE {
            self.w.arrive(cur);
        }
    }

    pub(crate) fn branch_index(
        &mut self,
        (targets, index, meet): &(Vec<u32>, R, u32),
        act: u32,
        mask: u32,
    ) -> Flow {
        let v = *self.w.a32(self.k, *index);
        let mut parts: Vec<(u32, u32)> = Vec::new();
        let mut add = |lane: u32, pc: u32| match parts.iter_mut().find(|p| p.1 == pc) {
            Some(p) => p.0 |= 1 << lane,
            None => parts.push((1 << lane, pc)),
        };
        let mut wild = None;
        for l in crate::machine::cta::lanes(act) {
            match targets.get(v[l as usize] as usize) {
                Some(t) => add(l, *t),
                None => {
                    wild = Some(l);
                    add(l, self.pc + 1);
                }
            }
        }
        for l in crate::machine::cta::lanes(mask & !act) {
            add(l, self.pc + 1);
        }
        if let Some(l) = wild {
            self.report(Kind::Undefined, l, None, || {
                format!(
                    "index {} of a list of {} targets",
                    v[l as usize],
                    targets.len()
                )
            });
        }
        if parts.len() == 1 {
            self.go(parts[0].1);
        } else {
            self.w.split(&parts, *meet);
        }
        Flow::Moved
    }

    /// A group went back to the start of a loop: if it only reads, and reads the same again and
    /// again, it waits for somebody to write.
    fn went_back(&mut self) {
        let cur = self.w.current;
        let pc = self.pc;
        let Some(f) = self.w.fragments.get_mut(cur) else {
            return;
        };
        let p = &mut f.poll;
        let quiet = p.writes == self.world.writes;
        p.writes = self.world.writes;
        let again = !p.dirty && p.loads > 0 && p.pc == pc && p.hash == p.last;
        p.last = p.hash;
        p.pc = pc;
        p.hash = 0;
        p.loads = 0;
        p.dirty = false;
        if !again {
            p.same = 0;
            p.words.clear();
            return;
        }
        p.same += 1;
        if p.same == 1 {
            p.words.clear();
            return;
        }
        if p.patience > 0 {
            p.patience -= 1;
            p.words.clear();
            return;
        }
        let words = std::mem::take(&mut p.words);
        let now = self.w.fingerprint();
        let p = &mut self.w.fragments[cur].poll;
        if p.same == 2 || p.registers != now {
            // A loop that counts its rounds is not looked at every time.
            p.patience = if p.same == 2 { 0 } else { 64 };
            let counts = p.same > 2;
            p.registers = now;
            if counts {
                self.w.part();
            }
            return;
        }
        if !quiet {
            // Somebody wrote since this round began, perhaps what it had already read.
            return;
        }
        self.w.fragments[cur].doing = GroupState::Parked;
        self.w.fragments[cur].poll.same = 0;
        self.world.park(self.cta.index, self.w.index, &words);
    }

    /// Whether the current group has to wait for the other lanes of its warp, at an instruction
    /// that needs all of them.
    pub(crate) fn holds(&mut self, act: u32) -> bool {
        let cur = self.w.current;
        let f = &mut self.w.fragments[cur];
        if act == self.w.alive || f.apart != Divergence::No {
            return false;
        }
        f.doing = GroupState::Align;
        true
    }

    pub(crate) fn call(&mut self, to: u32, act: u32, mask: u32) -> Flow {
        if act != mask {
            // Lanes that do not call wait behind the call.
            self.w
                .split(&[(act, self.pc), (mask & !act, self.pc + 1)], self.pc + 1);
            if let Some(k) = self
                .w
                .fragments
                .iter()
                .position(|f| f.mask == act && f.pc == self.pc)
            {
                self.w.current = k;
            }
        }
        let cur = self.w.current;
        let f = &mut self.w.fragments[cur];
        f.calls.push(self.pc + 1);
        f.pc = to;
        Flow::Moved
    }

    pub(crate) fn ret(&mut self) -> Flow {
        let cur = self.w.current;
        let f = &mut self.w.fragments[cur];
        match f.calls.pop() {
            Some(pc) => {
                self.go(pc);
                Flow::Moved
            }
            None => {
                let mask = f.mask;
                self.exit(mask, mask)
            }
        }
    }

    pub(crate) fn exit(&mut self, act: u32, mask: u32) -> Flow {
        self.cta.look = true;
        self.bulk_ends(act);
        self.cluster_exit(act);
        let (cur, rest, next) = (self.w.current, mask & !act, self.pc + 1);
        self.w.fragments[cur].pc = next;
        self.w.exit(act);
        // Whoever waits for these lanes looks again at who is to come.
        for f in &mut self.w.fragments {
            if matches!(f.doing, GroupState::Warp(_) | GroupState::Align) {
                f.doing = GroupState::Ready;
            }
        }
        let stays = |f: &crate::machine::warp::Fragment| f.mask == rest && f.pc == next;
        if rest != 0
            && let Some(k) = self.w.fragments.iter().position(stays)
        {
            self.w.current = k;
            self.w.arrive(k);
        }
        let own = self.w.index;
        let arrives = |l: &Later| l.warp == own && matches!(l.step, Step::Arrive { .. });
        if self.w.alive == 0 && !self.cta.later.iter().any(arrives) {
            for c in std::mem::take(&mut self.w.copies) {
                self.cta.land(&c);
            }
        }
        Flow::Moved
    }

    pub(crate) fn bar(
        &mut self,
        aligned: bool,
        kind: BarKind,
        id: R,
        n: R,
        act: u32,
        mask: u32,
    ) -> Flow {
        let lane = act.trailing_zeros();
        let id = self.w.a32(self.k, id)[lane as usize];
        if id > 15 {
            self.report(Kind::Undefined, lane, None, || {
                format!("barrier {id}; there are 16, from 0")
            });
            return Flow::Next;
        }
        if aligned && act == mask && self.holds(act) {
            return Flow::Blocked;
        }
        let excused =
            std::mem::take(&mut self.w.fragments[self.w.current].apart) == Divergence::Beside;
        if aligned && !excused && act != self.w.alive && self.world.checks.divergence {
            let (here, all) = (act.count_ones(), self.w.alive.count_ones());
            self.report(Kind::DivergentBarrier, lane, None, || {
                format!("barrier {id} is reached by {here} of the warp's {all} lanes")
            });
        }
        let expected = match n {
            SINK => None,
            n => Some(self.w.a32(self.k, n)[lane as usize]),
        };
        if let Some(e) = expected
            && (e == 0 || e % 32 != 0)
        {
            self.report(Kind::Undefined, lane, None, || {
                format!("barrier {id} for {e} threads, which is no multiple of 32")
            });
        }
        // With a number given, warps count whole.
        let came = match expected {
            Some(_) if act == self.w.alive => 32,
            _ => act.count_ones(),
        };
        let (gives, trues) = match kind {
            BarKind::Sync => (Some(BarrierResult::Nothing), 0),
            BarKind::Arrive => (None, 0),
            BarKind::Popc(d, p, neg) => (Some(BarrierResult::Count(d)), self.w.ap(p, neg) & act),
            BarKind::Vote(d, p, neg, true) => {
                (Some(BarrierResult::All(d)), self.w.ap(p, neg) & act)
            }
            BarKind::Vote(d, p, neg, false) => {
                (Some(BarrierResult::Any(d)), self.w.ap(p, neg) & act)
            }
        };
        let waits = gives.is_some();
        let b = &mut self.cta.barriers[id as usize];
        b.expected = b.expected.or(expected);
        b.arrived += came;
        b.trues += trues.count_ones();
        b.lanes.push((self.w.index, act, gives));
        self.cta.look = true;
        if let Some(t) = &mut self.w.trace {
            t.touch(Touch::Barrier {
                id,
                came,
                expected: expected.unwrap_or(0),
                waits,
            });
        }
        let c = &mut self.world.counts[self.pc as usize];
        c.barriers += 1;
        if !waits {
            self.effect();
            return Flow::Next;
        }
        c.waits += 1;
        if act != mask {
            self.w
                .split(&[(act, self.pc), (mask & !act, self.pc + 1)], u32::MAX);
        }
        if let Some(k) = self
            .w
            .fragments
            .iter()
            .position(|f| f.mask == act && f.pc == self.pc)
        {
            self.w.fragments[k].doing = GroupState::Barrier(id);
        }
        Flow::Blocked
    }
}
