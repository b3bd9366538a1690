//! Emulated time: what work takes on the GPU's own clock.
use cuda::DeviceInfo;
use ptx_emulator::Counts;

/// The road between host and device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second, each way.
    pub bytes_per_s: f64,
    /// Seconds that a copy takes besides.
    pub latency_s: f64,
}

/// Nanoseconds between two kernels of a stream, and the least that one takes.
const LAUNCH_NS: f64 = 2000.0;
/// Instructions of warps that an SM issues per clock.
const ISSUE: f64 = 4.0;

fn ns(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

/// What a launch of `ctas` CTAs takes that executed `c`: the slowest of issuing its instructions, of
/// its passes over shared memory, and of its sectors in device memory (no cache is assumed), and a
/// launch's own time before that.
pub(crate) fn launch_ns(info: &DeviceInfo, c: &Counts, ctas: u64) -> u64 {
    let sms = f64::from(info.sms).min(ctas.max(1) as f64);
    let clock = f64::from(info.clock_khz.max(1)) * 1e3;
    let issue = c.issued as f64 / (ISSUE * sms * clock);
    let shared = c.wavefronts as f64 / (sms * clock);
    let rate =
        2e3 * f64::from(info.memory_clock_khz.max(1)) * f64::from(info.bus_bits.max(1)) / 8.0;
    let memory = c.sectors as f64 * 32.0 / rate;
    LAUNCH_NS as u64 + ns(issue.max(shared).max(memory))
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
