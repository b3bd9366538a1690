use serde::{Deserialize, Serialize};

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
    /// Names of the queues that [`Timeline::device`] tells of.
    #[serde(default)]
    pub lanes: Vec<String>,
    /// What a device with a clock of its own did, by that clock.
    #[serde(default)]
    pub device: Vec<DeviceSpan>,
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
    /// Wall time of each step in nanoseconds: from the first span's start to the last span's end.
    pub fn step_wall_ns(&self) -> Vec<u64> {
        let mut range: Vec<Option<(u64, u64)>> = vec![None; self.steps.len()];
        for s in &self.spans {
            if let Some(r) = range.get_mut(s.step as usize) {
                *r = Some(match *r {
                    None => (s.start_ns, s.end_ns),
                    Some((a, b)) => (a.min(s.start_ns), b.max(s.end_ns)),
                });
            }
        }
        range
            .into_iter()
            .map(|r| r.map_or(0, |(a, b)| b.saturating_sub(a)))
            .collect()
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
