//! A model as read: inputs, nodes, kernels, what is not supported.
use crate::table::{Align, Style, Table};
use crate::units;
use layout::Arrange;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// An input or output of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectedValue {
    /// Name.
    pub name: String,
    /// Element type.
    pub dtype: String,
    /// Extents; a symbol where they are not fixed.
    pub shape: Vec<String>,
}

impl InspectedValue {
    fn text(&self) -> String {
        format!("{} {} [{}]", self.name, self.dtype, self.shape.join(", "))
    }
}

/// A kernel that nodes of the model became.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectedKernel {
    /// Kernel's name.
    pub name: String,
    /// Family, or `host`.
    pub family: String,
    /// Model nodes it stands for.
    pub nodes: Vec<String>,
    /// Contraction FLOP.
    pub flop: f64,
    /// Operations of every kind.
    pub ops: f64,
    /// Distinct bytes read and written.
    pub bytes: f64,
    /// Operations per distinct byte.
    pub intensity: f64,
    /// Part of a branch or loop body: counted once, whether or not it runs.
    pub in_control: bool,
}

/// A node of the model by itself, before anything is rewritten or fused.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectedNode {
    /// Node.
    pub node: String,
    /// Operator.
    pub operator: String,
    /// Contraction FLOP.
    pub flop: f64,
    /// Operations of every kind.
    pub ops: f64,
    /// Bytes of the values that it reads from others and gives to others; none for views.
    pub bytes: f64,
    /// Operations per byte.
    pub intensity: f64,
    /// Part of a branch or loop body: counted once, whether or not it runs.
    pub in_control: bool,
}

/// A node that is not covered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unsupported {
    /// Node.
    pub node: String,
    /// Operator with its domain.
    pub operator: String,
    /// Version of the operator set.
    pub opset: i64,
    /// What to do.
    pub remedy: String,
}

/// What there is to know of a model before it is planned.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Inspection {
    /// Model's name.
    pub model: String,
    /// File.
    pub file: String,
    /// IR version.
    pub ir_version: i64,
    /// Operator sets by domain.
    pub opset: BTreeMap<String, i64>,
    /// What wrote the file.
    pub producer: String,
    /// Inputs.
    pub inputs: Vec<InspectedValue>,
    /// Outputs.
    pub outputs: Vec<InspectedValue>,
    /// Nodes by operator.
    pub operators: BTreeMap<String, usize>,
    /// Elements of the constants that the file names, 64-bit integers and booleans (shapes, indices) left out.
    pub parameters: u64,
    /// Sizes that the figures are for; those not given are 1.
    pub dims: BTreeMap<String, i64>,
    /// Names of dims that were not given.
    pub assumed: Vec<String>,
    /// Contraction FLOP of one request.
    pub flop: f64,
    /// Operations of every kind.
    pub ops: f64,
    /// Distinct bytes, summed over the kernels.
    pub bytes: f64,
    /// Operations per distinct byte.
    pub intensity: f64,
    /// The nodes, each by itself.
    pub nodes: Vec<InspectedNode>,
    /// What the nodes became.
    pub kernels: Vec<InspectedKernel>,
    /// Nodes that are not covered; the figures above are then missing.
    pub unsupported: Vec<Unsupported>,
}

impl Inspection {
    /// As text; `all` lists every node and kernel, otherwise the 10 nodes with most operations and
    /// the 20 kernels with most bytes.
    pub fn render(&self, style: Style, all: bool) -> String {
        let mut out = self.model_text(style);
        if !self.unsupported.is_empty() {
            out.push_str(&self.unsupported_text(style));
            return out;
        }
        out.push_str("  supported   all nodes\n");
        out.push_str(&self.request_text(style));
        out.push_str(&self.nodes_text(style, all));
        out.push_str(&self.kernels_text(style, all));
        out
    }

    /// What the file says.
    fn model_text(&self, style: Style) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "{}", style.heading(&self.model));
        let opset: Vec<String> = self.opset.iter().map(|(d, v)| format!("{d} {v}")).collect();
        let _ = writeln!(out, "  file        {}", self.file);
        let producer = if self.producer.is_empty() {
            String::new()
        } else {
            format!(", written by {}", self.producer)
        };
        let _ = writeln!(
            out,
            "  opset       {} (IR {}){producer}",
            opset.join(", "),
            self.ir_version
        );
        for (what, list) in [("inputs", &self.inputs), ("outputs", &self.outputs)] {
            for (i, v) in list.iter().enumerate() {
                let what = if i == 0 { what } else { "" };
                let _ = writeln!(out, "  {what:<10}  {}", v.text());
            }
        }
        let _ = writeln!(
            out,
            "  parameters  {}",
            units::count(self.parameters as f64)
        );
        let mut by_count: Vec<(&String, &usize)> = self.operators.iter().collect();
        by_count.arrange_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
        let nodes: usize = self.operators.values().sum();
        let text: Vec<String> = by_count.iter().map(|(o, n)| format!("{n} {o}")).collect();
        let lines = units::wrapped(&text.join(", "), style.width.saturating_sub(14));
        let _ = writeln!(
            out,
            "  nodes       {nodes} of {} operators:",
            self.operators.len()
        );
        for l in lines {
            let _ = writeln!(out, "              {l}");
        }
        out
    }

    fn unsupported_text(&self, style: Style) -> String {
        let mut out = String::new();
        let _ = writeln!(
            out,
            "\n{}",
            style.heading(&format!("not supported: {} nodes", self.unsupported.len()))
        );
        for u in &self.unsupported {
            let _ = writeln!(out, "  {} ({} of opset {})", u.node, u.operator, u.opset);
            for l in units::wrapped(&u.remedy, style.width.saturating_sub(6)) {
                let _ = writeln!(out, "      {l}");
            }
        }
        out
    }

    /// Sums over one request.
    fn request_text(&self, style: Style) -> String {
        let mut out = String::new();
        let given: Vec<String> = self.dims.iter().map(|(d, v)| format!("{d}={v}")).collect();
        let at = if given.is_empty() {
            String::new()
        } else {
            format!(" at {}", given.join(", "))
        };
        let _ = writeln!(out, "\n{}", style.heading(&format!("one request{at}")));
        if !self.assumed.is_empty() {
            let names = units::listed(&self.assumed, units::ASSUMED);
            let were = if self.assumed.len() == 1 {
                "was"
            } else {
                "were"
            };
            let text = format!(
                "{names} {were} not given and taken as 1; choose with --dim {}=N",
                self.assumed[0]
            );
            for l in units::wrapped(&text, style.width.saturating_sub(2)) {
                let _ = writeln!(out, "  {l}");
            }
        }
        let text = format!(
            "{} in products, {} operations in all, {} in {} kernels: {} operations per byte",
            units::flop(self.flop),
            units::count(self.ops),
            units::bytes(self.bytes),
            self.kernels.len(),
            units::number(self.intensity)
        );
        for l in units::wrapped(&text, style.width.saturating_sub(2)) {
            let _ = writeln!(out, "  {l}");
        }
        if self.kernels.iter().any(|k| k.in_control) {
            let _ = writeln!(out, "  bodies of branches and loops are counted once each");
        }
        out
    }

    fn kernels_text(&self, style: Style, all: bool) -> String {
        let mut out = String::new();
        let _ = writeln!(out, "\n{}", style.heading("fused into kernels"));
        let mut t = Table::new(&[
            ("  nodes", Align::Wrap),
            ("kind", Align::Left),
            ("FLOP", Align::Right),
            ("ops", Align::Right),
            ("bytes", Align::Right),
            ("ops/B", Align::Right),
        ]);
        let mut order: Vec<&InspectedKernel> = self.kernels.iter().collect();
        if !all && order.len() > 20 {
            order.arrange_by(|a, b| b.bytes.total_cmp(&a.bytes));
            order.truncate(20);
        }
        for k in &order {
            let nodes = match k.nodes.as_slice() {
                [] => k.name.clone(),
                [one] => one.clone(),
                [first, rest @ ..] => format!("{first} +{}", rest.len()),
            };
            t.row(vec![
                format!("  {nodes}"),
                k.family.clone(),
                units::count(k.flop),
                units::count(k.ops),
                units::bytes(k.bytes),
                units::number(k.intensity),
            ]);
        }
        out.push_str(&t.render(style));
        let kinds = crate::step::kinds(order.iter().map(|k| k.family.as_str()));
        for line in units::wrapped(&kinds, style.width.saturating_sub(2)) {
            let _ = writeln!(out, "  {}", style.faint(&line));
        }
        if order.len() < self.kernels.len() {
            let _ = writeln!(
                out,
                "  ({} more with fewer bytes; --all lists them)",
                self.kernels.len() - order.len()
            );
        }
        out
    }

    fn nodes_text(&self, style: Style, all: bool) -> String {
        let mut order: Vec<&InspectedNode> = self.nodes.iter().collect();
        if order.is_empty() {
            return String::new();
        }
        if !all && order.len() > 10 {
            order.arrange_by(|a, b| b.ops.total_cmp(&a.ops));
            order.truncate(10);
        }
        let mut t = Table::new(&[
            ("  node", Align::Wrap),
            ("operator", Align::Left),
            ("FLOP", Align::Right),
            ("ops", Align::Right),
            ("bytes", Align::Right),
            ("ops/B", Align::Right),
        ]);
        for n in &order {
            t.row(vec![
                format!("  {}", n.node),
                n.operator.clone(),
                units::count(n.flop),
                units::count(n.ops),
                units::bytes(n.bytes),
                units::number(n.intensity),
            ]);
        }
        let mut out = format!("\n{}\n", style.heading("nodes, each by itself"));
        out.push_str(&t.render(style));
        if order.len() < self.nodes.len() {
            let _ = writeln!(
                out,
                "  ({} more with fewer operations; --all lists them)",
                self.nodes.len() - order.len()
            );
        }
        out
    }
}
