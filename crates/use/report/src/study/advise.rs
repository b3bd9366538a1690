//! Advice: what would make a model faster, ranked.
use super::{because, label};
use crate::table::{Align, Style, Table};
use crate::{HowRun, units};
use serde::Serialize;
use std::fmt::Write;

/// How a gain was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Computed {
    /// The model was planned again with the change.
    Replanned,
    /// The steps' work was changed and predicted again.
    Repredicted,
}

impl std::fmt::Display for Computed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Computed::Replanned => "planned again",
            Computed::Repredicted => "predicted again",
        })
    }
}

/// One thing that might help.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// `precision`, `batch`, `fuse`, `layout`, `on device`, `launch`.
    pub kind: String,
    /// What to do.
    pub what: String,
    /// Predicted seconds of a request then (of a batch: divided by its items), `None` where it does not
    /// apply.
    pub new_s: Option<f64>,
    /// How many times as fast.
    pub gain: f64,
    /// How that was found.
    pub computed: Computed,
    /// Why it helps, or does not.
    pub reason: String,
}

impl Advice {
    /// Whether it is worth a line of its own: at least one per cent.
    pub fn helps(&self) -> bool {
        self.gain >= 1.01
    }
}

/// What would help a model on a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AdviceView {
    /// Model.
    pub model: String,
    /// Dims, empty when there are none.
    pub dims: String,
    /// Machine.
    pub machine: String,
    /// How its steps reach it as it is, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Whose kernels: `ours` or `vendor`.
    pub kernels: String,
    /// Whether nothing was ever compared with their predictions.
    pub unvalidated: bool,
    /// Target's name.
    pub target: String,
    /// Predicted seconds of a request as it is.
    pub now_s: f64,
    /// Shares of that by bound, the largest first.
    pub bounds: Vec<(String, f64)>,
    /// Ranked: what gains most first, what gains nothing last.
    pub advice: Vec<Advice>,
    /// What a reader must know of the figures.
    pub notes: Vec<String>,
}

impl AdviceView {
    /// The ranked list.
    pub fn render(&self, style: Style) -> String {
        let mut out = String::new();
        let dims = match self.dims.is_empty() {
            true => String::new(),
            false => format!(" ({})", self.dims),
        };
        let _ = writeln!(
            out,
            "{}",
            style.headline(&format!(
                "what would help {}{dims} on {}{}",
                self.model,
                self.machine,
                self.how.headline()
            ))
        );
        let bounds: Vec<String> = self
            .bounds
            .iter()
            .filter(|b| b.1 >= 0.005)
            .take(4)
            .map(|b| format!("{} {}", b.0, units::percent(b.1)))
            .collect();
        let _ = writeln!(
            out,
            "  a request: {} predicted; kernels: {} ({})\n  bound by {}\n",
            units::seconds(self.now_s),
            label(&self.kernels, self.unvalidated),
            self.target,
            bounds.join(", ")
        );
        let mut t = Table::new(&[
            ("  ", Align::Right),
            ("what", Align::Wrap),
            ("a request", Align::Right),
            ("as fast", Align::Right),
            ("found by", Align::Left),
        ]);
        for (i, a) in self.advice.iter().filter(|a| a.helps()).enumerate() {
            t.row(vec![
                format!("  {}", i + 1),
                a.what.clone(),
                a.new_s.map_or("-".into(), units::seconds),
                format!("{}x", units::number(a.gain)),
                a.computed.to_string(),
            ]);
        }
        match t.is_empty() {
            true => out.push_str("  nothing that was tried gains a per cent\n"),
            false => out.push_str(&t.render(style)),
        }
        let lines = |helps: bool| -> Vec<String> {
            let own = self.advice.iter().filter(|a| a.helps() == helps);
            own.map(|a| match a.new_s.filter(|_| !helps) {
                Some(s) => format!("{}: {} In all {}.", a.kind, a.reason, units::seconds(s)),
                None => format!("{}: {}", a.kind, a.reason),
            })
            .collect()
        };
        let why = lines(true);
        if !why.is_empty() {
            let _ = writeln!(out, "\n{}", style.heading("why"));
            out.push_str(&because(&why, style));
        }
        let idle = lines(false);
        if !idle.is_empty() {
            let _ = writeln!(out, "\n{}", style.heading("what would not help"));
            out.push_str(&because(&idle, style));
        }
        if !self.notes.is_empty() {
            let _ = writeln!(out, "\n{}", style.heading("what the figures count"));
            out.push_str(&because(&self.notes, style));
        }
        out
    }
}
