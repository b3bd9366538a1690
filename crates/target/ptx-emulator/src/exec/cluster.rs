//! Clusters: the shared memory of other CTAs, and the barrier of all of them.

use super::{Ctx, Flow};
use crate::checks::Kind;
use crate::clocks::{Vc, join};
use crate::machine::cluster::MOST;
use crate::machine::cta::lanes;
use crate::machine::later::Step;
use crate::machine::warp::GroupState;
use crate::memory::SHARED_WINDOW;
use crate::program::*;
use std::sync::Arc;

/// An address of a cluster's shared memory is that in the CTA, with one more than its rank from this bit on.
const RANK: u32 = 24;

/// The word that warps poll which wait at a cluster's barrier.
fn cluster_key(cluster: u32) -> u64 {
    1 << 62 | u64::from(cluster)
}

impl Ctx<'_> {
    /// Runs `f` where the shared memory of an address lies, with the address in there.
    pub(crate) fn placed<T>(&mut self, at: u64, f: impl FnOnce(&mut Self, u64) -> T) -> T {
        let rank = at >> RANK;
        let inside = at & ((1 << RANK) - 1);
        if rank == 0 || rank > u64::from(MOST) {
            return f(self, at);
        }
        let rank = rank as u32 - 1;
        if rank == self.cta.rank {
            return f(self, inside);
        }
        let Some(peer) = self.peers.iter().position(|p| p.rank == rank) else {
            // Beyond every end.
            return f(self, at);
        };
        self.cta.exchange(self.peers[peer]);
        let out = f(self, inside);
        self.cta.exchange(self.peers[peer]);
        out
    }

    /// Runs `f` for the lanes of each CTA's shared memory.
    pub(crate) fn by_rank(
        &mut self,
        at: &[u64; 32],
        act: u32,
        mut f: impl FnMut(&mut Self, &[u64; 32], u32),
    ) {
        let mut left = act;
        while left != 0 {
            let first = at[left.trailing_zeros() as usize];
            let own = |l: &u32| at[*l as usize] >> RANK == first >> RANK;
            let part = lanes(left).filter(own).fold(0, |m, l| m | 1 << l);
            left &= !part;
            let base = first >> RANK << RANK;
            self.placed(first, |c, inside| {
                // The same distance for all of them.
                let by = first - inside;
                assert!(by == 0 || by == base);
                f(c, &at.map(|v| v.wrapping_sub(by)), part);
            });
        }
    }

    /// `mapa`: the address in the CTA with the rank.
    pub(crate) fn mapa(&mut self, wide: bool, d: R, a: R, rank: R, act: u32) {
        let ranks = *self.w.a32(self.k, rank);
        // Ranks that the cluster has not are found when somebody goes there.
        let place = |v: u64, r: u32| (v & ((1 << RANK) - 1)) | u64::from(r + 1) << RANK;
        if wide {
            let mut v = *self.w.a64(self.k, a);
            for (v, r) in v.iter_mut().zip(ranks) {
                *v = SHARED_WINDOW + place(v.wrapping_sub(SHARED_WINDOW), r.min(MOST));
            }
            self.w.put64(d, act, &v);
        } else {
            let mut v = *self.w.a32(self.k, a);
            for (v, r) in v.iter_mut().zip(ranks) {
                *v = place(u64::from(*v), r.min(MOST)) as u32;
            }
            self.w.put32(d, act, &v);
        }
    }

    /// `getctarank`.
    pub(crate) fn cta_rank(&mut self, wide: bool, d: R, a: R, act: u32) {
        let own = self.cta.rank;
        let rank = |v: u64| match (v >> RANK) as u32 {
            0 => own,
            r => r - 1,
        };
        let v = match wide {
            true => {
                let v = self.w.a64(self.k, a);
                v.map(|v| rank(v.wrapping_sub(SHARED_WINDOW)))
            }
            false => self.w.a32(self.k, a).map(|v| rank(u64::from(v))),
        };
        self.w.put32(d, act, &v);
    }

    /// `barrier.cluster.arrive`.
    pub(crate) fn cluster_arrive(&mut self, release: bool, act: u32) {
        let knows = self.arrives_with(release, act);
        let id = self.cta.cluster;
        let b = self.world.cluster(id);
        let phase = b.phase + 1;
        b.arrived += act.count_ones();
        join(&mut b.arriving, &knows);
        let mut twice = None;
        for l in lanes(act) {
            if std::mem::replace(&mut self.w.cluster_phase[l as usize], phase) != 0 {
                twice = Some(l);
            }
        }
        if let Some(l) = twice {
            self.report(Kind::Undefined, l, None, || {
                "the thread arrives at the cluster's barrier twice without waiting".into()
            });
        }
        self.cluster_settles();
        self.cta.clock += 1;
        self.effect();
    }

    /// What lanes bring to the cluster's barrier: what they know, or what they knew at their last fence.
    fn arrives_with(&mut self, release: bool, act: u32) -> Arc<Vc> {
        let mut all: Arc<Vc> = Arc::default();
        if release && act == self.w.lanes {
            let mut vc = (*self.warp_knows().vc).clone();
            vc.set_warp(self.w.global, self.cta.clock + 1);
            let seen = self.w.sync.iter().map(|s| s.cta_seen).max();
            vc.set_cta(self.cta.index, seen.unwrap_or(0));
            return Arc::new(vc);
        }
        for l in lanes(act) {
            match (
                release,
                &self.w.sync[l as usize].fenced[Scope::Gpu as usize],
            ) {
                (true, _) => join(&mut all, &self.lane_knows(l).vc),
                (false, Some(vc)) => join(&mut all, vc),
                _ => {}
            }
        }
        all
    }

    pub(crate) fn cluster_settles(&mut self) {
        let id = self.cta.cluster;
        if self.world.cluster(id).settle() {
            self.world.writes += 1;
            self.world.wake(cluster_key(id));
        }
    }

    /// Lanes end: the cluster's barrier no longer waits for them.
    pub(crate) fn cluster_exit(&mut self, act: u32) {
        if self.world.clusters.size() == 1 {
            return;
        }
        for l in lanes(act) {
            join(&mut self.cta.leaving, &self.w.sync[l as usize].vc);
        }
        let id = self.cta.cluster;
        let b = self.world.cluster(id);
        let now = b.phase + 1;
        let came = lanes(act).filter(|l| self.w.cluster_phase[*l as usize] == now);
        b.arrived = b.arrived.saturating_sub(came.count() as u32);
        b.alive = b.alive.saturating_sub(act.count_ones());
        self.cluster_settles();
    }

    /// The CTA has ended: what others of the cluster did in its shared memory must be known to have been
    /// before.
    pub(crate) fn left_behind(&mut self) {
        if !self.world.checks.races {
            return;
        }
        let own = self.cta.first_thread..self.cta.first_thread + self.cta.threads;
        let (vc, threads) = (self.cta.leaving.clone(), self.cta.threads);
        let found = self.cta.shadow.strangers(own, |s| {
            let thread = s.thread - 1;
            vc.knows(s, thread / 32, thread / threads)
        });
        let Some((word, stamp, pc)) = found else {
            return;
        };
        self.line = self.world.line_of(self.k, pc);
        let who = self.world.who(stamp.thread, threads);
        self.report(Kind::SharedRace, 0, None, || {
            format!(
                "{who} touches shared {:#x} of this CTA, which may have ended; a cluster's barrier must \
                 stand between",
                word * 4
            )
        });
    }

    /// `barrier.cluster.wait`.
    pub(crate) fn cluster_wait(&mut self, acquire: bool, act: u32, mask: u32) -> Flow {
        let id = self.cta.cluster;
        let b = self.world.cluster(id);
        let (phase, done) = (b.phase, b.done.clone());
        let phases = self.w.cluster_phase;
        if let Some(l) = lanes(act).find(|l| phases[*l as usize] == 0) {
            self.report(Kind::Undefined, l, None, || {
                "the thread waits at the cluster's barrier without having arrived".into()
            });
            return Flow::Next;
        }
        if lanes(act).all(|l| phases[l as usize] <= phase) {
            for l in lanes(act) {
                self.w.cluster_phase[l as usize] = 0;
                if acquire {
                    join(&mut self.w.sync[l as usize].vc, &done);
                }
            }
            self.effect();
            return Flow::Next;
        }
        if act != mask {
            self.w
                .split(&[(act, self.pc), (mask & !act, self.pc + 1)], u32::MAX);
        }
        let pc = self.pc;
        let mut all = self.w.fragments.iter_mut();
        if let Some(f) = all.find(|f| f.mask == act && f.pc == pc) {
            f.doing = GroupState::Parked;
        }
        let key = cluster_key(id);
        self.world.park(self.cta.index, self.w.index, &[key]);
        self.come_again(act)
    }

    /// `st.async`: registers of a lane go to another CTA's shared memory.
    pub(crate) fn store_async(&mut self, a: &Access, barrier: &Addr, act: u32) {
        let words = self.collect(a);
        let bytes = a.bytes * a.lanes;
        let (at, bars) = (
            self.shared_addresses(&a.addr),
            self.shared_addresses(barrier),
        );
        for l in lanes(act) {
            let li = l as usize;
            let (to, bar) = (at[li], bars[li]);
            if to >> RANK != bar >> RANK {
                self.report(Kind::Undefined, l, None, || {
                    "the bytes and their barrier lie in different CTAs".into()
                });
                continue;
            }
            let data = (0..bytes.div_ceil(4) as usize).map(|k| words[k][li]);
            let data: Vec<(u32, bool)> = data.map(|v| (v, true)).collect();
            self.placed(to, |c, to| {
                if c.shared_at(l, to, bytes, "an asynchronous write") {
                    c.put(l, to, data, bar & ((1 << RANK) - 1));
                }
            });
        }
        self.cta.clock += 1;
        self.effect();
    }

    /// Words come to shared memory at a later step, counted at a barrier beside them.
    pub(crate) fn put(&mut self, lane: u32, to: u64, data: Vec<(u32, bool)>, barrier: u64) {
        let Some(agent) = self.counted_by(lane, barrier) else {
            return;
        };
        let (w, n) = ((to / 4) as usize, data.len());
        if self.world.checks.races {
            for word in w..w + n {
                self.async_touch(&agent, word, 15, true);
            }
        }
        self.flies(w..w + n, true);
        self.cta.any_flying += 1;
        let step = Step::Put {
            to: to as u32,
            data,
            barrier: barrier as u32,
            phase: agent.clock,
        };
        self.later(lane, step);
    }

    /// `cp.async.bulk` from the CTA's own shared memory to another's.
    pub(crate) fn bulk_put(&mut self, to: &Addr, from: &Addr, size: R, barrier: &Addr, act: u32) {
        let (to, from) = (self.shared_addresses(to), self.shared_addresses(from));
        let (sizes, bars) = (*self.w.a32(self.k, size), self.shared_addresses(barrier));
        for l in lanes(act) {
            let li = l as usize;
            let (d, s, n, bar) = (to[li], from[li], sizes[li], bars[li]);
            let odd = [d, s, u64::from(n)].into_iter().find(|v| v % 16 != 0);
            if let Some(v) = odd {
                self.report(Kind::Misaligned, l, None, || {
                    format!("a bulk copy with {v:#x}, which is no multiple of 16")
                });
                continue;
            }
            let what = "an asynchronous read";
            if n == 0 || !self.shared_range(l, s, n, what) {
                continue;
            }
            let reader = super::proxy::Agent {
                id: self.world.agent(false),
                clock: 1,
                knows: vec![self.lane_knows(l)],
            };
            let mut data = Vec::new();
            for at in (s..s + u64::from(n)).step_by(16) {
                let words = self.async_read(&reader, at).unwrap_or_default();
                let first = (at / 4) as usize;
                let set = |k: usize| self.cta.shared_written[first + k] == 15;
                data.extend((0..4).map(|k| (words[k], set(k))));
            }
            self.placed(d, |c, d| {
                if c.shared_range(l, d, n, "an asynchronous write") {
                    c.put(l, d, data, bar & ((1 << RANK) - 1));
                }
            });
        }
        self.cta.clock += 1;
        self.effect();
    }
}
