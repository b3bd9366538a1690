//! What ran when, predicted or measured: the same data for both. Devices record it, the report prints it.
use crate::Why;
use layout::Arrange;
use machine::Way;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A stretch of work by one worker on one step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Step number (counted over all blocks run).
    pub step: u32,
    /// Worker: 0 is the caller.
    pub worker: u32,
    /// First task.
    pub first_task: u32,
    /// Number of tasks.
    pub tasks: u32,
    /// Nanoseconds since the request began.
    pub start_ns: u64,
    /// Nanoseconds since the request began.
    pub end_ns: u64,
}

/// What ran when: a predicted run and a measured run are the same type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Names of the steps that spans refer to.
    pub steps: Vec<String>,
    /// Spans, in no particular order.
    pub spans: Vec<Span>,
    /// Nanoseconds from the request's start to its end.
    pub total_ns: u64,
    /// Nanoseconds for which a device was held up, so that the host was ahead of it all the time: neither
    /// spans nor `total_ns` have them.
    #[serde(default)]
    pub held_ns: u64,
    /// Nanoseconds for which each worker was ready to run and had no processor, the caller's first; empty
    /// where nobody asked the system.
    #[serde(default)]
    pub descheduled_ns: Vec<u64>,
    /// Names of the queues that [`Timeline::device`] tells of.
    #[serde(default)]
    pub lanes: Vec<String>,
    /// What a device with a clock of its own did, by that clock.
    #[serde(default)]
    pub device: Vec<DeviceSpan>,
    /// The ways by which steps reached an NVIDIA GPU: blocks may differ.
    #[serde(default)]
    pub launched: BTreeSet<Way>,
    /// Decisions about the plan that were taken meanwhile, in order.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

/// A decision that was taken while something ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Nanoseconds since the timeline began.
    pub at_ns: u64,
    /// What was decided, and why.
    pub why: Why,
}

/// What a device's queue was at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// A step's tasks.
    Kernel,
    /// A copy to the device: the step is the first that reads it.
    Upload,
    /// A copy from the device: the step is the last that wrote it.
    Download,
    /// Waiting for another queue before the step.
    Wait,
}

/// A stretch of time of one of a device's queues.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceSpan {
    /// Index into [`Timeline::lanes`].
    pub lane: u32,
    /// At what.
    pub what: Activity,
    /// Step number, as in [`Span::step`].
    pub step: u32,
    /// Bytes that a copy moved.
    pub bytes: u64,
    /// Nanoseconds of the device's clock since it took up the request.
    pub start_ns: u64,
    /// Likewise.
    pub end_ns: u64,
}

impl Timeline {
    /// How often each step ran, and its wall time in nanoseconds: from its first span's start to its last
    /// span's end, summed over runs. A loop's body runs its steps several times; a run does every task
    /// once, so that a task that comes again, later than everything before it, begins the next.
    pub fn step_runs_ns(&self) -> Vec<(u64, u64)> {
        #[derive(Default)]
        struct Run {
            runs: u64,
            ns: u64,
            from: u64,
            to: u64,
            /// Tasks of the run at hand: first and end.
            tasks: BTreeMap<u32, u32>,
        }
        let mut spans: Vec<&Span> = self.spans.iter().collect();
        spans.arrange_by_key(|s| (s.step, s.start_ns, s.end_ns));
        let mut all: Vec<Run> = Vec::new();
        all.resize_with(self.steps.len(), Run::default);
        for s in spans {
            let Some(r) = all.get_mut(s.step as usize) else {
                continue;
            };
            let end = s.first_task.saturating_add(s.tasks.max(1));
            let before = r.tasks.range(..end).next_back();
            let again = s.start_ns >= r.to && before.is_some_and(|(_, &e)| e > s.first_task);
            if r.runs == 0 || again {
                r.ns += r.to.saturating_sub(r.from);
                r.runs += 1;
                (r.from, r.to) = (s.start_ns, s.end_ns);
                r.tasks.clear();
            }
            r.to = r.to.max(s.end_ns);
            r.tasks.insert(s.first_task, end);
        }
        all.into_iter()
            .map(|r| (r.runs, r.ns + r.to.saturating_sub(r.from)))
            .collect()
    }

    /// Wall time of each step in nanoseconds, as in [`Timeline::step_runs_ns`].
    pub fn step_wall_ns(&self) -> Vec<u64> {
        self.step_runs_ns().into_iter().map(|r| r.1).collect()
    }

    /// Busy time of each step in nanoseconds, summed over workers.
    pub fn step_busy_ns(&self) -> Vec<u64> {
        let mut busy = vec![0; self.steps.len()];
        for s in &self.spans {
            if let Some(b) = busy.get_mut(s.step as usize) {
                *b += s.end_ns.saturating_sub(s.start_ns);
            }
        }
        busy
    }
}
