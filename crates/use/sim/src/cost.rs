//! What a step takes in virtual time.
use machine::{Bound, Cost};
use std::sync::Arc;

/// Seconds that a worker which shares its core is off it at a stretch: a scheduler's time slice.
pub(crate) const SLICE_S: f64 = 3e-3;

/// A step of a plan for some number of workers.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// Name.
    pub name: Arc<str>,
    /// What is predicted to bound it.
    pub bound: Bound,
    /// Seconds predicted from the machine's description.
    pub predicted_s: f64,
    /// Seconds that arithmetic and caches really take on these workers.
    pub compute_s: f64,
    /// Seconds that main memory really takes when nobody else uses it.
    pub memory_s: f64,
    /// Seconds of fixed costs.
    pub fixed_s: f64,
    /// Tasks.
    pub tasks: u64,
    /// Workers that the plan counts on.
    pub workers: u32,
}

/// What a device is like while a step runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Conditions<'a> {
    /// Share of the clock.
    pub clock: f64,
    /// Share of the memory's bandwidth.
    pub memory: f64,
    /// Share of the memory's bandwidth that other runs ask for.
    pub others: f64,
    /// Share that each worker of the run has of its core.
    pub shares: &'a [f64],
}

impl StepTime {
    /// A step whose prediction is `told` and that takes what `truth` says; `memory` is the name of the
    /// main memory's level.
    pub fn of(
        name: Arc<str>,
        told: &Cost,
        truth: &Cost,
        memory: &str,
        tasks: u64,
        workers: u32,
    ) -> StepTime {
        let fixed_s = (truth.latency_s + truth.launch_s).min(truth.time_s);
        let busy = truth.time_s - fixed_s;
        let memory_s = truth
            .levels
            .iter()
            .filter(|l| l.name == memory)
            .map(|l| l.seconds)
            .fold(0.0, f64::max)
            .min(busy);
        let rest = truth
            .levels
            .iter()
            .filter(|l| l.name != memory)
            .chain(&truth.units)
            .map(|s| s.seconds)
            .fold(0.0, f64::max);
        // What bounds it is the memory, or everything else together.
        let compute_s = if memory_s >= 0.999 * busy {
            rest.min(busy)
        } else {
            busy
        };
        StepTime {
            name,
            bound: told.bound.clone(),
            predicted_s: told.time_s,
            compute_s,
            memory_s,
            fixed_s,
            tasks: tasks.max(1),
            workers: workers.max(1),
        }
    }

    /// Seconds on quiet workers.
    pub fn quiet_s(&self) -> f64 {
        self.compute_s.max(self.memory_s) + self.fixed_s
    }

    /// Share of the memory's bandwidth that it uses.
    pub fn memory_share(&self) -> f64 {
        self.memory_s / self.quiet_s().max(f64::MIN_POSITIVE)
    }

    /// Seconds of one task.
    pub fn task_s(&self) -> f64 {
        self.quiet_s() / self.tasks.div_ceil(u64::from(self.workers)).max(1) as f64
    }

    /// Seconds under `c`, where `luck` between 0 and 1 says how long a worker that shares its core is
    /// off it when everybody waits for its last task.
    pub fn seconds(&self, c: &Conditions, luck: f64) -> f64 {
        let n = c.shares.len().max(1) as u64;
        let rounds = |w: u64| self.tasks.div_ceil(w) as f64;
        // Fewer workers than planned for take more rounds.
        let fewer = rounds(n) / rounds(u64::from(self.workers));
        let sum: f64 = c.shares.iter().sum();
        let least = c.shares.iter().copied().fold(1.0, f64::min);
        let slower = n as f64 / sum.max(1e-3);
        let stalled = match least < 1.0 && n > 1 {
            true => (1.0 - least) * luck * SLICE_S,
            false => 0.0,
        };
        // One worker may not reach the memory's bandwidth; that is in the prediction for one.
        let memory = self.memory_s / c.memory.max(1e-6) * (1.0 + c.others).max(1.0);
        let memory = memory
            * if n < u64::from(self.workers) {
                fewer.min(2.0)
            } else {
                1.0
            };
        let compute = self.compute_s * fewer * slower / c.clock.max(1e-6);
        compute.max(memory) + self.fixed_s / c.clock.max(1e-6) + stalled
    }
}
