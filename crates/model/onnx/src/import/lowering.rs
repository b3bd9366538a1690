//! The lowering of one node: by its operator, by a function of the model, or by an operator of the user's.

use super::ctx::Ctx;
use super::{CustomNode, CustomOp, Item, LowerError, Lowered, NodeView};
use crate::ops;
use crate::proto::{AttributeValue, Node};
use ::graph::{Origin, ValueId};
use layout::{DType, Dim};
use std::collections::BTreeMap;
use std::sync::Arc;

impl<'m> Ctx<'m> {
    /// Lowers `node`.
    pub(super) fn node(&mut self, node: &'m Node, origin: Origin) -> Lowered {
        let mut inputs = Vec::new();
        for name in &node.inputs {
            inputs.push(match name.as_str() {
                "" => None,
                name if self.is_left_out(name) => None,
                name => match self.lookup(name)? {
                    Item::Value(v) => Some(v),
                    Item::Poisoned => {
                        self.poison(node);
                        return Ok(());
                    }
                },
            });
        }
        let mut attrs: BTreeMap<&'m str, &'m AttributeValue> = BTreeMap::new();
        for a in &node.attributes {
            let value = match &a.value {
                // A reference to an attribute that the caller leaves out leaves this one out.
                AttributeValue::Parent { name, .. } => {
                    match self.calls.last().and_then(|c| c.attrs.get(name.as_str())) {
                        Some(v) => *v,
                        None => continue,
                    }
                }
                v => v,
            };
            if attrs.insert(a.name.as_str(), value).is_some() {
                return Err(format!(
                    "attribute '{}' is there twice; export the model again",
                    a.name
                )
                .into());
            }
        }
        let custom = self.custom(&node.domain, &node.op_type);
        let function = self.function(node);
        let opset = match self.opset(&node.domain) {
            Some(v) => v,
            None if function.is_some() || custom.is_some() => 1,
            None => {
                let d = if node.domain.is_empty() {
                    "ai.onnx"
                } else {
                    &node.domain
                };
                return Err(format!(
                    "uses the domain '{d}', which the model does not import; export the model again"
                )
                .into());
            }
        };
        let names = node.outputs.iter().map(|o| self.graph_name(o)).collect();
        self.records.push(origin.clone());
        let view = NodeView {
            op: &node.op_type,
            domain: &node.domain,
            opset,
            inputs,
            outputs: node.outputs.iter().map(String::as_str).collect(),
            names,
            origin,
            attrs,
            read: Default::default(),
        };
        if let Some(op) = custom {
            self.check_narrow(&view)?;
            return self.custom_node(&view, &*op);
        }
        if let Some(f) = function {
            return self.deeper(|c| c.call(&view, f));
        }
        let def = ops::find(&node.domain, &node.op_type, opset).map_err(LowerError::Unsupported)?;
        self.check_narrow(&view)?;
        let view = match ops::moves_text(self, &view) {
            true => self.deeper(|c| ops::move_text(c, view, def))?,
            false => {
                self.deeper(|c| (def.lower)(c, &view))?;
                view
            }
        };
        view.check_read()?;
        self.pass_narrow(&view)?;
        self.check_outputs(&view)
    }

    /// Whether every output of a lowered node was made, and is what the model states of it.
    fn check_outputs(&mut self, view: &NodeView<'m>) -> Lowered {
        for (i, o) in view
            .outputs
            .iter()
            .enumerate()
            .filter(|(_, o)| !o.is_empty())
        {
            let scope = self.frame().scopes.last();
            let found = scope.map(|s| (s.values.get(o).copied(), s.stated.get(o).copied()));
            let (item, stated) = found.unwrap_or_default();
            if let (Some(Item::Value(v)), Some(info)) = (item, stated) {
                self.check_stated(info, v)?;
            }
            if item.is_none() {
                return Err(format!(
                    "output {i} ('{o}') is not one that {} has; remove it",
                    view.op
                )
                .into());
            }
        }
        Ok(())
    }
}

impl<'m> Ctx<'m> {
    /// The operator that the caller brings for this domain and name.
    pub fn custom(&self, domain: &str, name: &str) -> Option<Arc<dyn CustomOp>> {
        if self.customs.is_empty() {
            return None;
        }
        let key = (domain.to_string(), name.to_string());
        self.customs.get(&key).cloned()
    }

    /// Lowers a node by what the caller brings.
    pub fn custom_node(&mut self, n: &NodeView<'m>, op: &dyn CustomOp) -> Lowered {
        let inputs: Vec<ValueId> = n.inputs.iter().copied().flatten().collect();
        let domain = if n.domain.is_empty() {
            "ai.onnx"
        } else {
            n.domain
        };
        let lowered = op.lower(&CustomNode {
            operator: format!("{domain}:{}", n.op),
            inputs: (n.inputs.iter())
                .map(|i| i.map(|v| (self.dtype(v), self.shape(v))))
                .collect(),
            attrs: n.host_attrs()?,
        })?;
        if n.outputs.len() > lowered.outputs.len() {
            let all: Vec<&str> = lowered.outputs.iter().map(|o| o.0.as_str()).collect();
            return Err(format!(
                "it has {} outputs where its kernel writes {} ({}); remove what is too many",
                n.outputs.len(),
                all.len(),
                all.join(", ")
            )
            .into());
        }
        for (a, b) in &lowered.equal {
            self.assume(n, a, b);
        }
        let names: Vec<String> = (0..lowered.outputs.len()).map(|i| n.name(i)).collect();
        let outputs: Vec<(&str, DType, Vec<Option<Dim>>)> = (lowered.outputs.iter().zip(&names))
            .map(|((_, d, s), name)| (name.as_str(), *d, s.clone()))
            .collect();
        let made = self
            .b()
            .node_with_shapes(lowered.op, &inputs, &outputs, &n.origin);
        for (i, v) in made.into_iter().enumerate() {
            self.set(n, i, v);
        }
        Ok(())
    }
}
