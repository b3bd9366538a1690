//! Text form of graphs, one node per line, read back by [`Graph::parse`]:
//!
//! ```text
//! graph main
//! symbol batch = input 0 axis 0
//! assume max(batch, 8) = 8  # Slice_2
//! input %x: f32[batch, 64]
//! weight %w: f32[64, 10] @0
//! weight %s: i64[2] @1 = 1, -1
//! %y: f32[batch, 10] = contract mk,kn->mn %x, %w  # MatMul_3:MatMul
//! %z: f32[batch, 10] = map {%0 = input 0 f32; %1 = neg %0; out %1} %y
//! output %z
//! ```
//!
//! `@n` is the constant's number in the weight store; contents follow `=` for constants of a few
//! elements and for integers whose contents matter to shapes. `{..}` after a type are known
//! contents. After `#` come the model's nodes. Names of other characters than letters, digits and
//! `_./:-` are quoted. Bodies of `if` and `loop` stand in braces on lines of their own. Values are
//! numbered in the order of their lines.
mod cursor;
mod ops;
mod parse;

use crate::{Graph, Node, Op, SymbolSource, Value, ValueId, ValueSource};
use cursor::word;
use layout::{DType, Dim};
use std::fmt::Write;
use tensor::WeightStore;

/// Elements up to which a constant's contents are written.
const MAX_SHOWN: usize = 16;

impl Graph {
    /// The text form. The graph should be valid; ids out of range are written as `%?`.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.write(&self.weights, "", 0, &mut out);
        out
    }

    fn name_of(&self, id: ValueId) -> String {
        match self.values.get(id.0 as usize) {
            Some(v) => format!("%{}", word(&v.name)),
            None => "%?".into(),
        }
    }

    fn names_of(&self, ids: &[ValueId]) -> String {
        let names: Vec<String> = ids.iter().map(|&i| self.name_of(i)).collect();
        names.join(", ")
    }

    fn write(&self, weights: &WeightStore, indent: &str, depth: usize, out: &mut String) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{indent}graph {}", word(&self.name));
        for s in &self.symbols {
            let _ = match &s.source {
                SymbolSource::Input { input, axis } => {
                    writeln!(
                        out,
                        "{indent}symbol {} = input {input} axis {axis}",
                        word(&s.name)
                    )
                }
                SymbolSource::Late { value, axis } => writeln!(
                    out,
                    "{indent}symbol {} = late {} axis {axis}",
                    word(&s.name),
                    self.name_of(*value)
                ),
            };
        }
        for a in &self.assumptions {
            let _ = writeln!(
                out,
                "{indent}assume {} = {}  # {}",
                a.left,
                a.right,
                word(&a.node)
            );
        }
        let mut inputs = 0;
        let mut nodes = 0;
        for (i, v) in self.values.iter().enumerate() {
            match v.source {
                ValueSource::Input(n) => {
                    while inputs <= n as usize && inputs < self.inputs.len() {
                        if let Some(v) = self.values.get(self.inputs[inputs].0 as usize) {
                            let _ = writeln!(out, "{indent}input {}", typed(v));
                        }
                        inputs += 1;
                    }
                }
                ValueSource::Weight(id) => {
                    let _ = write!(out, "{indent}weight {} @{id}", typed_only(v));
                    if let Some(c) = constant(v, weights, id) {
                        let _ = write!(out, " = {c}");
                    }
                    out.push('\n');
                }
                ValueSource::Node(n, _) => {
                    // Weights of a later value may be written before; nodes keep their order.
                    while nodes <= n.0 as usize && nodes < self.nodes.len() {
                        let node = &self.nodes[nodes];
                        let ready = node.inputs.iter().all(|x| {
                            x.0 as usize <= i
                                || matches!(
                                    self.values.get(x.0 as usize).map(|v| v.source),
                                    Some(ValueSource::Node(m, _)) if (m.0 as usize) < nodes
                                )
                        });
                        if !ready {
                            break;
                        }
                        self.write_node(node, weights, indent, depth, out);
                        nodes += 1;
                    }
                }
            }
        }
        for node in self.nodes.iter().skip(nodes) {
            self.write_node(node, weights, indent, depth, out);
        }
        for i in self.inputs.iter().skip(inputs) {
            if let Some(v) = self.values.get(i.0 as usize) {
                let _ = writeln!(out, "{indent}input {}", typed(v));
            }
        }
        let _ = writeln!(out, "{indent}output {}", self.names_of(&self.outputs));
    }

    fn write_node(
        &self,
        node: &Node,
        weights: &WeightStore,
        indent: &str,
        depth: usize,
        out: &mut String,
    ) {
        let outputs: Vec<String> = node
            .outputs
            .iter()
            .map(|o| {
                self.values
                    .get(o.0 as usize)
                    .map_or_else(|| "%?: f32[]".into(), typed)
            })
            .collect();
        let _ = write!(
            out,
            "{indent}{} = {}",
            outputs.join(", "),
            ops::head(&node.op)
        );
        if !node.inputs.is_empty() {
            let _ = write!(out, " {}", self.names_of(&node.inputs));
        }
        let bodies: Vec<&Graph> = match &node.op {
            Op::If {
                then_branch,
                else_branch,
            } => vec![then_branch, else_branch],
            Op::Loop { body, .. } => vec![body],
            _ => vec![],
        };
        if !bodies.is_empty() {
            out.push_str(" {");
        }
        for (i, o) in node.origins.iter().enumerate() {
            let gap = if i == 0 { "  # " } else { " " };
            let _ = write!(
                out,
                "{gap}{}:{}",
                word_in_origin(&o.name),
                word_in_origin(&o.op_type)
            );
        }
        out.push('\n');
        if depth > crate::verify::MAX_NESTING {
            return;
        }
        let deeper = format!("{indent}  ");
        for (i, b) in bodies.iter().enumerate() {
            b.write(weights, &deeper, depth + 1, out);
            let end = if i + 1 < bodies.len() { "} {" } else { "}" };
            let _ = writeln!(out, "{indent}{end}");
        }
    }
}

fn word_in_origin(s: &str) -> String {
    match s.contains(':') {
        true => cursor::quoted(s),
        false => word(s),
    }
}

fn typed_only(v: &Value) -> String {
    format!(
        "%{}: {}{}",
        word(&v.name),
        v.dtype,
        crate::shape::list(&v.shape)
    )
}

fn typed(v: &Value) -> String {
    match &v.ints {
        Some(ints) => format!("{}{{{}}}", typed_only(v), join(ints)),
        None => typed_only(v),
    }
}

fn join(dims: &[Dim]) -> String {
    let parts: Vec<String> = dims.iter().map(|d| d.to_string()).collect();
    parts.join(", ")
}

/// Contents of a constant worth showing.
fn constant(v: &Value, weights: &WeightStore, id: u32) -> Option<String> {
    if let Some(ints) = &v.ints {
        return (!ints.is_empty()).then(|| join(ints));
    }
    let w = weights.get(id)?;
    let n: usize = w.shape.iter().product();
    if n == 0 || n > MAX_SHOWN || !w.dtype.is_float() {
        return None;
    }
    let t = weights.tensor(id)?;
    let one = |i| match w.dtype {
        DType::F32 => format!("{:?}", t.get_f64(i) as f32),
        _ => format!("{:?}", t.get_f64(i)),
    };
    Some((0..n).map(one).collect::<Vec<_>>().join(", "))
}
