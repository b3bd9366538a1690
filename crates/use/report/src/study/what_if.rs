//! One model on a changed machine.
use super::{because, label, times};
use crate::table::{Align, Style, Table};
use crate::{HowRun, units};
use layout::Arrange;
use serde::Serialize;
use std::fmt::Write;

/// Steps shown unless all are asked for.
const SHOWN: usize = 20;

/// One change without the others.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AloneView {
    /// The change.
    pub change: String,
    /// Predicted seconds of a request with it.
    pub new_s: f64,
}

/// A step before and after.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ChangedStep {
    /// Step's name, by its first node.
    pub name: String,
    /// Kernel family.
    pub family: String,
    /// Predicted seconds before; `None` for a step that was not there.
    pub old_s: Option<f64>,
    /// Predicted seconds after; `None` for a step that is not there any more.
    pub new_s: Option<f64>,
    /// What bound it.
    pub old_bound: String,
    /// What bounds it then.
    pub new_bound: String,
    /// Seconds on the changed machine with the tiles that it had, where it got others.
    pub old_tiles_s: Option<f64>,
    /// Why it changes, or does not.
    pub why: String,
}

impl ChangedStep {
    /// Seconds gained.
    pub fn gain_s(&self) -> f64 {
        self.old_s.unwrap_or(0.0) - self.new_s.unwrap_or(0.0)
    }

    /// Whether it takes another time.
    pub fn changes(&self) -> bool {
        self.gain_s().abs() > 1e-3 * self.old_s.unwrap_or(0.0)
    }
}

/// What changes of a machine buy a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WhatIfView {
    /// Model.
    pub model: String,
    /// Dims, empty when there are none.
    pub dims: String,
    /// Machine.
    pub machine: String,
    /// How steps reach the changed machine, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Whose kernels: `ours` or `vendor`.
    pub kernels: String,
    /// Whether nothing was ever compared with their predictions.
    pub unvalidated: bool,
    /// Target's name.
    pub target: String,
    /// The changes.
    pub changes: Vec<String>,
    /// Predicted seconds of a request before.
    pub old_s: f64,
    /// And after.
    pub new_s: f64,
    /// Every change alone, where there are several.
    pub alone: Vec<AloneView>,
    /// Shares of the time by bound before, the largest first.
    pub old_bounds: Vec<(String, f64)>,
    /// And after.
    pub new_bounds: Vec<(String, f64)>,
    /// Every step, in plan order.
    pub steps: Vec<ChangedStep>,
    /// The reasons.
    pub explanation: Vec<String>,
}

impl WhatIfView {
    /// Steps that are alike, those that change most together first.
    fn groups(&self) -> Vec<Vec<&ChangedStep>> {
        let alike = |a: &ChangedStep, b: &ChangedStep| {
            a.family == b.family && a.old_s == b.old_s && a.new_s == b.new_s && a.why == b.why
        };
        let mut out: Vec<Vec<&ChangedStep>> = Vec::new();
        for s in &self.steps {
            match out.iter_mut().find(|g| alike(g[0], s)) {
                Some(g) => g.push(s),
                None => out.push(vec![s]),
            }
        }
        let gain = |g: &[&ChangedStep]| (g.len() as f64 * g[0].gain_s()).abs();
        out.arrange_by(|a, b| gain(b).total_cmp(&gain(a)));
        out
    }

    /// The table and the reasons; all steps in plan order, or those that change most.
    pub fn render(&self, style: Style, all: bool) -> String {
        let mut out = String::new();
        let dims = match self.dims.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.dims),
        };
        let _ = writeln!(
            out,
            "{}",
            style.headline(&format!(
                "{}{dims} on {}{} with {}",
                self.model,
                self.machine,
                self.how.headline(),
                self.changes.join(" and ")
            ))
        );
        let _ = writeln!(
            out,
            "  a request: {} before, {} after, {} as fast\n  kernels: {} ({}), planned anew; predicted, not measured",
            units::seconds(self.old_s),
            units::seconds(self.new_s),
            times(self.old_s, self.new_s),
            label(&self.kernels, self.unvalidated),
            self.target
        );
        if self.alone.len() > 1 {
            self.render_alone(&mut out, style);
        }
        self.render_steps(&mut out, style, all);
        let list = |v: &[(String, f64)]| {
            let parts: Vec<String> = v
                .iter()
                .filter(|b| b.1 >= 0.005)
                .take(4)
                .map(|b| format!("{} {}", b.0, units::percent(b.1)))
                .collect();
            parts.join(", ")
        };
        let _ = writeln!(
            out,
            "\n{}\n  before  {}\n  after   {}",
            style.heading("what bounds the request"),
            list(&self.old_bounds),
            list(&self.new_bounds)
        );
        let _ = writeln!(out, "\n{}", style.heading("why"));
        out.push_str(&because(&self.explanation, style));
        out
    }

    /// What each change does by itself.
    fn render_alone(&self, out: &mut String, style: Style) {
        let _ = writeln!(out, "\n{}", style.heading("each change alone"));
        let mut t = Table::new(&[
            ("  change", Align::Left),
            ("a request", Align::Right),
            ("as fast", Align::Right),
        ]);
        for a in &self.alone {
            t.row(vec![
                format!("  {}", a.change),
                units::seconds(a.new_s),
                times(self.old_s, a.new_s),
            ]);
        }
        t.row(vec![
            "  together".into(),
            units::seconds(self.new_s),
            times(self.old_s, self.new_s),
        ]);
        out.push_str(&t.render(style));
    }

    fn render_steps(&self, out: &mut String, style: Style, all: bool) {
        let _ = writeln!(
            out,
            "\n{}",
            style.heading("step by step, those alike in one row")
        );
        let mut groups = match all {
            true => self.steps.iter().map(|s| vec![s]).collect(),
            false => self.groups(),
        };
        // What stays as it was is counted, not listed, where not everything is asked for.
        let before = groups.len();
        groups.retain(|g| all || g[0].changes());
        let same = match groups.len() < before {
            true => self.steps.iter().filter(|s| !s.changes()).count(),
            false => 0,
        };
        let shown = if all { groups.len() } else { SHOWN };
        let shared = units::common_path(
            self.steps
                .iter()
                .map(|s| s.name.as_str())
                .filter(|n| !n.starts_with("copy ")),
        );
        let mut t = Table::new(&[
            ("  step", Align::Wrap),
            ("steps", Align::Right),
            ("before", Align::Right),
            ("after", Align::Right),
            ("as fast", Align::Right),
            ("why", Align::Wrap),
        ]);
        let time = |v: Option<f64>, n: f64| v.map_or("-".into(), |s| units::seconds(n * s));
        for g in groups.iter().take(shown) {
            let (s, n) = (g[0], g.len() as f64);
            let name = s.name.strip_prefix(shared).unwrap_or(&s.name);
            t.row(vec![
                format!("  {name}"),
                g.len().to_string(),
                time(s.old_s, n),
                time(s.new_s, n),
                match (s.old_s, s.new_s) {
                    (Some(a), Some(b)) => times(a, b),
                    _ => "-".into(),
                },
                s.why.clone(),
            ]);
        }
        if !t.is_empty() {
            out.push_str(&t.render(style));
        }
        if same > 0 {
            let steps = match same {
                n if n == self.steps.len() => "every step takes".to_string(),
                1 => "1 step takes".to_string(),
                n => format!("{n} steps take"),
            };
            let _ = writeln!(out, "  {steps} as long as before (--all lists them)");
        }
        let rest: usize = groups.iter().skip(shown).map(Vec::len).sum();
        if rest > 0 {
            let _ = writeln!(
                out,
                "  and {} more (--all)",
                units::plural(rest as u64, "step")
            );
        }
    }
}
