//! Messages of several streams, each by itself and joined.
use crate::HowRun;
use crate::table::{Align, Style, Table};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// So many streams.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamsRow {
    /// Streams at once.
    pub streams: usize,
    /// Messages per second where each runs by itself.
    pub alone_per_s: f64,
    /// Messages per second where those of all streams run as one.
    pub joined_per_s: f64,
}

/// Streams of a recurrent cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamsReport {
    /// Device and target.
    pub device: String,
    /// How steps reached the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Workers.
    pub threads: usize,
    /// Width of the cell's input and state.
    pub width: usize,
    /// 1, 2, 4, ... streams.
    pub rows: Vec<StreamsRow>,
}

impl StreamsReport {
    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let mut t = Table::new(&[
            ("streams", Align::Right),
            ("each alone, per s", Align::Right),
            ("joined, per s", Align::Right),
            ("joined / alone", Align::Right),
        ]);
        for r in &self.rows {
            t.row(vec![
                r.streams.to_string(),
                format!("{:.0}", r.alone_per_s),
                format!("{:.0}", r.joined_per_s),
                format!(
                    "{:.2}",
                    r.joined_per_s / r.alone_per_s.max(f64::MIN_POSITIVE)
                ),
            ]);
        }
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.heading(&format!(
                "messages of streams of a recurrent cell, h = tanh(x W + h U) of width {}",
                self.width
            ))
        );
        let _ = writeln!(
            out,
            "{}",
            style.faint(&format!(
                "{}{}, {}",
                self.device,
                self.how.headline(),
                self.how.workers(self.threads)
            ))
        );
        out.push_str(&t.render(style));
        out.push_str(
            "\neach stream keeps a state of its own; one message of each is sent, then all answers are received\n",
        );
        out
    }
}
