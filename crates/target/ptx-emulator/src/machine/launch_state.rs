//! What the CTAs of a launch share besides memory: checks, counters, and who waits for whom.

use crate::checks::{Checks, Reports};
use crate::clocks::{AGENTS, HOST, Messages};
use crate::counters::{Counts, Request};
use crate::machine::cluster::{ClusterBarrier, Clusters};
use crate::machine::times::{Clock, InstructionTimes};
use crate::memory::shadow::Shadow;
use crate::program::Kernel;
use std::collections::{BTreeMap, HashMap};

/// Bits of the filter in front of the map of watched words.
const FILTER: usize = 1 << 12;

#[derive(Debug)]
pub(crate) struct LaunchState {
    pub checks: Checks,
    pub reports: Reports,
    /// By instruction.
    pub counts: Vec<Counts>,
    /// By allocation.
    shadows: Vec<Shadow>,
    pub messages: Messages,
    watch: HashMap<u64, Vec<(u32, u32)>>,
    filter: Vec<u64>,
    /// CTAs and warps whose words were written.
    pub woken: Vec<(u32, u32)>,
    pub steps: u64,
    /// Agents so far.
    agents: u32,
    /// What ends at a later step.
    pub later: u32,
    /// Counts writes: a round of a polling loop during which it moved is not parked upon.
    pub writes: u64,
    pub params: Vec<u8>,
    pub shared_bytes: u32,
    pub grid: [u32; 3],
    pub clock: Clock,
    /// How CTAs form clusters, and the barriers of those in flight.
    pub clusters: Clusters,
    cluster_barriers: HashMap<u32, ClusterBarrier>,
    /// Threads of a CTA.
    threads: u32,
    /// The first request of each instruction to global and to shared memory, where they are kept.
    pub requests: Option<BTreeMap<(u32, bool), Request>>,
    /// Its mark on what it writes.
    pub mark: u8,
    /// See [`super::Launch::unfinished`], as bits of marks.
    pub unfinished: u16,
    /// Whether a thread let dependents be launched before it had waited for the kernels before.
    pub launches_early: bool,
}

impl LaunchState {
    pub fn new(
        k: &Kernel,
        checks: Checks,
        params: Vec<u8>,
        shared: u32,
        clusters: Clusters,
        threads: u32,
    ) -> LaunchState {
        LaunchState {
            checks,
            reports: Reports::default(),
            counts: vec![Counts::default(); k.code.len()],
            shadows: Vec::new(),
            messages: Messages::default(),
            watch: HashMap::new(),
            filter: vec![0; FILTER / 64],
            woken: Vec::new(),
            steps: 0,
            agents: 0,
            later: 0,
            writes: 0,
            params,
            shared_bytes: shared,
            grid: clusters.grid,
            clusters,
            cluster_barriers: HashMap::new(),
            threads,
            clock: Clock::default(),
            requests: None,
            mark: 0,
            unfinished: 0,
            launches_early: false,
        }
    }

    /// The same that marks what it writes, and begins while kernels of other marks may be under way.
    pub fn marking(mut self, mark: u8, unfinished: u16) -> LaunchState {
        (self.mark, self.unfinished) = (mark, unfinished & !(1 << mark));
        self
    }

    /// Marks of the kernels that are under way when a dependent of this launch begins.
    pub fn under_way(&self) -> u16 {
        let before = if self.launches_early {
            self.unfinished
        } else {
            0
        };
        before | 1 << self.mark & !1
    }

    /// The same, which keeps requests where that is asked for.
    pub fn keeping(mut self, requests: bool) -> LaunchState {
        self.requests = requests.then(BTreeMap::new);
        self
    }

    /// The first request of each instruction, in the order of the text, where they are kept.
    pub fn requests(&self) -> Vec<Request> {
        self.requests
            .iter()
            .flatten()
            .map(|r| r.1.clone())
            .collect()
    }

    /// The same with a clock.
    pub fn at_pace(mut self, pace: Option<InstructionTimes>) -> LaunchState {
        self.clock = Clock::new(pace);
        self
    }

    #[inline]
    pub fn shadow(&mut self, allocation: usize) -> &mut Shadow {
        if allocation >= self.shadows.len() {
            self.shadows.resize_with(allocation + 1, Shadow::default);
        }
        &mut self.shadows[allocation]
    }

    /// Allocations and words that two workers, each with CTAs of its own, both touched, one of
    /// them writing.
    pub fn clash(&self, other: &LaunchState) -> bool {
        self.shadows
            .iter()
            .zip(&other.shadows)
            .any(|(a, b)| a.clash(b))
    }

    pub fn line_of(&self, k: &Kernel, pc: u32) -> u32 {
        k.code.get(pc as usize).map_or(0, |i| i.line)
    }

    /// A thread, in words.
    pub fn who(&self, thread: u32, threads_per_cta: u32) -> String {
        if thread == HOST {
            return "the host".into();
        }
        if thread >= AGENTS {
            return "an asynchronous copy or product".into();
        }
        let t = thread.wrapping_sub(1);
        let (cta, t) = (t / threads_per_cta.max(1), t % threads_per_cta.max(1));
        let [x, y, z] = place(cta, self.grid);
        format!("warp {} lane {} of CTA {x},{y},{z}", t / 32, t % 32)
    }

    /// A new agent, with an odd number when it writes as ordinary instructions do.
    pub fn agent(&mut self, ordinary: bool) -> u32 {
        self.agents += 2;
        AGENTS + self.agents + u32::from(ordinary)
    }

    /// The barrier of a cluster, made when it is first asked for.
    pub fn cluster(&mut self, id: u32) -> &mut ClusterBarrier {
        let all = self.threads * self.clusters.size();
        self.cluster_barriers
            .entry(id)
            .or_insert_with(|| ClusterBarrier {
                alive: all,
                ..ClusterBarrier::default()
            })
    }

    /// Whether anybody waits for words.
    #[inline]
    pub fn watching(&self) -> bool {
        !self.watch.is_empty()
    }

    fn slot(key: u64) -> (usize, u64) {
        let h = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        (h / 64, 1 << (h % 64))
    }

    #[inline]
    pub fn wake(&mut self, key: u64) {
        let (w, bit) = Self::slot(key);
        if self.filter[w] & bit == 0 {
            return;
        }
        if let Some(list) = self.watch.remove(&key) {
            self.woken.extend(list);
            if self.watch.is_empty() {
                self.filter.fill(0);
            }
        }
    }

    pub fn park(&mut self, cta: u32, warp: u32, words: &[u64]) {
        for key in words {
            let (w, bit) = Self::slot(*key);
            self.filter[w] |= bit;
            let list = self.watch.entry(*key).or_default();
            if !list.contains(&(cta, warp)) {
                list.push((cta, warp));
            }
        }
    }

    /// Words that a parked warp waits for, for messages.
    pub fn waits_for(&self, cta: u32, warp: u32) -> Vec<u64> {
        let mut words: Vec<u64> = self
            .watch
            .iter()
            .filter(|(_, l)| l.contains(&(cta, warp)))
            .map(|(k, _)| *k)
            .collect();
        words.sort_unstable();
        words
    }
}

/// Coordinates of a CTA.
pub(crate) fn place(cta: u32, grid: [u32; 3]) -> [u32; 3] {
    let x = cta % grid[0].max(1);
    let rest = cta / grid[0].max(1);
    [x, rest % grid[1].max(1), rest / grid[1].max(1)]
}
