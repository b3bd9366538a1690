//! Nodes that stand alone: moves, control flow and host operators.
use super::{Lowering, Result, row_major};
use graph::{Graph, NodeId, Op, PadMode, ValueId};
use plan::{HostOp, Item, ItemWork, Segment, ValueIx, ValueOrigin, Why};
use serde::Serialize;
use tensor::{Attr, Attrs};

impl Lowering<'_> {
    pub(crate) fn alone(&mut self, n: NodeId) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let host = |l: &mut Self, name: &str, why: &str| l.host(n, name, spec_attrs(&node.op), why);
        match &node.op {
            Op::Concat { axis } => self.concat(n, *axis),
            Op::Gather { axis, batch } => self.gather(n, *axis, *batch),
            Op::Pad {
                before,
                after: _,
                mode: PadMode::Constant,
            } => {
                let value = match node.inputs.get(1) {
                    None => Some(0.0),
                    Some(&v) => super::moves::scalar(self, v),
                };
                match value {
                    Some(value) if !value.is_nan() => self.pad_constant(n, before, value),
                    _ => host(self, "core.pad", "the padding value is computed"),
                }
            }
            Op::Pad { .. } => host(
                self,
                "core.pad",
                "elements of this type are moved by plain code",
            ),
            Op::ScatterNd(_) => host(
                self,
                "core.scatter_nd",
                "scatters are computed by plain code",
            ),
            Op::Scan { .. } => host(
                self,
                "core.scan",
                "running reductions are computed by plain code",
            ),
            Op::Recurrent(spec) => self.recurrent(n, spec),
            Op::Sort {
                axis,
                k,
                descending,
            } if self.selects(n, *axis, k) => self.select(n, *axis, *descending),
            Op::Sort { .. } => host(
                self,
                "core.sort",
                "more than a few elements are sorted by plain code",
            ),
            Op::Resample(spec) => self.host(
                n,
                "core.resample",
                json_attr(spec),
                "resampling other than by whole factors is done by plain code",
            ),
            Op::Kernel(spec) => self.custom(n, spec),
            Op::Host { name, attrs } => {
                self.host(n, name, attrs.clone(), "a rare operator, run by plain code")
            }
            Op::If {
                then_branch,
                else_branch,
            } => {
                let (cond, captures) = self.control_inputs(&node.inputs)?;
                let then_branch = Box::new(self.body(then_branch)?);
                let else_branch = Box::new(self.body(else_branch)?);
                let outputs = self.made(n);
                let node = self.origins(&[n]).join(" ");
                self.program.segments.push(Segment::If {
                    node,
                    cond,
                    captures,
                    then_branch,
                    else_branch,
                    outputs,
                });
                Ok(())
            }
            Op::Loop {
                body,
                carried,
                has_trip,
                has_cond,
            } => self.loop_segment(n, body, *carried, [*has_trip, *has_cond]),
            _ => self.fail(n, "this op has no lowering"),
        }
    }

    /// A loop; `has`: whether its number of turns and its condition are given.
    fn loop_segment(
        &mut self,
        n: NodeId,
        body: &Graph,
        carried: usize,
        has: [bool; 2],
    ) -> Result<()> {
        let graph = self.graph;
        let mut dense = Vec::new();
        for (i, &v) in graph.node(n).inputs.iter().enumerate() {
            let given = has.get(i).copied().unwrap_or(true);
            dense.push(if given { Some(self.dense(v)?) } else { None });
        }
        let body = Box::new(self.body(body)?);
        let outputs = self.made(n);
        let all: Vec<ValueIx> = dense.iter().skip(2).flatten().copied().collect();
        self.program.segments.push(Segment::Loop {
            node: self.origins(&[n]).join(" "),
            trip: dense.first().copied().flatten(),
            cond: dense.get(1).copied().flatten(),
            carried: all[..carried].to_vec(),
            captures: all[carried..].to_vec(),
            body,
            outputs,
        });
        Ok(())
    }

    pub(crate) fn recurrent_host(
        &mut self,
        n: NodeId,
        spec: &graph::RecurrentSpec,
        why: &str,
    ) -> Result<()> {
        self.host(n, "core.recurrent", json_attr(spec), why)
    }

    fn control_inputs(&mut self, inputs: &[ValueId]) -> Result<(ValueIx, Vec<ValueIx>)> {
        let mut dense = Vec::new();
        for &v in inputs {
            dense.push(self.dense(v)?);
        }
        Ok((dense[0], dense[1..].to_vec()))
    }

    fn body(&self, g: &graph::Graph) -> Result<plan::Program> {
        crate::program::lower(g, &Default::default())
    }

    /// Row-major values for a node's outputs.
    pub(super) fn made(&mut self, n: NodeId) -> Vec<ValueIx> {
        let mut out = Vec::new();
        for &o in &self.graph.node(n).outputs {
            let rank = self.shape(o).len();
            let l = self.new_value(self.name(o), self.dtype(o), self.shape(o), &row_major(rank));
            out.push(l.ix);
            self.located[o.0 as usize] = Some(l);
        }
        out
    }

    /// Whether a host item reads constants only and nothing about it changes with the request.
    fn constant_item(&self, n: NodeId, item: &Item) -> bool {
        let ItemWork::Host { inputs, .. } = &item.work else {
            return false;
        };
        let kept = |&v: &ValueIx| {
            let origin = self.program.value(v).origin;
            matches!(origin, ValueOrigin::Weight(_) | ValueOrigin::Init)
        };
        let node = self.graph.node(n);
        let mut symbols = Default::default();
        for &v in node.inputs.iter().chain(&node.outputs) {
            self.shape(v).iter().for_each(|d| d.symbols(&mut symbols));
        }
        !self.per_request && symbols.is_empty() && inputs.iter().flatten().all(kept)
    }

    /// A host item; one whose outputs have late dims is a segment of its own.
    fn host(&mut self, n: NodeId, name: &str, attrs: Attrs, reason: &str) -> Result<()> {
        let graph = self.graph;
        let node = graph.node(n);
        let mut inputs = Vec::new();
        for &v in &node.inputs {
            inputs.push(Some(self.dense(v)?));
        }
        let outputs = self.made(n);
        let nodes = self.origins(&[n]);
        self.program.whys.push(Why {
            pass: "host".into(),
            subject: nodes.join(", "),
            choice: format!("host step {name}"),
            alternatives: vec![],
            reason: reason.into(),
        });
        let op = HostOp {
            name: name.into(),
            attrs,
            reason: reason.into(),
            made: Default::default(),
        };
        let item = Item {
            name: nodes.join(" "),
            work: ItemWork::Host {
                op: op.into(),
                inputs,
                outputs,
            },
            nodes,
            given: None,
        };
        let late = |d: &layout::Dim| {
            let mut s = Default::default();
            d.symbols(&mut s);
            s.iter().any(|s| {
                graph.symbols.iter().any(|x| {
                    x.name == *s && matches!(x.source, graph::SymbolSource::Late { value, .. } if node.outputs.contains(&value))
                })
            })
        };
        // Texts and sequences have no place in a block's memory.
        let held = node
            .inputs
            .iter()
            .chain(&node.outputs)
            .any(|&v| self.dtype(v).is_held());
        if held || node.outputs.iter().any(|&o| self.shape(o).iter().any(late)) {
            self.program.segments.push(Segment::Late(item));
        } else if self.constant_item(n, &item) {
            // Computed once, when the model is loaded.
            if let ItemWork::Host { outputs, .. } = &item.work {
                for &o in outputs {
                    self.program.values[o as usize].origin = ValueOrigin::Init;
                }
            }
            self.program.init.push(item);
        } else {
            self.push(item);
        }
        Ok(())
    }
}

/// A core op's own specification as text, for `hostops`.
fn spec_attrs(op: &Op) -> Attrs {
    json_attr(op)
}

fn json_attr<T: Serialize>(spec: &T) -> Attrs {
    // Specifications are plain data: writing them as JSON cannot fail.
    let text = serde_json::to_string(spec).unwrap_or_default();
    tensor::attrs(vec![("spec", Attr::Str(text))])
}
