//! Little's law: what must be under way for a memory to be busy, and whether an occupancy has it.

use crate::Machine;

/// What one level needs under way, and what resident warps have.
#[derive(Clone, Debug, PartialEq)]
pub struct Hiding {
    /// Level name.
    pub level: String,
    /// Bandwidth of all workers, bytes per second: the bus peak of a main memory, else the read rate.
    pub bandwidth: f64,
    /// Latency of one access, seconds.
    pub latency_s: f64,
    /// Bytes under way on the whole machine that keep the level busy: bandwidth times latency.
    pub bytes: f64,
    /// The same for one worker.
    pub bytes_per_worker: f64,
    /// Warps of one worker that have them under way, each lane with `bytes_per_lane` asked for.
    pub warps: f64,
    /// Bytes that the resident warps of one worker have under way.
    pub has_bytes: f64,
    /// The share of the level's bandwidth that they can reach, at most 1.
    pub share: f64,
}

/// For every level beyond the shared memory: the bytes that must be under way to hide its latency, and
/// what `warps` resident warps on each worker have when each lane asks for `bytes_per_lane` before it
/// waits (4 for one `f32`, 64 for four 16-byte loads in a row).
pub fn hiding(m: &Machine, warps: u64, bytes_per_lane: u64) -> Vec<Hiding> {
    let workers = m.workers.count.value.max(1) as f64;
    let lanes = m.limits.warp.map_or(1, |w| w.value.max(1)) as f64;
    let per_warp = lanes * bytes_per_lane as f64;
    m.levels
        .iter()
        .filter(|l| !matches!(l.name.as_str(), "register" | "shared" | "host"))
        .map(|l| {
            let bandwidth = l.peak();
            let bytes = super::bytes_in_flight(bandwidth, l.latency_s.value);
            let bytes_per_worker = bytes / workers;
            let has_bytes = warps as f64 * per_warp;
            Hiding {
                level: l.name.clone(),
                bandwidth,
                latency_s: l.latency_s.value,
                bytes,
                bytes_per_worker,
                warps: if per_warp > 0.0 {
                    bytes_per_worker / per_warp
                } else {
                    f64::INFINITY
                },
                has_bytes,
                share: if bytes_per_worker > 0.0 {
                    (has_bytes / bytes_per_worker).min(1.0)
                } else {
                    1.0
                },
            }
        })
        .collect()
}

/// Seconds that `bytes` take from a level to one worker: the latency, then the transfer at the rate of
/// one worker alone.
pub fn travel_seconds(level: &crate::Level, bytes: f64) -> f64 {
    level.latency_s.value + bytes / level.read.per_worker.value
}
