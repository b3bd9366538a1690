//! Emulated time: what work takes on the GPU's own clock.
use cuda::DeviceInfo;
use ptx_emulator::{Counts, InstructionTimes};

/// The link between host and device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second, each way.
    pub bytes_per_s: f64,
    /// Seconds that a copy takes besides.
    pub latency_s: f64,
    /// Seconds in which a word written on one side is in the other's reach, without a call of the driver.
    pub word_s: f64,
}

/// Nanoseconds between two kernels of a stream, and the least that one takes.
const LAUNCH_NS: f64 = 2000.0;
/// The same in a graph.
const NODE_NS: f64 = 900.0;
/// The same of one that is launched while the one before it ends.
const EARLY_NS: f64 = 750.0;
/// Instructions of warps that an SM issues per clock.
const ISSUE: f64 = 4.0;

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// Sectors per second that one SM moves at most, in shares of what an even split would give it.
const SHARE: f64 = 4.0;
/// Nanoseconds from a task's end to the first instruction of one that waited for it in another CTA: an
/// atomic, a poll and the reads of its record, each to L2 and back.
const HANDOFF_NS: f64 = 1000.0;

/// Bytes per second of device memory that `sms` SMs move.
fn memory_rate(info: &DeviceInfo, sms: f64) -> f64 {
    let all = 2e3 * f64::from(info.memory_clock_khz.max(1)) * f64::from(info.bus_bits.max(1)) / 8.0;
    all * (SHARE * sms / f64::from(info.sms.max(1))).min(1.0)
}

/// The pace of a launch whose CTAs wait for each other, `per_sm` of them on an SM, from `start_ns` on.
pub(crate) fn pace(info: &DeviceInfo, link: &Link, per_sm: u64, start_ns: u64) -> InstructionTimes {
    let clock = f64::from(info.clock_khz.max(1)) * 1e-6;
    let share = per_sm.max(1) as f64;
    InstructionTimes {
        start_ns: start_ns as f64,
        issue_ns: share / (ISSUE * clock),
        pass_ns: share / clock,
        sector_ns: 32.0 * share / memory_rate(info, 1.0) * 1e9,
        host_sector_ns: 32.0 / link.bytes_per_s.max(1.0) * 1e9,
        device_ns: HANDOFF_NS,
        host_ns: link.word_s * 1e9,
    }
}

/// What a launch of `ctas` CTAs takes that executed `c`: the slowest of issuing its instructions, of
/// its passes over shared memory, and of its sectors in device memory (no cache is assumed, and one SM
/// moves a few times its even share at most), and a
/// launch's own time before that.
pub(crate) fn launch_ns(info: &DeviceInfo, c: &Counts, ctas: u64) -> u64 {
    let sms = f64::from(info.sms).min(ctas.max(1) as f64);
    let clock = f64::from(info.clock_khz.max(1)) * 1e3;
    let issue = c.issued as f64 / (ISSUE * sms * clock);
    let shared = c.wavefronts as f64 / (sms * clock);
    let memory = c.sectors as f64 * 32.0 / memory_rate(info, sms);
    LAUNCH_NS as u64 + ns(issue.max(shared).max(memory))
}

/// Nanoseconds by which a kernel begins sooner as a node of a graph, one that may begin early even more.
pub(crate) fn node_saves_ns(early: bool) -> u64 {
    (LAUNCH_NS - if early { EARLY_NS } else { NODE_NS }) as u64
}

/// What a launch takes before its first instruction.
pub(crate) fn launch_own_ns() -> u64 {
    LAUNCH_NS as u64
}

/// What a copy over the link takes.
pub(crate) fn copy_ns(link: &Link, bytes: u64) -> u64 {
    ns(link.latency_s + bytes as f64 / link.bytes_per_s.max(1.0))
}

/// What a copy or fill inside device memory takes: it is read and written.
pub(crate) fn inside_ns(info: &DeviceInfo, bytes: u64) -> u64 {
    let rate =
        2e3 * f64::from(info.memory_clock_khz.max(1)) * f64::from(info.bus_bits.max(1)) / 8.0;
    LAUNCH_NS as u64 + ns(2.0 * bytes as f64 / rate)
}
