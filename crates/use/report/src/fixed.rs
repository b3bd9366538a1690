//! What a request costs beside its steps.
use crate::table::{Align, Style, Table};
use crate::{HowRun, units};
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Requests of a chain of one length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixedCostRow {
    /// Nodes of the model.
    pub nodes: usize,
    /// Steps of its plan.
    pub steps: usize,
    /// Median through `Session::run`, microseconds.
    pub run_us: f64,
    /// Median through a binding (`Session::bind`), microseconds.
    pub bound_us: f64,
    /// What it may take on a CPU: 1.5 us and 0.15 us per further node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_us: Option<f64>,
}

/// What a request costs beside its arithmetic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FixedCost {
    /// Device and target.
    pub device: String,
    /// How steps reached the device, and how exactly they multiply.
    #[serde(flatten)]
    pub how: HowRun,
    /// Workers.
    pub threads: usize,
    /// Whether the times are an emulated device's own, not this machine's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulated: bool,
    /// From one worker to another and back, or from the host to a GPU and back, microseconds, as the machine's
    /// description has it.
    pub pingpong_us: f64,
    /// Chains of 1, 2, 4, ... nodes.
    pub rows: Vec<FixedCostRow>,
}

impl FixedCost {
    /// Time per further node, microseconds: the slope between the shortest and the longest chain.
    pub fn per_node_us(&self) -> f64 {
        match (self.rows.first(), self.rows.last()) {
            (Some(a), Some(b)) if b.nodes > a.nodes => {
                (b.run_us - a.run_us) / (b.nodes - a.nodes) as f64
            }
            _ => 0.0,
        }
    }

    /// As a table.
    pub fn render(&self, style: Style) -> String {
        let allowed = self.rows.iter().any(|r| r.allowed_us.is_some());
        let mut heads = vec![
            ("nodes", Align::Right),
            ("steps", Align::Right),
            ("Session::run", Align::Right),
            ("Binding::run", Align::Right),
        ];
        heads.extend(allowed.then_some(("allowed", Align::Right)));
        let mut t = Table::new(&heads);
        for r in &self.rows {
            let mut row = vec![
                r.nodes.to_string(),
                r.steps.to_string(),
                units::seconds(r.run_us * 1e-6),
                units::seconds(r.bound_us * 1e-6),
            ];
            row.extend(r.allowed_us.map(|us| units::seconds(us * 1e-6)));
            t.row(row);
        }
        let mut out = String::new();
        let _ = writeln!(
            out,
            "{}",
            style.headline(&format!(
                "chains of products [1,16] x [16,16] that cannot be fused, on {}{}, {}",
                self.device,
                self.how.headline(),
                self.how.workers(self.threads)
            ))
        );
        out.push_str(&t.render(style));
        let _ = writeln!(
            out,
            "\nmedians; each further node takes {}; a hand-off {} and back takes {}",
            units::seconds(self.per_node_us() * 1e-6),
            match allowed {
                true => "from core to core",
                false => "from the host to the device",
            },
            units::seconds(self.pingpong_us * 1e-6)
        );
        if self.emulated {
            for line in units::wrapped(crate::EMULATED, style.width) {
                let _ = writeln!(out, "{line}");
            }
        }
        out
    }
}
