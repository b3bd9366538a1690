//! Measures the present CPU: bandwidth of every level by working set and active cores, rates by SIMD
//! width and cores, latency, and what it costs to hand work from one thread to another.
//!
//! Every measurement runs on threads of its own, pinned to the CPUs that workers would use, is repeated,
//! and keeps the best of many short rounds: neighbours and interrupts only ever make a round slower. Costs
//! that depend on the state of another thread (hand-off, wake-up) keep the median of a repetition. What
//! contradicts itself is measured again, and refused when it goes on to.

mod error;
mod kernels;
mod loops;
mod others;
mod points;
mod rate;
mod store;
mod team;

use crate::detect;
pub use error::CalibrateError;
use machine::{Contradiction, Extent, Machine, Measurements};
use others::Others;
use points::{Findings, Points};
use std::time::{Duration, Instant};
pub use store::{calibration_path, forget_calibration, load_calibration, store_calibration};
pub use team::pin_current_thread;

/// How to calibrate.
#[derive(Clone, Debug)]
pub struct Options {
    /// How thoroughly.
    pub extent: Extent,
    /// About how long all measurements may take together, and for a short one at most.
    pub budget: Duration,
    /// The CPUs to measure on, one per worker; [`detect::worker_cpus`] by default.
    pub cpus: Vec<usize>,
}

impl Options {
    /// A calibration of `extent`.
    pub fn new(extent: Extent) -> Options {
        Options {
            extent,
            budget: match extent {
                Extent::Short => Duration::from_millis(1300),
                Extent::Full => Duration::from_secs(6),
            },
            cpus: detect::worker_cpus(),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options::new(Extent::Full)
    }
}

/// How often everything is measured.
const SWEEPS: usize = 2;
/// How often what contradicts itself is measured again.
const REPAIRS: usize = 4;

/// Measures the present CPU, described by `machine` (see [`detect::detect`]); calls `progress` with
/// the share done (0 to 1) and what comes next. A short calibration leaves out what contradicts itself.
///
/// # Errors
/// [`CalibrateError::Thread`] when measuring threads cannot be started, [`CalibrateError::Implausible`] when a full
/// calibration goes on to contradict itself.
pub fn calibrate(
    machine: &Machine,
    options: &Options,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<Measurements, CalibrateError> {
    let cpus = match options.cpus.is_empty() {
        true => detect::worker_cpus(),
        false => options.cpus.clone(),
    };
    let others = Others::watch(&cpus);
    let began = Instant::now();
    let short = options.extent == Extent::Short;
    // What matters least comes last, and is left out where the rest took all the time.
    let late = || short && began.elapsed() > options.budget;
    let points = Points::new(machine, &cpus, options.extent);
    let count = (SWEEPS * points.list.len()).max(1);
    // Making, touching and freeing memory takes about a third of the time.
    let slice = (options.budget.mul_f64(0.65))
        .div_f64((SWEEPS * points.loops()) as f64)
        .max(Duration::from_millis(1));
    let mut found = Findings::default();
    for sweep in 0..SWEEPS {
        for (i, &point) in points.list.iter().enumerate() {
            if late() {
                break;
            }
            let done = (sweep * points.list.len() + i) as f64 / count as f64;
            progress(done, &points.name(point));
            points.measure(point, slice, &mut found)?;
        }
    }
    let assemble = |found: &Findings| Measurements {
        machine: machine.identity(),
        note: format!(
            "shopfloor {} on {} workers, {:.1} ms a point",
            env!("CARGO_PKG_VERSION"),
            cpus.len(),
            slice.as_secs_f64() * 1e3
        ),
        extent: options.extent,
        spread: found.spread(),
        others: others.since(),
        workers: cpus.len() as u64,
        ..points.assemble(found)
    };
    for _ in 0..REPAIRS {
        let wrong = assemble(&found).contradictions(machine);
        if wrong.is_empty() || late() {
            break;
        }
        for &point in points.list.iter().filter(|p| points.is_of(**p, &wrong)) {
            progress(1.0, &format!("{} again", points.name(point)));
            points.measure(point, slice, &mut found)?;
        }
    }
    progress(1.0, "done");
    let out = assemble(&found);
    let wrong = out.contradictions(machine);
    match wrong.is_empty() || short {
        true => Ok(out.without(&wrong)),
        false => Err(CalibrateError::Implausible {
            what: listed(&wrong),
            busy: out.disturbed(),
        }),
    }
}

/// The first of them, and how many more there are.
fn listed(wrong: &[Contradiction]) -> String {
    let first = wrong.first().map(ToString::to_string).unwrap_or_default();
    match wrong.len() {
        0 | 1 => first,
        n => format!("{first}, and {} more such", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_calibration_calibrates_the_machine_and_fits_what_it_says() {
        let m = detect::detect();
        let mut shares = Vec::new();
        // A short one: on a busy machine it leaves out what a full one is refused for.
        let options = Options {
            budget: Duration::from_millis(400),
            ..Options::new(Extent::Short)
        };
        let c = calibrate(&m, &options, &mut |done, _| shares.push(done)).expect("calibrates");
        assert!(shares.windows(2).all(|w| w[0] <= w[1]) && shares.last() == Some(&1.0));
        assert_eq!(c.machine, m.identity());
        assert_eq!(c.extent, Extent::Short);
        assert!(c.contradictions(&m).is_empty());
        // On a machine that is busy enough not all of them are reached.
        assert!(c.ops.iter().any(|o| !o.rate.is_empty()));
        let text = c.to_toml().expect("text");
        let again = Measurements::from_toml(&text, "x").expect("reads");
        assert_eq!(again, c);
        let calibrated = m.calibrated(&c);
        calibrated.check().expect("a calibrated machine is legal");
        assert_eq!(calibrated.identity(), m.identity());
        for l in c.levels.iter().filter(|l| !l.read.is_empty()) {
            let level = calibrated
                .level_index(&l.name)
                .map(|i| &calibrated.levels[i]);
            let source = level.map(|l| l.read.per_worker.source);
            assert_eq!(source, Some(machine::Source::Measured), "{}", l.name);
        }
    }
}
