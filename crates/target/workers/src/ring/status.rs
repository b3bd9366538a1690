//! What every worker is doing, as a table.
use super::abi::StatusEntry;
use std::fmt;
use std::mem::{offset_of, size_of};

/// Where a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a request.
    Idle,
    /// It is about to run its task, or waits for what the task needs.
    Before,
    /// It has waited longer than it should.
    Late,
    /// It runs its task.
    Running,
}

/// A worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerStatus {
    /// Number, from 0.
    pub worker: u32,
    /// Where it stands.
    pub phase: Phase,
    /// Its request, step and task.
    pub seq: u32,
    /// Step.
    pub step: u32,
    /// Task of the step.
    pub task: u32,
    /// When late: offset of the counter, what it must reach, and what it was.
    pub waits_for: Option<(u32, u32, u32)>,
}

/// All workers at one moment; each is a snapshot of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    /// Workers.
    pub workers: Vec<WorkerStatus>,
    /// Names of the steps.
    pub steps: Vec<String>,
    /// First counter and number of counters of steps that have any: `(offset, number, step)`.
    pub counters: Vec<(u32, u32, u32)>,
}

impl Dump {
    /// Reads the status page.
    pub fn read(page: &[u8], steps: &[String], counters: &[(u32, u32, u32)]) -> Dump {
        let workers = page
            .chunks_exact(size_of::<StatusEntry>())
            .enumerate()
            .map(|(n, e)| {
                let word = |at: usize| {
                    e.get(at..at + 4)
                        .and_then(|b| b.try_into().ok())
                        .map_or(0, u32::from_le_bytes)
                };
                let phase = match word(offset_of!(StatusEntry, phase)) {
                    0 => Phase::Idle,
                    1 => Phase::Before,
                    2 => Phase::Late,
                    _ => Phase::Running,
                };
                WorkerStatus {
                    worker: n as u32,
                    phase,
                    seq: word(offset_of!(StatusEntry, seq)),
                    step: word(offset_of!(StatusEntry, step)),
                    task: word(offset_of!(StatusEntry, task)),
                    waits_for: (phase == Phase::Late).then(|| {
                        (
                            word(offset_of!(StatusEntry, counter)),
                            word(offset_of!(StatusEntry, goal)),
                            word(offset_of!(StatusEntry, seen)),
                        )
                    }),
                }
            })
            .collect();
        Dump {
            workers,
            steps: steps.to_vec(),
            counters: counters.to_vec(),
        }
    }

    fn name(&self, step: u32) -> String {
        self.steps
            .get(step as usize)
            .cloned()
            .unwrap_or_else(|| format!("step {step}"))
    }

    /// The counter at an offset in words: whose it is.
    fn counter(&self, at: u32) -> String {
        let found = self
            .counters
            .iter()
            .find(|(from, n, _)| at >= *from && at < from + 4 * n);
        match found {
            Some((from, 1, s)) if *from == at => format!("all of '{}'", self.name(*s)),
            Some((from, _, s)) => format!("group {} of '{}'", (at - from) / 4, self.name(*s)),
            None => format!("counter {at}"),
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "worker  request  state    task")?;
        for w in &self.workers {
            let state = match w.phase {
                Phase::Idle => "idle",
                Phase::Before => "before",
                Phase::Late => "late",
                Phase::Running => "running",
            };
            write!(f, "{:>6}  {:>7}  {state:<7}", w.worker, w.seq)?;
            if w.phase != Phase::Idle {
                write!(f, "  {} of '{}'", w.task, self.name(w.step))?;
            }
            if let Some((counter, goal, seen)) = w.waits_for {
                let of = self.counter(counter);
                write!(f, ", waits for {of} to reach {goal}, which was at {seen}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
