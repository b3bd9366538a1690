//! Limits by compute capability: the CUDA programming guide's table "Technical Specifications per
//! Compute Capability".

use crate::{Limits, Sourced};

/// One column of the table; sizes in KiB.
struct Row {
    cc: u32,
    warps: u64,
    ctas: u64,
    /// Registers of an SM, in thousands of 1024.
    registers: u64,
    shared: u64,
    shared_cta: u64,
    barriers: u64,
}

const fn row(
    cc: u32,
    warps: u64,
    ctas: u64,
    registers: u64,
    shared: u64,
    shared_cta: u64,
    barriers: u64,
) -> Row {
    Row {
        cc,
        warps,
        ctas,
        registers,
        shared,
        shared_cta,
        barriers,
    }
}

const ROWS: &[Row] = &[
    row(37, 64, 16, 128, 112, 48, 0),
    row(50, 64, 32, 64, 64, 48, 0),
    row(52, 64, 32, 64, 96, 48, 0),
    row(53, 64, 32, 32, 64, 48, 0),
    row(60, 64, 32, 64, 64, 48, 0),
    row(61, 64, 32, 64, 96, 48, 0),
    row(62, 64, 32, 64, 64, 48, 0),
    row(70, 64, 32, 64, 96, 96, 0),
    row(72, 64, 32, 64, 96, 96, 0),
    row(75, 32, 16, 64, 64, 64, 0),
    row(80, 64, 32, 64, 164, 163, 0),
    row(86, 48, 16, 64, 100, 99, 0),
    row(87, 48, 16, 64, 164, 163, 0),
    row(89, 48, 24, 64, 100, 99, 0),
    row(90, 64, 32, 64, 228, 227, 64),
    row(100, 64, 32, 64, 228, 227, 64),
    row(103, 64, 32, 64, 228, 227, 32),
    row(110, 48, 24, 64, 228, 227, 24),
    row(120, 48, 24, 64, 100, 99, 24),
    row(121, 48, 24, 64, 100, 99, 24),
];

/// The splits of the joint L1 and shared memory, KiB.
fn carveouts(cc: u32) -> &'static [u64] {
    match cc {
        70 | 72 => &[0, 8, 16, 32, 64, 96],
        75 => &[32, 64],
        80 | 87 => &[0, 8, 16, 32, 64, 100, 132, 164],
        86 | 89 | 120 | 121 => &[0, 8, 16, 32, 64, 100],
        90 | 100 | 103 | 110 => &[0, 8, 16, 32, 64, 100, 132, 164, 196, 228],
        _ => &[],
    }
}

/// The compute capabilities with limits here, as major * 10 + minor, rising.
pub fn known_capabilities() -> Vec<u32> {
    ROWS.iter().map(|r| r.cc).collect()
}

/// A compute capability as written (`9.0`, `90`, `sm_90`) as major * 10 + minor.
pub fn parse_capability(text: &str) -> Option<u32> {
    let t = text.trim();
    let t = t.strip_prefix("sm_").unwrap_or(t);
    let digits = |s: &str| s.len() <= 3 && s.bytes().all(|b| b.is_ascii_digit());
    match t.split_once('.') {
        Some((major, minor)) if digits(major) && digits(minor) && minor.len() == 1 => {
            Some(major.parse::<u32>().ok()? * 10 + minor.parse::<u32>().ok()?)
        }
        None if digits(t) => t.parse().ok(),
        _ => None,
    }
}

/// Occupancy limits of every GPU of a compute capability (major * 10 + minor); `None` when the table
/// does not have it.
pub fn limits_of_capability(cc: u32) -> Option<Limits> {
    let r = ROWS.iter().find(|r| r.cc == cc)?;
    let some = |v: u64| Some(Sourced::spec(v));
    Some(Limits {
        cc,
        warp: some(32),
        threads_per_cta: some(1024),
        threads_per_sm: some(r.warps * 32),
        warps_per_sm: some(r.warps),
        ctas_per_sm: some(r.ctas),
        registers_per_sm: some(r.registers * 1024),
        registers_per_thread: some(255),
        register_granularity: some(256),
        shared_per_sm: some(r.shared * 1024),
        shared_per_cta: some(r.shared_cta * 1024),
        shared_granularity: some(if cc >= 80 { 128 } else { 256 }),
        shared_reserved_per_cta: (cc >= 80).then_some(Sourced::spec(1024)),
        shared_default_per_cta: (cc >= 70).then_some(Sourced::spec(48 * 1024)),
        shared_carveouts: carveouts(cc).iter().map(|k| k * 1024).collect(),
        clustered: vec![],
        registers_per_cta: match cc {
            37 => some(64 * 1024),
            53 => some(32 * 1024),
            _ => None,
        },
        register_files: (cc == 60).then_some(Sourced::spec(2)),
        barriers_per_sm: (r.barriers > 0).then_some(Sourced::spec(r.barriers)),
    })
}
