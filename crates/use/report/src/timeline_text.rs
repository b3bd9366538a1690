//! A timeline as text.
use crate::table::Style;
use crate::{Profile, units};
use layout::Inserted;
use plan::Timeline;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// From idle to busy all the time.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of names.
const LEFT: usize = 12;
/// Workers shown at most: the first of them tell the story.
const WORKERS: usize = 16;

/// A letter for each family, its first that is free.
pub fn letters<'a>(families: &BTreeSet<&'a str>) -> BTreeMap<&'a str, char> {
    let mut taken = BTreeSet::new();
    let mut out = BTreeMap::new();
    for f in families {
        let mut own = f.chars().chain('a'..='z').chain('0'..='9');
        let c = own.find(|c| c.is_ascii_alphanumeric() && !taken.contains(c));
        let c = c.unwrap_or('?');
        taken.insert(c);
        out.insert(*f, c);
    }
    out
}

/// The last request as a sparkline for each worker: how much of each column of time it was at a step, and
/// below it the family that it was at for most of it; decisions taken meanwhile stand below. Empty without
/// spans.
pub fn timeline_text(profile: &Profile, timeline: &Timeline, style: Style) -> String {
    let end = timeline.spans.iter().map(|s| s.end_ns).max().unwrap_or(0);
    let columns = style.width.saturating_sub(LEFT).clamp(20, 400);
    if end == 0 {
        return String::new();
    }
    let family_of: BTreeMap<&str, &str> = profile
        .steps
        .iter()
        .map(|s| (s.step.name.as_str(), s.step.family.as_str()))
        .inserted();
    let families: BTreeSet<&str> = family_of.values().copied().inserted();
    let letters = letters(&families);
    let wide = end as f64 / columns as f64;
    // Per worker and column: nanoseconds at each family.
    let mut busy: BTreeMap<u32, Vec<BTreeMap<char, f64>>> = BTreeMap::new();
    for s in &timeline.spans {
        let name = timeline.steps.get(s.step as usize);
        let family = name.and_then(|n| family_of.get(n.as_str()));
        let letter = family.and_then(|f| letters.get(f)).copied().unwrap_or('?');
        let row = busy
            .entry(s.worker)
            .or_insert_with(|| vec![BTreeMap::new(); columns]);
        let (from, to) = (s.start_ns as f64, s.end_ns as f64);
        let first = ((from / wide) as usize).min(columns - 1);
        let last = ((to / wide) as usize).min(columns - 1);
        for (c, cell) in row.iter_mut().enumerate().take(last + 1).skip(first) {
            let part = to.min((c + 1) as f64 * wide) - from.max(c as f64 * wide);
            *cell.entry(letter).or_default() += part.max(0.0);
        }
    }
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}",
        style.heading(&format!(
            "the last request, {}: a column is {}",
            units::seconds(end as f64 * 1e-9),
            units::seconds(wide * 1e-9)
        ))
    );
    let mut used: BTreeSet<char> = BTreeSet::new();
    for (w, row) in busy.iter().take(WORKERS) {
        let (mut bars, mut what) = (String::new(), String::new());
        for cell in row {
            let at: f64 = cell.values().sum();
            let level = (at / wide * 8.0).ceil().clamp(0.0, 8.0) as usize;
            bars.push(BARS[level]);
            let most = cell.iter().max_by(|a, b| a.1.total_cmp(b.1));
            match most.filter(|m| *m.1 > 0.0) {
                Some((c, _)) => {
                    used.insert(*c);
                    what.push(*c);
                }
                None => what.push(' '),
            }
        }
        let name = format!("worker {w}");
        let _ = writeln!(out, "  {name:<10}{}", bars.trim_end());
        let _ = writeln!(out, "  {:<10}{}", "", style.faint(what.trim_end()));
    }
    if busy.len() > WORKERS {
        let _ = writeln!(
            out,
            "  and {} more",
            units::plural((busy.len() - WORKERS) as u64, "worker")
        );
    }
    let key: Vec<String> = letters
        .iter()
        .filter(|(_, c)| used.contains(c))
        .map(|(f, c)| format!("{c} {f}"))
        .collect();
    for line in units::wrapped(&key.join(", "), style.width.saturating_sub(2).max(20)) {
        let _ = writeln!(out, "  {line}");
    }
    for m in &timeline.marks {
        let at = units::seconds(m.at_ns as f64 * 1e-9);
        let text = format!("at {at} {} ({})", crate::trace::decided(m), m.why.reason);
        let lines = units::wrapped(&text, style.width.saturating_sub(4).max(20));
        for (i, line) in lines.iter().enumerate() {
            let _ = writeln!(out, "  {}{line}", if i == 0 { "" } else { "  " });
        }
    }
    out
}
