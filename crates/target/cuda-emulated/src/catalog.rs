//! GPUs by name, with the figures of their data sheets.
use crate::Link;
use cuda::{Compute, DeviceInfo, DriverError};

/// Names that are known.
pub const NAMES: [&str; 3] = ["a100", "h100", "t4"];

/// What the driver says of the GPU called `name`, and how it is attached.
pub(crate) fn find(name: &str) -> Result<(DeviceInfo, Link), DriverError> {
    let info = DeviceInfo {
        ordinal: 0,
        name: String::new(),
        compute: Compute { major: 8, minor: 0 },
        sms: 108,
        memory_bytes: 80 << 30,
        threads_per_sm: 2048,
        blocks_per_sm: 32,
        registers_per_sm: 65536,
        shared_per_sm: 164 << 10,
        shared_per_block_optin: 163 << 10,
        clock_khz: 1_410_000,
        memory_clock_khz: 1_593_000,
        bus_bits: 5120,
        l2_bytes: 40 << 20,
        integrated: false,
        maps_host_memory: true,
    };
    let link = |gigabytes: f64| Link {
        bytes_per_s: gigabytes * 1e9,
        latency_s: 2e-6,
        word_s: 0.6e-6,
    };
    match name {
        "a100" => Ok((
            DeviceInfo {
                name: "NVIDIA A100-SXM4-80GB (emulated)".into(),
                ..info
            },
            link(25.0),
        )),
        "h100" => Ok((
            DeviceInfo {
                name: "NVIDIA H100 80GB HBM3 (emulated)".into(),
                compute: Compute { major: 9, minor: 0 },
                sms: 132,
                shared_per_sm: 228 << 10,
                shared_per_block_optin: 227 << 10,
                clock_khz: 1_980_000,
                memory_clock_khz: 2_619_000,
                l2_bytes: 50 << 20,
                ..info
            },
            link(50.0),
        )),
        "t4" => Ok((
            DeviceInfo {
                name: "Tesla T4 (emulated)".into(),
                compute: Compute { major: 7, minor: 5 },
                sms: 40,
                memory_bytes: 16 << 30,
                threads_per_sm: 1024,
                blocks_per_sm: 16,
                shared_per_sm: 64 << 10,
                shared_per_block_optin: 64 << 10,
                clock_khz: 1_590_000,
                memory_clock_khz: 5_001_000,
                bus_bits: 256,
                l2_bytes: 4 << 20,
                ..info
            },
            link(12.0),
        )),
        _ => Err(DriverError::Argument {
            call: "emulated",
            why: format!(
                "there is no emulated GPU '{name}'; known are {}",
                NAMES.join(", ")
            ),
        }),
    }
}
