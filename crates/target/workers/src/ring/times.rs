//! What workers write of their clocks into memory that the host reads, for requests that ask for it.

/// Bytes that a worker has for a step: when it began its first task, and when it was through with its
/// last one, 64 bits each.
const ENTRY: usize = 16;

/// What one worker did of a step. Its tasks lie as many apart as there are workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerTime {
    /// Worker, from 0.
    pub worker: u32,
    /// Its first task of the step.
    pub first_task: u32,
    /// How many tasks it had.
    pub tasks: u32,
    /// Device clock in nanoseconds.
    pub begin_ns: u64,
    /// Likewise.
    pub end_ns: u64,
}

/// The memory of a request's times: for every step of its tables those of every worker.
#[derive(Clone, Copy, Debug)]
pub struct Times<'a> {
    bytes: &'a [u8],
    workers: u32,
}

impl<'a> Times<'a> {
    /// Bytes for tables of so many steps.
    pub fn bytes(steps: usize, workers: u32) -> usize {
        steps
            .saturating_mul(workers as usize)
            .saturating_mul(ENTRY)
            .max(ENTRY)
    }

    /// What `workers` workers wrote.
    pub fn new(bytes: &'a [u8], workers: u32) -> Times<'a> {
        Times { bytes, workers }
    }

    /// What the workers did of step `step`, where `tasks` are those of all steps of the tables: only
    /// who had a task wrote something.
    pub fn of(&self, step: usize, tasks: &[u64]) -> Vec<WorkerTime> {
        let all = u64::from(self.workers.max(1));
        let before = tasks.iter().take(step);
        let before = before.fold(0u64, |n, &t| n.saturating_add(t.max(1)));
        let own = tasks.get(step).copied().unwrap_or(0);
        let word = |at: usize| -> Option<u64> {
            let b = self.bytes.get(at..at.checked_add(8)?)?;
            Some(u64::from_le_bytes(b.try_into().ok()?))
        };
        let mut out = vec![];
        for worker in 0..all {
            // Of a request's tasks, counted through its steps, a worker takes every `all`-th.
            let first = (worker + all - before % all) % all;
            if first >= own {
                continue;
            }
            let at = (step * all as usize + worker as usize) * ENTRY;
            let (Some(begin_ns), Some(end_ns)) = (word(at), word(at + 8)) else {
                continue;
            };
            out.push(WorkerTime {
                worker: worker as u32,
                first_task: first as u32,
                tasks: (own - first).div_ceil(all) as u32,
                begin_ns,
                end_ns,
            });
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_have_every_so_manieth_task() {
        let mut bytes = vec![0u8; Times::bytes(2, 3)];
        for (i, b) in bytes.chunks_exact_mut(8).enumerate() {
            b.copy_from_slice(&(i as u64).to_le_bytes());
        }
        let t = Times::new(&bytes, 3);
        // The first step has 4 tasks: workers 0, 1, 2 and 0 again; the next begins with worker 1.
        let tasks = [4, 2];
        let of = |s| -> Vec<(u32, u32, u32, u64)> {
            let list = t.of(s, &tasks).into_iter();
            list.map(|x| (x.worker, x.first_task, x.tasks, x.begin_ns))
                .collect()
        };
        assert_eq!(of(0), [(0, 0, 2, 0), (1, 1, 1, 2), (2, 2, 1, 4)]);
        assert_eq!(of(1), [(1, 0, 1, 8), (2, 1, 1, 10)]);
        // A step without tasks is waited for by one worker all the same.
        assert_eq!(t.of(1, &[0, 2])[0].worker, 1);
        assert!(t.of(0, &[0, 2]).is_empty() && t.of(7, &tasks).is_empty());
    }
}
