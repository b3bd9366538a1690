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
