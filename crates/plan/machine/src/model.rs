//! The description of a machine.

use crate::{MachineError, Sourced};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::fmt;

/// What kind of processor a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineKind {
    /// Workers are pinned threads, one to a core.
    Cpu,
    /// Workers are SMs (compute units, Xe cores); a task is a CTA.
    Gpu,
}

/// A number format as execution units see it; more than the tensor dtypes (`tf32` is no storage format).
#[allow(missing_docs)] // the names are the formats
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NumType {
    F64,
    F32,
    Tf32,
    Bf16,
    F16,
    F8,
    I64,
    I32,
    I16,
    I8,
    I4,
    Bool,
}

impl From<layout::DType> for NumType {
    /// The arithmetic a tensor dtype is computed in; unsigned integers run on the signed units.
    fn from(d: layout::DType) -> Self {
        use layout::DType as D;
        match d {
            D::F64 => NumType::F64,
            D::F32 => NumType::F32,
            D::F16 => NumType::F16,
            D::BF16 => NumType::Bf16,
            D::I64 | D::U64 => NumType::I64,
            D::I32 | D::U32 => NumType::I32,
            D::I16 | D::U16 => NumType::I16,
            D::I8 | D::U8 => NumType::I8,
            D::I4 | D::U4 => NumType::I4,
            D::Bool | D::Str | D::Host => NumType::Bool,
        }
    }
}

impl NumType {
    /// The format called `name`, as [`fmt::Display`] writes it.
    pub fn from_name(name: &str) -> Option<NumType> {
        use NumType as N;
        let all = [
            N::F64,
            N::F32,
            N::Tf32,
            N::Bf16,
            N::F16,
            N::F8,
            N::I64,
            N::I32,
            N::I16,
            N::I8,
            N::I4,
            N::Bool,
        ];
        all.into_iter().find(|n| n.to_string() == name)
    }
}

impl fmt::Display for NumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumType::F64 => "f64",
            NumType::F32 => "f32",
            NumType::Tf32 => "tf32",
            NumType::Bf16 => "bf16",
            NumType::F16 => "f16",
            NumType::F8 => "f8",
            NumType::I64 => "i64",
            NumType::I32 => "i32",
            NumType::I16 => "i16",
            NumType::I8 => "i8",
            NumType::I4 => "i4",
            NumType::Bool => "bool",
        })
    }
}

/// The class of operation a unit executes and [`crate::Work`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnitClass {
    /// Multiply-add on the vector units; one fused multiply-add counts as 2.
    Fma,
    /// Multiply-add on matrix units (tensor cores, AMX tiles); one multiply-add counts as 2.
    Tensor,
    /// Add, multiply, compare, select, min, max, convert, bit operations: one each.
    Simple,
    /// Divide and square root: one each.
    Divsqrt,
    /// exp, log, tanh, erf, sin, pow and their like: one each.
    Transcendental,
    /// Elements loaded or stored one by one because their neighbours lie apart: one each.
    Element,
}

impl fmt::Display for UnitClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            UnitClass::Fma => "fma",
            UnitClass::Tensor => "tensor",
            UnitClass::Simple => "simple",
            UnitClass::Divsqrt => "divsqrt",
            UnitClass::Transcendental => "transcendental",
            UnitClass::Element => "element",
        })
    }
}

/// A machine: everything a planner may know about hardware. Plain data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The catalog name.
    pub name: String,
    /// Other names it is found by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// CPU or GPU.
    pub kind: MachineKind,
    /// Who makes it.
    #[serde(default)]
    pub vendor: String,
    /// The micro-architecture, in lower case (`zen4`, `hopper`); empty when unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arch: String,
    /// Free text: where figures are from, what is uncertain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Board or package power limit, watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_w: Option<Sourced>,
    /// The instruction set.
    pub isa: Isa,
    /// Who does the work.
    pub workers: Workers,
    /// Fixed costs, seconds.
    #[serde(default)]
    pub costs: Costs,
    /// Occupancy limits; all `None` on a CPU.
    #[serde(default, skip_serializing_if = "Limits::is_empty")]
    pub limits: Limits,
    /// Memory levels from nearest (registers) to farthest.
    pub levels: Vec<Level>,
    /// Execution units.
    pub units: Vec<Unit>,
    /// Roads between places.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

/// The instruction set of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Isa {
    /// `x86_64`, `aarch64`, `ptx`, `wgsl`.
    pub name: String,
    /// Extensions that matter to kernels, sorted (`avx2`, `avx512f`, `fma`), or `sm_80`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub features: Vec<String>,
    /// Architectural vector registers of one worker's thread (CPU), or 0.
    #[serde(default)]
    pub vector_registers: u64,
    /// Widest vector, bytes (64 with AVX-512), or 0 on a GPU.
    #[serde(default)]
    pub vector_bytes: u64,
}

impl Isa {
    /// Whether an extension is there.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|f| f == feature)
    }
}

/// The workers of a machine: usable cores of a CPU, SMs of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workers {
    /// How many there are to use.
    pub count: Sourced<u64>,
    /// Clock under load, hertz.
    pub clock_hz: Sourced,
    /// f32 lanes of one worker: results of one class of simple vector operation per clock.
    pub lanes: Sourced<u64>,
    /// Share of what overlaps the longest part of a statement that a worker spends beside it: 0 where
    /// others issue transfers (a GPU's warps), more than that where one thread issues everything.
    #[serde(default = "no_cost", skip_serializing_if = "is_nothing")]
    pub exposed: Sourced,
    /// Hardware threads to a core (CPU; 1 when unknown or off).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub threads_per_core: u64,
}

fn is_nothing(v: &Sourced) -> bool {
    *v == no_cost()
}
fn one() -> u64 {
    1
}
fn is_one(v: &u64) -> bool {
    *v == 1
}

/// A memory level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Level {
    /// `register`, `L1`, `shared`, `L2`, `L3`, `device`, `host`, `remote`.
    pub name: String,
    /// Capacity of one instance, bytes.
    pub bytes: Sourced,
    /// What a planner should count on of one instance, bytes, where neighbours share it; else `bytes`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usable: Option<Sourced>,
    /// How many workers share one instance; 1 for a private level.
    pub shared_by: u64,
    /// Transfer unit, bytes.
    pub line: u64,
    /// Load latency of a dependent access, seconds.
    pub latency_s: Sourced,
    /// Loads from this level towards the registers.
    pub read: Bandwidth,
    /// Stores to this level.
    pub write: Bandwidth,
    /// The pins behind a main memory; its peak bandwidth is width times pin speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<Bus>,
    /// The name of another level that is the same memory (unified memory).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_place_as: Option<String>,
}

/// A memory bus.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bus {
    /// `HBM3`, `GDDR6`, `DDR5`.
    #[serde(default)]
    pub memory: String,
    /// Data pins.
    pub bits: Sourced<u64>,
    /// Bits per second of one pin.
    pub pin_bits_per_s: Sourced,
}

impl Level {
    /// Peak bandwidth, bytes per second: of the bus where one is described, else the read bandwidth
    /// of all workers.
    pub fn peak(&self) -> f64 {
        self.bus.as_ref().map_or(self.read.all.value, |b| {
            crate::calc::bus_bandwidth(b.bits.value, b.pin_bits_per_s.value)
        })
    }
    /// The bytes of one instance that a planner may count on.
    pub fn capacity(&self) -> f64 {
        self.usable.map_or(self.bytes.value, |u| u.value)
    }
    /// The bytes that one of `active` workers may count on, when all use the level evenly.
    pub fn capacity_per_worker(&self, active: usize) -> f64 {
        self.capacity() / (self.shared_by.min(active.max(1) as u64).max(1) as f64)
    }
    /// Whether every worker has its own instance.
    pub fn is_private(&self) -> bool {
        self.shared_by <= 1
    }
}

/// A bandwidth as a function of how many workers are active, bytes per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bandwidth {
    /// One worker alone.
    pub per_worker: Sourced,
    /// All workers together.
    pub all: Sourced,
    /// Measured points (active workers, bytes per second of all of them), rising in workers; may be empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub curve: Vec<(f64, f64)>,
}

impl Bandwidth {
    /// The same figure for one and for all of `workers` private instances.
    pub fn private(per_worker: Sourced, workers: u64) -> Self {
        let all = Sourced::new(per_worker.value * workers as f64, per_worker.source);
        Bandwidth {
            per_worker,
            all,
            curve: Vec::new(),
        }
    }
    /// Bytes per second that `active` workers reach together: along the curve where there is one
    /// (straight lines between points, flat beyond the last), else `min(active * per_worker, all)`.
    pub fn at(&self, active: usize) -> f64 {
        let w = active.max(1) as f64;
        let Some(first) = self.curve.first() else {
            return (w * self.per_worker.value).min(self.all.value.max(self.per_worker.value));
        };
        if w <= first.0 {
            return first.1 * w / first.0;
        }
        for p in self.curve.windows(2) {
            if w <= p[1].0 {
                let t = (w - p[0].0) / (p[1].0 - p[0].0);
                return p[0].1 + t * (p[1].1 - p[0].1);
            }
        }
        self.curve.last().map_or(self.all.value, |p| p.1)
    }
}

/// An execution unit: a rate for a class of operations in a number format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unit {
    /// How it is named in bounds and tables: `fma`, `tensor`, `sfu`.
    pub name: String,
    /// What it executes.
    pub class: UnitClass,
    /// Format of the inputs.
    pub dtype_in: NumType,
    /// Format of the accumulator.
    pub dtype_acc: NumType,
    /// Elements of one instruction as (m, n, k); (1, lanes, 1) for a vector unit.
    pub tile: (u64, u64, u64),
    /// The extension the rate needs (`avx512f`, `sm_80`); empty when any will do.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub isa: String,
    /// Operations per second of one worker alone.
    pub per_worker: Sourced,
    /// Operations per second of all workers together.
    pub all: Sourced,
}

impl Unit {
    /// Operations per second of `active` workers together.
    pub fn at(&self, active: usize) -> f64 {
        (active.max(1) as f64 * self.per_worker.value)
            .min(self.all.value.max(self.per_worker.value))
    }
    /// Vector lanes of one instruction.
    pub fn lanes(&self) -> u64 {
        self.tile.1
    }
}

/// A link between two places of memory (PCIe, NVLink, the socket's own memory bus).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// `pcie`, `nvlink`, `c2c`.
    pub name: String,
    /// The level at this machine's end.
    pub from: String,
    /// The level at the other end: `host`, `device`, `remote`.
    pub to: String,
    /// Bytes per second in one direction.
    pub bandwidth: Sourced,
    /// Seconds before the first byte.
    pub latency_s: Sourced,
}

/// Fixed costs, seconds each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// One launch of work from the host (a kernel launch; a request through the ring on a CPU).
    pub launch_s: Sourced,
    /// A message between two running workers through memory, one way (a hop of a hot ring).
    pub handoff_s: Sourced,
    /// Waking a parked worker, until it runs.
    pub wake_s: Sourced,
    /// Fixed cost of a step within a running plan.
    pub step_s: Sourced,
    /// Fixed cost of a task: ticket, parameters, first addresses.
    pub task_s: Sourced,
    /// Fixed cost of a statement on a tile: finding its addresses and calling its loop.
    #[serde(default = "no_cost")]
    pub tile_s: Sourced,
    /// Fixed cost of a row within a statement: neighbours in memory that one inner loop goes through.
    #[serde(default = "no_cost")]
    pub row_s: Sourced,
    /// Fixed cost of a micro-kernel call: its row table, its first loads, its sums' way out.
    #[serde(default = "no_cost")]
    pub call_s: Sourced,
    /// What the ways from step to step of an NVIDIA GPU cost; those of another by [`Machine::way_costs`]
    /// where they are not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ways: Option<WayCosts>,
}

/// What it costs on a GPU to go from one kernel of a request to the next, and into a request and out of it.
/// The launch of one kernel and the wait for it is [`Costs::launch_s`], the hand-over by a flag of the one
/// CTA that is waited for [`Costs::handoff_s`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WayCosts {
    /// From kernel to kernel of a stream whose host is ahead, seconds.
    pub launch_gap_s: Sourced,
    /// The host's time of one call that launches or copies, seconds.
    pub launch_call_s: Sourced,
    /// Launch of a graph of one kernel and the wait for it, seconds.
    pub graph_s: Sourced,
    /// From kernel to kernel of a graph, seconds.
    pub graph_node_s: Sourced,
    /// The same where the next kernel is launched before the one before it is over (programmatic dependent
    /// launch), seconds.
    pub graph_dependent_s: Sourced,
    /// What a step takes to begin and to end beside its body, seconds: its code and its arguments are fetched, and
    /// what it stored has to be through.
    #[serde(default = "no_cost")]
    pub begin_s: Sourced,
    /// Of [`WayCosts::begin_s`] what a kernel that is launched before the one before it is over has done by then, seconds:
    /// its code and its arguments are there. On the H100 what chains of few rows took less as such kernels
    /// (h100-lab2.txt), but for what their edges take less and for weights that are copied meanwhile.
    #[serde(default = "no_cost")]
    pub fetched_s: Sourced,
    /// What a launch in clusters of CTAs takes more, seconds: those of a cluster meet at its beginning and at its end.
    #[serde(default = "no_cost")]
    pub cluster_s: Sourced,
    /// From step to step of a kernel that stays, by one counter of all its CTAs with a poll that pauses and a
    /// fence, as ours does it, seconds.
    pub counter_s: Sourced,
    /// A word of the host to a kernel that stays, which hands it to all its CTAs, and the answer, seconds.
    pub answer_s: Sourced,
    /// Bytes per second at which the host copies into page-locked memory and out of it.
    pub staged: Sourced,
}

impl WayCosts {
    /// All of them with their names.
    pub fn all(&self) -> [(&'static str, Sourced); 11] {
        [
            ("launch_gap_s", self.launch_gap_s),
            ("launch_call_s", self.launch_call_s),
            ("graph_s", self.graph_s),
            ("graph_node_s", self.graph_node_s),
            ("graph_dependent_s", self.graph_dependent_s),
            ("begin_s", self.begin_s),
            ("fetched_s", self.fetched_s),
            ("cluster_s", self.cluster_s),
            ("counter_s", self.counter_s),
            ("answer_s", self.answer_s),
            ("staged", self.staged),
        ]
    }

    /// What takes seconds, to be changed.
    pub(crate) fn seconds_mut(&mut self) -> [&mut Sourced; 10] {
        [
            &mut self.launch_gap_s,
            &mut self.launch_call_s,
            &mut self.graph_s,
            &mut self.graph_node_s,
            &mut self.graph_dependent_s,
            &mut self.begin_s,
            &mut self.fetched_s,
            &mut self.cluster_s,
            &mut self.counter_s,
            &mut self.answer_s,
        ]
    }
}

fn no_cost() -> Sourced {
    Sourced::assumed(0.0)
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            launch_s: Sourced::assumed(0.0),
            handoff_s: Sourced::assumed(0.0),
            wake_s: Sourced::assumed(0.0),
            step_s: Sourced::assumed(0.0),
            task_s: Sourced::assumed(0.0),
            tile_s: no_cost(),
            row_s: no_cost(),
            call_s: no_cost(),
            ways: None,
        }
    }
}

/// Occupancy limits of a GPU. Bytes, threads and 32-bit registers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Compute capability as major * 10 + minor (80, 90); 0 when it is no NVIDIA GPU.
    #[serde(default)]
    pub cc: u32,
    /// Lanes of a warp (subgroup).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warp: Option<Sourced<u64>>,
    /// Threads of one CTA at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_per_cta: Option<Sourced<u64>>,
    /// Threads resident on one SM at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads_per_sm: Option<Sourced<u64>>,
    /// Warps resident on one SM at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warps_per_sm: Option<Sourced<u64>>,
    /// CTAs resident on one SM at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ctas_per_sm: Option<Sourced<u64>>,
    /// Registers of one SM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers_per_sm: Option<Sourced<u64>>,
    /// Registers of one thread at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers_per_thread: Option<Sourced<u64>>,
    /// Registers are handed to a warp in multiples of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register_granularity: Option<Sourced<u64>>,
    /// Shared memory of one SM that CTAs can have together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_per_sm: Option<Sourced<u64>>,
    /// Shared memory of one CTA at most (opt-in limit).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_per_cta: Option<Sourced<u64>>,
    /// Shared memory is handed out in multiples of this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_granularity: Option<Sourced<u64>>,
    /// Shared memory that the driver takes from every CTA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_reserved_per_cta: Option<Sourced<u64>>,
    /// Shared memory of one CTA that has not opted in to more; `shared_per_cta` where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_default_per_cta: Option<Sourced<u64>>,
    /// Sizes that the shared part of the joint L1 and shared memory can be set to, rising, bytes (the
    /// programming guide's); empty where the two are separate.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_carveouts: Vec<u64>,
    /// Sizes of clusters of CTAs, rising, and how many multiprocessors clusters of that size have at once at most, where not
    /// all do: those of a cluster are of one GPC.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clustered: Vec<[u64; 2]>,
    /// Registers of one CTA at most, where that is less than an SM has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registers_per_cta: Option<Sourced<u64>>,
    /// Equal parts the register file is split into, each serving its own warps; 4 where it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub register_files: Option<Sourced<u64>>,
    /// CTA barriers that one SM keeps track of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub barriers_per_sm: Option<Sourced<u64>>,
}

impl Limits {
    /// How many of so many workers clusters of `size` CTAs have at once.
    pub fn clustered(&self, size: u32, workers: usize) -> usize {
        let known = self.clustered.iter().rev();
        let mut least = known.filter(|c| c[0] <= size.into());
        let most = least.next().and_then(|c| usize::try_from(c[1]).ok());
        most.map_or(workers, |n| workers.min(n)).max(1)
    }

    /// Whether nothing is limited (a CPU).
    pub fn is_empty(&self) -> bool {
        *self == Limits::default()
    }
}

impl Machine {
    /// Index of a level by name, ignoring case; `DRAM` and `memory` stand for the main memory.
    pub fn level_index(&self, name: &str) -> Option<usize> {
        let found = self
            .levels
            .iter()
            .position(|l| l.name.eq_ignore_ascii_case(name));
        if found.is_none()
            && (name.eq_ignore_ascii_case("dram") || name.eq_ignore_ascii_case("memory"))
        {
            return Some(self.memory_index());
        }
        found
    }

    /// A level by name, ignoring case.
    pub fn level(&self, name: &str) -> Option<&Level> {
        self.level_index(name).map(|i| &self.levels[i])
    }

    /// Index of the machine's own main memory: `device`, else `host`, else the farthest level.
    pub fn memory_index(&self) -> usize {
        let by = |n: &str| self.levels.iter().position(|l| l.name == n);
        by("device")
            .or_else(|| by("host"))
            .unwrap_or(self.levels.len().saturating_sub(1))
    }

    /// The machine's own main memory.
    ///
    /// # Panics
    /// When the machine has no levels; none that passed [`Machine::check`] is so.
    pub fn memory(&self) -> &Level {
        &self.levels[self.memory_index()]
    }

    /// Index of the nearest level beyond the registers one instance of which can be counted on to
    /// hold `bytes` from step to step; the main memory when none does. What a GPU's multiprocessors have
    /// for themselves is empty when a kernel begins.
    pub fn nearest_holding_index(&self, bytes: f64) -> usize {
        let memory = self.memory_index();
        let keeps = |l: &Level| match self.kind {
            MachineKind::Cpu => l.name != "register",
            MachineKind::Gpu => !l.is_private(),
        };
        (0..memory)
            .find(|&i| keeps(&self.levels[i]) && self.levels[i].capacity() >= bytes)
            .unwrap_or(memory)
    }

    /// The nearest level beyond the registers that can be counted on to hold `bytes`.
    pub fn nearest_holding(&self, bytes: f64) -> &Level {
        &self.levels[self.nearest_holding_index(bytes)]
    }

    /// The cache levels (beyond registers, before main memory) from nearest to farthest, with their indices.
    pub fn caches(&self) -> impl Iterator<Item = (usize, &Level)> {
        let memory = self.memory_index();
        self.levels[..memory]
            .iter()
            .enumerate()
            .filter(|(_, l)| l.name != "register")
    }

    /// The unit with the highest rate for a class and input format; of matrix units one that sums in 32
    /// bits is preferred to a faster one that sums in 16.
    pub fn unit(&self, class: UnitClass, dtype: NumType) -> Option<&Unit> {
        self.unit_index(class, dtype).map(|i| &self.units[i])
    }

    /// The matrix unit whose instructions have so many rows: 64 are those of a warpgroup, fewer those of a warp.
    pub fn matrix_unit(&self, dtype: NumType, rows: u64) -> Option<&Unit> {
        let own = |u: &&Unit| {
            u.class == UnitClass::Tensor && u.dtype_in == dtype && (u.tile.0 >= 64) == (rows >= 64)
        };
        let rank = |u: &Unit| (u.dtype_acc != NumType::F16, u.per_worker.value);
        let all = self.units.iter().filter(own);
        all.max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(Ordering::Equal))
    }

    /// Index of the unit with the highest rate for a class and input format.
    pub fn unit_index(&self, class: UnitClass, dtype: NumType) -> Option<usize> {
        let rank = |u: &Unit| {
            let wide = class != UnitClass::Tensor || u.dtype_acc != NumType::F16;
            (wide, u.per_worker.value)
        };
        let mut best: Option<usize> = None;
        for (i, u) in self.units.iter().enumerate() {
            if u.class == class
                && u.dtype_in == dtype
                && best.is_none_or(|b| rank(u) > rank(&self.units[b]))
            {
                best = Some(i);
            }
        }
        best
    }

    /// This CPU as seen by kernels of one instruction set (`avx512`, `avx2`, `portable`, `neon`): units
    /// that need a wider one are gone, and vector rates that name none shrink with the fma rate.
    /// Unknown names change nothing.
    pub fn restricted_to_isa(&self, isa: &str) -> Machine {
        const WIDTHS: [(&str, u64); 3] = [("portable", 16), ("avx2", 32), ("avx512", 64)];
        let Some(allowed) = WIDTHS.iter().position(|w| w.0 == isa) else {
            return self.clone();
        };
        let rank = |u: &Unit| match u.isa.as_str() {
            "" => 0,
            "portable" => 0,
            "avx2" | "avx_vnni" => 1,
            _ => 2,
        };
        let mut out = self.clone();
        let fma = |m: &Machine| {
            m.unit(UnitClass::Fma, NumType::F32)
                .map(|u| u.per_worker.value)
        };
        let before = fma(self);
        out.units.retain(|u| rank(u) <= allowed);
        if let (Some(b), Some(a)) = (before, fma(&out))
            && a < b
        {
            for u in out.units.iter_mut().filter(|u| u.isa.is_empty()) {
                for rate in [&mut u.per_worker, &mut u.all] {
                    *rate = Sourced::assumed(rate.value * a / b);
                }
            }
        }
        if out.isa.vector_bytes > WIDTHS[allowed].1 {
            out.isa.vector_bytes = WIDTHS[allowed].1;
            out.isa.vector_registers = if allowed == 2 { 32 } else { 16 };
        }
        if allowed < 2 {
            out.isa.features.retain(|f| !f.starts_with("avx512"));
        }
        if allowed < 1 {
            out.isa
                .features
                .retain(|f| !f.starts_with("avx") && f != "fma");
        }
        out
    }

    /// How many workers there are.
    pub fn worker_count(&self) -> usize {
        usize::try_from(self.workers.count.value).unwrap_or(usize::MAX)
    }

    /// Whether it is a GPU.
    pub fn is_gpu(&self) -> bool {
        self.kind == MachineKind::Gpu
    }

    /// Whether host and device memory are one place (a CPU always; a GPU with unified memory).
    pub fn is_unified(&self) -> bool {
        self.kind == MachineKind::Cpu || self.memory().same_place_as.is_some()
    }

    /// Checks what the types cannot say: levels and units there, names unique, numbers finite and
    /// positive, references resolved.
    ///
    /// # Errors
    /// [`MachineError::Field`] that names the field and what is wrong with it.
    pub fn check(&self) -> Result<(), MachineError> {
        crate::text::check(self)
    }
}
