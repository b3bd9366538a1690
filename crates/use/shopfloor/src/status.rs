//! An engine looked at from outside: what its sessions are at, for `shopfloor top` and for Prometheus.
use crate::{Engine, Memory};
use plan::Precision;
pub use report::Style;
use report::{Align, Table, units};
pub use runtime::SessionView;
use runtime::quantile_s;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use supervisor::supervise::{Decision, Mode};

#[cfg(unix)]
mod socket;
#[cfg(unix)]
pub use socket::{StatusServer, metrics_at, status_at};

/// `text` in one line of at most `width` columns.
fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        false => text.to_string(),
        true => {
            let kept: String = text.chars().take(width.saturating_sub(1)).collect();
            kept + "\u{2026}"
        }
    }
}

/// A session's model, with the ways by which its steps reach an NVIDIA GPU and how exactly f32 is multiplied; the
/// precision alone where somebody chose one and there is no such GPU.
fn named(s: &SessionView) -> String {
    let mut how: Vec<String> = s.launched.iter().map(ToString::to_string).collect();
    if !how.is_empty() || s.precision != Precision::default() {
        how.push(s.precision.to_string());
    }
    match how.is_empty() {
        true => s.name.clone(),
        false => format!("{} ({})", s.name, how.join(", ")),
    }
}

/// An engine at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Device and target.
    pub device: String,
    /// Workers that requests are shared out over.
    pub workers: u32,
    /// Seconds since somebody first asked, or since the server began.
    pub at_s: f64,
    /// Memory in use.
    pub memory: Memory,
    /// The sessions.
    pub sessions: Vec<SessionView>,
    /// How far who supervises it goes, if anybody does.
    #[serde(default)]
    pub supervision: Option<Mode>,
    /// What was decided last, oldest first.
    #[serde(default)]
    pub decisions: Vec<Decision>,
}

/// Decisions that are told and shown.
const TOLD: usize = 32;
const SHOWN: usize = 6;

impl Status {
    /// What `engine` is at; `at_s` is the caller's clock in seconds.
    pub fn of(engine: &Engine, at_s: f64) -> Status {
        let d = engine.device();
        Status {
            device: format!("{} ({})", d.name(), d.target().name),
            workers: engine.workers(),
            at_s,
            memory: engine.memory(),
            sessions: engine.sessions(),
            supervision: engine.supervision(),
            decisions: {
                let mut all = engine.decisions();
                all.split_off(all.len().saturating_sub(TOLD))
            },
        }
    }

    /// As Prometheus reads it.
    pub fn prometheus(&self) -> String {
        let mut out = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, of: &dyn Fn(&SessionView) -> f64| {
            let _ = writeln!(out, "# HELP shopfloor_{name} {help}");
            let _ = writeln!(out, "# TYPE shopfloor_{name} {kind}");
            for s in &self.sessions {
                let label = s
                    .name
                    .replace('\\', "\\\\")
                    .replace('"', "\\\"")
                    .replace('\n', " ");
                let (id, v) = (s.id, of(s));
                let _ = writeln!(
                    out,
                    "shopfloor_{name}{{session=\"{id}\",model=\"{label}\"}} {v}"
                );
            }
        };
        metric(
            "requests_total",
            "counter",
            "Requests that ended well.",
            &|s| s.stats.done as f64,
        );
        metric(
            "failed_total",
            "counter",
            "Requests that failed or were cancelled.",
            &|s| s.stats.failed as f64,
        );
        metric("refused_total", "counter", "Requests turned away.", &|s| {
            s.stats.refused as f64
        });
        metric("running", "gauge", "Runs now.", &|s| s.load.running as f64);
        metric("queued", "gauge", "Requests that wait.", &|s| {
            s.load.queued as f64
        });
        metric("workers", "gauge", "Workers granted.", &|s| {
            f64::from(s.load.workers)
        });
        metric(
            "latency_p50_seconds",
            "gauge",
            "Median latency since the session began.",
            &|s| s.stats.p50_s,
        );
        metric(
            "latency_p99_seconds",
            "gauge",
            "99th percentile of latency.",
            &|s| s.stats.p99_s,
        );
        metric(
            "predicted_seconds",
            "gauge",
            "Predicted time of an item.",
            &|s| s.predicted_s,
        );
        let _ = writeln!(out, "# HELP shopfloor_memory_bytes Memory in use.");
        let _ = writeln!(out, "# TYPE shopfloor_memory_bytes gauge");
        for (what, v) in [
            ("weights", self.memory.weights),
            ("packed", self.memory.packed),
            ("total", self.memory.total),
        ] {
            let _ = writeln!(out, "shopfloor_memory_bytes{{what=\"{what}\"}} {v}");
        }
        out
    }

    /// As a table; rates and percentiles are those since `before`, if given, else since the beginning.
    pub fn render(&self, before: Option<&Status>, style: Style) -> String {
        let mut t = Table::new(&[
            ("model", Align::Wrap),
            ("priority", Align::Right),
            ("requests/s", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("predicted", Align::Right),
            ("runs", Align::Right),
            ("waiting", Align::Right),
            ("refused", Align::Right),
            ("time goes to", Align::Wrap),
        ]);
        let since = before.map_or(self.at_s, |b| self.at_s - b.at_s).max(1e-9);
        for s in &self.sessions {
            let old =
                before.and_then(|b| b.sessions.iter().find(|o| o.id == s.id && o.name == s.name));
            let done = s.stats.done - old.map_or(0, |o| o.stats.done.min(s.stats.done));
            let then = |i: usize| {
                old.and_then(|o| o.stats.histogram.get(i))
                    .copied()
                    .unwrap_or(0)
            };
            let fresh = s.stats.histogram.iter().enumerate();
            let fresh: Vec<u64> = fresh.map(|(i, n)| n.saturating_sub(then(i))).collect();
            let at = |share: f64| match fresh.iter().any(|&n| n > 0) {
                true => units::seconds(quantile_s(&fresh, share)),
                false => "-".into(),
            };
            let all: u64 = s.families.iter().map(|f| f.1).sum();
            let share =
                |f: &(String, u64)| format!("{} {:.0}%", f.0, 100.0 * f.1 as f64 / all as f64);
            let families: Vec<String> = s.families.iter().take(3).map(share).collect();
            t.row(vec![
                named(s),
                s.policy.priority.to_string(),
                format!("{:.1}", done as f64 / since),
                at(0.5),
                at(0.99),
                units::seconds(s.predicted_s),
                s.load.running.to_string(),
                s.load.queued.to_string(),
                s.stats.refused.to_string(),
                families.join(", "),
            ]);
        }
        let m = &self.memory;
        let own: u64 = m
            .sessions
            .iter()
            .map(|s| s.arenas + s.states + s.queue)
            .sum();
        let mut out = String::new();
        let head = format!(
            "{}, {}",
            self.device,
            units::plural(u64::from(self.workers), "worker")
        );
        let _ = writeln!(out, "{}", style.heading(&head));
        out.push_str(&t.render(style));
        let mb = |b: u64| units::bytes(b as f64);
        let _ = writeln!(
            out,
            "\nmemory {}: weights {}, packed {}, requests and streams {}",
            mb(m.total),
            mb(m.weights),
            mb(m.packed),
            mb(own)
        );
        if let Some(mode) = self.supervision {
            let how = match mode {
                Mode::On => "changes what pays",
                _ => "only looks",
            };
            let last = self.decisions.len().saturating_sub(SHOWN);
            let _ = writeln!(
                out,
                "\n{}",
                style.heading(&format!("supervisor, which {how}"))
            );
            if self.decisions.is_empty() {
                let _ = writeln!(out, "nothing was decided yet");
            }
            for d in &self.decisions[last..] {
                let w = &d.why;
                let text = format!(
                    "{:>8.1} s  {} {}: {} ({})",
                    d.at, w.pass, w.subject, w.choice, w.reason
                );
                let _ = writeln!(out, "{}", cut(&text, style.width));
            }
        }
        out
    }
}
