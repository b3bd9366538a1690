//! Widths of micro-architectures, from the vendors' optimisation guides: floating-point operations
//! and bytes per cycle and core. Frequencies are all-core figures typical of servers of the
//! generation; everything here is an assumption until calibrated.

use super::Facts;

/// Per-cycle widths of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Uarch {
    pub name: &'static str,
    /// f32 operations per cycle with 512-bit fused multiply-add; 0 without.
    pub avx512_flop: f64,
    /// The same with 256 bits.
    pub avx2_flop: f64,
    /// With 128-bit multiply and add (or NEON).
    pub portable_flop: f64,
    /// Bytes per cycle.
    pub l1_read: f64,
    pub l1_write: f64,
    pub l2_read: f64,
    pub l3_read: f64,
    /// Bytes per second of one core, and how many cores fill the bus.
    pub dram_read_per_core: f64,
    pub dram_saturating_cores: f64,
    pub dram_latency_s: f64,
    pub nominal_hz: f64,
}

const BASE: Uarch = Uarch {
    name: "generic",
    avx512_flop: 32.0,
    avx2_flop: 32.0,
    portable_flop: 16.0,
    l1_read: 64.0,
    l1_write: 32.0,
    l2_read: 32.0,
    l3_read: 16.0,
    dram_read_per_core: 1.5e10,
    dram_saturating_cores: 4.0,
    dram_latency_s: 1e-7,
    nominal_hz: 3.0e9,
};

impl Uarch {
    pub(super) fn of(f: &Facts) -> Uarch {
        let known = match (f.vendor.as_str(), f.family) {
            ("AMD", family) => Uarch::amd(family, f.model),
            ("Intel", 6) => Uarch::intel(f.model),
            _ => None,
        };
        match known {
            Some(u) => u,
            None if f.arch_name == "aarch64" => Uarch {
                name: "aarch64",
                portable_flop: 32.0,
                l1_read: 32.0,
                dram_read_per_core: 2.5e10,
                ..BASE
            },
            None => BASE,
        }
    }

    fn amd(family: u32, model: u32) -> Option<Uarch> {
        let amd_dram = Uarch {
            dram_read_per_core: 3e10,
            dram_saturating_cores: 4.0,
            dram_latency_s: 1.3e-7,
            ..BASE
        };
        let zen = Uarch {
            l3_read: 24.0,
            ..amd_dram
        };
        Some(match (family, model) {
            (0x17, 0x00..=0x2f) => Uarch {
                name: "zen",
                avx2_flop: 16.0,
                l1_read: 32.0,
                l1_write: 16.0,
                nominal_hz: 3.0e9,
                ..zen
            },
            (0x17, _) => Uarch {
                name: "zen2",
                nominal_hz: 3.2e9,
                ..zen
            },
            (0x19, 0x10..=0x1f | 0x60..=0xaf) => Uarch {
                name: "zen4",
                l3_read: 27.0,
                nominal_hz: 3.7e9,
                ..zen
            },
            (0x19, _) => Uarch {
                name: "zen3",
                nominal_hz: 3.5e9,
                ..zen
            },
            (0x1a, 0x20..=0x3f | 0x60..=0x7f) => {
                // Mobile parts: 512-bit operations in two halves.
                Uarch {
                    name: "zen5",
                    l1_read: 64.0,
                    l2_read: 32.0,
                    l3_read: 27.0,
                    nominal_hz: 4.0e9,
                    ..zen
                }
            }
            (0x1a, _) => Uarch {
                name: "zen5",
                avx512_flop: 64.0,
                l1_read: 128.0,
                l1_write: 64.0,
                l2_read: 64.0,
                l3_read: 27.0,
                nominal_hz: 4.0e9,
                ..zen
            },
            _ => return None,
        })
    }

    fn intel(model: u32) -> Option<Uarch> {
        let wide = Uarch {
            avx512_flop: 64.0,
            l1_read: 128.0,
            l1_write: 64.0,
            l2_read: 48.0,
            l3_read: 12.0,
            ..BASE
        };
        Some(match model {
            0x55 => Uarch {
                name: "skylake-x",
                nominal_hz: 2.8e9,
                ..wide
            },
            0x6a | 0x6c => Uarch {
                name: "icelake-sp",
                nominal_hz: 2.9e9,
                ..wide
            },
            0x8f => Uarch {
                name: "sapphire-rapids",
                nominal_hz: 2.9e9,
                ..wide
            },
            0xcf => Uarch {
                name: "emerald-rapids",
                nominal_hz: 3.0e9,
                ..wide
            },
            0xad | 0xae => Uarch {
                name: "granite-rapids",
                nominal_hz: 3.2e9,
                ..wide
            },
            0x3c | 0x3f | 0x45 | 0x46 => Uarch {
                name: "haswell",
                nominal_hz: 2.9e9,
                ..BASE
            },
            0x3d | 0x47 | 0x4f | 0x56 => Uarch {
                name: "broadwell",
                nominal_hz: 2.8e9,
                ..BASE
            },
            0x4e | 0x5e | 0x8e | 0x9e | 0xa5 | 0xa6 => Uarch {
                name: "skylake",
                nominal_hz: 3.6e9,
                ..BASE
            },
            0x97 | 0x9a | 0xb7 | 0xba | 0xbf => Uarch {
                name: "alder-lake",
                nominal_hz: 4.4e9,
                ..BASE
            },
            _ => return None,
        })
    }

    /// f32 operations per cycle with the widest usable extension.
    pub(super) fn flop_per_cycle_best(&self, f: &Facts) -> f64 {
        let has = |x: &str| f.features.iter().any(|y| y == x);
        if has("avx512f") && self.avx512_flop > 0.0 {
            self.avx512_flop
        } else if has("avx2") && has("fma") {
            self.avx2_flop
        } else {
            self.portable_flop
        }
    }
}
