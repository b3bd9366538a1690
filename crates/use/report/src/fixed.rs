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
    /// What it may take: 1.5 us and 0.15 us per further node.
    pub allowed_us: f64,
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
    /// From one core to another and back, microseconds, as the machine's description has it.
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
        let mut t = Table::new(&[
            ("nodes", Align::Right),
            ("steps", Align::Right),
            ("Session::run", Align::Right),
            ("Binding::run", Align::Right),
            ("allowed", Align::Right),
        ]);
        for r in &self.rows {
            t.row(vec![
                r.nodes.to_string(),
                r.steps.to_string(),
                units::seconds(r.run_us * 1e-6),
                units::seconds(r.bound_us * 1e-6),
                units::seconds(r.allowed_us * 1e-6),
            ]);
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
            "\nmedians; each further node takes {}; core to core and back takes {}",
            units::seconds(self.per_node_us() * 1e-6),
            units::seconds(self.pingpong_us * 1e-6)
        );
        out
    }
}
