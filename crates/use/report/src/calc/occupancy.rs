//! The occupancy calculator's report: limits, next steps, latency hiding.
use super::because;
use crate::table::{Align, Style, Table};
use crate::units;
use machine::calc::{self, Launch};
use machine::{Limits, Machine};
use serde::Serialize;
use std::fmt::Write;

/// CTAs that each limit alone would allow; -1 where it limits nothing.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LimitsView {
    /// By warp slots.
    pub warps: i64,
    /// By the register file.
    pub regs: i64,
    /// By shared memory.
    pub smem: i64,
    /// By CTA slots.
    pub blocks: i64,
    /// By CTA barriers.
    pub barriers: i64,
}

/// A change that lets more warps be resident.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NextStep {
    /// What to change.
    pub what: String,
    /// From this.
    pub from: u64,
    /// To this.
    pub to: u64,
    /// CTAs then.
    pub blocks_per_sm: u64,
    /// Warps then.
    pub warps_per_sm: u64,
    /// Occupancy then.
    pub occupancy: f64,
}

/// What a memory level needs under way, and what there is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HidingView {
    /// Level name.
    pub level: String,
    /// Peak bandwidth, bytes per second.
    pub bandwidth: f64,
    /// Seconds from asking to having.
    pub latency_s: f64,
    /// Bytes under way on the whole machine that keep it busy.
    pub bytes_in_flight: f64,
    /// The same on one SM.
    pub bytes_per_sm: f64,
    /// Warps of one SM that have them.
    pub warps_needed: f64,
    /// The share of the bandwidth that this occupancy can reach.
    pub share: f64,
}

/// How many CTAs of a launch an SM holds, why, and what follows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OccupancyView {
    /// Machine name, or the compute capability.
    pub machine: String,
    /// Threads of a CTA.
    pub threads_per_block: u64,
    /// Registers of a thread.
    pub regs_per_thread: u64,
    /// Shared memory of a CTA, static and dynamic, bytes.
    pub smem_per_block: u64,
    /// CTAs resident on an SM.
    pub blocks_per_sm: u64,
    /// Warps resident on an SM.
    pub warps_per_sm: u64,
    /// The most warps an SM holds.
    pub max_warps_per_sm: u64,
    /// Resident warps as a share of the most.
    pub occupancy: f64,
    /// What limits.
    pub limiters: Vec<String>,
    /// Each limit on its own.
    pub limits: LimitsView,
    /// Registers taken for a CTA, after rounding.
    pub alloc_regs_per_block: u64,
    /// Shared memory taken for a CTA, after rounding, bytes.
    pub alloc_smem_per_block_b: u64,
    /// Shared memory of the SM at the carve-out chosen, bytes.
    pub smem_per_sm_b: u64,
    /// The least changes that gain.
    pub next: Vec<NextStep>,
    /// Bytes that each lane asks for before it waits, in `hiding`.
    pub bytes_per_lane: u64,
    /// Little's law for every level; empty when no machine was named.
    pub hiding: Vec<HidingView>,
    /// The reasons, a sentence each.
    pub explanation: Vec<String>,
    /// Occupancy over registers (rows) and threads (columns), the rest unchanged.
    pub map: OccupancyMap,
}

/// Occupancy over two settings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OccupancyMap {
    /// Threads of a CTA, one a column.
    pub threads: Vec<u64>,
    /// Registers of a thread, one a row.
    pub registers: Vec<u64>,
    /// Occupancy, row by row.
    pub occupancy: Vec<Vec<f64>>,
}

impl OccupancyView {
    /// The occupancy of a launch under limits; with a machine also what hides its latency. `None` when
    /// the limits do not describe an SM.
    pub fn new(
        name: &str,
        limits: &Limits,
        machine: Option<&Machine>,
        launch: &Launch,
        bytes_per_lane: u64,
    ) -> Option<OccupancyView> {
        let o = calc::occupancy_of(limits, launch)?;
        let limit = |v: Option<u64>| v.map_or(-1, |v| i64::try_from(v).unwrap_or(i64::MAX));
        let hiding: Vec<HidingView> = machine
            .map(|m| calc::hiding(m, o.warps, bytes_per_lane))
            .unwrap_or_default()
            .into_iter()
            .map(|h| HidingView {
                level: h.level,
                bandwidth: h.bandwidth,
                latency_s: h.latency_s,
                bytes_in_flight: h.bytes,
                bytes_per_sm: h.bytes_per_worker,
                warps_needed: h.warps,
                share: h.share,
            })
            .collect();
        let next = calc::occupancy_steps(limits, launch)
            .into_iter()
            .map(|s| NextStep {
                what: s.what.into(),
                from: s.from,
                to: s.to,
                blocks_per_sm: s.ctas,
                warps_per_sm: s.warps,
                occupancy: s.warps as f64 / o.max_warps.max(1) as f64,
            })
            .collect();
        let most = limits.threads_per_cta.map_or(1024, |t| t.value.min(4096));
        let threads: Vec<u64> = (1..=32).map(|k| (most * k / 32).max(1)).collect();
        let registers: Vec<u64> = (1..=16).map(|k| k * 16).collect();
        let occupancy = registers
            .iter()
            .map(|&registers| {
                let at = |&threads: &u64| {
                    let l = Launch {
                        threads,
                        registers,
                        ..*launch
                    };
                    calc::occupancy_of(limits, &l).map_or(0.0, |o| o.share)
                };
                threads.iter().map(at).collect()
            })
            .collect();
        let mut view = OccupancyView {
            machine: name.to_string(),
            threads_per_block: launch.threads,
            regs_per_thread: launch.registers,
            smem_per_block: launch.shared.saturating_add(launch.dynamic_shared),
            blocks_per_sm: o.ctas,
            warps_per_sm: o.warps,
            max_warps_per_sm: o.max_warps,
            occupancy: o.share,
            limiters: o.limiters.iter().map(|s| s.to_string()).collect(),
            limits: LimitsView {
                warps: limit(Some(o.limits.warps)),
                regs: limit(o.limits.registers),
                smem: limit(o.limits.shared),
                blocks: limit(Some(o.limits.ctas)),
                barriers: limit(o.limits.barriers),
            },
            alloc_regs_per_block: o.registers_per_cta,
            alloc_smem_per_block_b: o.shared_per_cta,
            smem_per_sm_b: o.shared_per_sm,
            next,
            bytes_per_lane,
            hiding,
            explanation: Vec::new(),
            map: OccupancyMap {
                threads,
                registers,
                occupancy,
            },
        };
        view.explanation = view.reasons(limits, launch);
        Some(view)
    }

    fn reasons(&self, l: &Limits, launch: &Launch) -> Vec<String> {
        let mut out = Vec::new();
        for name in &self.limiters {
            out.push(self.limit(name, l, launch));
        }
        if self.blocks_per_sm == 0 {
            out.push("No CTA fits: this launch is impossible.".into());
        }
        out.extend(self.next.iter().map(next_step));
        if let Some(h) = self.hiding.last() {
            out.push(self.little(h));
            out.push(
                "More warps help only while something waits: with enough bytes under way a lower occupancy is as fast."
                    .into(),
            );
        }
        out
    }

    /// What a limit leaves of an SM.
    fn limit(&self, name: &str, l: &Limits, launch: &Launch) -> String {
        let warp = l.warp.map_or(32, |w| w.value.max(1));
        let warps = launch.threads.div_ceil(warp);
        match name {
            "warps" if self.limits.warps == 0 => format!(
                "A CTA of {} threads is larger than any SM takes ({}).",
                launch.threads,
                l.threads_per_cta.map_or(0, |t| t.value)
            ),
            "warps" => format!(
                "Warps: a CTA is {} of the {} that an SM holds, so {} fit.",
                units::plural(warps, "warp"),
                self.max_warps_per_sm,
                self.limits.warps
            ),
            "regs" if self.limits.regs == 0 => format!(
                "Registers: {} threads of {} registers need more than one CTA may have.",
                launch.threads, launch.registers
            ),
            "regs" => format!(
                "Registers: {} threads of {} take {} of the SM's {}, so {} CTAs fit.",
                launch.threads,
                launch.registers,
                self.alloc_regs_per_block,
                l.registers_per_sm.map_or(0, |r| r.value),
                self.limits.regs
            ),
            "smem" if self.limits.smem == 0 => {
                let opted = l.shared_default_per_cta.is_some() && !launch.opt_in;
                format!(
                    "Shared memory: {} is more than one CTA may have{}.",
                    kib(self.smem_per_block),
                    if opted {
                        " without opting in (--optin): 48 KiB"
                    } else {
                        ""
                    }
                )
            }
            "smem" => format!(
                "Shared memory: a CTA takes {}{} of the SM's {}, so {} fit.",
                kib(self.alloc_smem_per_block_b),
                l.shared_reserved_per_cta.map_or(String::new(), |r| format!(
                    " (the driver's {} in it)",
                    kib(r.value)
                )),
                kib(self.smem_per_sm_b),
                self.limits.smem
            ),
            "blocks" => format!("CTA slots: an SM holds {} at most.", self.limits.blocks),
            _ => format!(
                "Barriers: {} a CTA leave {} CTAs.",
                launch.barriers, self.limits.barriers
            ),
        }
    }

    /// What Little's law says of the farthest level.
    fn little(&self, h: &HidingView) -> String {
        format!(
            "Little's law: {} at {} and {} latency needs {} under way, {} an SM; with {} bytes a lane that is {} warps, and {} are resident: {}.",
            h.level,
            units::byte_rate(h.bandwidth),
            units::seconds(h.latency_s),
            units::bytes(h.bytes_in_flight),
            units::bytes(h.bytes_per_sm),
            self.bytes_per_lane,
            units::number(h.warps_needed.ceil()),
            self.warps_per_sm,
            if h.share >= 1.0 {
                "enough".into()
            } else {
                format!("enough for {} of the bandwidth", units::percent(h.share))
            }
        )
    }

    /// The table, the reasons and the map.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "{}: {} threads, {} registers, {} shared memory",
                self.machine,
                self.threads_per_block,
                self.regs_per_thread,
                units::bytes(self.smem_per_block as f64)
            ))
        );
        let limiters: Vec<&str> = self
            .limiters
            .iter()
            .map(|l| calc::limiter_name(l))
            .collect();
        let _ = writeln!(
            out,
            "  {} and {} of {} on an SM: occupancy {}, limited by {}\n",
            units::plural(self.blocks_per_sm, "CTA"),
            units::plural(self.warps_per_sm, "warp"),
            self.max_warps_per_sm,
            units::percent(self.occupancy),
            limiters.join(" and ")
        );
        let mut t = Table::new(&[
            ("  limit", Align::Left),
            ("CTAs", Align::Right),
            ("", Align::Left),
        ]);
        let l = &self.limits;
        for (key, v) in [
            ("warps", l.warps),
            ("regs", l.regs),
            ("smem", l.smem),
            ("blocks", l.blocks),
            ("barriers", l.barriers),
        ] {
            let limits = self.limiters.iter().any(|n| n == key);
            t.row(vec![
                format!("  {}", calc::limiter_name(key)),
                if v < 0 { "-".into() } else { v.to_string() },
                if limits {
                    "<- limits".into()
                } else {
                    String::new()
                },
            ]);
        }
        out.push_str(&t.render(style));
        let _ = writeln!(out, "\n{}", style.heading("why"));
        out.push_str(&because(&self.explanation, style));
        if !self.hiding.is_empty() {
            self.render_hiding(&mut out, style);
        }
        self.map.render(&mut out, style);
        out
    }

    fn render_hiding(&self, out: &mut String, style: Style) {
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("what must be under way to hide the latency")
        );
        let mut t = Table::new(&[
            ("  level", Align::Left),
            ("bandwidth", Align::Right),
            ("latency", Align::Right),
            ("in flight", Align::Right),
            ("an SM", Align::Right),
            ("warps", Align::Right),
            ("reached", Align::Right),
        ]);
        for h in &self.hiding {
            t.row(vec![
                format!("  {}", h.level),
                units::byte_rate(h.bandwidth),
                units::seconds(h.latency_s),
                units::bytes(h.bytes_in_flight),
                units::bytes(h.bytes_per_sm),
                units::number(h.warps_needed),
                units::percent(h.share),
            ]);
        }
        out.push_str(&t.render(style));
    }
}

/// Columns of the axis and of the rims beside the cells of a map.
const AXIS: usize = 9;

impl OccupancyMap {
    fn render(&self, out: &mut String, style: Style) {
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("occupancy over registers a thread (down) and threads a CTA (across)")
        );
        // A cell is two columns wide, or one where there is less room, and stands for several where there is least.
        let columns = self.threads.len().max(1);
        let room = style.width.saturating_sub(AXIS);
        let each = (room / columns).clamp(1, 2);
        let skip = columns.div_ceil(room.max(1));
        const SHADES: [char; 9] = [' ', '.', ':', '-', '=', '+', '*', '#', '@'];
        for (r, row) in self.registers.iter().zip(&self.occupancy) {
            let cells: String = row
                .iter()
                .step_by(skip)
                .map(|s| {
                    let k = (s * 8.0).ceil().clamp(0.0, 8.0) as usize;
                    let c = SHADES.get(k).copied().unwrap_or('@');
                    c.to_string().repeat(each)
                })
                .collect();
            let _ = writeln!(out, "  {r:>4} |{cells}|");
        }
        let first = self.threads.first().copied().unwrap_or(0);
        let last = self.threads.last().copied().unwrap_or(0);
        let half = columns.div_ceil(skip) * each / 2;
        let _ = writeln!(
            out,
            "        {first:<half$}{last:>half$}\n        blank 0, . to @ by eighths: . up to 12.5%, = up to 50%, @ above 87.5%"
        );
    }
}

/// What the nearest smaller demand would give.
fn next_step(n: &NextStep) -> String {
    format!(
        "Next step: {} {} instead of {} gives {} CTAs, {} warps ({}).",
        if n.what == "shared memory" {
            kib(n.to)
        } else {
            n.to.to_string()
        },
        match n.what.as_str() {
            "registers" => "registers a thread",
            "threads" => "threads a CTA",
            _ => "of shared memory",
        },
        if n.what == "shared memory" {
            kib(n.from)
        } else {
            n.from.to_string()
        },
        n.blocks_per_sm,
        n.warps_per_sm,
        units::percent(n.occupancy)
    )
}

/// A size as it is spoken of on a GPU.
fn kib(b: u64) -> String {
    units::bytes(b as f64)
}
