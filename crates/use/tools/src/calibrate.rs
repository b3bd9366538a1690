//! The present CPU measured: the hardware, and what steps of plans cost on it.
use crate::step_costs;
use cpu::calibrate::Options;
use machine::{Extent, Measurements};
use shopfloor::Error;
use std::time::{Duration, Instant};

/// How long a short calibration takes at most.
pub const SHORT: Duration = Duration::from_secs(2);
/// The share of a calibration's time that is spent on steps of plans, not on the hardware.
const ON_STEPS: f64 = 0.3;

/// Measures the present CPU for about `budget` (the default of the extent when `None`); `progress` hears the share
/// done (0 to 1) and what comes next. A short calibration takes the budget at most, and leaves out what it
/// found to contradict itself.
///
/// # Errors
/// Threads that cannot be started; for a full calibration, measurements that contradict themselves however
/// often they are repeated.
pub fn calibrate(
    extent: Extent,
    budget: Option<Duration>,
    progress: &mut dyn FnMut(f64, &str),
) -> Result<Measurements, Error> {
    let detected = cpu::detect::detect();
    let all = budget.unwrap_or(match extent {
        Extent::Short => SHORT,
        Extent::Full => Duration::from_secs(8),
    });
    let began = Instant::now();
    let mut options = Options::new(extent);
    options.budget = all.mul_f64(1.0 - ON_STEPS);
    let mut measured = cpu::calibrate::calibrate(&detected, &options, &mut |done, what| {
        progress(done * (1.0 - ON_STEPS), what)
    })?;
    // What is begun is ended: a share is left for it.
    let left = all.saturating_sub(began.elapsed()).mul_f64(0.8);
    let left = left.max(all.mul_f64(0.5 * ON_STEPS));
    step_costs::measure(&detected, &mut measured, left, &mut |done| {
        progress(1.0 - ON_STEPS * (1.0 - done), "steps of plans")
    })?;
    progress(1.0, "done");
    Ok(measured)
}
