//! A timeline as text.
use crate::table::Style;
use crate::{Profile, units};
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
fn letters<'a>(families: &BTreeSet<&'a str>) -> BTreeMap<&'a str, char> {
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
        .collect();
    let families: BTreeSet<&str> = family_of.values().copied().collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use plan::Span;

    #[test]
    fn busy_columns_and_their_families() {
        let set: BTreeSet<&str> = ["contract", "conv", "map", "move"].into();
        let l = letters(&set);
        let all: BTreeSet<char> = l.values().copied().collect();
        assert_eq!((all.len(), l["contract"], l["map"]), (4, 'c', 'm'));
        let span = |worker, start_ns, end_ns| Span {
            step: 0,
            worker,
            first_task: worker,
            tasks: 1,
            start_ns,
            end_ns,
        };
        let t = Timeline {
            steps: vec!["unknown".into()],
            spans: vec![span(0, 0, 8800), span(1, 4400, 4450)],
            total_ns: 9000,
            ..Timeline::default()
        };
        let p = Profile::new(crate::ProfileInput {
            model: "m",
            device: "cpu",
            machine: "x",
            threads: 2,
            warmup: 0,
            steps: vec![],
            timelines: &[],
            fates: &[],
            dims: String::new(),
        });
        let style = Style {
            width: 100,
            color: false,
        };
        let text = timeline_text(&p, &t, style);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], format!("  worker 0  {}", "█".repeat(88)));
        assert_eq!(lines[3], format!("  worker 1  {}▄", " ".repeat(44)));
        assert_eq!(lines[4].trim(), "?");
        assert!(lines.iter().all(|l| l.chars().count() <= 100));
        assert_eq!(timeline_text(&p, &Timeline::default(), style), "");
        // A decision stands in every form of the timeline, with its reason.
        let why = plan::Why {
            pass: "promoted".into(),
            subject: "digits".into(),
            choice: "another fusion".into(),
            alternatives: vec![plan::Alternative {
                what: "as it is".into(),
                predicted_s: 2e-3,
            }],
            reason: "better by 4 standard deviations".into(),
        };
        let t = Timeline {
            marks: vec![plan::Mark { at_ns: 5000, why }],
            ..t
        };
        let text = timeline_text(&p, &t, style);
        let said = "at 5.00 us promoted digits: another fusion (better by 4 standard deviations)";
        assert!(text.contains(said), "{text}");
        let json: serde_json::Value = serde_json::from_str(&crate::chrome_trace(&p, &t)).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let e = events.iter().find(|e| e["ph"] == "i").unwrap();
        assert_eq!(e["name"], "promoted digits: another fusion");
        assert_eq!((&e["ts"], &e["cat"]), (&5.0.into(), &"decision".into()));
        assert_eq!(e["args"]["reason"], "better by 4 standard deviations");
        assert_eq!(e["args"]["alternatives"][0]["what"], "as it is");
        let pb = crate::perfetto_trace(&p, &t);
        for text in ["decisions", "another fusion", "better by 4", "as it is"] {
            let found = pb.windows(text.len()).any(|w| w == text.as_bytes());
            assert!(found, "{text}");
        }
    }
}
