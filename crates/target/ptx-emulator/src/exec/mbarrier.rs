//! Barrier objects in shared memory: `mbarrier`, and `cp.async` that arrives there.

use super::Ctx;
use super::access::{How, shared_key};
use crate::checks::Kind;
use crate::clocks::{LaneSync, Stamp};
use crate::machine::cta::lanes;
use crate::machine::later::{Later, Step};
use crate::machine::mbarrier::{MOST, Mbarrier};
use crate::memory::SHARED_WINDOW;
use crate::program::*;
use crate::sm90::MbarrierArrive;
use crate::timing::trace::Touch;

/// How a barrier's own operations access it.
const STRONG: How = How {
    sem: Sem::Relaxed,
    scope: Scope::Cta,
    atomic: true,
};
/// Bytes of a barrier.
const BYTES: u32 = 8;

impl Ctx<'_> {
    /// Addresses in shared memory, of generic ones too.
    pub(crate) fn shared_addresses(&self, a: &Addr) -> [u64; 32] {
        self.addresses(a).map(|v| {
            if v >= SHARED_WINDOW {
                v - SHARED_WINDOW
            } else {
                v
            }
        })
    }

    pub(crate) fn mbarrier_init(&mut self, addr: &Addr, count: R, act: u32) {
        let (at, counts) = (self.shared_addresses(addr), *self.w.a32(self.k, count));
        for l in lanes(act) {
            let (a, n) = (at[l as usize], counts[l as usize]);
            if !self.shared_at(l, a, BYTES, "a barrier") {
                continue;
            }
            if n == 0 || n > MOST {
                self.report(Kind::Undefined, l, None, || {
                    format!("a barrier for {n} arrivals; 1 to {MOST} are possible")
                });
                continue;
            }
            self.note(l, None, a, BYTES, How::WEAK, true);
            let w = (a / 4) as usize;
            self.cta.shared_written[w..w + 2].fill(15);
            let agents = [self.world.agent(false), self.world.agent(true)];
            let made = Stamp {
                thread: self.cta.thread(self.w.index, l),
                when: self.cta.clock << 2,
            };
            let new = Mbarrier::new(n, agents, (made, self.pc));
            if self.cta.mbarriers.insert(a as u32, new).is_some() {
                self.report(Kind::Undefined, l, None, || {
                    format!("there is a barrier at shared {a:#x} already")
                });
            }
            self.wrote(None, a, BYTES);
        }
        self.effect();
    }

    /// `fence.mbarrier_init`: barriers made so far may count copies, and other CTAs may arrive there.
    pub(crate) fn init_fence(&mut self, act: u32) {
        let (clock, first) = (self.cta.clock + 1, self.cta.thread(self.w.index, 0));
        for l in lanes(act) {
            self.learn(1 << l, |vc| vc.set_init_fenced(first + l, clock));
        }
        self.fence(Scope::Gpu, act);
    }

    /// Reports a barrier that copies are to count at without a fence behind its making.
    pub(crate) fn made_visible(&mut self, lane: u32, barrier: u64, knows: &LaneSync) {
        let made = self.cta.mbarriers.get(&(barrier as u32)).map(|b| b.made);
        let Some((stamp, pc)) = made.filter(|_| self.world.checks.races) else {
            return;
        };
        if !knows.vc.init_fenced(stamp, (stamp.thread - 1) / 32) {
            let line = self.world.line_of(self.k, pc);
            self.report(Kind::MissingProxyFence, lane, Some(pc), || {
                format!(
                    "copies count at the barrier at shared {barrier:#x}, made at line {line} without \
                     fence.mbarrier_init or fence.proxy.async and a barrier behind it"
                )
            });
        }
    }

    pub(crate) fn mbarrier_inval(&mut self, addr: &Addr, act: u32) {
        let at = self.shared_addresses(addr);
        for l in lanes(act) {
            let a = at[l as usize];
            if self.mbarrier(l, a).is_some() {
                self.note(l, None, a, BYTES, How::WEAK, true);
                self.cta.mbarriers.remove(&(a as u32));
            }
        }
        self.effect();
    }

    /// The barrier at an address of the CTA, once the access is noted.
    pub(crate) fn mbarrier(&mut self, lane: u32, a: u64) -> Option<&mut Mbarrier> {
        if !self.shared_at(lane, a, BYTES, "a barrier") {
            return None;
        }
        self.note(lane, None, a, BYTES, STRONG, false);
        if !self.cta.mbarriers.contains_key(&(a as u32)) {
            self.report(Kind::Undefined, lane, None, || {
                format!("there is no barrier at shared {a:#x}; mbarrier.init makes one")
            });
        }
        self.cta.mbarriers.get_mut(&(a as u32))
    }

    /// A phase of the barrier is complete: whoever waits looks again.
    pub(crate) fn phase_done(&mut self, a: u64) {
        self.world.writes += 1;
        self.world.wake(shared_key(self.cta.owner, a / 4));
    }

    /// What a lane knows, its own accesses so far included.
    pub(crate) fn lane_knows(&self, lane: u32) -> LaneSync {
        let sync = &self.w.sync[lane as usize];
        LaneSync {
            vc: self.cta.known(sync, self.w.index, lane),
            cta_seen: sync.cta_seen,
            ..LaneSync::default()
        }
    }

    pub(crate) fn mbarrier_arrive(&mut self, m: &MbarrierArrive, act: u32) {
        let at = self.shared_addresses(&m.addr);
        let counts = *self.w.a32(self.k, m.count);
        let bytes = match m.tx {
            SINK => [0; 32],
            r => *self.w.a32(self.k, r),
        };
        let mut states = [0u64; 32];
        for l in lanes(act) {
            let (a, n) = (at[l as usize], counts[l as usize]);
            let tx = bytes[l as usize];
            states[l as usize] = self.placed(a, |c, a| c.one_arrives(m, (l, a, n, tx)));
        }
        self.w.put64(m.state, act, &states);
        self.cta.clock += 1;
        self.effect();
    }

    /// A lane arrives; gives the phase that it was.
    fn one_arrives(&mut self, m: &MbarrierArrive, (l, a, n, tx): (u32, u64, u32, u32)) -> u64 {
        let knows = m.release.then(|| self.lane_knows(l).vc);
        let Some(b) = self.mbarrier(l, a) else {
            return 0;
        };
        let phase = u64::from(b.phase);
        b.tx += i64::from(tx);
        self.counts_at(Touch::Comes {
            barrier: a as u32,
            phase: phase as u32,
        });
        let Some(b) = self.cta.mbarriers.get_mut(&(a as u32)) else {
            return 0;
        };
        if m.drops {
            b.expected = b.expected.saturating_sub(n);
        }
        let stands = b.stands();
        match b.arrive(n, knows.as_ref()) {
            Some(true) => self.phase_done(a),
            Some(false) => {}
            None => self.report(Kind::Undefined, l, None, || {
                format!("{n} arrive at the barrier at shared {a:#x}, which is {stands}")
            }),
        }
        phase
    }

    pub(crate) fn mbarrier_expect(&mut self, addr: &Addr, bytes: R, act: u32) {
        let (at, bytes) = (self.shared_addresses(addr), *self.w.a32(self.k, bytes));
        for l in lanes(act) {
            let tx = i64::from(bytes[l as usize]);
            self.placed(at[l as usize], |c, a| {
                if let Some(b) = c.mbarrier(l, a) {
                    b.tx += tx;
                }
            });
        }
        self.effect();
    }

    /// `test_wait` and `try_wait`: whether a phase is complete. A loop around it is parked until one is.
    pub(crate) fn mbarrier_wait(
        &mut self,
        (p, addr, phase): (R, &Addr, R),
        parity: bool,
        acquire: bool,
        act: u32,
    ) {
        let at = self.shared_addresses(addr);
        let wanted = match parity {
            true => self.w.a32(self.k, phase).map(u64::from),
            false => *self.w.a64(self.k, phase),
        };
        let mut yes = 0u32;
        for l in lanes(act) {
            let (a, want) = (at[l as usize], wanted[l as usize]);
            let Some(b) = self.mbarrier(l, a) else {
                continue;
            };
            let (phase, done) = (b.phase, b.done.clone());
            let complete = match parity {
                true => u64::from(phase & 1) != want & 1,
                false => u64::from(phase) > want,
            };
            if complete {
                yes |= 1 << l;
                if acquire {
                    crate::clocks::join(&mut self.w.sync[l as usize].vc, &done);
                }
            }
            if complete {
                self.counts_at(Touch::Waited {
                    barrier: a as u32,
                    phase: phase.wrapping_sub(1),
                });
            }
            self.polled(shared_key(self.cta.owner, a / 4), phase);
        }
        if let (Some(t), true) = (&mut self.w.trace, yes != act) {
            t.failed();
        }
        self.w.putp(p, act, yes);
    }

    /// `cp.async.mbarrier.arrive`: an arrival when the lane's copies so far have come.
    pub(crate) fn cp_arrive(&mut self, addr: &Addr, noinc: bool, act: u32) {
        let at = self.shared_addresses(addr);
        for l in lanes(act) {
            let a = at[l as usize];
            let Some(b) = self.mbarrier(l, a) else {
                continue;
            };
            if !noinc {
                b.pending += 1;
            }
            let phase = b.phase;
            self.counts_at(Touch::Comes {
                barrier: a as u32,
                phase,
            });
            let step = Step::Arrive {
                upto: self.w.copied,
                barrier: a as u32,
            };
            self.later(l, step);
        }
        self.cta.clock += 1;
        self.effect();
    }

    /// Keeps what an instruction does at a barrier of the own CTA, once for all lanes.
    pub(crate) fn counts_at(&mut self, touch: Touch) {
        let own = self.cta.owner == self.cta.index;
        if let (Some(t), true) = (&mut self.w.trace, own) {
            t.touch_once(touch);
        }
    }

    /// Something that a lane began ends at a later step.
    pub(crate) fn later(&mut self, lane: u32, step: Step) {
        let l = Later {
            warp: self.w.index,
            lane,
            pc: self.pc,
            knows: self.lane_knows(lane),
            late: false,
            step,
        };
        self.cta.later.push(l);
        self.world.later += 1;
    }
}
