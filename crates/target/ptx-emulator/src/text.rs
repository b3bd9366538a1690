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

fn cells(name: String, c: &Counts) -> [String; 8] {
    [
        name,
        c.issued.to_string(),
        share(c.lanes, 32 * c.issued),
        c.sectors.to_string(),
        c.lines.to_string(),
        c.wavefronts.to_string(),
        c.conflicts.to_string(),
        c.waits.to_string(),
    ]
}

/// Fewest columns for the text of a line.
const TEXT: usize = 12;

/// `text` in pieces of at most `room` characters, broken after a blank where there is one in the second half.
pub(crate) fn pieces(text: &str, room: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let (mut out, mut rest) = (Vec::new(), &chars[..]);
    while rest.len() > room {
        let blank = rest[..room].iter().rposition(|c| *c == ' ');
        let end = blank.map(|b| b + 1).filter(|b| 2 * b >= room);
        let (piece, after) = rest.split_at(end.unwrap_or(room));
        out.push(piece.iter().collect::<String>().trim_end().to_string());
        rest = after;
    }
    out.push(rest.iter().collect());
    out
}

/// Writes `left`, which ends two columns before the text, and behind it `text` in as many lines as it takes.
pub(crate) fn beside(out: &mut String, left: &str, text: &str, width: usize) {
    let before = left.chars().count() + 2;
    let room = width.saturating_sub(before).max(TEXT);
    for (i, piece) in pieces(text, room).iter().enumerate() {
        let line = match i {
            0 => format!("{left}  {piece}"),
            _ => format!("{:before$}{piece}", ""),
        };
        let _ = writeln!(out, "{}", line.trim_end());
    }
}

/// Counters by line, with the text of each line of `source`, and in total, in `width` columns.
pub fn counters_table(c: &Counters, source: &str, width: usize) -> String {
    let lines: Vec<&str> = source.lines().collect();
    let heads = [
        "line",
        "issued",
        "lanes",
        "sectors",
        "lines",
        "wavefronts",
        "conflicts",
        "waits",
    ];
    let mut rows = vec![(heads.map(String::from), "")];
    for (line, counts) in &c.by_line {
        let text = lines.get(*line as usize - 1).unwrap_or(&"");
        rows.push((cells(line.to_string(), counts), text.trim()));
    }
    rows.push((cells("all".into(), &c.total), ""));
    let widths: [usize; 8] =
        std::array::from_fn(|k| rows.iter().map(|r| r.0[k].len()).max().unwrap_or(0));
    let mut out = String::new();
    for (row, text) in &rows {
        let each = row.iter().zip(widths);
        let left: Vec<String> = each.map(|(cell, w)| format!("{cell:>w$}")).collect();
        beside(&mut out, &left.join(" "), text, width);
    }
    out += "\n";
    for (class, n) in &c.classes {
        let _ = writeln!(out, "{:<18} {n:>12}", class.name());
    }
    out
}
