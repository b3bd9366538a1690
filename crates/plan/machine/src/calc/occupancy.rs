//! How many CTAs of a kernel one SM of an NVIDIA GPU holds.
//!
//! The rules are those of the CUDA programming guide's table of compute capabilities and of the
//! occupancy calculator's documentation: registers are handed to warps in units, from equal parts of
//! the register file; shared memory is rounded up, from compute capability 8.0 on the driver keeps
//! 1 KiB of every CTA's, and the joint L1 and shared memory is split at one of a few sizes; from 9.0
//! on CTA barriers are counted.

use crate::Limits;
use layout::Arrange;

/// What a CTA of a kernel asks for, launched as our own backend does: opted in to all of the shared
/// memory, the driver's own carve-out, one barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Threads.
    pub threads: u64,
    /// Registers of each thread.
    pub registers: u64,
    /// Shared memory, static and dynamic together, bytes.
    pub shared: u64,
}

/// What a CTA of a kernel asks for and how it is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Threads.
    pub threads: u64,
    /// Registers of each thread.
    pub registers: u64,
    /// Shared memory fixed when the kernel was compiled, bytes.
    pub shared: u64,
    /// Shared memory given at the launch, bytes.
    pub dynamic_shared: u64,
    /// Whether the kernel opted in to more shared memory than 48 KiB.
    pub opt_in: bool,
    /// Preferred share of the joint L1 and shared memory that is shared memory, percent; `None` leaves
    /// it to the driver.
    pub carveout: Option<u64>,
    /// CTA barriers it uses.
    pub barriers: u64,
}

impl From<Block> for Launch {
    fn from(b: Block) -> Launch {
        Launch {
            threads: b.threads,
            registers: b.registers,
            shared: b.shared,
            dynamic_shared: 0,
            opt_in: true,
            carveout: None,
            barriers: 1,
        }
    }
}

/// CTAs that each limit alone would allow; `None` where it limits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OccupancyLimits {
    /// By warp slots.
    pub warps: u64,
    /// By the register file.
    pub registers: Option<u64>,
    /// By shared memory.
    pub shared: Option<u64>,
    /// By CTA slots.
    pub ctas: u64,
    /// By CTA barriers.
    pub barriers: Option<u64>,
}

/// The answer; 0 CTAs when a launch is impossible.
#[derive(Clone, Debug, PartialEq)]
pub struct Occupancy {
    /// CTAs resident on one SM.
    pub ctas: u64,
    /// Warps resident on one SM.
    pub warps: u64,
    /// The most warps an SM holds.
    pub max_warps: u64,
    /// Warps as a share of the most that fit.
    pub share: f64,
    /// What limits: all limits that equal the smallest of warps, registers, shared memory and CTA slots
    /// (`warps`, `regs`, `smem`, `blocks`), and `barriers` where that is no larger.
    pub limiters: Vec<&'static str>,
    /// Each limit alone.
    pub limits: OccupancyLimits,
    /// Registers taken for one CTA, after rounding.
    pub registers_per_cta: u64,
    /// Shared memory taken for one CTA, after rounding, the driver's part in it, bytes.
    pub shared_per_cta: u64,
    /// Shared memory of one SM at the carve-out chosen, bytes.
    pub shared_per_sm: u64,
}

/// Quarters of an SM that hand out warps: warps of a CTA are spread over them evenly.
const PARTS: u64 = 4;

fn round_up(v: u64, to: u64) -> u64 {
    v.div_ceil(to.max(1)).saturating_mul(to.max(1))
}

/// The words for one of [`Occupancy::limiters`].
pub fn limiter_name(limiter: &str) -> &'static str {
    match limiter {
        "regs" => "registers",
        "smem" => "shared memory",
        "blocks" => "CTA slots",
        "barriers" => "barriers",
        _ => "warp slots",
    }
}

/// Occupancy of one SM; `None` when the limits do not describe an SM (a CPU, or fields missing).
pub fn occupancy(l: &Limits, b: Block) -> Option<Occupancy> {
    occupancy_of(l, &b.into())
}

/// Fields of the limits that [`occupancy`] needs and that are not there.
pub fn occupancy_lacks(l: &Limits) -> Vec<&'static str> {
    [
        ("warp", l.warp),
        ("warps_per_sm", l.warps_per_sm),
        ("ctas_per_sm", l.ctas_per_sm),
        ("threads_per_cta", l.threads_per_cta),
        ("registers_per_sm", l.registers_per_sm),
        ("registers_per_thread", l.registers_per_thread),
        ("register_granularity", l.register_granularity),
        ("shared_per_sm", l.shared_per_sm),
        ("shared_per_cta", l.shared_per_cta),
        ("shared_granularity", l.shared_granularity),
    ]
    .into_iter()
    .filter(|f| f.1.is_none())
    .map(|f| f.0)
    .collect()
}

/// A setting of a launch that no launch can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// `threads`, `registers` or `barriers`.
    pub what: &'static str,
    /// What was asked for.
    pub given: u64,
    /// The least there can be.
    pub least: u64,
    /// The most there can be; `None` where the limits do not say.
    pub most: Option<u64>,
}

/// The first setting of `b` that is outside of what the limits allow to any launch: threads of a CTA, registers of a
/// thread, barriers of a CTA.
pub fn out_of_range(l: &Limits, b: &Launch) -> Option<OutOfRange> {
    let all = [
        ("threads", b.threads, 1, l.threads_per_cta),
        ("registers", b.registers, 1, l.registers_per_thread),
        ("barriers", b.barriers, 0, l.barriers_per_sm),
    ];
    let ranges = all
        .into_iter()
        .map(|(what, given, least, most)| OutOfRange {
            what,
            given,
            least,
            most: most.map(|m| m.value),
        });
    let mut outside = ranges.filter(|r| r.given < r.least || r.most.is_some_and(|m| r.given > m));
    outside.next()
}

/// Occupancy of one SM for a launch with all its settings; `None` when the limits do not describe an SM
/// (a CPU, or fields missing).
pub fn occupancy_of(l: &Limits, b: &Launch) -> Option<Occupancy> {
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
    let reserved = get(l.shared_reserved_per_cta).unwrap_or(0);
    let files = get(l.register_files).unwrap_or(PARTS).max(1);
    let file_cta = get(l.registers_per_cta).unwrap_or(file);

    let warps = b.threads.div_ceil(warp);
    let by_warps = if b.threads > max_threads {
        0
    } else {
        max_warps.checked_div(warps).unwrap_or(0)
    };

    let per_warp = round_up(b.registers.saturating_mul(warp), unit);
    // From Volta on the vendor's calculator takes one register more than can be named.
    let too_many = b.registers > max_registers.saturating_add(u64::from(l.cc >= 70))
        || per_warp.saturating_mul(round_up(warps, PARTS)) > file_cta;
    let by_registers = if too_many {
        Some(0)
    } else {
        (file / files)
            .checked_div(per_warp)
            .map(|w| w.saturating_mul(files).checked_div(warps).unwrap_or(0))
    };

    let asked = b.shared.saturating_add(b.dynamic_shared);
    let taken = round_up(asked.saturating_add(reserved), granule);
    let most = match l.shared_default_per_cta {
        Some(d) if !b.opt_in => d.value,
        _ => shared_cta,
    };
    // The smallest split that has the share asked for and holds one CTA.
    let share = b.carveout.map_or(shared_sm, |c| {
        (u128::from(shared_sm) * u128::from(c.min(100)) / 100) as u64
    });
    let shared = l
        .shared_carveouts
        .iter()
        .copied()
        .find(|c| *c >= share.max(taken))
        .or(l.shared_carveouts.last().copied())
        .unwrap_or(shared_sm);
    let by_shared = if asked > most {
        Some(0)
    } else {
        shared.checked_div(taken)
    };
    let by_barriers = get(l.barriers_per_sm).and_then(|n| n.checked_div(b.barriers));

    let limits = OccupancyLimits {
        warps: by_warps,
        registers: by_registers,
        shared: by_shared,
        ctas: max_ctas,
        barriers: by_barriers,
    };
    let named = [
        ("warps", Some(by_warps)),
        ("regs", by_registers),
        ("smem", by_shared),
        ("blocks", Some(max_ctas)),
    ];
    let least = named.iter().filter_map(|n| n.1).min().unwrap_or(0);
    let mut limiters: Vec<&'static str> = named
        .iter()
        .filter(|n| n.1 == Some(least))
        .map(|n| n.0)
        .collect();
    let ctas = by_barriers.map_or(least, |n| n.min(least));
    if by_barriers == Some(ctas) {
        limiters.push("barriers");
    }
    let active = ctas.saturating_mul(warps);
    Some(Occupancy {
        ctas,
        warps: active,
        max_warps,
        share: active as f64 / max_warps.max(1) as f64,
        limiters,
        limits,
        registers_per_cta: per_warp.saturating_mul(warps),
        shared_per_cta: taken,
        shared_per_sm: shared,
    })
}

/// A change of one setting that lets more warps be resident.
#[derive(Clone, Debug, PartialEq)]
pub struct OccupancyStep {
    /// `registers`, `shared memory` or `threads`.
    pub what: &'static str,
    /// The setting now.
    pub from: u64,
    /// What to change it to: the least change that gains.
    pub to: u64,
    /// CTAs then.
    pub ctas: u64,
    /// Warps then.
    pub warps: u64,
}

/// The least changes, of one setting each, that let more warps be resident: fewer registers, less
/// shared memory, other CTA sizes. Empty when nothing alone helps.
pub fn occupancy_steps(l: &Limits, b: &Launch) -> Vec<OccupancyStep> {
    let Some(now) = occupancy_of(l, b) else {
        return Vec::new();
    };
    let warp = l.warp.map_or(32, |w| w.value.max(1));
    let mut out = Vec::new();
    let mut first = |what, from, mut candidates: &mut dyn Iterator<Item = (u64, Launch)>| {
        let gain = Iterator::find_map(&mut candidates, |(to, launch)| {
            let o = occupancy_of(l, &launch)?;
            (o.warps > now.warps).then_some(OccupancyStep {
                what,
                from,
                to,
                ctas: o.ctas,
                warps: o.warps,
            })
        });
        out.extend(gain);
    };
    let most = l.registers_per_thread.map_or(255, |r| r.value.min(1024));
    first(
        "registers",
        b.registers,
        &mut (0..b.registers.min(most + 1)).rev().map(|registers| {
            let launch = Launch { registers, ..*b };
            (registers, launch)
        }),
    );
    let total = b.shared.saturating_add(b.dynamic_shared);
    let granule = l.shared_granularity.map_or(256, |g| g.value.max(1));
    let top = l.shared_per_sm.map_or(total, |s| total.min(s.value));
    first(
        "shared memory",
        total,
        &mut (0..top.div_ceil(granule).min(1 << 16)).rev().map(|k| {
            let less = k * granule;
            let launch = Launch {
                shared: b.shared.min(less),
                dynamic_shared: less - b.shared.min(less),
                ..*b
            };
            (less, launch)
        }),
    );
    let sizes = l.threads_per_cta.map_or(0, |t| t.value.min(1 << 14)) / warp;
    let mut others: Vec<u64> = (1..=sizes).map(|k| k * warp).collect();
    others.arrange_by_key(|t| (t.abs_diff(b.threads), *t));
    first(
        "threads",
        b.threads,
        &mut others
            .into_iter()
            .map(|threads| (threads, Launch { threads, ..*b })),
    );
    out
}
