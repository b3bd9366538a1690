//! Architectures that are printed for, and what a CTA has on each.

use kernel::CtaLimits;

/// Architectures that are printed for.
pub const ARCHS: [&str; 4] = ["sm_75", "sm_80", "sm_90", "sm_90a"];

/// What threads can do beyond the common ground: 32 of them exchange values directly, and from sm_80 on copies
/// to shared memory go on beside what follows.
pub(super) fn caps(arch: &str) -> crate::simt::Caps {
    crate::simt::Caps {
        shuffle: 32,
        copies: arch != ARCHS[0],
        warpgroups: warpgroups(arch),
        dependents: knows_dependents(arch),
    }
}

/// Whether a kernel can say when the next one may be launched, and wait for the one before it.
pub(super) fn knows_dependents(arch: &str) -> bool {
    arch == ARCHS[2] || warpgroups(arch)
}

/// Whether products of warpgroups are there: text for such an architecture runs on no later one.
pub(super) fn warpgroups(arch: &str) -> bool {
    arch == ARCHS[3]
}

/// The name in [`ARCHS`] of the newest text that a GPU of compute capability `cc` (90 for 9.0) runs; `None` where it
/// runs none.
pub fn arch_of(cc: u32) -> Option<&'static str> {
    match cc {
        // Its own text runs on no other.
        90 => Some(ARCHS[3]),
        91.. => Some(ARCHS[2]),
        80.. => Some(ARCHS[1]),
        75.. => Some(ARCHS[0]),
        _ => None,
    }
}

/// The driver from which on it takes texts of version 8.4, which warpgroups' products of signs with none need: that of CUDA
/// 12.4.
const OF_WARPGROUPS: u32 = 12_040;

/// As [`arch_of`], for a driver of this version (12040 for 12.4): one before CUDA 12.4 is given no products of
/// warpgroups.
pub fn arch_under(cc: u32, driver: u32) -> Option<&'static str> {
    let own = arch_of(cc)?;
    match warpgroups(own) && driver < OF_WARPGROUPS {
        true => Some(ARCHS[2]),
        false => Some(own),
    }
}

/// What a CTA has on `arch`, as the vendor's table of compute capabilities says; shared memory with the
/// opt-in for more than 48 KiB.
pub fn limits(arch: &str) -> CtaLimits {
    let kib = match arch {
        "sm_75" => 64,
        "sm_80" => 163,
        "sm_90" | "sm_90a" => 227,
        _ => 48,
    };
    CtaLimits {
        threads: 1024,
        registers: 255,
        register_file: 65_536,
        shared_bytes: kib << 10,
    }
}

/// Registers that a thread of a CTA can have at most, whose `threads` share the file.
pub(super) fn registers_for(threads: u32) -> u32 {
    let most = limits("sm_80");
    let warps = threads.max(1).next_multiple_of(32);
    (most.register_file / warps / 8 * 8).min(most.registers)
}
