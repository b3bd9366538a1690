//! What lanes of a warp do together.

use super::{Ctx, Flow};
use crate::checks::Kind;
use crate::clocks::{Vc, join};
use crate::machine::cta::lanes;
use crate::machine::warp::{GroupState, NONE};
use crate::program::*;
use std::sync::Arc;

impl Ctx<'_> {
    pub(crate) fn warp_wide(&mut self, g: &Gather, mask_row: R, act: u32, frag: u32) -> Flow {
        let masks = *self.w.a32(self.k, mask_row);
        let first = act.trailing_zeros();
        let named = masks[first as usize];
        // The lanes named that can still come.
        let wanted = named & self.w.alive;
        if named >> first & 1 == 0 || act & !named != 0 {
            let lane = (act & !named).trailing_zeros().min(31);
            self.report(Kind::WarpMask, lane, None, || {
                format!("the lane takes part, but the mask {named:#010x} leaves it out")
            });
        }
        let wanted = wanted | act;
        if wanted & !act == 0 {
            self.together(g, act, wanted);
            return Flow::Next;
        }
        // Others named may be on their way here: wait for them where they wait too.
        let cur = self.w.current;
        if act != frag {
            // Lanes that the guard leaves out go on alone.
            self.w
                .split(&[(act, self.pc), (frag & !act, self.pc + 1)], u32::MAX);
            let at = self.w.fragments.iter().position(|f| f.mask == act);
            if let Some(k) = at {
                self.w.fragments[k].doing = GroupState::Warp(wanted);
            }
        } else {
            self.w.fragments[cur].doing = GroupState::Warp(wanted);
        }
        let here: u32 = self
            .w
            .fragments
            .iter()
            .filter(|f| matches!(f.doing, GroupState::Warp(_)) && self.joins(f.pc))
            .fold(0, |m, f| m | f.mask);
        if wanted & !here == 0 {
            self.together(g, here & wanted, wanted);
            for n in 0..self.w.fragments.len() {
                let f = &mut self.w.fragments[n];
                if matches!(f.doing, GroupState::Warp(_)) && f.mask & wanted == f.mask {
                    f.doing = GroupState::Ready;
                    f.pc += 1;
                }
            }
            let mut n = self.w.fragments.len();
            while n > 0 {
                n -= 1;
                if n < self.w.fragments.len() && self.w.fragments[n].node != NONE {
                    self.w.arrive(n);
                }
            }
        }
        Flow::Blocked
    }

    /// Whether a group waiting at `pc` waits for what this instruction does: the same instruction,
    /// or for `bar.warp.sync` any of its kind.
    fn joins(&self, pc: u32) -> bool {
        if pc == self.pc {
            return true;
        }
        let sync = |pc: u32| match &self.k.code[pc as usize].op {
            Op::Warp(g) => matches!(g.0, Gather::Sync),
            _ => false,
        };
        sync(pc) && sync(self.pc)
    }

    fn together(&mut self, g: &Gather, act: u32, named: u32) {
        match g {
            Gather::Sync => self.warp_barrier(act),
            Gather::Shfl(mode, d, p, a, b, c) => {
                self.shuffle(*mode, [*d, *p, *a, *b, *c], act);
            }
            Gather::Vote(mode, d, a, negated) => {
                let v = self.w.ap(*a, *negated) & act;
                let yes = match mode {
                    VoteMode::All => v == act,
                    VoteMode::Any => v != 0,
                    VoteMode::Uni => v == act || v == 0,
                    VoteMode::Ballot => {
                        self.w.put32(*d, act, &[v; 32]);
                        return;
                    }
                };
                self.w.putp(*d, act, if yes { !0 } else { 0 });
            }
            Gather::Match(d, p, a, wide, all) => {
                let v = match wide {
                    true => *self.w.a64(self.k, *a),
                    false => self.w.a32(self.k, *a).map(u64::from),
                };
                let mut r = [0u32; 32];
                for l in lanes(act) {
                    for m in lanes(act) {
                        r[l as usize] |= u32::from(v[l as usize] == v[m as usize]) << m;
                    }
                }
                if *all {
                    let same = lanes(act).all(|l| r[l as usize] == act);
                    r = [if same { act } else { 0 }; 32];
                    self.w.putp(*p, act, if same { !0 } else { 0 });
                }
                self.w.put32(*d, act, &r);
            }
            Gather::Redux(op, signed, d, a) => {
                let v = *self.w.a32(self.k, *a);
                let mut all = lanes(act).map(|l| v[l as usize]);
                let first = all.next().unwrap_or(0);
                let r = all.fold(first, |x, y| match (op, signed) {
                    (AtomOp::Add, _) => x.wrapping_add(y),
                    (AtomOp::Min, true) => (x as i32).min(y as i32) as u32,
                    (AtomOp::Max, true) => (x as i32).max(y as i32) as u32,
                    (AtomOp::Min, _) => x.min(y),
                    (AtomOp::Max, _) => x.max(y),
                    (AtomOp::And, _) => x & y,
                    (AtomOp::Or, _) => x | y,
                    _ => x ^ y,
                });
                self.w.put32(*d, act, &[r; 32]);
            }
            Gather::Elect(d, p) => {
                let leader = named.trailing_zeros();
                self.w.put32(*d, act, &[leader; 32]);
                self.w.putp(*p, act, 1 << leader);
            }
        }
    }

    fn shuffle(&mut self, mode: ShflMode, [d, p, a, b, c]: [R; 5], act: u32) {
        let (a, b) = (*self.w.a32(self.k, a), *self.w.a32(self.k, b));
        let c = *self.w.a32(self.k, c);
        let (mut r, mut valid, mut lost) = (a, 0u32, 0u32);
        for l in lanes(act) {
            let (bv, cv) = (b[l as usize] & 31, c[l as usize]);
            let (clamp, seg) = (cv & 31, cv >> 8 & 31);
            let low = l & seg;
            let high = low | (clamp & !seg);
            let (j, inside) = match mode {
                ShflMode::Up => {
                    let j = l as i32 - bv as i32;
                    (j, j >= high as i32)
                }
                ShflMode::Down => ((l + bv) as i32, l + bv <= high),
                ShflMode::Bfly => ((l ^ bv) as i32, l ^ bv <= high),
                ShflMode::Idx => {
                    let j = low | (bv & !seg);
                    (j as i32, j <= high)
                }
            };
            if inside {
                valid |= 1 << l;
                let j = (j as u32) & 31;
                if act >> j & 1 == 0 {
                    lost |= 1 << l;
                }
                r[l as usize] = a[j as usize];
            }
        }
        if lost != 0 && self.world.checks.divergence {
            self.report(Kind::WarpMask, lost.trailing_zeros(), None, || {
                "the value comes from a lane that takes no part, so that it is undefined".into()
            });
        }
        self.w.put32(d, act, &r);
        self.w.putp(p, act, valid);
    }

    /// `bar.warp.sync`: memory order among the lanes.
    fn warp_barrier(&mut self, act: u32) {
        self.cta.clock += 1;
        let clock = self.cta.clock;
        let mut all: Arc<Vc> = Arc::default();
        for l in lanes(act) {
            join(&mut all, &self.w.sync[l as usize].vc);
        }
        let whole = act & self.w.alive == self.w.alive;
        if !whole {
            let mut vc = (*all).clone();
            for l in lanes(act) {
                vc.set_thread(self.cta.thread(self.w.index, l), clock);
            }
            all = Arc::new(vc);
        }
        for l in lanes(act) {
            let s = &mut self.w.sync[l as usize];
            s.vc = all.clone();
            if whole {
                s.warp_seen = clock;
            }
        }
    }
}
