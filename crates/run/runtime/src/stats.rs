//! Statistics of a session: counters and a latency histogram of fixed size, written without locks.
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Steps of the histogram per doubling.
const FINE: usize = 8;
/// Doublings from 64 ns on.
const OCTAVES: usize = 40;
/// Requests shorter than this are timed one in [`SAMPLED`]: reading the clock twice would take a share of
/// them that shows.
const SHORT_NS: u64 = 20_000;
const SAMPLED: u32 = 32;

/// Counters of a session.
pub(crate) struct Stats {
    /// Requests that ended well, those that were timed one by one, and the others by their number.
    done: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    /// Nanoseconds of what was timed.
    busy_ns: AtomicU64,
    timed: AtomicU64,
    /// Requests until the next one is timed.
    every: AtomicU32,
    turn: AtomicU32,
    latency: [AtomicU64; FINE * OCTAVES],
}

impl Default for Stats {
    fn default() -> Stats {
        let zero = || AtomicU64::new(0);
        Stats {
            done: zero(),
            failed: zero(),
            refused: zero(),
            busy_ns: zero(),
            timed: zero(),
            every: AtomicU32::new(1),
            turn: AtomicU32::new(0),
            latency: std::array::from_fn(|_| zero()),
        }
    }
}

/// What a session's requests came to since the engine has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionStats {
    /// Requests that ended well.
    pub done: u64,
    /// Requests that ended with an error or were cancelled.
    pub failed: u64,
    /// Requests turned away.
    pub refused: u64,
    /// Requests that were timed: all, or a sample of short ones.
    pub timed: u64,
    /// Mean seconds from arrival to end.
    pub mean_s: f64,
    /// Median seconds from arrival to end, to within a twelfth.
    pub p50_s: f64,
    /// Seconds that 99 of 100 do not exceed, likewise.
    pub p99_s: f64,
    /// How many were timed at which latency, in eighths of a doubling from 64 ns on.
    pub histogram: Vec<u64>,
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(64);
    let octave = 63 - ns.leading_zeros() as usize;
    // The three bits behind the first.
    let fine = (ns >> (octave - 3)) as usize & (FINE - 1);
    ((octave - 6) * FINE + fine).min(FINE * OCTAVES - 1)
}

/// Middle of a bucket in seconds.
fn value_s(b: usize) -> f64 {
    let low = 64.0 * 2f64.powi((b / FINE) as i32) * (1.0 + (b % FINE) as f64 / FINE as f64);
    low * (1.0 + 0.5 / FINE as f64) * 1e-9
}

/// Latency that `share` of the requests of `histogram` do not exceed, in seconds; 0 for none.
pub fn quantile_s(histogram: &[u64], share: f64) -> f64 {
    let total: u64 = histogram.iter().sum();
    let want = ((total as f64 * share).ceil() as u64).max(1);
    let mut seen = 0;
    for (b, n) in histogram.iter().enumerate() {
        seen += n;
        if seen >= want {
            return value_s(b);
        }
    }
    0.0
}

impl Stats {
    /// When the request begins, if it is to be timed.
    #[inline]
    pub fn begin(&self) -> Option<Instant> {
        let every = self.every.load(Ordering::Relaxed);
        if every > 1 {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            if !turn.is_multiple_of(every) {
                return None;
            }
        }
        Some(Instant::now())
    }

    /// The request that began then has ended.
    #[inline]
    pub fn end(&self, began: Option<Instant>) {
        match began {
            Some(t) => self.took(t.elapsed()),
            None => {
                self.done.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn took(&self, d: Duration) {
        let ns = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        self.done.fetch_add(1, Ordering::Relaxed);
        self.timed.fetch_add(1, Ordering::Relaxed);
        self.busy_ns.fetch_add(ns, Ordering::Relaxed);
        self.latency[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        let every = if ns < SHORT_NS { SAMPLED } else { 1 };
        if self.every.load(Ordering::Relaxed) != every {
            self.every.store(every, Ordering::Relaxed);
        }
    }

    pub fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> SessionStats {
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let histogram: Vec<u64> = self.latency.iter().map(get).collect();
        let timed = get(&self.timed);
        SessionStats {
            done: get(&self.done),
            failed: get(&self.failed),
            refused: get(&self.refused),
            timed,
            mean_s: get(&self.busy_ns) as f64 * 1e-9 / timed.max(1) as f64,
            p50_s: quantile_s(&histogram, 0.5),
            p99_s: quantile_s(&histogram, 0.99),
            histogram,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_they_say() {
        for ns in [64u64, 71, 100, 999, 12_345, 1_000_000, 7_777_777_777] {
            let v = value_s(bucket(ns)) * 1e9;
            assert!((v / ns as f64 - 1.0).abs() < 1.0 / 12.0, "{ns} ns as {v}");
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), FINE * OCTAVES - 1);
    }

    #[test]
    fn quantiles_and_counts() {
        let s = Stats::default();
        assert_eq!(s.read().p99_s, 0.0);
        for i in 0..1000u64 {
            s.took(Duration::from_micros(if i < 980 { 100 } else { 5000 }));
        }
        let r = s.read();
        assert_eq!((r.done, r.timed), (1000, 1000));
        assert!((r.p50_s / 100e-6 - 1.0).abs() < 0.09, "{}", r.p50_s);
        assert!((r.p99_s / 5e-3 - 1.0).abs() < 0.09, "{}", r.p99_s);
        assert!((r.mean_s / (0.98 * 100e-6 + 0.02 * 5e-3) - 1.0).abs() < 1e-6);
    }
}
