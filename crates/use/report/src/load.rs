//! What loading models costs: processes, planning, memory.
use crate::{Align, Style, Table};
use crate::{HowRun, units};
use layout::Arrange;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// What one process took, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessMs {
    /// From its start until it had printed its answer and was gone, less the requests that it made to
    /// measure `steady`.
    pub wall: f64,
    /// Reading, rewriting and fusing the model.
    pub load: f64,
    /// Planning (or finding the plan), packing (or finding the packed weights) and the first request.
    pub first_run: f64,
    /// The same request when nothing is left to be made, in the same process.
    pub steady: f64,
}

impl ProcessMs {
    /// From nothing to the first answer, without what the request takes whenever it is made: what
    /// loading cost. Starting and ending a process are not in it.
    pub fn loading(&self) -> f64 {
        (self.load + self.first_run - self.steady).max(0.0)
    }
}

/// Planning in a process, without a cache, milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanningMs {
    /// Reading, rewriting and fusing the model.
    pub model: f64,
    /// Binding the first box of dims: schedules, buffers, waits, memory.
    pub bind: f64,
    /// What the first request takes before it runs: binding, proof, compiling, packing weights.
    pub first: f64,
    /// The same for a request outside the boxes of all plans at hand, in the median over several
    /// shapes; `None` where the model has no symbolic dimension.
    pub outside: Option<f64>,
}

impl PlanningMs {
    /// The process of median share of a shape outside the box, or of median first planning where none lies
    /// outside: all times of one process, since what slows a machine down for a while slows all of them.
    pub fn typical(all: &[PlanningMs]) -> PlanningMs {
        let mut sorted = all.to_vec();
        let by = |p: &PlanningMs| p.outside_share().unwrap_or(p.model + p.first);
        sorted.arrange_by(|a, b| by(a).total_cmp(&by(b)));
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// What planning for a shape outside the box takes, over what the first planning took. Both are
    /// everything from what is given (a session and a request; a file) to a plan that runs:
    /// schedules, proof, compilation, and packing of weights where that is needed.
    pub fn outside_share(&self) -> Option<f64> {
        let first = self.model + self.first;
        let other = self.outside?;
        (first > 0.0).then(|| other / first)
    }
}

/// What a process took to plan a model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Model.
    pub model: String,
    /// Device and target.
    pub device: String,
    /// How its steps reach the device, and how exactly they multiply.
    pub how: HowRun,
    /// Its nodes.
    pub nodes: usize,
    /// Steps of its first plan.
    pub steps: usize,
    /// Times.
    pub planning: PlanningMs,
    /// Plans made by requests inside the box of the first; 0 is right.
    pub plans_inside: usize,
}

/// How long a model takes to be ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Model.
    pub model: String,
    /// Device and target.
    pub device: String,
    /// How its steps reach the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Nodes of the model and steps of its plan.
    pub nodes: usize,
    /// Steps of its plan.
    pub steps: usize,
    /// A process that found nothing in the cache.
    pub first: ProcessMs,
    /// Processes that found what the first one left, in order.
    pub second: Vec<ProcessMs>,
    /// Planning in the typical one of the processes that did.
    pub planning: PlanningMs,
    /// Plans made by requests inside the box of the first; 0 is right.
    pub plans_inside: usize,
}

impl LoadReport {
    /// The process of median loading among those that found the cache filled.
    pub fn second(&self) -> ProcessMs {
        let mut sorted = self.second.clone();
        sorted.arrange_by(|a, b| a.loading().total_cmp(&b.loading()));
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// Share of the first load that the second takes.
    pub fn ratio(&self) -> f64 {
        self.second().loading() / self.first.loading().max(1e-9)
    }

    /// For people.
    pub fn render(&self, style: Style) -> String {
        let ms = |v: f64| units::seconds(v * 1e-3);
        let mut t = Table::new(&[
            ("process", Align::Left),
            ("model", Align::Right),
            ("first request", Align::Right),
            ("steady request", Align::Right),
            ("loading", Align::Right),
            ("start to end", Align::Right),
        ]);
        for (name, p) in [
            ("with an empty cache", self.first),
            ("with a filled cache", self.second()),
        ] {
            let parts = [p.load, p.first_run, p.steady, p.loading(), p.wall];
            let mut row: Vec<String> = vec![name.into()];
            row.extend(parts.map(ms));
            t.row(row);
        }
        let p = &self.planning;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.headline(&format!(
                "{} on {}{}: {}, {}",
                self.model,
                self.device,
                self.how.headline(),
                units::plural(self.nodes as u64, "node"),
                units::plural(self.steps as u64, "step")
            ))
        );
        out.push_str(&t.render(style));
        let _ = writeln!(
            out,
            "\nthe second load takes {} of the first (median of {})",
            units::percent(self.ratio()),
            self.second.len()
        );
        let _ = writeln!(
            out,
            "planned in {}: reading, rewriting and fusing {}, binding {}",
            ms(p.model + p.bind),
            ms(p.model),
            ms(p.bind)
        );
        let _ = writeln!(
            out,
            "ready to run (proved, compiled, packed) in {}; a request of sizes that it covers makes {}",
            ms(p.model + p.first),
            units::plural(self.plans_inside as u64, "plan"),
        );
        if let (Some(o), Some(share)) = (p.outside, p.outside_share()) {
            let _ = writeln!(
                out,
                "one outside plans for {}: {} of that",
                ms(o),
                units::percent(share)
            );
        }
        out
    }
}
