//! Peak rates from widths and clocks.

/// Peak bandwidth of a memory bus in bytes per second: `bits * pin speed / 8`.
/// 256 pins at 6.4 Gb/s give 204.8 GB/s.
pub fn bus_bandwidth(bits: u64, pin_bits_per_s: f64) -> f64 {
    bits as f64 * pin_bits_per_s / 8.0
}

/// Peak bandwidth of a PCIe link in one direction, bytes per second, after line coding (PCI-SIG base
/// specifications: 8b/10b up to generation 2, 128b/130b to 5, 242 of 256 bytes in generation 6 flits).
/// 0 for a generation that does not exist.
pub fn pcie_bandwidth(generation: u32, lanes: u32) -> f64 {
    let (transfers, coding) = match generation {
        1 => (2.5e9, 0.8),
        2 => (5.0e9, 0.8),
        3 => (8.0e9, 128.0 / 130.0),
        4 => (16.0e9, 128.0 / 130.0),
        5 => (32.0e9, 128.0 / 130.0),
        6 => (64.0e9, 242.0 / 256.0),
        _ => return 0.0,
    };
    transfers * coding * f64::from(lanes) / 8.0
}

/// Peak multiply-add rate in operations per second: `2 * lanes * workers * clock`.
pub fn vector_peak(lanes: u64, workers: u64, clock_hz: f64) -> f64 {
    2.0 * lanes as f64 * workers as f64 * clock_hz
}

/// Bytes that must be under way to keep a link of this bandwidth busy at this latency (Little's law).
pub fn bytes_in_flight(bandwidth: f64, latency_s: f64) -> f64 {
    bandwidth * latency_s
}
