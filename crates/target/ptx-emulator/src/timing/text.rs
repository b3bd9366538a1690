//! Stalls as tables.

use super::{Reason, Stalls};
use crate::text::{beside, pieces};
use std::fmt::Write;

/// Lines of the text that are shown.
const LINES: usize = 12;
/// Width of the longest bar.
const BAR: f64 = 40.0;

fn percent(part: u64, of: u64) -> f64 {
    match of {
        0 => 0.0,
        _ => 100.0 * part as f64 / of as f64,
    }
}

/// Where the cycles of warps went, by reason, and the lines of `source` before which most were lost, in `width`
/// columns.
pub fn stalls_table(s: &Stalls, source: &str, width: usize) -> String {
    let mut out = String::new();
    let head = format!(
        "{} cycles; {} warps, {} cycles of warps; schedulers issue in {:.1}% of their cycles",
        s.cycles,
        s.warps,
        s.warp_cycles,
        100.0 * s.issue
    );
    out += &(pieces(&head, width).join("\n") + "\n\n");
    let longest = BAR.min(width.saturating_sub(36) as f64);
    let _ = writeln!(out, "{:<14} {:>12} {:>6}", "warps", "cycles", "share");
    for (reason, n) in &s.reasons {
        let share = percent(*n, s.warp_cycles);
        let bar = "#".repeat((share / 100.0 * longest).round() as usize);
        let line = format!("{:<14} {n:>12} {share:>5.1}%  {bar}", reason.name());
        let _ = writeln!(out, "{}", line.trim_end());
    }
    let all: u64 = s
        .reasons
        .iter()
        .filter(|r| r.0 != Reason::Issued)
        .map(|r| r.1)
        .sum();
    let mut lines: Vec<_> = s.lines.iter().filter(|l| l.total_lost() > 0).collect();
    lines.sort_by_key(|l| (std::cmp::Reverse(l.total_lost()), l.line));
    if lines.is_empty() {
        return out;
    }
    let _ = writeln!(
        out,
        "\n{:>6} {:>12} {:>6}  {:<14} {:>8}",
        "line", "lost cycles", "share", "most for", "of line"
    );
    let text: Vec<&str> = source.lines().collect();
    for l in lines.iter().take(LINES) {
        let most = l.lost.first().map_or("", |r| r.0.name());
        let from = l.waits_for.map_or_else(|| "-".into(), |f| f.to_string());
        let own = text.get(l.line as usize - 1).unwrap_or(&"").trim();
        let left = format!(
            "{:>6} {:>12} {:>5.1}%  {most:<14} {from:>8}",
            l.line,
            l.total_lost(),
            percent(l.total_lost(), all),
        );
        beside(&mut out, &left, own, width);
    }
    if lines.len() > LINES {
        let _ = writeln!(
            out,
            "and {} lines more; --json has all",
            lines.len() - LINES
        );
    }
    out
}
