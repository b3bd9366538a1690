//! A machine's memory hierarchy as a table.
use crate::table::{Align, Style, Table};
use crate::units;
use machine::calc::travel_seconds;
use machine::{Machine, MachineKind};
use std::fmt::Write;

/// Bytes of the tile whose way is timed: 64 x 64 elements of two bytes.
const TILE: f64 = 64.0 * 64.0 * 2.0;

/// The memory levels of a machine drawn from near to far: size, how many of them, bandwidth, latency, and
/// how long a byte and a tile of 8 KiB take to one worker.
pub fn hierarchy(m: &Machine, style: Style) -> String {
    let mut out = String::new();
    let worker = if m.kind == MachineKind::Cpu {
        "core"
    } else {
        "SM"
    };
    let _ = writeln!(
        out,
        "{}",
        style.heading(&format!(
            "from {worker} outwards: what a byte and a tile of 64 x 64 f16 (8 KiB) take to get there"
        ))
    );
    let rates = m.levels.iter().map(|l| l.read.all.value);
    let (least, most) = rates.fold((f64::INFINITY, 0.0f64), |(a, b), r| (a.min(r), b.max(r)));
    let mut t = Table::new(&[
        ("  level", Align::Left),
        ("size", Align::Right),
        ("how many", Align::Right),
        ("all read at", Align::Right),
        ("latency", Align::Right),
        ("a byte", Align::Right),
        ("a tile", Align::Right),
        ("", Align::Left),
    ]);
    let workers = m.workers.count.value;
    for (depth, l) in m.levels.iter().enumerate() {
        let link = m.links.iter().find(|k| k.to == l.name);
        if let Some(k) = link {
            t.row(vec![
                format!("  {}|| {}", " ".repeat(depth), k.name),
                String::new(),
                String::new(),
                units::byte_rate(k.bandwidth.value),
                units::seconds(k.latency_s.value),
            ]);
        }
        let same = l.same_place_as.as_ref();
        let wide = if most > least {
            (l.read.all.value / least).ln() / (most / least).ln()
        } else {
            1.0
        };
        let mut bar = "=".repeat(1 + (wide * 9.0) as usize);
        if let Some(s) = same {
            let _ = write!(bar, " = {s}");
        }
        t.row(vec![
            format!("  {}{}", " ".repeat(depth), l.name),
            units::bytes(l.bytes.value),
            workers.div_ceil(l.shared_by.max(1)).to_string(),
            units::byte_rate(l.read.all.value),
            units::seconds(l.latency_s.value),
            units::seconds(travel_seconds(l, 1.0)),
            units::seconds(travel_seconds(l, TILE)),
            bar,
        ]);
    }
    out.push_str(&t.render(style));
    for k in m.links.iter().filter(|k| m.level(&k.to).is_none()) {
        let _ = writeln!(
            out,
            "  || {} to {}: {}, {}",
            k.name,
            k.to,
            units::byte_rate(k.bandwidth.value),
            units::seconds(k.latency_s.value)
        );
    }
    out
}
