//! The work of every node of a model by itself, before anything is rewritten or fused.
use crate::inspect::unscheduled;
use graph::{Graph, GraphBuilder, Node, Op, ValueId};
use layout::{Dim, Inserted};
use machine::Machine;
use plan::{ItemWork, Segment};
use report::InspectedNode;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Deepest nesting of bodies that is looked into.
const DEPTH: usize = 32;

/// The nodes of `graph` (as imported) in order: FLOP and operations are the sum over the core ops
/// that a node became, bytes those of the values that it reads from others and gives to others.
/// `sizes` has the dims; others count as 1.
pub(crate) fn nodes(
    graph: &Graph,
    machine: &Machine,
    sizes: &BTreeMap<String, i64>,
) -> Vec<InspectedNode> {
    let mut w = Walk {
        machine,
        sizes,
        out: Vec::new(),
    };
    w.graph(graph, 0);
    w.out
}

struct Walk<'a> {
    machine: &'a Machine,
    sizes: &'a BTreeMap<String, i64>,
    out: Vec<InspectedNode>,
}

impl Walk<'_> {
    fn size(&self, s: &str) -> Option<i64> {
        Some(self.sizes.get(s).copied().unwrap_or(1))
    }

    fn bytes(&self, g: &Graph, v: ValueId) -> f64 {
        let value = g.value(v);
        let n = Dim::product(&value.shape).eval(&|s| self.size(s));
        n.unwrap_or(0).max(0) as f64 * f64::from(value.dtype.bits()) / 8.0
    }

    fn graph(&mut self, g: &Graph, depth: usize) {
        // Core ops of one model node are one after the other or nearly so: joined by name.
        let mut groups: Vec<(String, String, Vec<usize>)> = Vec::new();
        let mut by_name: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, n) in g.nodes.iter().enumerate() {
            let Some(o) = n.origins.first() else { continue };
            let at = *by_name.entry(&o.name).or_insert_with(|| {
                groups.push((o.name.clone(), o.op_type.clone(), vec![]));
                groups.len() - 1
            });
            groups[at].2.push(i);
        }
        // How many core ops read a value; a graph's output is read once more.
        let mut readers: BTreeMap<ValueId, usize> = BTreeMap::new();
        let reads = g.nodes.iter().flat_map(|n| &n.inputs);
        for v in reads.chain(&g.outputs) {
            *readers.entry(*v).or_default() += 1;
        }
        for (name, op_type, members) in groups {
            let own = |v: &ValueId| members.iter().any(|&m| g.nodes[m].outputs.contains(v));
            let mut read: BTreeMap<ValueId, usize> = BTreeMap::new();
            for v in members.iter().flat_map(|&m| &g.nodes[m].inputs) {
                *read.entry(*v).or_default() += 1;
            }
            let taken: BTreeSet<ValueId> = read.keys().filter(|v| !own(v)).copied().inserted();
            let given = members.iter().flat_map(|&m| &g.nodes[m].outputs);
            let given = given.filter(|v| {
                readers.get(v).copied().unwrap_or(0) > read.get(v).copied().unwrap_or(0)
            });
            let mut bytes: f64 = taken.iter().map(|&v| self.bytes(g, v)).sum();
            bytes += given.map(|&v| self.bytes(g, v)).sum::<f64>();
            let (mut flop, mut ops, mut moves) = (0.0, 0.0, false);
            for &m in &members {
                let n = &g.nodes[m];
                moves |= !matches!(n.op, Op::View(_));
                let work = self.work(g, n).unwrap_or_default();
                (flop, ops) = (flop + work.0, ops + work.1);
            }
            // A view of what lies there moves nothing.
            let bytes = if moves { bytes } else { 0.0 };
            self.out.push(InspectedNode {
                node: name,
                operator: op_type,
                flop: flop + 0.0,
                ops: ops + 0.0,
                bytes,
                intensity: if bytes > 0.0 { ops / bytes } else { 0.0 },
                in_control: depth > 0,
            });
            if depth < DEPTH {
                for &m in &members {
                    match &g.nodes[m].op {
                        Op::If {
                            then_branch,
                            else_branch,
                        } => {
                            self.graph(then_branch, depth + 1);
                            self.graph(else_branch, depth + 1);
                        }
                        Op::Loop { body, .. } => self.graph(body, depth + 1),
                        _ => {}
                    }
                }
            }
        }
    }

    /// FLOP and operations of one core op.
    fn work(&self, g: &Graph, n: &Node) -> Option<(f64, f64)> {
        if matches!(
            n.op,
            Op::View(_) | Op::If { .. } | Op::Loop { .. } | Op::Host { .. }
        ) {
            return None;
        }
        let mut b = GraphBuilder::new("node", Arc::new(tensor::WeightStore::new()));
        let mut inputs = Vec::new();
        for (i, &v) in n.inputs.iter().enumerate() {
            let value = g.value(v);
            // Constants keep no contents here: sizes are all that work follows from.
            inputs.push(b.input(&format!("i{i}"), value.dtype, value.shape.clone()));
        }
        let outputs: Vec<_> = n
            .outputs
            .iter()
            .map(|&o| {
                let value = g.value(o);
                let shape = value.shape.iter().cloned().map(Some).collect();
                (value.name.as_str(), value.dtype, shape)
            })
            .collect();
        let made = b.node_with_shapes(n.op.clone(), &inputs, &outputs, n.origins.first()?);
        let small = b.finish(&made);
        let program = planner::program(&small, &planner::ProgramOptions::default()).ok()?;
        let lookup = |s: &str| self.size(s);
        let mut sum = (0.0, 0.0);
        for s in &program.segments {
            let Segment::Straight(items) = s else {
                continue;
            };
            for i in items {
                if let ItemWork::Kernel { kernel, .. } = &i.work
                    && let Some(t) = unscheduled(kernel)
                    && let Some(w) = kernel::work::work(&t, self.machine, &lookup)
                {
                    sum = (sum.0 + w.flop(), sum.1 + w.ops_total());
                }
            }
        }
        Some(sum)
    }
}
