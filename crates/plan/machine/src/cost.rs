//! What work costs on a machine: a roofline over every level and unit, plus fixed costs.
//!
//! # The rule
//! With `w` active workers and `i` the imbalance of the last wave, for every statement on its own (a
//! worker goes through statements one after the other):
//! - a level takes `loaded / read(w) + stored / write(w)`, each bandwidth times the level's efficiency;
//! - a unit takes `operations / rate(w)`, times its efficiency. Vector classes (fma, simple, divsqrt,
//!   transcendental) share their pipes, so their times add; matrix units run beside them;
//! - **overlap**: transfers at different levels, and transfers and arithmetic, overlap; the busy time
//!   is the largest of them, times `i`. Where one thread issues them all a share of the others' time
//!   is added (`workers.exposed` of the machine);
//! - latency is added: the first access to the farthest level touched, once on a CPU and once per
//!   wave on a GPU, and each hand-off and barrier;
//! - fixed costs are added: launches, steps, and the tasks, statements, rows and micro-kernel calls of
//!   the busiest worker;
//! - where it is known what warps do ([`crate::Warps`]), arithmetic takes no less than issuing all their
//!   instructions, and the whole no less than the rounds of CTAs on a multiprocessor, each as long as one
//!   warp alone under the latencies of its loads: bytes under way are what resident warps ask for. Warps
//!   that go in step overlap nothing of what they do in turn: half of what that adds in a first round, and
//!   less the more CTAs follow each other on a multiprocessor that holds several.
//!
//! Nothing is clamped: a measured time below the prediction is a finding about the model.

use crate::products::ProductCosts;
use crate::{Machine, MachineKind, NumType, Source, Traffic, UnitClass, Work};
use layout::Arrange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Shares of peak that a kernel reaches, by unit and level name; 1 where nothing is known.
/// A share above 1 is legal: a measured kernel may beat a rate that was assumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Efficiencies {
    /// Share of a unit's rate, by unit name or class name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, f64>,
    /// Share of a level's bandwidth, by level name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, f64>,
    /// Factor on the whole time: what the supervisor learnt about this step. 1 by default.
    #[serde(default = "unity")]
    pub time_factor: f64,
}

fn unity() -> f64 {
    1.0
}

impl Default for Efficiencies {
    fn default() -> Self {
        Efficiencies {
            units: BTreeMap::new(),
            levels: BTreeMap::new(),
            time_factor: 1.0,
        }
    }
}

impl Efficiencies {
    /// Share of a unit's rate.
    pub fn unit(&self, name: &str, class: UnitClass) -> f64 {
        if self.units.is_empty() {
            return 1.0;
        }
        let v = self
            .units
            .get(name)
            .or_else(|| self.units.get(&class.to_string()));
        v.copied().filter(|v| *v > 0.0).unwrap_or(1.0)
    }
    /// Share of a level's bandwidth.
    pub fn level(&self, name: &str) -> f64 {
        self.levels
            .get(name)
            .copied()
            .filter(|v| *v > 0.0)
            .unwrap_or(1.0)
    }
    /// The same with one unit's share set.
    pub fn with_unit(mut self, name: &str, share: f64) -> Self {
        self.units.insert(name.to_string(), share);
        self
    }
    /// The same with one level's share set.
    pub fn with_level(mut self, name: &str, share: f64) -> Self {
        self.levels.insert(name.to_string(), share);
        self
    }
}

/// [`Efficiencies`] by kernel family; a family without an entry has the `default`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EfficiencyTable {
    /// For families without their own.
    #[serde(default)]
    pub default: Efficiencies,
    /// By family name (`contract`, `conv`, `map`, `row`, ...), [`COPIED`] or [`EXCHANGED`].
    #[serde(default)]
    pub families: BTreeMap<String, Efficiencies>,
    /// What the tiles of products cost, where their kernels' instructions are not known: a library's.
    #[serde(default)]
    pub products: Option<ProductCosts>,
}

/// Kernels some of whose warps only copy, as a family of [`EfficiencyTable::families`].
pub const COPIED: &str = "copied";
/// Such kernels whose lanes exchange results before they store them, so that no sector is written in parts.
pub const EXCHANGED: &str = "exchanged";

impl EfficiencyTable {
    /// The efficiencies of a family.
    pub fn family(&self, name: &str) -> &Efficiencies {
        self.families.get(name).unwrap_or(&self.default)
    }
}

/// What bounds a step. Displays as `memory:L2`, `compute:fma`, `latency`, `launch`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// The bandwidth of a level, by name.
    Memory(String),
    /// The rate of a unit, by name.
    Compute(String),
    /// First access, hand-offs and barriers.
    Latency,
    /// Launches and the fixed costs of steps and tasks.
    Launch,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::Memory(l) => write!(f, "memory:{l}"),
            Bound::Compute(u) => write!(f, "compute:{u}"),
            Bound::Latency => f.write_str("latency"),
            Bound::Launch => f.write_str("launch"),
        }
    }
}

impl std::str::FromStr for Bound {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        match (s, s.split_once(':')) {
            ("latency", _) => Ok(Bound::Latency),
            ("launch", _) => Ok(Bound::Launch),
            (_, Some(("memory", l))) => Ok(Bound::Memory(l.into())),
            (_, Some(("compute", u))) => Ok(Bound::Compute(u.into())),
            _ => Err(format!(
                "`{s}` is no bound; expected memory:LEVEL, compute:UNIT, latency or launch"
            )),
        }
    }
}

/// Seconds that one level or unit would take alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Level or unit name.
    pub name: String,
    /// Seconds.
    pub seconds: f64,
}

/// A predicted cost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Predicted time, seconds.
    pub time_s: f64,
    /// What each level would take alone (levels with traffic only), nearest first.
    pub levels: Vec<Share>,
    /// What each unit would take alone (units with work only).
    pub units: Vec<Share>,
    /// First access, hand-offs and barriers, seconds.
    pub latency_s: f64,
    /// Launches, steps and tasks, seconds.
    pub launch_s: f64,
    /// The largest of the above.
    pub bound: Bound,
    /// Seconds: everything overlapped at peak rates without fixed costs, and nothing overlapped;
    /// widened by a quarter where the number that bounds the step is an assumption.
    pub interval: (f64, f64),
}

impl Cost {
    /// A cost of no time.
    pub fn zero() -> Self {
        Cost {
            time_s: 0.0,
            levels: Vec::new(),
            units: Vec::new(),
            latency_s: 0.0,
            launch_s: 0.0,
            bound: Bound::Launch,
            interval: (0.0, 0.0),
        }
    }

    /// Adds `seconds` of latency that nothing overlaps.
    pub fn wait(&mut self, seconds: f64) {
        let busy = self.time_s - self.latency_s - self.launch_s;
        self.latency_s += seconds;
        self.time_s += seconds;
        self.interval.1 += seconds;
        if self.latency_s > busy && self.latency_s > self.launch_s {
            self.bound = Bound::Latency;
        }
    }

    /// Makes this the cost of the same step of `m` where it is part of the launch before it, as which it takes so many
    /// hand-overs in place of what a step takes to begin ([`Machine::joined_s`]). `work` is what it was predicted from.
    pub fn joined(&mut self, work: &mut Work, m: &Machine, handovers: u64) {
        let less = m.joined_s(handovers);
        for s in [&mut self.launch_s, &mut self.time_s, &mut self.interval.1] {
            *s = (*s - less).max(0.0);
        }
        work.steps = work.steps.saturating_sub(1);
        work.handoffs = handovers;
    }

    /// Makes this the cost of the same within `seconds`, where parts of it run side by side: what each level and
    /// unit has to do stays.
    pub fn within(&mut self, seconds: f64) {
        if self.time_s > 0.0 {
            let share = seconds / self.time_s;
            self.interval = (self.interval.0 * share, self.interval.1 * share);
            self.time_s = seconds;
        }
    }

    /// Makes this the cost of this and `other`, one after the other: times and shares add; the bound is that of
    /// the larger part.
    pub fn add(&mut self, other: &Cost) {
        let merge = |out: &mut Vec<Share>, more: &[Share]| {
            for s in more {
                match out.iter_mut().find(|o| o.name == s.name) {
                    Some(o) => o.seconds += s.seconds,
                    None => out.push(s.clone()),
                }
            }
        };
        if other.time_s > self.time_s {
            self.bound.clone_from(&other.bound);
        }
        self.time_s += other.time_s;
        merge(&mut self.levels, &other.levels);
        merge(&mut self.units, &other.units);
        self.latency_s += other.latency_s;
        self.launch_s += other.launch_s;
        self.interval.0 += other.interval.0;
        self.interval.1 += other.interval.1;
    }
}

/// Rates assumed for a class that a machine lists no unit for, as a divisor of the simple vector
/// rate: divide and square root occupy a pipe for about 8 results' time, a polynomial or table
/// transcendental takes about 16 operations.
const DIVSQRT_PER_SIMPLE: f64 = 8.0;
const TRANSCENDENTAL_PER_SIMPLE: f64 = 16.0;

/// The unit that executes a class in a format and the factor on its rate. Formats without a unit
/// run on f32 units; matrix work without matrix units on fma; other classes on the simple units.
pub(crate) fn unit_for(m: &Machine, class: UnitClass, dtype: NumType) -> Option<(usize, f64)> {
    let direct = |c| {
        m.unit_index(c, dtype)
            .or_else(|| m.unit_index(c, NumType::F32))
    };
    if let Some(i) = m.unit_index(class, dtype) {
        return Some((i, 1.0));
    }
    match class {
        UnitClass::Tensor => direct(UnitClass::Fma).map(|i| (i, 1.0)),
        UnitClass::Fma => m.unit_index(class, NumType::F32).map(|i| (i, 1.0)),
        UnitClass::Simple => direct(class)
            .map(|i| (i, 1.0))
            .or_else(|| direct(UnitClass::Fma).map(|i| (i, 0.5))),
        // About one in two cycles: a load, a store and an address each.
        UnitClass::Element => m
            .unit_index(class, NumType::F32)
            .map(|i| (i, 1.0))
            .or_else(|| {
                let simple = direct(UnitClass::Simple)?;
                let lanes = m.units[simple].lanes().max(1);
                Some((simple, 0.25 / lanes as f64))
            }),
        UnitClass::Divsqrt | UnitClass::Transcendental => {
            if let Some(i) = m.unit_index(class, NumType::F32) {
                return Some((i, 1.0));
            }
            let d = if class == UnitClass::Divsqrt {
                DIVSQRT_PER_SIMPLE
            } else {
                TRANSCENDENTAL_PER_SIMPLE
            };
            unit_for(m, UnitClass::Simple, dtype).map(|(i, f)| (i, f / d))
        }
    }
}

/// The name under which the slots of a GPU's schedulers stand among units.
const ISSUE: &str = "issue";

#[derive(Default)]
struct Parts {
    vector_s: f64,
    tensor_s: f64,
    memory_s: f64,
    /// Sum of all unit and level times.
    sum_s: f64,
    /// Largest of vector, tensor and level times at efficiency 1, without imbalance.
    peak_s: f64,
    imbalance: f64,
    latency_s: f64,
    launch_s: f64,
    time_s: f64,
    /// Issuing all instructions, of it.
    issue_s: f64,
}

fn level_seconds(
    m: &Machine,
    i: usize,
    t: Traffic,
    active: usize,
    eff: &Efficiencies,
) -> (f64, f64) {
    let l = &m.levels[i];
    let mut s = 0.0;
    if t.loaded > 0.0 {
        s += t.loaded / l.read.at(active);
    }
    if t.stored > 0.0 {
        s += t.stored / l.write.at(active);
    }
    (s / eff.level(&l.name), s)
}

/// Work that overlaps nothing but itself, and how near its kernel comes to the roofs.
pub type Phase<'a> = (&'a Work, &'a Efficiencies);

/// How much longer the busiest worker takes than the mean of `active` ones.
fn imbalance(work: &Work, active: usize, waves: u64, slots: u64) -> f64 {
    let tasks = work.tasks.max(1);
    if work.tasks == 0 {
        return 1.0;
    }
    // All of a wave's slots are paid for, also those that the last wave leaves empty. A worker
    // whose second CTA is missing is not idle, so slots of one worker count only once.
    if slots != active as u64 || work.waves > 0 {
        let alike = if tasks <= slots {
            tasks.div_ceil(active as u64) as f64 * active as f64 / tasks as f64
        } else {
            (waves as f64 * slots as f64 / tasks as f64).max(1.0)
        };
        // The longest task may be the last one that begins.
        return alike * (1.0 + work.uneven / waves.max(1) as f64);
    }
    // Who is free takes the next: nobody waits longer than for the largest task.
    let n = active as f64;
    let largest = work.largest.max(1.0 / tasks as f64).min(1.0);
    let own = tasks.div_ceil(active as u64) as f64 * largest;
    (own.min(1.0 / n + largest * (1.0 - 1.0 / n)) * n).max(1.0)
}

/// Seconds of a phase on vector and on tensor units, as rated and at their peaks.
#[derive(Default)]
struct UnitSeconds {
    vector_s: f64,
    tensor_s: f64,
    vector_peak: f64,
    tensor_peak: f64,
}

fn unit_seconds(
    m: &Machine,
    (phase, eff): Phase,
    active: usize,
    seen: &mut impl FnMut(bool, usize, f64),
) -> UnitSeconds {
    let mut t = UnitSeconds::default();
    for &(class, dtype, n) in &phase.ops {
        if n <= 0.0 {
            continue;
        }
        let Some((i, factor)) = unit_for(m, class, dtype) else {
            continue;
        };
        let u = &m.units[i];
        let peak = n / (u.at(active) * factor);
        // Elements on their own run on whatever unit there is, not at its share.
        let name = match class {
            UnitClass::Element => "element",
            _ => &u.name,
        };
        let s = peak / eff.unit(name, class);
        seen(true, i, s);
        if u.class == UnitClass::Tensor {
            t.tensor_s += s;
            t.tensor_peak += peak;
        } else {
            t.vector_s += s;
            t.vector_peak += peak;
        }
    }
    t
}

/// Seconds of a phase on the levels of memory: of the longest one, as rated and at its peak, and of all together.
#[derive(Default)]
struct MemorySeconds {
    largest: f64,
    sum: f64,
    peak: f64,
    farthest: Option<usize>,
}

fn memory_seconds(
    m: &Machine,
    (phase, eff): Phase,
    active: usize,
    seen: &mut impl FnMut(bool, usize, f64),
) -> MemorySeconds {
    let mut all = MemorySeconds::default();
    for i in 0..m.levels.len() {
        let t = phase.traffic_at(i);
        // Units are rated with their operands in registers: those never bound by themselves.
        if (t.loaded <= 0.0 && t.stored <= 0.0) || m.levels[i].name == "register" {
            continue;
        }
        all.farthest = Some(i);
        let (s, peak) = level_seconds(m, i, t, active, eff);
        seen(false, i, s);
        all.largest = all.largest.max(s);
        all.sum += s;
        all.peak = all.peak.max(peak);
    }
    all
}

fn parts(
    m: &Machine,
    phases: &[Phase],
    work: &Work,
    workers: usize,
    mut seen: impl FnMut(bool, usize, f64),
) -> Parts {
    let workers = workers.clamp(1, m.worker_count().max(1));
    let ctas = work.ctas_per_worker.max(1);
    let tasks = work.tasks.max(1);
    let active = workers.min(usize::try_from(tasks).unwrap_or(usize::MAX));
    let slots = (active as u64).saturating_mul(ctas).max(1);
    let waves = if work.waves > 0 {
        work.waves
    } else {
        tasks.div_ceil(slots)
    };
    let warps = work.warps.as_ref().filter(|w| w.per_task > 0);
    let rates = warps.and_then(|_| m.warp_rates());
    let imbalance = match rates {
        // Those that are left of a wave have the multiprocessor's units for themselves, and how long each
        // takes alone is known.
        Some(_) => tasks.div_ceil(active as u64) as f64 * active as f64 / tasks as f64,
        None => imbalance(work, active, waves, slots),
    };
    let exposed = m.workers.exposed.value;
    let mut p = Parts {
        imbalance,
        ..Parts::default()
    };
    let mut farthest = None;
    let (mut busy, mut factor) = (0.0, 1.0f64);
    for &(phase, eff) in phases {
        factor = eff.time_factor;
        let mut units = unit_seconds(m, (phase, eff), active, &mut seen);
        if let (Some(w), Some(rates)) = (&phase.warps, &rates) {
            let cycles = rates.issue(&w.turns) / active as f64;
            let issue_s = cycles / m.workers.clock_hz.value;
            p.issue_s += issue_s;
            units.vector_s = units.vector_s.max(issue_s);
        }
        let memory = memory_seconds(m, (phase, eff), active, &mut seen);
        farthest = farthest.max(memory.farthest);
        let largest = units.vector_s.max(units.tensor_s).max(memory.largest);
        let sum = units.vector_s + units.tensor_s + memory.sum;
        busy += largest + exposed * (sum - largest);
        p.vector_s += units.vector_s;
        p.tensor_s += units.tensor_s;
        p.memory_s += memory.largest;
        p.sum_s += sum;
        p.peak_s += units.vector_peak.max(units.tensor_peak).max(memory.peak);
    }
    let first = farthest.map_or(0.0, |i| m.levels[i].latency_s.value);
    let fills = if m.kind == MachineKind::Gpu {
        waves as f64
    } else {
        1.0
    };
    let c = &m.costs;
    let messages = work.handoffs as f64 + 2.0 * work.barriers as f64;
    p.latency_s = first * fills + messages * c.handoff_s.value;
    let own_tasks = if work.tasks == 0 {
        0
    } else {
        tasks.div_ceil(slots)
    };
    let shared = work.statements as f64 * c.tile_s.value
        + work.rows * c.row_s.value
        + work.calls * c.call_s.value;
    p.launch_s = work.launches as f64 * c.launch_s.value
        + work.steps as f64 * c.step_s.value
        + own_tasks as f64 * c.task_s.value
        + shared / active as f64 * imbalance;
    let mut together = busy * imbalance;
    if let Some(w) = warps.filter(|_| rates.is_some()) {
        // Warps begin in step and get out of it as they go: of the first round half the difference is
        // taken, of what follows in each place of a multiprocessor less. The half is a choice, by ten kernels
        // on the emulator.
        let rounds = (tasks.div_ceil(active as u64) as f64 / ctas as f64).max(1.0);
        // The longest task may be the last one that begins.
        let round = |cycles: f64| (rounds + work.uneven) * cycles / m.workers.clock_hz.value;
        let least = together.max(round(w.alone));
        let most = least.max(round(w.in_step));
        let whole = least + (most - least) / (1.0 + rounds.min(ctas as f64));
        p.latency_s = messages * c.handoff_s.value + (whole - together);
        together = together.min(whole);
    }
    p.time_s = (together + p.latency_s + p.launch_s) * factor;
    p
}

/// Predicted seconds only: what [`predict`] would say, without its breakdown. For searches.
pub fn predict_seconds(m: &Machine, eff: &Efficiencies, work: &Work, workers: usize) -> f64 {
    parts(m, &[(work, eff)], work, workers, |_, _, _| {}).time_s
}

/// Predicts what `work` costs on `m` with at most `workers` of its workers (at least one, at most
/// all), by the rule at the head of this module.
pub fn predict(m: &Machine, eff: &Efficiencies, work: &Work, workers: usize) -> Cost {
    predict_phases(m, &[(work, eff)], work, workers)
}

/// [`predict`] of work that is done in phases, one after the other: `work` is their sum, and what it
/// says of tasks, steps and fixed costs counts once.
pub fn predict_phases(m: &Machine, phases: &[Phase], work: &Work, workers: usize) -> Cost {
    let mut units: Vec<(usize, f64)> = Vec::new();
    let mut levels: Vec<(usize, f64)> = Vec::new();
    let p = parts(m, phases, work, workers, |is_unit, i, s| {
        let list = if is_unit { &mut units } else { &mut levels };
        match list.iter_mut().find(|x| x.0 == i) {
            Some(x) => x.1 += s,
            None => list.push((i, s)),
        }
    });
    units.arrange_by_key(|x| x.0);
    let busiest = |v: &[(usize, f64)]| {
        v.iter()
            .copied()
            .fold(None, |a: Option<(usize, f64)>, b| match a {
                Some(a) if a.1 >= b.1 => Some(a),
                _ => Some(b),
            })
    };
    let compute = p.vector_s.max(p.tensor_s);
    let busy = compute.max(p.memory_s) * p.imbalance;
    let mut assumed = false;
    let bound = if p.launch_s > busy && p.launch_s >= p.latency_s {
        Bound::Launch
    } else if p.latency_s > busy {
        Bound::Latency
    } else if p.memory_s > compute {
        match busiest(&levels) {
            Some((i, _)) => {
                assumed = m.levels[i].read.per_worker.source == Source::Assumed;
                Bound::Memory(m.levels[i].name.clone())
            }
            None => Bound::Launch,
        }
    } else {
        let tensor = p.tensor_s > p.vector_s;
        let side: Vec<_> = units
            .iter()
            .copied()
            .filter(|u| (m.units[u.0].class == UnitClass::Tensor) == tensor)
            .collect();
        let counted: f64 = side.iter().map(|u| u.1).sum();
        match busiest(&side) {
            _ if !tensor && p.issue_s > counted => Bound::Compute(ISSUE.into()),
            Some((i, _)) => {
                assumed = m.units[i].per_worker.source == Source::Assumed;
                Bound::Compute(m.units[i].name.clone())
            }
            None => Bound::Launch,
        }
    };
    let widen = if assumed { 1.25 } else { 1.0 };
    let factor = phases.last().map_or(1.0, |p| p.1.time_factor);
    let nothing_overlaps = (p.sum_s * p.imbalance + p.latency_s + p.launch_s) * factor.max(1.0);
    Cost {
        time_s: p.time_s,
        levels: levels
            .iter()
            .map(|&(i, s)| Share {
                name: m.levels[i].name.clone(),
                seconds: s,
            })
            .collect(),
        units: units
            .iter()
            .map(|&(i, s)| Share {
                name: m.units[i].name.clone(),
                seconds: s,
            })
            .chain((p.issue_s > 0.0).then(|| Share {
                name: ISSUE.into(),
                seconds: p.issue_s,
            }))
            .collect(),
        latency_s: p.latency_s,
        launch_s: p.launch_s,
        bound,
        interval: (
            p.peak_s.min(p.time_s) / widen,
            nothing_overlaps.max(p.time_s) * widen,
        ),
    }
}
