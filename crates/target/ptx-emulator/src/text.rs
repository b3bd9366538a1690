//! Counters as a table.

use crate::counters::{Counters, Counts};
use std::fmt::Write;

/// Percent, or nothing to divide by.
fn share(part: u64, of: u64) -> String {
    match of {
        0 => "-".into(),
        _ => format!("{:.0}%", 100.0 * part as f64 / of as f64),
    }
}

fn row(out: &mut String, name: &str, c: &Counts, text: &str) {
    let cells = [
        c.issued.to_string(),
        share(c.lanes, 32 * c.issued),
        c.sectors.to_string(),
        c.lines.to_string(),
        c.wavefronts.to_string(),
        c.conflicts.to_string(),
        c.waits.to_string(),
    ];
    let _ = write!(out, "{name:>6}");
    for (cell, width) in cells.iter().zip([11, 6, 10, 10, 10, 10, 7]) {
        let _ = write!(out, " {cell:>width$}");
    }
    let room = 100usize.saturating_sub(6 + 64 + 7 + 2);
    let text: String = text.chars().take(room).collect();
    let _ = writeln!(out, "  {}", text.trim_end());
}

/// Counters by line, with the start of each line of `source`, and in total: at most 100 columns.
pub fn counters_table(c: &Counters, source: &str) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let mut out = String::new();
    let heads = [
        ("line", 6),
        ("issued", 11),
        ("lanes", 6),
        ("sectors", 10),
        ("lines", 10),
        ("wavefronts", 10),
        ("conflicts", 10),
        ("waits", 7),
    ];
    for (k, (head, width)) in heads.iter().enumerate() {
        let gap = if k == 0 { "" } else { " " };
        let _ = write!(out, "{gap}{head:>width$}");
    }
    out += "\n";
    for (line, counts) in &c.by_line {
        let text = lines.get(*line as usize - 1).unwrap_or(&"");
        row(&mut out, &line.to_string(), counts, text.trim());
    }
    row(&mut out, "all", &c.total, "");
    out += "\n";
    for (class, n) in &c.classes {
        let _ = writeln!(out, "{:<18} {n:>12}", class.name());
    }
    out
}
