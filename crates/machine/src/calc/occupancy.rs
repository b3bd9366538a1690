//! How many CTAs of a kernel one SM of an NVIDIA GPU holds.
//!
//! The rules are those of the CUDA programming guide's table of compute capabilities and of the
//! occupancy calculator's documentation: registers are handed to warps in units, from four equal
//! parts of the register file; shared memory is rounded up and, from compute capability 8.0 on, the
//! driver keeps 1 KiB of every CTA's.

use crate::Limits;

/// What a CTA of a kernel asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Threads.
    pub threads: u64,
    /// Registers of each thread.
    pub registers: u64,
    /// Shared memory, static and dynamic together, bytes.
    pub shared: u64,
}

/// CTAs that each limit alone would allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupancyLimits {
    /// By warp slots.
    pub warps: u64,
    /// By the register file.
    pub registers: u64,
    /// By shared memory.
    pub shared: u64,
    /// By CTA slots.
    pub ctas: u64,
}

/// The answer; 0 CTAs when a launch is impossible.
#[derive(Clone, Debug, PartialEq)]
pub struct Occupancy {
    /// CTAs resident on one SM.
    pub ctas: u64,
    /// Warps resident on one SM.
    pub warps: u64,
    /// Warps as a share of the most that fit.
    pub share: f64,
    /// What limits: all limits that equal the smallest.
    pub limiters: Vec<&'static str>,
    /// Each limit alone.
    pub limits: OccupancyLimits,
}

fn round_up(v: u64, to: u64) -> u64 {
    v.div_ceil(to.max(1)).saturating_mul(to.max(1))
}

/// Occupancy of one SM; `None` when the limits do not describe an SM (a CPU, or fields missing).
pub fn occupancy(l: &Limits, b: Block) -> Option<Occupancy> {
    let get = |v: Option<crate::Sourced<u64>>| v.map(|s| s.value);
    let warp = get(l.warp)?.max(1);
    let max_warps = get(l.warps_per_sm)?;
    let max_ctas = get(l.ctas_per_sm)?;
    let max_threads = get(l.threads_per_cta)?;
    let file = get(l.registers_per_sm)?;
    let max_registers = get(l.registers_per_thread)?;
    let unit = get(l.register_granularity)?.max(1);
    let shared_sm = get(l.shared_per_sm)?;
    let shared_cta = get(l.shared_per_cta)?;
    let granule = get(l.shared_granularity)?.max(1);
    let reserved = l.shared_reserved_per_cta.map_or(0, |s| s.value);
    const PARTS: u64 = 4; // sub-partitions of an SM, each with a quarter of the register file

    let warps = b.threads.div_ceil(warp);
    let by_warps = if warps == 0 || b.threads > max_threads {
        0
    } else {
        max_warps / warps
    };
    let per_warp = round_up(b.registers.saturating_mul(warp), unit);
    let by_registers = if b.registers > max_registers || warps == 0 {
        0
    } else if per_warp == 0 {
        max_ctas
    } else if per_warp.saturating_mul(round_up(warps, PARTS)) > file {
        0
    } else {
        file / PARTS / per_warp * PARTS / warps
    };
    let wanted = b.shared.saturating_add(reserved);
    let by_shared = if b.shared > shared_cta {
        0
    } else {
        match round_up(wanted, granule) {
            0 => max_ctas,
            s => shared_sm / s,
        }
    };
    let limits = OccupancyLimits {
        warps: by_warps,
        registers: by_registers,
        shared: by_shared,
        ctas: max_ctas,
    };
    let named = [
        ("warps", by_warps),
        ("regs", by_registers),
        ("smem", by_shared),
        ("blocks", max_ctas),
    ];
    let ctas = named.iter().map(|n| n.1).min().unwrap_or(0);
    let limiters = named.iter().filter(|n| n.1 == ctas).map(|n| n.0).collect();
    let active = ctas * warps;
    Some(Occupancy {
        ctas,
        warps: active,
        share: active as f64 / max_warps.max(1) as f64,
        limiters,
        limits,
    })
}
