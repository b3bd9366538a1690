//! Measures the present CPU: bandwidth of every level by working set and active cores, rates by SIMD
//! width and cores, latency, and what it costs to hand work from one thread to another.
//!
//! Every measurement runs on threads of its own, pinned to the CPUs that workers would use, and keeps
//! the best of several rounds: neighbours and interrupts only ever make a round slower. Costs that
//! depend on the state of another thread (hand-off, wake-up) keep the median.

mod error;
mod kernels;
mod loops;
mod rate;
mod store;
mod team;

use crate::detect;
use crate::isa::Isa;
pub use error::CalibrateError;
use loops::Memory;
use machine::{
    BandwidthPoint, LatencyPoint, LevelMeasure, Machine, Measurements, OpRate, WorkerPoint,
};
use std::time::Duration;
pub use store::{calibration_path, load_calibration, store_calibration};
use team::measure;
pub use team::pin_current_thread;

/// How to calibrate.
#[derive(Clone, Debug)]
pub struct Options {
    /// About how long all measurements may take together.
    pub budget: Duration,
    /// The CPUs to measure on, one per worker; [`detect::worker_cpus`] by default.
    pub cpus: Vec<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            budget: Duration::from_secs(6),
            cpus: detect::worker_cpus(),
        }
    }
}

/// How often the levels are measured.
const SWEEPS: usize = 2;

/// Numbers of active workers to measure: 1, the powers of two, and all.
fn counts(n: usize) -> Vec<usize> {
    let mut out: Vec<usize> = std::iter::successors(Some(1usize), |c| c.checked_mul(2))
        .take_while(|c| *c < n)
        .collect();
    out.push(n.max(1));
    out
}

struct LevelPlan {
    name: String,
    /// Working set of one worker when `n` are active.
    bytes: Box<dyn Fn(usize) -> f64>,
    latency_bytes: f64,
}

/// Working sets that stand for each level: half of a private cache; of a shared one what a worker can
/// count on, but clear of the level before; of memory a multiple of the last cache.
fn level_plans(m: &Machine, workers: usize) -> Vec<LevelPlan> {
    let mut out = Vec::new();
    let mut nearer = 0.0f64;
    for (_, l) in m.caches() {
        let (capacity, shared_by) = (l.capacity(), l.shared_by.max(1) as usize);
        let floor = nearer * 2.0;
        let bytes = move |n: usize| {
            let share = capacity / n.min(shared_by) as f64;
            if shared_by == 1 {
                capacity * 0.5
            } else {
                (share * 0.75).max(floor)
            }
        };
        out.push(LevelPlan {
            name: l.name.clone(),
            latency_bytes: (capacity * 0.5).max(floor),
            bytes: Box::new(bytes),
        });
        nearer = l.bytes.value;
    }
    let memory = m.memory();
    let mib = 1048576.0;
    let total = (nearer * 4.0)
        .clamp(64.0 * mib, 512.0 * mib)
        .min((memory.bytes.value / 8.0).max(16.0 * mib));
    let per = total / workers.max(1) as f64;
    out.push(LevelPlan {
        name: memory.name.clone(),
        bytes: Box::new(move |n| (total / n.max(1) as f64).max(per)),
        latency_bytes: total,
    });
    out
}

/// Measures the present CPU, described by `machine` (see [`detect::detect`]); calls `progress` with
/// the share done (0 to 1) and what comes next.
///
/// # Errors
/// [`CalibrateError::Thread`] when measuring threads cannot be started.
pub fn calibrate(
    machine: &Machine,
    options: &Options,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<Measurements, CalibrateError> {
    let cpus = if options.cpus.is_empty() {
        detect::worker_cpus()
    } else {
        options.cpus.clone()
    };
    let counts = counts(cpus.len());
    let plans = level_plans(machine, cpus.len());
    let isas: Vec<Isa> = Isa::ALL.into_iter().filter(|i| i.available()).collect();
    let best = isas.first().copied().unwrap_or(Isa::Portable);
    let mut rates = loops::rates(&isas);
    rates.extend(kernels::rates());
    let curve = curve_sizes(&plans);

    let points = rates.len() * counts.len()
        + SWEEPS * plans.len() * (3 * counts.len() + 1)
        + curve.len() * 3
        + 3;
    // Touching and freeing memory takes about a fifth of the time.
    let slice = options
        .budget
        .mul_f64(0.8)
        .div_f64(points.max(1) as f64)
        .max(Duration::from_millis(2));
    let mut done = 0usize;
    let mut step = |what: &str| {
        progress(done as f64 / points as f64, what);
        done += 1;
    };
    let mut out = Measurements {
        machine: machine.identity(),
        note: format!(
            "shopfloor {} on {} workers, {:.0} ms a point",
            env!("CARGO_PKG_VERSION"),
            cpus.len(),
            slice.as_secs_f64() * 1e3
        ),
        workers: cpus.len() as u64,
        ..Measurements::default()
    };

    for r in &rates {
        let mut rate = Vec::new();
        for &n in &counts {
            step(&format!("{} {} {} on {n} cores", r.class, r.dtype, r.isa));
            let per_s = measure(&cpus[..n], slice, r.ops_per_pass, &|| Box::new(r.run))?;
            rate.push(WorkerPoint {
                workers: n as u64,
                per_s,
            });
        }
        out.ops.push(OpRate {
            class: r.class,
            dtype: r.dtype,
            isa: r.isa.to_string(),
            lanes: r.lanes,
            rate,
        });
    }

    // Neighbours come and go within a second: the levels are swept more than once, and the best kept.
    for sweep in 0..SWEEPS {
        for (i, p) in plans.iter().enumerate() {
            if sweep == 0 {
                let bytes = (p.bytes)(cpus.len());
                out.levels.push(LevelMeasure {
                    name: p.name.clone(),
                    bytes,
                    ..LevelMeasure::default()
                });
            }
            for &n in &counts {
                for op in [Memory::Read, Memory::Write, Memory::Copy] {
                    step(&format!("{} {} on {n} cores", p.name, op.name()));
                    let per_s = bandwidth(&cpus[..n], slice, best, op, (p.bytes)(n))?;
                    let lm = &mut out.levels[i];
                    let list = match op {
                        Memory::Read => &mut lm.read,
                        Memory::Write => &mut lm.write,
                        Memory::Copy => &mut lm.copy,
                    };
                    match list.iter_mut().find(|w| w.workers == n as u64) {
                        Some(w) => w.per_s = w.per_s.max(per_s),
                        None => list.push(WorkerPoint {
                            workers: n as u64,
                            per_s,
                        }),
                    }
                }
            }
            step(&format!("{} latency", p.name));
            let seconds = team::latency(cpus[0], slice, p.latency_bytes)?;
            let lm = &mut out.levels[i];
            lm.latency_s = Some(lm.latency_s.map_or(seconds, |s| s.min(seconds)));
        }
        if sweep == 0 {
            measure_curve(&cpus, slice, best, &curve, &mut out, &mut step)?;
        }
    }
    for (p, lm) in plans.iter().zip(&out.levels) {
        for (op, list) in [("read", &lm.read), ("write", &lm.write), ("copy", &lm.copy)] {
            out.bandwidth.extend(list.iter().map(|w| BandwidthPoint {
                op: op.into(),
                bytes: (p.bytes)(w.workers as usize),
                workers: w.workers,
                bytes_per_s: w.per_s,
            }));
        }
        out.latency.extend(lm.latency_s.map(|seconds| LatencyPoint {
            bytes: p.latency_bytes,
            seconds,
        }));
    }
    out.bandwidth.sort_by(|a, b| {
        (&a.op, a.workers)
            .cmp(&(&b.op, b.workers))
            .then(a.bytes.total_cmp(&b.bytes))
    });
    out.latency.sort_by(|a, b| a.bytes.total_cmp(&b.bytes));

    if let [a, b, ..] = cpus[..] {
        step("hand-off between two cores");
        out.handoff_s = Some(team::handoff(a, b, slice * 2)?);
        step("wake-up of a parked thread");
        let (wake, call) = team::wake(a, b, slice * 2)?;
        out.wake_s = Some(wake);
        out.wake_call_s = Some(call);
    }
    step("tickets");
    out.ticket_s = Some(team::ticket(&cpus, slice)?);
    progress(1.0, "done");
    Ok(out)
}

fn measure_curve(
    cpus: &[usize],
    slice: Duration,
    isa: Isa,
    sizes: &[f64],
    out: &mut Measurements,
    step: &mut impl FnMut(&str),
) -> Result<(), CalibrateError> {
    for &bytes in sizes {
        for n in [1, cpus.len()] {
            step(&format!("read of {:.0} KiB on {n} cores", bytes / 1024.0));
            if n == 1 || cpus.len() > 1 {
                let per_s = bandwidth(&cpus[..n], slice, isa, Memory::Read, bytes)?;
                out.bandwidth.push(BandwidthPoint {
                    op: "read".into(),
                    bytes,
                    workers: n as u64,
                    bytes_per_s: per_s,
                });
            }
        }
        step(&format!("latency of {:.0} KiB", bytes / 1024.0));
        let seconds = team::latency(cpus[0], slice, bytes)?;
        out.latency.push(LatencyPoint { bytes, seconds });
    }
    Ok(())
}

fn bandwidth(
    cpus: &[usize],
    slice: Duration,
    isa: Isa,
    op: Memory,
    bytes: f64,
) -> Result<f64, CalibrateError> {
    let lines = ((bytes / 64.0) as usize / 32 * 32).max(32);
    let moved = (lines * 64) as f64;
    measure(cpus, slice, moved, &|| {
        let mut buffer = loops::Buffer::new(lines);
        Box::new(move |passes| buffer.run(isa, op, passes))
    })
}

/// Working sets between and beyond those of the levels, so that the curve shows where each level ends.
fn curve_sizes(plans: &[LevelPlan]) -> Vec<f64> {
    let low = plans
        .first()
        .map_or(16384.0, |p| p.latency_bytes / 2.0)
        .max(4096.0);
    let high = plans
        .last()
        .map_or(low, |p| p.latency_bytes / 2.0)
        .min(64.0 * 1048576.0);
    let mut out = Vec::new();
    let mut size = (low / 4096.0).round() * 4096.0;
    while size <= high {
        let known = |p: &LevelPlan| (p.bytes)(1) == size && p.latency_bytes == size;
        if !plans.iter().any(known) {
            out.push(size);
        }
        size *= 2.0;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::UnitClass;

    #[test]
    fn worker_counts_are_powers_of_two_and_all() {
        assert_eq!(counts(1), [1]);
        assert_eq!(counts(2), [1, 2]);
        assert_eq!(counts(6), [1, 2, 4, 6]);
        assert_eq!(counts(8), [1, 2, 4, 8]);
    }

    #[test]
    fn a_short_calibration_fills_every_field_and_calibrates_the_machine() {
        let m = detect::detect();
        let mut shares = Vec::new();
        let options = Options {
            budget: Duration::from_millis(200),
            ..Options::default()
        };
        let c = calibrate(&m, &options, &mut |done, _| shares.push(done)).expect("calibrates");
        assert!(shares.windows(2).all(|w| w[0] <= w[1]) && shares.last() == Some(&1.0));
        assert_eq!(c.machine, m.identity());
        assert!(
            c.levels
                .iter()
                .all(|l| l.latency_s.is_some_and(|s| s > 0.0)
                    && l.read.iter().all(|p| p.per_s > 0.0))
        );
        assert!(
            c.ops
                .iter()
                .any(|o| o.class == UnitClass::Fma && o.isa == "portable")
        );
        let text = c.to_toml().expect("text");
        let again = Measurements::from_toml(&text, "x").expect("reads");
        assert_eq!(again, c);
        let calibrated = m.calibrated(&c);
        calibrated.check().expect("a calibrated machine is legal");
        assert_eq!(calibrated.identity(), m.identity());
        assert_eq!(
            calibrated.memory().read.per_worker.source,
            machine::Source::Measured
        );
    }
}
