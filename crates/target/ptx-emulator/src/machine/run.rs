//! The CTAs in flight, and whose turn it is.

use super::cta::{Barrier, Core, Cta};
use super::later::Later;
use super::launch_state::{LaunchState, place};
use super::times::CtaClock;
use super::warp::{GroupState, Place, Warp};
use super::warpgroup::Warpgroup;
use super::{Launch, Plan};
use crate::exec::Ctx;
use crate::memory::Memory;
use crate::memory::shadow::Shadow;
use crate::timing::trace::Trace;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

mod dump;

/// Longest turn of a warp, in instructions.
const TURN: u64 = 64;

/// Small numbers that look random: a turn's length, whose turn it is.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, n: u64) -> u64 {
        (u128::from(self.next()) * u128::from(n) >> 64) as u64
    }
}

/// The CTAs of one launch, or of one worker's part of it.
pub(crate) struct Run {
    plan: Plan,
    pub world: LaunchState,
    slots: Vec<Option<Cta>>,
    /// Warps that can go on, by slot and number.
    ready: Vec<(u32, u32)>,
    listed: Vec<Vec<bool>>,
    /// When the last CTA of each slot ended.
    ended: Vec<f64>,
    rng: Rng,
    seed: u64,
    /// Each CTA by itself: its turns depend on nothing but its number.
    alone: bool,
    pub started: u32,
    pub finished: u32,
    block: [u32; 3],
    grid: [u32; 3],
    dynamic: u32,
    /// Records that each warp may keep, where what CTAs execute is wanted.
    room: Option<usize>,
    /// What ended CTAs executed.
    pub traces: Vec<(u32, Vec<Trace>)>,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    Done,
    Going,
    Stuck,
    Fault,
}

impl Run {
    pub fn new(plan: Plan, l: &Launch, resident: usize, alone: bool) -> Run {
        let least = plan.clusters.size() as usize;
        let slots = resident.max(least).clamp(1, plan.ctas as usize);
        Run {
            world: plan.world(l),
            slots: (0..slots).map(|_| None).collect(),
            ready: Vec::new(),
            listed: vec![Vec::new(); slots],
            ended: vec![l.pace.map_or(0.0, |p| p.start_ns); slots],
            rng: Rng::new(l.seed),
            seed: l.seed,
            alone,
            started: 0,
            finished: 0,
            block: l.block,
            grid: l.grid,
            dynamic: l.shared,
            room: None,
            traces: Vec::new(),
            plan,
        }
    }

    /// Keeps what CTAs that begin from now on execute, up to `room` records a warp.
    pub fn tracing(&mut self, room: usize) {
        self.room = Some(room);
    }

    /// Only CTAs before `ctas` are run.
    pub fn up_to(&mut self, ctas: u32) {
        self.plan.ctas = ctas;
    }

    fn begin(&mut self, slot: usize, index: u32) {
        if self.alone {
            self.rng = Rng::new(self.seed ^ u64::from(index).wrapping_mul(0xd6e8_feb8_6659_fd93));
        }
        let k = self.plan.kernel.clone();
        let threads = self.block.iter().product::<u32>();
        let warps = threads.div_ceil(32);
        let id = place(index, self.grid);
        let (cluster, rank) = self.plan.clusters.rank(id);
        let words = self.plan.shared.div_ceil(4) as usize;
        let p = Place {
            ntid: self.block,
            ctaid: id,
            nctaid: self.grid,
            dynamic_shared: self.dynamic,
            total_shared: self.plan.shared,
            slot: slot as u32,
            slots: self.slots.len() as u32,
            first_warp: index * warps,
            clusters: self.plan.clusters,
        };
        self.slots[slot] = Some(Cta {
            core: Core {
                index,
                id,
                cluster,
                rank,
                owner: index,
                first_thread: index * warps * 32 + 1,
                threads: warps * 32,
                clock: 1,
                shared: vec![0; words],
                shared_written: vec![0; words],
                shadow: Shadow::default(),
                messages: Default::default(),
                flying: vec![0; words],
                any_flying: 0,
                barriers: (0..16).map(|_| Barrier::default()).collect(),
                groups: (0..warps.div_ceil(4))
                    .map(|_| Warpgroup::default())
                    .collect(),
                mbarriers: Default::default(),
                later: Vec::new(),
                leaving: Default::default(),
                free_registers: 0,
                look: false,
                hand: CtaClock::starting(self.ended[slot]),
            },
            warps: (0..warps).map(|w| Warp::new(&k, w, &p)).collect(),
        });
        if let (Some(room), Some(cta)) = (self.room, &mut self.slots[slot]) {
            for w in &mut cta.warps {
                w.trace = Some(Box::new(Trace::with_room(room)));
            }
        }
        self.listed[slot] = vec![true; warps as usize];
        self.ready.extend((0..warps).map(|w| (slot as u32, w)));
        self.started += 1;
    }

    fn list(&mut self, slot: u32, warp: u32) {
        let known = &mut self.listed[slot as usize][warp as usize];
        if !std::mem::replace(known, true) {
            self.ready.push((slot, warp));
        }
    }

    /// Takes turns until about `steps` instructions ran, taking CTAs from `next`.
    pub fn go(&mut self, mem: &Memory, steps: u64, next: &AtomicU32) -> RunState {
        let end = self.world.steps.saturating_add(steps);
        loop {
            if self.world.reports.fatal {
                return RunState::Fault;
            }
            if !self.world.woken.is_empty() {
                self.wake();
            }
            if self.ready.len() < 2 || self.slots.iter().any(Option::is_none) {
                self.fill(next);
            }
            if self.ready.is_empty() && self.world.later > 0 {
                self.later(mem);
                continue;
            }
            if self.ready.is_empty() {
                let idle = self.slots.iter().all(Option::is_none);
                return if idle {
                    RunState::Done
                } else {
                    RunState::Stuck
                };
            }
            if self.world.steps >= end {
                return RunState::Going;
            }
            self.turn(mem);
        }
    }

    /// Clusters begin where there are places for all their CTAs.
    fn fill(&mut self, next: &AtomicU32) {
        let size = self.plan.clusters.size();
        loop {
            let free: Vec<usize> = (0..self.slots.len())
                .filter(|s| self.slots[*s].is_none())
                .take(size as usize)
                .collect();
            if free.len() < size as usize || next.load(Relaxed) >= self.plan.ctas {
                return;
            }
            let first = next.fetch_add(size, Relaxed);
            if first >= self.plan.ctas {
                return;
            }
            for (slot, n) in free.into_iter().zip(first..) {
                self.begin(slot, self.plan.clusters.cta(n));
            }
        }
    }

    /// Something that was begun earlier ends.
    fn later(&mut self, mem: &Memory) {
        let mut at = self.rng.below(u64::from(self.world.later)) as usize;
        for slot in 0..self.slots.len() {
            let Some(cta) = &mut self.slots[slot] else {
                continue;
            };
            if at >= cta.core.later.len() {
                at -= cta.core.later.len();
                continue;
            }
            let l = cta.core.later.swap_remove(at);
            self.land(slot, l, mem);
            return;
        }
        // None is there, whatever was counted.
        self.world.later = 0;
    }

    fn land(&mut self, slot: usize, l: Later, mem: &Memory) {
        self.context(slot, l.warp, mem, |c| c.land(l));
    }

    /// Runs `f` for a CTA, as if by one of its warps.
    fn context(&mut self, slot: usize, warp: u32, mem: &Memory, f: impl FnOnce(&mut Ctx)) {
        let Some(cta) = &mut self.slots[slot] else {
            return;
        };
        // Of copies from other CTAs of the cluster only their line is told.
        let warp = (warp as usize).min(cta.warps.len() - 1);
        f(&mut Ctx {
            k: &self.plan.kernel,
            mem,
            world: &mut self.world,
            cta: &mut cta.core,
            w: &mut cta.warps[warp],
            peers: Vec::new(),
            pc: 0,
            line: 0,
        });
    }

    fn turn(&mut self, mem: &Memory) {
        if self.world.later > 0 {
            let all = self.ready.len() as u64 + u64::from(self.world.later);
            if self.rng.below(all) >= self.ready.len() as u64 {
                return self.later(mem);
            }
        }
        let at = self.rng.below(self.ready.len() as u64) as usize;
        let (slot, warp) = self.ready[at];
        let turn = 1 + self.rng.below(TURN) as u32;
        let (own, peers) = cluster(&mut self.slots, slot as usize, self.plan.clusters.size());
        let Some(cta) = own else {
            self.ready.swap_remove(at);
            return;
        };
        let w = &mut cta.warps[warp as usize];
        // Groups of lanes take turns as warps do.
        let groups = w.fragments.len();
        if groups > 1 {
            w.current = self.rng.below(groups as u64) as usize;
        }
        Ctx {
            k: &self.plan.kernel,
            mem,
            world: &mut self.world,
            cta: &mut cta.core,
            w,
            peers,
            pc: 0,
            line: 0,
        }
        .run(turn);
        let idle = |w: &Warp| !w.fragments.iter().any(|f| f.doing == GroupState::Ready);
        if idle(w) && !w.unblock() {
            self.ready.swap_remove(at);
            self.listed[slot as usize][warp as usize] = false;
        }
        if cta.core.look {
            let (go, done) = (cta.settle(), cta.done());
            for w in go {
                self.list(slot, w);
            }
            if done {
                self.end(slot as usize, mem);
            }
        }
    }

    /// A CTA has ended.
    fn end(&mut self, slot: usize, mem: &Memory) {
        while let Some(l) = self.slots[slot].as_mut().and_then(|c| c.core.later.pop()) {
            self.land(slot, Later { late: true, ..l }, mem);
        }
        if self.plan.clusters.size() > 1 {
            self.context(slot, 0, mem, |c| c.left_behind());
        }
        if let (Some(p), Some(cta)) = (self.world.clock.pace, &mut self.slots[slot]) {
            let now = cta.core.hand.settle(&p);
            self.ended[slot] = now;
            self.world.clock.latest_ns = self.world.clock.latest_ns.max(now);
        }
        if let Some(mut cta) = self.slots[slot].take()
            && self.room.is_some()
        {
            let own = cta.warps.iter_mut().filter_map(|w| w.trace.take());
            let own = own.map(|t| *t).collect();
            self.traces.push((cta.core.index, own));
        }
        self.ready.retain(|r| r.0 != slot as u32);
        self.finished += 1;
    }

    /// Polling warps whose words were written go on.
    pub fn wake(&mut self) {
        for (index, warp) in std::mem::take(&mut self.world.woken) {
            let found = self
                .slots
                .iter()
                .position(|c| c.as_ref().is_some_and(|c| c.core.index == index));
            let Some(slot) = found else { continue };
            let Some(cta) = &mut self.slots[slot] else {
                continue;
            };
            for f in &mut cta.warps[warp as usize].fragments {
                if f.doing == GroupState::Parked {
                    f.doing = GroupState::Ready;
                }
            }
            self.list(slot as u32, warp);
        }
    }

    /// Every polling warp looks again.
    pub fn nudge(&mut self) {
        for slot in 0..self.slots.len() {
            let Some(cta) = &mut self.slots[slot] else {
                continue;
            };
            let mut woken = Vec::new();
            for w in &mut cta.warps {
                for f in &mut w.fragments {
                    if f.doing == GroupState::Parked {
                        f.doing = GroupState::Ready;
                        woken.push(w.index);
                    }
                }
            }
            for w in woken {
                self.list(slot as u32, w);
            }
        }
    }

    /// Whether a warp polls words that the host may write.
    pub fn polls(&self) -> bool {
        let mut all = self.slots.iter().flatten().flat_map(|c| &c.warps);
        all.any(|w| w.fragments.iter().any(|f| f.doing == GroupState::Parked))
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}

/// A CTA, and the others of its cluster.
fn cluster(
    slots: &mut [Option<Cta>],
    slot: usize,
    size: u32,
) -> (Option<&mut Cta>, Vec<&mut Core>) {
    if size == 1 {
        return (slots[slot].as_mut(), Vec::new());
    }
    let id = slots[slot].as_ref().map(|c| c.core.cluster);
    let (mut own, mut peers) = (None, Vec::new());
    for (k, c) in slots.iter_mut().enumerate() {
        let Some(c) = c else { continue };
        if k == slot {
            own = Some(c);
        } else if Some(c.core.cluster) == id {
            peers.push(&mut c.core);
        }
    }
    (own, peers)
}
