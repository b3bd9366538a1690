//! Candidates of a kernel, predicted and measured.
use crate::LatencyMs;
use crate::table::{Align, Style, Table};
use crate::{HowRun, units};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One way to run a model, predicted and measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepRow {
    /// Items of a run at most.
    pub batch: u32,
    /// Runs at once.
    pub instances: u32,
    /// Workers of each.
    pub workers: u32,
    /// Callers with one item each.
    pub callers: usize,
    /// Predicted items per second.
    pub predicted_per_s: f64,
    /// Predicted milliseconds from arrival to end.
    pub predicted_ms: f64,
    /// Measured items per second.
    pub per_s: f64,
    /// Measured latency.
    pub latency_ms: LatencyMs,
    /// Whether it is what was chosen from predictions.
    pub chosen: bool,
}

/// Every way to run a model, with the one that was chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepReport {
    /// Model's name.
    pub model: String,
    /// Device and target.
    pub device: String,
    /// How steps reach the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Workers there are.
    pub threads: usize,
    /// Bound on latency, milliseconds.
    pub bound_ms: Option<f64>,
    /// Why the choice was made.
    pub reason: String,
    /// The ways.
    pub rows: Vec<SweepRow>,
}

impl SweepReport {
    /// Measured items per second of the choice over the best way that keeps the bound (99 of 100
    /// requests); `None` where nothing was measured.
    pub fn share_of_best(&self) -> Option<f64> {
        let keeps = |r: &&SweepRow| {
            self.bound_ms
                .is_none_or(|b| r.latency_ms.p99 <= b || r.chosen)
        };
        let best = self.rows.iter().filter(keeps).map(|r| r.per_s);
        let best = best.fold(0.0, f64::max);
        let chosen = self.rows.iter().find(|r| r.chosen)?;
        (best > 0.0).then(|| chosen.per_s / best)
    }

    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let mut t = Table::new(&[
            ("", Align::Left),
            ("batch", Align::Right),
            ("runs x workers", Align::Right),
            ("callers", Align::Right),
            ("predicted/s", Align::Right),
            ("measured/s", Align::Right),
            ("predicted", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
        ]);
        let ms = |v: f64| units::seconds(v * 1e-3);
        for r in &self.rows {
            t.row(vec![
                if r.chosen { "*" } else { "" }.into(),
                r.batch.to_string(),
                format!("{} x {}", r.instances, r.workers),
                r.callers.to_string(),
                units::count(r.predicted_per_s),
                units::count(r.per_s),
                ms(r.predicted_ms),
                ms(r.latency_ms.p50),
                ms(r.latency_ms.p99),
            ]);
        }
        let mut out = String::new();
        let head = format!(
            "{} on {}{}, {}: every way to run it",
            self.model,
            self.device,
            self.how.headline(),
            self.how.workers(self.threads)
        );
        let _ = writeln!(out, "{}", style.headline(&head));
        out.push_str(&t.render(style));
        let _ = writeln!(out, "\n* chosen: {}", self.reason);
        if let Some(s) = self.share_of_best() {
            let _ = writeln!(out, "it gives {:.0}% of the best of them", 100.0 * s);
        }
        out
    }
}
