//! What a calibration returns, and a machine with it put in.

use crate::text::to_toml_text;
use crate::{Bandwidth, Level, Machine, MachineError, NumType, Source, Sourced, Unit, UnitClass};
use layout::Arrange;
use serde::{Deserialize, Serialize};

/// Bandwidth of one operation for one working set and number of active workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BandwidthPoint {
    /// `read`, `write` or `copy` (a copy's bytes are counted twice: loaded and stored).
    pub op: String,
    /// Working set of each active worker, bytes.
    pub bytes: f64,
    /// Active workers.
    pub workers: u64,
    /// Bytes per second of all active workers together.
    pub bytes_per_s: f64,
}

/// Latency of a dependent load for one working set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyPoint {
    /// Working set, bytes.
    pub bytes: f64,
    /// Seconds of one load.
    pub seconds: f64,
}

/// A rate with a number of active workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkerPoint {
    /// Active workers.
    pub workers: u64,
    /// Bytes or operations per second of all of them together.
    pub per_s: f64,
}

/// What was measured of one level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LevelMeasure {
    /// Level name.
    pub name: String,
    /// Working set of each worker in these measurements, bytes.
    pub bytes: f64,
    /// Read bandwidth by active workers.
    pub read: Vec<WorkerPoint>,
    /// Write bandwidth by active workers.
    pub write: Vec<WorkerPoint>,
    /// Copy bandwidth by active workers, bytes counted twice.
    pub copy: Vec<WorkerPoint>,
    /// Latency of a dependent load, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_s: Option<f64>,
}

/// The rate of a class of operations with an instruction set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpRate {
    /// What was executed.
    pub class: UnitClass,
    /// Format of the operands.
    pub dtype: NumType,
    /// `avx512`, `avx2`, `portable`, `neon`.
    pub isa: String,
    /// f32 lanes of one instruction.
    pub lanes: u64,
    /// Operations per second by active workers.
    pub rate: Vec<WorkerPoint>,
}

/// How thoroughly a machine was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extent {
    /// For a moment: what predictions need.
    Short,
    /// For some seconds: the curves between and beyond the levels too.
    #[default]
    Full,
}

/// What a calibration of a machine returns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// [`Machine::identity`] of the machine that was measured.
    pub machine: String,
    /// A sentence on how: library version, budget.
    #[serde(default)]
    pub note: String,
    /// How thoroughly.
    #[serde(default)]
    pub extent: Extent,
    /// How far repetitions of a measurement lie below the best of them, as a share of it: the median over all
    /// that were repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Cores that others kept busy meanwhile, of those that were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<f64>,
    /// Frequency of a core at work, hertz.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_hz: Option<f64>,
    /// Active workers at most.
    pub workers: u64,
    /// One message between two running workers, one way, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handoff_s: Option<f64>,
    /// A parked worker woken and answering, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_s: Option<f64>,
    /// The wake call alone, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_call_s: Option<f64>,
    /// Taking a ticket from a shared counter, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ticket_s: Option<f64>,
    /// A step within a running plan, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_s: Option<f64>,
    /// A statement on a tile, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tile_s: Option<f64>,
    /// A row of a statement, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_s: Option<f64>,
    /// A call of a micro-kernel, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_s: Option<f64>,
    /// Rates of operations.
    #[serde(default)]
    pub ops: Vec<OpRate>,
    /// Levels, nearest first.
    #[serde(default)]
    pub levels: Vec<LevelMeasure>,
    /// The whole bandwidth curve.
    #[serde(default)]
    pub bandwidth: Vec<BandwidthPoint>,
    /// The whole latency curve.
    #[serde(default)]
    pub latency: Vec<LatencyPoint>,
}

/// Repetitions that differ by more than this share of the best were disturbed.
const CALM_SPREAD: f64 = 0.1;
/// Cores that others may keep busy while something is measured.
const CALM_OTHERS: f64 = 0.25;

impl Measurements {
    /// That the machine was busy meanwhile, as a sentence without its end; `None` where nothing says so.
    pub fn disturbed(&self) -> Option<String> {
        let mut signs = Vec::new();
        if let Some(n) = self.others.filter(|n| *n > CALM_OTHERS) {
            signs.push(format!(
                "others kept {n:.1} of its {} cores busy",
                self.workers
            ));
        }
        if let Some(s) = self.spread.filter(|s| *s > CALM_SPREAD) {
            signs.push(format!("repetitions differed by {:.0}%", 100.0 * s));
        }
        (!signs.is_empty()).then(|| {
            format!(
                "the machine was busy while it was measured: {}",
                signs.join(" and ")
            )
        })
    }

    /// The TOML form.
    ///
    /// # Errors
    /// [`MachineError::Write`] when a number has no text form.
    pub fn to_toml(&self) -> Result<String, MachineError> {
        to_toml_text(self, "measurements")
    }

    /// Reads the TOML form; `file` names it in errors.
    ///
    /// # Errors
    /// [`MachineError::Parse`] with file, line and what is missing.
    pub fn from_toml(text: &str, file: &str) -> Result<Self, MachineError> {
        crate::text::parse(text, file)
    }
}

fn bandwidth(points: &[WorkerPoint], old: &Bandwidth, all_workers: u64) -> Bandwidth {
    let mut curve: Vec<(f64, f64)> = points
        .iter()
        .filter(|p| p.workers > 0 && p.per_s.is_finite() && p.per_s > 0.0)
        .map(|p| (p.workers as f64, p.per_s))
        .collect();
    curve.arrange_by(|a, b| a.0.total_cmp(&b.0));
    curve.dedup_by(|a, b| a.0 == b.0);
    let (Some(&first), Some(&last)) = (curve.first(), curve.last()) else {
        return old.clone();
    };
    let per_worker = Sourced::measured(first.1 / first.0);
    let all = if last.0 >= all_workers as f64 {
        Sourced::measured(last.1)
    } else {
        // Not all workers were measured together: no more than the old figure scaled to the last point.
        let scale = old.all.value / old.at(last.0 as usize).max(f64::MIN_POSITIVE);
        Sourced::assumed(last.1 * scale.max(1.0))
    };
    if last.0 < all_workers as f64 {
        curve.push((all_workers as f64, all.value));
    }
    Bandwidth {
        per_worker,
        all,
        curve,
    }
}

fn put_level(level: &mut Level, m: &LevelMeasure, workers: u64) {
    level.read = bandwidth(&m.read, &level.read, workers);
    level.write = bandwidth(&m.write, &level.write, workers);
    if let Some(l) = m.latency_s.filter(|l| l.is_finite() && *l > 0.0) {
        level.latency_s = Sourced::measured(l);
    }
}

fn put_rate(units: &mut Vec<Unit>, r: &OpRate, workers: u64) {
    let mut pts: Vec<&WorkerPoint> = r
        .rate
        .iter()
        .filter(|p| p.workers > 0 && p.per_s.is_finite() && p.per_s > 0.0)
        .collect();
    pts.arrange_by_key(|p| p.workers);
    let (Some(first), Some(last)) = (pts.first(), pts.last()) else {
        return;
    };
    let per_worker = Sourced::measured(first.per_s / first.workers as f64);
    let all = if last.workers >= workers {
        Sourced::measured(last.per_s)
    } else {
        Sourced::assumed(last.per_s * workers as f64 / last.workers as f64)
    };
    let found = units.iter_mut().find(|u| {
        u.class == r.class && u.dtype_in == r.dtype && (u.isa == r.isa || u.isa.is_empty())
    });
    match found {
        Some(u) => {
            u.per_worker = per_worker;
            u.all = all;
        }
        None => units.push(Unit {
            name: if r.isa.is_empty() {
                r.class.to_string()
            } else {
                format!("{}-{}", r.class, r.isa)
            },
            class: r.class,
            dtype_in: r.dtype,
            dtype_acc: r.dtype,
            tile: (1, r.lanes.max(1), 1),
            isa: r.isa.clone(),
            per_worker,
            all,
        }),
    }
}

/// What can be counted on of the last cache where neighbours share it: the largest working set of one
/// worker that is still read nearer to the cache's speed than to the memory's.
fn usable(out: &mut Machine, m: &Measurements) {
    let memory = out.memory().read.per_worker.value;
    let last = out.caches().map(|(i, _)| i).last();
    let Some(level) = last.map(|i| &mut out.levels[i]) else {
        return;
    };
    if level.usable.is_none() || level.is_private() {
        return;
    }
    let between = (level.read.per_worker.value * memory).sqrt();
    let near = m.bandwidth.iter().filter(|p| {
        p.op == "read" && p.workers == 1 && p.bytes_per_s >= between && p.bytes <= level.bytes.value
    });
    if let Some(bytes) = near.map(|p| p.bytes).reduce(f64::max) {
        level.usable = Some(Sourced::measured(bytes));
    }
}

/// No level whose rates were only assumed is faster than the one before it, where those were measured.
fn below_inner(levels: &mut [Level]) {
    let slower = |own: &mut Bandwidth, inner: &Bandwidth| {
        let known = inner.all.source == Source::Measured && own.all.source == Source::Assumed;
        if known && own.all.value > inner.all.value {
            own.all.value = inner.all.value;
            own.per_worker.value = own.per_worker.value.min(inner.per_worker.value);
            own.curve.retain(|p| p.1 <= inner.all.value);
        }
    };
    for i in 1..levels.len() {
        let (inner, own) = levels.split_at_mut(i);
        slower(&mut own[0].read, &inner[i - 1].read);
        slower(&mut own[0].write, &inner[i - 1].write);
    }
}

impl Machine {
    /// This machine with what was measured in place of what was assumed. Levels and units that were
    /// not measured keep their numbers.
    pub fn calibrated(&self, m: &Measurements) -> Machine {
        let mut out = self.clone();
        let workers = self.workers.count.value;
        for lm in &m.levels {
            if let Some(i) = self.level_index(&lm.name) {
                put_level(&mut out.levels[i], lm, workers);
            }
        }
        usable(&mut out, m);
        for r in &m.ops {
            put_rate(&mut out.units, r, workers);
        }
        below_inner(&mut out.levels);
        let put = |slot: &mut Sourced, v: Option<f64>, source| {
            if let Some(v) = v.filter(|v| v.is_finite() && *v >= 0.0) {
                *slot = Sourced::new(v, source);
            }
        };
        let set = |slot: &mut Sourced, v| put(slot, v, Source::Measured);
        // They follow together from whole steps.
        let fit = |slot: &mut Sourced, v| put(slot, v, Source::Fitted);
        set(&mut out.costs.handoff_s, m.handoff_s);
        set(&mut out.costs.wake_s, m.wake_s);
        set(&mut out.costs.task_s, m.ticket_s);
        fit(&mut out.costs.tile_s, m.tile_s);
        fit(&mut out.costs.row_s, m.row_s);
        fit(&mut out.costs.call_s, m.call_s);
        set(&mut out.workers.clock_hz, m.clock_hz.filter(|hz| *hz > 0.0));
        // Where nobody measured it, a step costs its last counter's way to the next step's workers; a request
        // through the ring costs a round trip.
        set(&mut out.costs.step_s, m.handoff_s);
        fit(&mut out.costs.step_s, m.step_s);
        set(&mut out.costs.launch_s, m.handoff_s.map(|h| 2.0 * h));
        out
    }
}
