//! What a hand-off to another thread costs.
use cpu::handoff::{Trips, Way, handoffs};
use report::{HandoffReport, HandoffRow, RING_AIM};
use shopfloor::Error;
use std::time::Duration;

fn words(way: Way) -> (&'static str, &'static str) {
    match way {
        Way::PingPong => ("ping-pong", "a cache line, no task"),
        Way::Ring => ("ring", "a slot that a resident looks at"),
        Way::Channel => ("channel", "std::sync::mpsc, both ways"),
        Way::Parked => ("parked thread", "each wakes the other"),
        Way::ForkJoin => ("fork/join", "a thread is started and joined"),
    }
}

/// Hands one small task to another thread in every way, each for about `seconds`; `progress` hears the
/// share done, 0 to 1.
///
/// # Errors
/// Fewer than two processors, or no thread can be started.
pub fn handoff(seconds: f64, progress: &(dyn Fn(f64) + Sync)) -> Result<HandoffReport, Error> {
    let cpus = cpu::detect::worker_cpus();
    let slice = Duration::from_secs_f64(seconds.clamp(0.0, 3600.0));
    let all = handoffs(&cpus, slice, progress)?;
    let first = all.iter().find(|t| t.way == Way::PingPong);
    let row = |t: &Trips| {
        let (way, what) = words(t.way);
        let median_ns = t.quantile(0.5);
        HandoffRow {
            way: way.into(),
            what: what.into(),
            trips: t.ns.len(),
            median_ns,
            p99_ns: t.quantile(0.99),
            ratio: first.map_or(0.0, |f| t.times(f)),
        }
    };
    let rows: Vec<HandoffRow> = all.iter().map(row).collect();
    let ring = rows.iter().find(|r| r.way == words(Way::Ring).0);
    Ok(HandoffReport {
        machine: cpu::detect::detect().name,
        cpus: [cpus[0], cpus[1]],
        ring_within_aim: ring.is_some_and(|r| r.ratio <= RING_AIM),
        rows,
        ring_aim: RING_AIM,
    })
}
