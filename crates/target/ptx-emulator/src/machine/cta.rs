//! A CTA: its shared memory, its barriers and its warps.

use crate::clocks::{LaneSync, Messages, Vc, join};
use crate::machine::later::Later;
use crate::machine::mbarrier::Mbarrier;
use crate::machine::times::CtaClock;
use crate::machine::warp::{Copy, GroupState, Warp};
use crate::machine::warpgroup::Warpgroup;
use crate::memory::shadow::Shadow;
use crate::program::R;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a waiting group gets when its barrier completes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BarrierResult {
    Nothing,
    Count(R),
    All(R),
    Any(R),
}

#[derive(Debug, Default)]
pub(crate) struct Barrier {
    /// Threads to come, when the instruction says how many.
    pub expected: Option<u32>,
    /// Threads that came.
    pub arrived: u32,
    /// Lanes that came, by warp, with what they wait for: none for `bar.arrive`.
    pub lanes: Vec<(u32, u32, Option<BarrierResult>)>,
    /// For `bar.red`: how many predicates were true.
    pub trues: u32,
}

/// What the warps of a CTA share.
#[derive(Debug)]
pub(crate) struct Core {
    pub index: u32,
    pub id: [u32; 3],
    /// Its cluster, and its rank in there.
    pub cluster: u32,
    pub rank: u32,
    /// The CTA whose shared memory is at hand: another while a lane reaches into the cluster.
    pub owner: u32,
    pub first_thread: u32,
    /// Threads, rounded up to whole warps.
    pub threads: u32,
    pub clock: u32,
    pub shared: Vec<u32>,
    pub shared_written: Vec<u8>,
    pub shadow: Shadow,
    pub messages: Messages,
    /// Shared words that a copy still writes: how many copies.
    pub flying: Vec<u8>,
    pub any_flying: u32,
    pub barriers: Vec<Barrier>,
    pub groups: Vec<Warpgroup>,
    /// Barrier objects, by address.
    pub mbarriers: BTreeMap<u32, Mbarrier>,
    /// What ends at a later step.
    pub later: Vec<Later>,
    /// What threads knew when they ended, in clusters.
    pub leaving: Arc<Vc>,
    /// Registers that warps gave back.
    pub free_registers: u32,
    /// A barrier changed, or threads ended: see whether one completes.
    pub look: bool,
    pub hand: CtaClock,
}

#[derive(Debug)]
pub(crate) struct Cta {
    pub core: Core,
    pub warps: Vec<Warp>,
}

impl Core {
    /// The thread of a lane, from 1.
    pub fn thread(&self, warp: u32, lane: u32) -> u32 {
        self.first_thread + warp * 32 + lane
    }

    /// What a lane knows, itself and its own accesses so far included.
    pub fn known(&self, sync: &LaneSync, warp: u32, lane: u32) -> Arc<Vc> {
        let mut vc = (*sync.vc).clone();
        vc.set_cta(self.index, sync.cta_seen);
        vc.set_warp((self.first_thread - 1) / 32 + warp, sync.warp_seen);
        vc.set_thread(self.thread(warp, lane), self.clock + 1);
        Arc::new(vc)
    }

    /// Exchanges shared memory, and all that is kept for it, with another CTA of the cluster.
    pub fn exchange(&mut self, other: &mut Core) {
        use std::mem::swap;
        swap(&mut self.owner, &mut other.owner);
        swap(&mut self.shared, &mut other.shared);
        swap(&mut self.shared_written, &mut other.shared_written);
        swap(&mut self.shadow, &mut other.shadow);
        swap(&mut self.messages, &mut other.messages);
        swap(&mut self.flying, &mut other.flying);
        swap(&mut self.any_flying, &mut other.any_flying);
        swap(&mut self.mbarriers, &mut other.mbarriers);
        swap(&mut self.later, &mut other.later);
    }

    /// Lands a copy's bytes.
    pub fn land(&mut self, c: &Copy) {
        for k in 0..c.bytes as usize / 4 {
            let w = c.to as usize / 4 + k;
            self.shared[w] = c.data[k];
            self.shared_written[w] = if c.written { 15 } else { 0 };
            self.flying[w] = self.flying[w].saturating_sub(1);
        }
        self.any_flying = self.any_flying.saturating_sub(1);
    }
}

impl Cta {
    fn alive(&self) -> u32 {
        self.warps.iter().map(|w| w.alive.count_ones()).sum()
    }

    pub fn done(&self) -> bool {
        self.warps.iter().all(|w| w.alive == 0)
    }

    /// Completes the barriers that can be; gives the warps that go on.
    pub fn settle(&mut self) -> Vec<u32> {
        let mut go = Vec::new();
        self.core.look = false;
        let alive = self.alive();
        for id in 0..self.core.barriers.len() {
            let b = &self.core.barriers[id];
            if b.lanes.is_empty() || b.arrived < b.expected.unwrap_or(alive) {
                continue;
            }
            let b = std::mem::take(&mut self.core.barriers[id]);
            self.complete(id as u32, b, &mut go);
        }
        self.regroup(&mut go);
        go
    }

    /// Warps go on whose warpgroup is complete at its product; those that lack registers look again.
    fn regroup(&mut self, go: &mut Vec<u32>) {
        for w in &mut self.warps {
            let together = self.core.groups[w.index as usize / 4].go >> (w.index % 4) & 1 == 1;
            for f in &mut w.fragments {
                let product = f.doing == GroupState::Warpgroup && together;
                if product || f.doing == GroupState::Registers {
                    f.doing = GroupState::Ready;
                    go.push(w.index);
                }
            }
        }
    }

    fn complete(&mut self, id: u32, b: Barrier, go: &mut Vec<u32>) {
        self.core.clock += 1;
        let clock = self.core.clock;
        let count: u32 = b.lanes.iter().map(|(_, m, _)| m.count_ones()).sum();
        let everybody = self.warps.iter().enumerate().all(|(k, warp)| {
            let of = |b: &&(u32, u32, Option<BarrierResult>)| b.0 as usize == k;
            let came = b.lanes.iter().filter(of).fold(0, |m, b| m | b.1);
            warp.alive & !came == 0
        });
        // What each brings, each gets.
        let mut all: Arc<Vc> = Arc::default();
        let mut seen = 0;
        for (w, mask, _) in &b.lanes {
            let warp = &self.warps[*w as usize];
            let mut last: Option<&Arc<Vc>> = None;
            for l in lanes(*mask) {
                let s = &warp.sync[l as usize];
                seen = seen.max(s.cta_seen);
                if last.is_none_or(|v| !Arc::ptr_eq(v, &s.vc)) {
                    join(&mut all, &s.vc);
                }
                last = Some(&s.vc);
            }
        }
        if !everybody {
            let mut vc = (*all).clone();
            for (w, mask, _) in &b.lanes {
                let warp = &self.warps[*w as usize];
                if *mask == warp.lanes {
                    vc.set_warp(warp.global, clock);
                } else {
                    for l in lanes(*mask) {
                        vc.set_thread(self.core.thread(*w, l), clock);
                    }
                }
            }
            all = Arc::new(vc);
        }
        for (w, mask, gives) in &b.lanes {
            let Some(gives) = gives else { continue };
            let warp = &mut self.warps[*w as usize];
            for l in lanes(*mask) {
                let s = &mut warp.sync[l as usize];
                s.vc = all.clone();
                s.cta_seen = if everybody { clock } else { seen };
                if *mask == warp.lanes || everybody {
                    s.warp_seen = clock;
                }
            }
            match gives {
                BarrierResult::Nothing => {}
                BarrierResult::Count(d) => warp.put32(*d, *mask, &[b.trues; 32]),
                BarrierResult::All(d) => {
                    warp.putp(*d, *mask, if b.trues == count { !0 } else { 0 })
                }
                BarrierResult::Any(d) => warp.putp(*d, *mask, if b.trues > 0 { !0 } else { 0 }),
            }
            for k in 0..warp.fragments.len() {
                let f = &mut warp.fragments[k];
                if f.doing == GroupState::Barrier(id) && f.mask & mask != 0 {
                    f.doing = GroupState::Ready;
                    f.pc += 1;
                    f.poll.dirty = true;
                }
            }
            for k in (0..warp.fragments.len()).rev() {
                if k < warp.fragments.len() {
                    warp.arrive(k);
                }
            }
            go.push(*w);
        }
    }
}

/// The lanes of a mask, ascending.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = u32> {
    let mut m = mask;
    std::iter::from_fn(move || {
        if m == 0 {
            return None;
        }
        let l = m.trailing_zeros();
        m &= m - 1;
        Some(l)
    })
}
