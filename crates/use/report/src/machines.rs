//! Machines as lists and tables.
use crate::table::{Align, Style, Table};
use crate::units;
use machine::{Machine, MachineKind, Sourced};
use serde::Serialize;
use std::fmt::Write;

/// A machine that can be planned for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineEntry {
    /// Name to give to `--on` and `--machine`.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// `catalog`, `cpu` or `detected`.
    pub from: String,
    /// The description.
    pub machine: Machine,
}

/// One line per machine.
pub fn machine_list(entries: &[MachineEntry], style: Style) -> String {
    let mut t = Table::new(&[
        ("name", Align::Left),
        ("kind", Align::Left),
        ("workers", Align::Right),
        ("f32 peak", Align::Right),
        ("memory", Align::Right),
        ("bandwidth", Align::Right),
        ("also", Align::Wrap),
    ]);
    for e in entries {
        let m = &e.machine;
        let peak = m
            .unit(machine::UnitClass::Fma, machine::NumType::F32)
            .map_or_else(|| "-".into(), |u| units::flop_rate(u.all.value));
        t.row(vec![
            match e.from == "catalog" {
                true => m.short_name(),
                false => e.name.clone(),
            },
            if m.kind == MachineKind::Cpu {
                "cpu".into()
            } else {
                "gpu".into()
            },
            m.worker_count().to_string(),
            peak,
            units::bytes(m.memory().bytes.value),
            units::byte_rate(m.memory().read.all.value),
            if e.from == "catalog" {
                let short = m.short_name();
                let names = std::iter::once(&e.name).chain(&e.aliases);
                let others: Vec<&str> = names
                    .map(String::as_str)
                    .filter(|n| !n.eq_ignore_ascii_case(&short))
                    .collect();
                others.join(", ")
            } else {
                let kept = match e.name == "cpu" {
                    true => "this CPU, with its calibration",
                    false => "this CPU, without its calibration",
                };
                format!("{kept}: {}", m.name)
            },
        ]);
    }
    t.render(style)
}

/// Everything of a machine: levels, units, costs, each number with its source.
pub fn machine_table(m: &Machine, style: Style) -> String {
    let mut out = String::new();
    let kind = if m.kind == MachineKind::Cpu {
        "cpu"
    } else {
        "gpu"
    };
    let _ = writeln!(out, "{}", style.heading(&format!("{} ({kind})", m.name)));
    let said = |out: &mut String, what: &str, text: &str| {
        let lines = units::wrapped(text, style.width.saturating_sub(11));
        for (i, l) in lines.iter().enumerate() {
            let _ = writeln!(out, "  {:<7}  {l}", if i == 0 { what } else { "" });
        }
    };
    said(&mut out, "also", &m.aliases.join(", "));
    let arch: Vec<&str> = [m.vendor.as_str(), m.arch.as_str(), m.isa.name.as_str()]
        .into_iter()
        .filter(|s| !s.is_empty())
        .collect();
    said(&mut out, "made by", &arch.join(", "));
    said(&mut out, "has", &m.isa.features.join(" "));
    let w = &m.workers;
    let _ = writeln!(
        out,
        "  workers  {} ({}), {} ({}), {} f32 lanes ({})",
        w.count.value,
        w.count.source,
        units::hertz(w.clock_hz.value),
        w.clock_hz.source,
        w.lanes.value,
        w.lanes.source
    );
    if let Some(p) = m.power_w {
        let _ = writeln!(out, "  power    {} W ({})", p.value, p.source);
    }
    said(&mut out, "note", &m.note);
    levels(&mut out, m, style);
    units_of(&mut out, m, style);
    costs(&mut out, m, style);
    out
}

/// A number with the first letter of where it is from.
fn with(s: &Sourced, f: fn(f64) -> String) -> String {
    format!("{} {}", f(s.value), &s.source.to_string()[..1])
}

fn levels(out: &mut String, m: &Machine, style: Style) {
    let _ = writeln!(
        out,
        "\n{} (s spec, m measured, f fitted, a assumed)",
        style.heading("memory levels")
    );
    let mut t = Table::new(&[
        ("  level", Align::Left),
        ("size", Align::Right),
        ("shared by", Align::Right),
        ("latency", Align::Right),
        ("read, one", Align::Right),
        ("read, all", Align::Right),
        ("write, one", Align::Right),
        ("write, all", Align::Right),
    ]);
    for l in &m.levels {
        t.row(vec![
            format!("  {}", l.name),
            with(&l.bytes, units::bytes),
            l.shared_by.to_string(),
            with(&l.latency_s, units::seconds),
            with(&l.read.per_worker, units::byte_rate),
            with(&l.read.all, units::byte_rate),
            with(&l.write.per_worker, units::byte_rate),
            with(&l.write.all, units::byte_rate),
        ]);
    }
    out.push_str(&t.render(style));
}

fn units_of(out: &mut String, m: &Machine, style: Style) {
    let _ = writeln!(
        out,
        "\n{} (operations per second; a multiply-add counts as two)",
        style.heading("units")
    );
    let mut t = Table::new(&[
        ("  unit", Align::Left),
        ("operations", Align::Left),
        ("format", Align::Left),
        ("shape", Align::Left),
        ("needs", Align::Left),
        ("one worker", Align::Right),
        ("all", Align::Right),
    ]);
    for u in &m.units {
        t.row(vec![
            format!("  {}", u.name),
            u.class.to_string(),
            if u.dtype_in == u.dtype_acc {
                u.dtype_in.to_string()
            } else {
                format!("{} -> {}", u.dtype_in, u.dtype_acc)
            },
            format!("{}x{}x{}", u.tile.0, u.tile.1, u.tile.2),
            u.isa.clone(),
            with(&u.per_worker, units::count),
            with(&u.all, units::count),
        ]);
    }
    out.push_str(&t.render(style));
}

/// Fixed costs and links.
fn costs(out: &mut String, m: &Machine, style: Style) {
    let _ = writeln!(out, "\n{}", style.heading("fixed costs"));
    let c = &m.costs;
    let ways = m.way_costs();
    let ways = ways.iter().flat_map(|w| {
        [
            ("the host's call to launch", &w.launch_call_s),
            ("gap between launches", &w.launch_gap_s),
            ("graph of one kernel", &w.graph_s),
            ("node of a graph", &w.graph_node_s),
            ("node that begins early", &w.graph_dependent_s),
            ("beginning and end of a step", &w.begin_s),
            ("of that, done by an early launch", &w.fetched_s),
            ("clusters of CTAs of a launch", &w.cluster_s),
            ("step of a resident kernel", &w.counter_s),
            ("word to it and back", &w.answer_s),
        ]
    });
    let fixed = [
        ("launch of a request", &c.launch_s),
        ("step within a plan", &c.step_s),
        ("task", &c.task_s),
        ("statement on a tile", &c.tile_s),
        ("row of a statement", &c.row_s),
        ("micro-kernel call", &c.call_s),
        ("hand-off between workers", &c.handoff_s),
        ("wake-up of a parked worker", &c.wake_s),
    ];
    for (name, v) in fixed.into_iter().chain(ways) {
        let _ = writeln!(
            out,
            "  {name:<27} {} ({})",
            units::seconds(v.value),
            v.source
        );
    }
    for l in &m.links {
        let _ = writeln!(
            out,
            "  link {}: {} to {}, {} ({}), {} ({})",
            l.name,
            l.from,
            l.to,
            units::byte_rate(l.bandwidth.value),
            l.bandwidth.source,
            units::seconds(l.latency_s.value),
            l.latency_s.source
        );
    }
}
