//! The last steps of every worker, in trace rings of fixed size that are always written, without locks or
//! allocation. `CpuDevice::history` reads them.
use device::Worked;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use workers::padded::CachePadded;

/// Records of each worker.
const KEPT: usize = 1024;
/// Tickets predicted to take less are not recorded: reading the clock twice would take over a hundredth of
/// them.
pub(crate) const LEAST_S: f64 = 5e-6;

#[derive(Default)]
struct Record {
    /// Executable in the upper half, step in the lower.
    what: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
}

struct TraceRing {
    head: CachePadded<AtomicU64>,
    records: Vec<Record>,
}

/// The rings of a device's workers. The first is that of all callers.
pub(crate) struct TraceRings {
    began: Instant,
    traces: Vec<TraceRing>,
}

impl TraceRings {
    /// Rings for `workers` workers; none at all where the environment says `SHOPFLOOR_NO_TIMELINE`, which is
    /// there to measure what they cost.
    pub fn new(workers: usize) -> TraceRings {
        let kept = match std::env::var_os("SHOPFLOOR_NO_TIMELINE") {
            Some(_) => 0,
            None => workers,
        };
        let trace = |_| TraceRing {
            head: CachePadded::default(),
            records: (0..KEPT).map(|_| Record::default()).collect(),
        };
        TraceRings {
            began: Instant::now(),
            traces: (0..kept).map(trace).collect(),
        }
    }

    pub fn is_on(&self) -> bool {
        !self.traces.is_empty()
    }

    pub fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// `worker` was at step `step` of `executable` since `start`.
    pub fn record(&self, worker: usize, executable: u64, step: usize, start: u64) {
        let Some(t) = self.traces.get(worker) else {
            return;
        };
        let end = self.now();
        // Callers share a ring, each has a place of its own.
        let at = t.head.fetch_add(1, Ordering::Relaxed) as usize % KEPT;
        let r = &t.records[at];
        r.what.store(
            executable << 32 | step as u64 & 0xffff_ffff,
            Ordering::Relaxed,
        );
        r.start.store(start, Ordering::Relaxed);
        r.end.store(end, Ordering::Relaxed);
    }

    /// What is recorded. A record that is being written while it is read may come out mixed of two; those
    /// that end before they begin are left out.
    pub fn read(&self) -> Vec<Worked> {
        let mut out = Vec::new();
        for (worker, t) in self.traces.iter().enumerate() {
            let n = (t.head.load(Ordering::Relaxed) as usize).min(KEPT);
            for r in &t.records[..n] {
                let what = r.what.load(Ordering::Relaxed);
                let w = Worked {
                    executable: what >> 32,
                    step: what as u32,
                    worker: worker as u32,
                    start_ns: r.start.load(Ordering::Relaxed),
                    end_ns: r.end.load(Ordering::Relaxed),
                };
                if w.end_ns >= w.start_ns && w.end_ns > 0 {
                    out.push(w);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_records_stay() {
        let t = TraceRings::new(2);
        if !t.is_on() {
            return;
        }
        assert!(t.read().is_empty());
        for i in 0..KEPT + 10 {
            t.record(1, 7, i, t.now());
        }
        t.record(5, 7, 1, t.now());
        let all = t.read();
        assert_eq!(all.len(), KEPT);
        assert!(all.iter().all(|w| w.worker == 1 && w.executable == 7));
        assert!(all.iter().any(|w| w.step as usize == KEPT + 9));
        assert!(!all.iter().any(|w| w.step < 10));
    }
}
