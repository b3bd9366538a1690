//! What a request takes on an NVIDIA GPU by each way of running its steps: the bodies of its kernels, what
//! lies between them, and the way in and out.
//!
//! # The rule
//! - *Steps*: the host makes one call for each copy and each kernel, and the GPU begins a kernel when it was
//!   called and the one before it is over, a gap later. Short kernels wait for the host.
//! - *Graph*: one call for a stretch of kernels between steps of the host; from kernel to kernel a node. A kernel's CTAs
//!   come when those of the one before are over, or have said that they may: what it copies of constants meanwhile it need
//!   not wait for, as far as it waits for nothing else ([`KernelSpan::ahead`]).
//! - By both, a step may be part of the launch before it: then it begins a hand-over after that one's tasks.
//! - *Resident*: a word there and back for a stretch, and from step to step a counter and the reads of the
//!   step's record, which go to L2 one after the other. A CTA of the kernel has the threads and registers of
//!   its most demanding step, so that a multiprocessor holds few of them and each step has as many tasks at
//!   a time there: its warps go in step and nothing else runs beside them. One CTA takes requests and none
//!   of the tasks. Each task begins anew ([`crate::Costs::task_s`]).
//!   Where host and GPU share one memory there is no such kernel.
//! - *Copies* of inputs and outputs: the host brings bytes into page-locked memory and out of it, by several threads
//!   where they are many ([`crate::staging`]), whose rates are taken to add up. Where steps are launched, one piece
//!   crosses the link while the next one is brought. In a kernel that stays its own tasks carry them, behind each other.
//!
//! Every body is preceded by the fetch of its code, and followed by its stores' way to memory, whichever way it
//! comes ([`crate::WayCosts::begin_s`]). A kernel that is launched early has part of it behind it
//! ([`crate::WayCosts::fetched_s`]).
//!
//! Whatever else bounds a body (its bytes, its instructions) is in its own prediction, which none falls below.

use crate::{Cost, Machine, MachineKind, Source, Sourced, WayCosts, Work, calc, staging};
use layout::Arrange;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// How the steps of a request reach a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The host launches every step.
    Steps,
    /// The host launches a graph of steps.
    Graph,
    /// One kernel stays and takes all steps from a ring in memory that host and GPU share.
    Resident,
}

impl Way {
    /// All of them.
    pub const ALL: [Way; 3] = [Way::Steps, Way::Graph, Way::Resident];

    /// As it is asked for.
    pub fn name(self) -> &'static str {
        match self {
            Way::Steps => "steps",
            Way::Graph => "graph",
            Way::Resident => "resident",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        Way::ALL
            .into_iter()
            .find(|w| w.name() == text)
            .ok_or_else(|| {
                format!("'{text}' is no way to launch steps; there are steps, graph and resident")
            })
    }
}

/// Reads of the record of a step, one after the other from L2, by a worker of our kernel that stays: the
/// word that calls a request off, and the parameters.
const READS: f64 = 2.0;
/// Further ones where a stretch has more steps than a worker keeps the records of: the step, what it waits
/// for, and the step again behind the fence of the wait, which empties the nearest cache.
const FAR_READS: f64 = 3.0;
/// Steps whose records a worker keeps.
const KEPT: usize = 55;
/// Registers that our kernel which stays has beside those of a step.
const OWN_REGISTERS: u64 = 16;

/// What of a kernel its way of running reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KernelSpan {
    /// Seconds from its first task's begin to its last one's end, launched alone.
    pub body_s: f64,
    /// CTAs.
    pub tasks: u64,
    /// Threads of a CTA.
    pub threads: u64,
    /// CTAs that a multiprocessor holds at a time; 0 where that is not known, as for kernels of others.
    pub held: u64,
    /// Warps of a CTA.
    pub warps: u64,
    /// Cycles that one warp takes alone.
    pub alone: f64,
    /// Cycles that the CTAs which a multiprocessor holds take when their warps go in step.
    pub in_step: f64,
    /// Where steps are launched it is part of the launch before it, as which it takes so many hand-overs, none where the
    /// CTAs of a cluster hand over, which their launch is priced with; `None` with a launch of its own.
    pub handovers: Option<u64>,
    /// Bytes that it reads, each once.
    #[serde(default)]
    pub read: f64,
    /// Bytes of constants that each CTA copies before it waits for the kernels before.
    #[serde(default)]
    pub ahead: f64,
    /// Whether it lets the kernel behind it be launched before it is over.
    #[serde(default)]
    pub triggers: bool,
}

impl KernelSpan {
    /// A kernel with CTAs of `threads` threads that does `work` and is predicted to cost `cost`.
    pub fn of(work: &Work, cost: &Cost, threads: u64) -> KernelSpan {
        let warps = work.warps.as_ref().filter(|w| w.per_task > 0);
        KernelSpan {
            body_s: (cost.time_s - cost.launch_s).max(0.0),
            tasks: work.tasks,
            threads,
            held: warps.map_or(0, |w| w.resident),
            warps: warps.map_or(0, |w| w.per_task),
            alone: warps.map_or(0.0, |w| w.alone),
            in_step: warps.map_or(0.0, |w| w.in_step),
            handovers: None,
            read: work.unique_read,
            ahead: 0.0,
            triggers: false,
        }
    }

    /// Registers of a thread at most, by how many CTAs of it `registers` hold.
    fn registers(&self, registers: u64) -> u64 {
        match self.held * self.threads {
            0 => 0,
            all => registers / all,
        }
    }

    /// Seconds in a kernel that stays, of which a multiprocessor holds `ctas` CTAs.
    fn staying_s(&self, m: &Machine, ctas: u64) -> f64 {
        if self.held == 0 || self.tasks == 0 {
            return self.body_s;
        }
        let now = ctas.clamp(1, self.held);
        let workers = m.workers.count.value.saturating_sub(1).max(1);
        let rounds = (self.tasks.div_ceil(workers) as f64 / now as f64).max(1.0);
        // What warps do in turn grows with how many there are.
        let beside = |ctas: u64| (ctas * self.warps).saturating_sub(1) as f64;
        let share = beside(now) / beside(self.held).max(1.0);
        let in_step = self.alone + (self.in_step - self.alone) * share.min(1.0);
        let cycles = rounds * self.alone.max(in_step);
        self.body_s.max(cycles / m.workers.clock_hz.value)
    }
}

/// A step of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Leg {
    /// A kernel of the GPU.
    Kernel(KernelSpan),
    /// The host's, or a copy between the two sides: seconds that everything waits for.
    Host(f64),
}

/// The steps of a request in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSteps {
    /// The steps.
    pub legs: Vec<Leg>,
    /// Bytes of each value that the host gives, and of each that it takes.
    pub inputs: Vec<f64>,
    /// See [`RequestSteps::inputs`].
    pub outputs: Vec<f64>,
    /// Whether a kernel that stays can take the steps: those of vendors' libraries it cannot.
    pub may_stay: bool,
}

/// What a request takes by one way, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WayTime {
    /// The way.
    pub way: Way,
    /// Without copies of what the host gives and takes.
    pub seconds: f64,
    /// What these add.
    pub copies_s: f64,
    /// Bodies of kernels, and steps of the host, of [`WayTime::seconds`]: the rest lies between them and at
    /// both ends.
    pub bodies_s: f64,
}

impl WayTime {
    /// With copies.
    pub fn with_copies_s(&self) -> f64 {
        self.seconds + self.copies_s
    }
}

impl WayCosts {
    /// From step to step by `way`, seconds. A node of ours is launched as the one before it ends, which takes 0.1 to
    /// 0.2 us less than one that waits for it (H200); the price of a node that begins with the one before it
    /// ([`WayCosts::graph_dependent_s`]) is lower still.
    pub fn edge_s(&self, way: Way) -> Sourced {
        match way {
            Way::Steps => self.launch_gap_s,
            Way::Graph => self.graph_node_s,
            Way::Resident => self.counter_s,
        }
    }
}

/// What is known of a machine and its link to the host, for one request.
struct Pricing<'a> {
    m: &'a Machine,
    ways: WayCosts,
    /// Seconds and bytes per second of the link to the host; nothing where memory is one place.
    link_s: f64,
    link_rate: f64,
}

impl Pricing<'_> {
    /// Seconds in which the host brings `bytes` into page-locked memory or out of it.
    fn staging_s(&self, bytes: f64) -> f64 {
        bytes / self.ways.staged.value / staging::threads(bytes as usize) as f64
    }

    /// Seconds of one of the two ways of `bytes` in which nothing of the other is under way: the piece that comes
    /// first, or last.
    fn alone_s(&self, bytes: f64, way: impl Fn(f64) -> f64) -> f64 {
        let piece = (staging::PIECE as f64).min(bytes);
        way(bytes) * piece / bytes.max(1.0)
    }

    /// Seconds that a value's way through page-locked memory is shorter than both of its halves.
    fn overlap_s(&self, bytes: f64) -> f64 {
        let beside = |way: &dyn Fn(f64) -> f64| way(bytes) - self.alone_s(bytes, way);
        beside(&|b| self.staging_s(b)).min(beside(&|b| self.link_s(b)))
    }

    /// Seconds over the link.
    fn link_s(&self, bytes: f64) -> f64 {
        match self.m.is_unified() {
            true => 0.0,
            false => self.link_s + bytes / self.link_rate,
        }
    }

    /// Seconds from the last kernel's end until the host knows of it.
    fn end_s(&self) -> f64 {
        (self.m.costs.launch_s.value - self.ways.launch_call_s.value).max(0.0)
    }

    /// From kernel to kernel of a graph, where the one before lets this one be launched early or does not; and what of its
    /// body this one has done by then.
    ///
    /// An edge between kernels that do nothing takes [`WayCosts::graph_dependent_s`] where the second one's CTAs are there
    /// before the first one is over: what it takes until that is known. Without, those CTAs have to come first, which the
    /// rest of [`WayCosts::graph_node_s`] is for. A kernel that nobody lets come earlier comes when the CTAs before are
    /// over, beside the other part.
    /// Beside the steps behind a launch's first, whose CTAs are few, more of it is done: `free_s` (see
    /// [`Pricing::free_s`]).
    fn node_s(&self, k: &KernelSpan, triggered: bool, free_s: f64) -> (f64, f64) {
        let node = self.ways.graph_node_s.value;
        let over = self.ways.graph_dependent_s.value.min(node);
        let (node, beside) = match triggered {
            true => (over, over + free_s),
            false => (node, (2.0 * over - node).max(0.0)),
        };
        (node, self.ahead_s(k).min(beside).min(k.body_s))
    }

    /// What a kernel takes to begin and to end, launched `early` or not.
    fn begin_s(&self, early: bool) -> f64 {
        let fetched = match early {
            true => self.ways.fetched_s.value,
            false => 0.0,
        };
        (self.ways.begin_s.value - fetched).max(0.0)
    }

    /// Seconds of a step behind the first of a launch by the share of multiprocessors that run none of its tasks, on which
    /// the next launch may be.
    fn free_s(&self, k: &KernelSpan, seconds: f64) -> f64 {
        let busy = k.tasks as f64 / self.m.workers.count.value.max(1) as f64;
        seconds * (1.0 - busy).max(0.0)
    }

    /// What a body takes less whose CTAs have copied what they copy ahead: of memory's latency what the cache's, from
    /// which the rest comes, is less, and of the bytes what the body does not spend on something else meanwhile.
    fn ahead_s(&self, k: &KernelSpan) -> f64 {
        let Some(device) = self.m.levels.get(self.m.memory_index()) else {
            return 0.0;
        };
        if k.ahead == 0.0 {
            return 0.0;
        }
        let latency = |name: &str| self.m.level(name).map_or(0.0, |l| l.latency_s.value);
        let latency = (device.latency_s.value - latency("L2")).max(0.0);
        let workers = self.m.worker_count();
        let held = workers as u64 * k.held.max(1);
        let ahead = k.ahead * k.tasks.min(held) as f64;
        let rate = device.read.at(workers);
        let beside = (k.body_s - device.latency_s.value - k.read / rate).max(0.0);
        latency + (ahead.min(k.read) / rate - beside).max(0.0)
    }

    /// Steps and graphs: what the host has called for, and where the GPU is.
    fn queued(&self, r: &RequestSteps, way: Way) -> f64 {
        let call = self.ways.launch_call_s.value;
        let (mut host, mut gpu) = (0.0f64, 0.0f64);
        for &bytes in &r.inputs {
            host += self.staging_s(bytes) + call;
            gpu = gpu.max(host - self.overlap_s(bytes)) + self.link_s(bytes);
        }
        // The first kernel of a stretch stands behind nothing.
        let mut first = true;
        let mut waited = true;
        let (mut triggered, mut free_s) = (false, 0.0);
        for leg in &r.legs {
            match leg {
                Leg::Host(seconds) => {
                    host = if first {
                        host
                    } else {
                        gpu.max(host) + self.end_s()
                    } + seconds;
                    gpu = gpu.max(host);
                    first = true;
                    waited = true;
                }
                Leg::Kernel(
                    k @ KernelSpan {
                        handovers: Some(times),
                        ..
                    },
                ) if !first => {
                    let seconds = *times as f64 * self.m.costs.handoff_s.value + k.body_s;
                    gpu += seconds;
                    free_s = match (k.triggers, triggered) {
                        (true, _) | (_, false) => 0.0,
                        _ => free_s + self.free_s(k, seconds),
                    };
                    triggered |= k.triggers;
                }
                Leg::Kernel(k) if way == Way::Graph => {
                    let (node, early) = match first {
                        true => (self.ways.graph_node_s.value, 0.0),
                        false => self.node_s(k, triggered, free_s),
                    };
                    let begin_s = self.begin_s(triggered && !first);
                    (triggered, free_s) = (k.triggers, 0.0);
                    if first {
                        // Of a graph's whole time what its end takes is counted there.
                        let begin = self.ways.graph_s.value - node - self.end_s();
                        gpu = gpu.max(host) + begin.max(0.0);
                        host += call;
                    }
                    gpu += node + begin_s + k.body_s - early;
                    (first, waited) = (false, false);
                }
                Leg::Kernel(k) => {
                    host += call;
                    let gap = if first {
                        0.0
                    } else {
                        self.ways.launch_gap_s.value
                    };
                    gpu = host.max(gpu + gap) + self.ways.begin_s.value + k.body_s;
                    (first, waited) = (false, false);
                }
            }
        }
        for &bytes in &r.outputs {
            host += call;
            gpu = gpu.max(host) + self.link_s(bytes);
        }
        let out = |&b: &f64| self.staging_s(b) - self.overlap_s(b);
        let out: f64 = r.outputs.iter().map(out).sum();
        let end = match waited && r.outputs.is_empty() {
            true => 0.0,
            false => self.end_s(),
        };
        gpu.max(host) + end + out
    }

    /// A kernel that stays.
    fn staying(&self, r: &RequestSteps) -> f64 {
        let ctas = self.ctas(r);
        let (m, ways) = (self.m, &self.ways);
        let counter = ways.counter_s.value;
        let l2 = m.level("L2").map_or(0.0, |l| l.latency_s.value);
        let kernels = |legs: &[Leg]| legs.iter().filter(|l| matches!(l, Leg::Kernel(_))).count();
        let mut total = 0.0;
        for part in r.legs.split_inclusive(|l| matches!(l, Leg::Host(_))) {
            let steps = kernels(part);
            let reads = READS + if steps > KEPT { FAR_READS } else { 0.0 };
            total += match steps {
                0 => 0.0,
                _ => ways.answer_s.value,
            };
            for leg in part {
                total += match leg {
                    Leg::Host(seconds) => *seconds,
                    Leg::Kernel(k) => {
                        let workers = (m.workers.count.value * ctas).saturating_sub(1).max(1);
                        let own = k.tasks.div_ceil(workers) as f64 * m.costs.task_s.value;
                        k.staying_s(m, ctas) + ways.begin_s.value + counter + reads * l2 + own
                    }
                };
            }
        }
        // Values come and go side by side, as two steps more.
        for all in [&r.inputs, &r.outputs] {
            let bytes: f64 = all.iter().sum();
            if bytes > 0.0 {
                total += self.staging_s(bytes) + self.link_s(bytes) + counter;
            }
        }
        total
    }

    /// CTAs of a kernel that stays for these steps that a multiprocessor holds.
    fn ctas(&self, r: &RequestSteps) -> u64 {
        let all = || {
            r.legs.iter().filter_map(|l| match l {
                Leg::Kernel(k) => Some(k),
                Leg::Host(_) => None,
            })
        };
        let file = self.m.limits.registers_per_sm.map_or(0, |v| v.value);
        let threads = all().map(|k| k.threads).max().unwrap_or(0);
        let registers = all().map(|k| k.registers(file)).max().unwrap_or(0);
        let block = calc::Block {
            threads,
            registers: registers + OWN_REGISTERS,
            shared: 0,
        };
        calc::occupancy(&self.m.limits, block).map_or(1, |o| o.ctas.max(1))
    }
}

/// The ways of the H100, on which they were measured. Its file alone is read, and of it no more: a program that runs
/// models would otherwise hold every machine of the catalog, and the reader of whole machines.
fn measured() -> Option<WayCosts> {
    #[derive(serde::Deserialize)]
    struct Described {
        costs: DescribedCosts,
    }
    #[derive(serde::Deserialize)]
    struct DescribedCosts {
        ways: WayCosts,
    }
    let described: Described = crate::toml::read(include_str!("../machines/h100.toml")).ok()?;
    Some(described.costs.ways)
}

impl Machine {
    /// Seconds that a step takes less (or more, below 0) where it is part of the launch before it and takes so many
    /// hand-overs.
    pub fn joined_s(&self, handovers: u64) -> f64 {
        self.costs.step_s.value - handovers as f64 * self.costs.handoff_s.value
    }

    /// What the ways from step to step cost: as described, and on another NVIDIA GPU what they cost on the
    /// H100 of the catalog, where they were measured, as an assumption. `None` for other machines.
    pub fn way_costs(&self) -> Option<WayCosts> {
        if self.kind == MachineKind::Cpu || self.limits.cc == 0 {
            return None;
        }
        if self.costs.ways.is_some() {
            return self.costs.ways.clone();
        }
        static MEASURED: OnceLock<Option<WayCosts>> = OnceLock::new();
        let like = MEASURED.get_or_init(|| {
            let mut ways = measured()?;
            ways.staged.source = Source::Assumed;
            ways.seconds_mut()
                .into_iter()
                .for_each(|s| s.source = Source::Assumed);
            Some(ways)
        });
        like.clone()
    }

    /// What a request of these steps takes by `way`; `None` where the machine or the steps do not have it.
    pub fn request(&self, r: &RequestSteps, way: Way) -> Option<WayTime> {
        if way == Way::Resident && (!r.may_stay || self.is_unified()) {
            return None;
        }
        let link = self.links.iter().find(|l| l.to == "host");
        let p = Pricing {
            m: self,
            ways: self.way_costs()?,
            link_s: link.map_or(0.0, |l| l.latency_s.value),
            link_rate: link.map_or(f64::INFINITY, |l| l.bandwidth.value),
        };
        let ctas = p.ctas(r);
        let time = |r: &RequestSteps| match way {
            Way::Resident => p.staying(r),
            _ => p.queued(r, way),
        };
        let inside = RequestSteps {
            inputs: vec![],
            outputs: vec![],
            ..r.clone()
        };
        let seconds = time(&inside);
        let bodies = r.legs.iter().map(|l| match (l, way) {
            (Leg::Host(s), _) => *s,
            (Leg::Kernel(k), Way::Resident) => k.staying_s(self, ctas),
            (Leg::Kernel(k), _) => k.body_s,
        });
        Some(WayTime {
            way,
            seconds,
            copies_s: (time(r) - seconds).max(0.0),
            bodies_s: bodies.sum(),
        })
    }

    /// Every way that there is for these steps, the shortest first.
    pub fn request_ways(&self, r: &RequestSteps) -> Vec<WayTime> {
        let mut all: Vec<WayTime> = Way::ALL
            .into_iter()
            .filter_map(|w| self.request(r, w))
            .collect();
        all.arrange_by(|a, b| a.with_copies_s().total_cmp(&b.with_copies_s()));
        all
    }
}
