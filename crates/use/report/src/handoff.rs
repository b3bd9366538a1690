//! Hand-offs of a small task to another thread, beside the machine's cache-line ping-pong.
use crate::table::{Align, Style, Table};
use crate::units;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What the ring is to stay within, as a multiple of the ping-pong.
pub const RING_AIM: f64 = 3.0;

/// One way to hand the task over and have its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandoffRow {
    /// `ping-pong`, `ring`, `channel`, `parked thread`, `fork/join`.
    pub way: String,
    /// How it goes, for people.
    pub what: String,
    /// Trips measured, each by itself.
    pub trips: usize,
    /// Median, nanoseconds.
    pub median_ns: f64,
    /// What 99 of 100 do not exceed, nanoseconds.
    pub p99_ns: f64,
    /// Median over the ping-pong's of the same round, the median of the rounds.
    pub ratio: f64,
}

/// Hand-offs by every way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HandoffReport {
    /// Machine.
    pub machine: String,
    /// Processors that the two threads are pinned to.
    pub cpus: [usize; 2],
    /// The ping-pong first.
    pub rows: Vec<HandoffRow>,
    /// What the ring's ratio is to be at most: [`RING_AIM`].
    pub ring_aim: f64,
    /// Whether it is.
    pub ring_within_aim: bool,
}

impl HandoffReport {
    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let mut t = Table::new(&[
            ("way", Align::Left),
            ("median", Align::Right),
            ("p99", Align::Right),
            ("of ping-pong", Align::Right),
            ("trips", Align::Right),
            ("there and back", Align::Left),
        ]);
        for r in &self.rows {
            t.row(vec![
                r.way.clone(),
                units::seconds(r.median_ns * 1e-9),
                units::seconds(r.p99_ns * 1e-9),
                format!("{:.2} x", r.ratio),
                r.trips.to_string(),
                r.what.clone(),
            ]);
        }
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "one small task handed to another thread and its answer, processors {} and {}",
                self.cpus[0], self.cpus[1]
            ))
        );
        let _ = writeln!(out, "{}", style.faint(&self.machine));
        out.push_str(&t.render(style));
        let ring = self.rows.iter().find(|r| r.way == "ring");
        let _ = writeln!(
            out,
            "\nthe task is y = max(x, 0) on 16 numbers, the same tile program for every way; each answer is\n\
             looked at; every trip is timed by itself, what reading the clock takes is taken off; all ways\n\
             take turns, and a ratio is the median of those of the turns\n\
             the ring is {} the ping-pong; the aim is at most {}: {}",
            ring.map_or("?".into(), |r| format!("{:.2} times", r.ratio)),
            units::count(self.ring_aim),
            match self.ring_within_aim {
                true => "reached",
                false => "MISSED",
            }
        );
        out
    }
}
