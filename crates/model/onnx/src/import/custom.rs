//! Operators that the caller brings: nodes of their domain and name are lowered by it.
use super::{Ctx, Lowered, NodeView};
use graph::Op;
use layout::{DType, Dim};
use std::collections::BTreeMap;
use std::sync::Arc;
use tensor::Attrs;

/// A node of an operator that the caller brings.
#[derive(Clone, Debug)]
pub struct CustomNode {
    /// `domain:Name`.
    pub operator: String,
    /// Types and shapes of its inputs.
    pub inputs: Vec<(DType, Vec<Dim>)>,
    /// Its attributes.
    pub attrs: Attrs,
}

/// What a node of such an operator becomes.
#[derive(Clone, Debug)]
pub struct CustomLowered {
    /// The core op, on the node's inputs.
    pub op: Op,
    /// Name, type and shape of each output.
    pub outputs: Vec<(String, DType, Vec<Dim>)>,
    /// Extents that a request's must be equal in.
    pub equal: Vec<(Dim, Dim)>,
}

/// An operator that the caller brings.
pub trait CustomOp: std::fmt::Debug + Send + Sync {
    /// What `node` becomes.
    ///
    /// # Errors
    /// Why it cannot be one, and what to do: the caller names file and node.
    fn lower(&self, node: &CustomNode) -> Result<CustomLowered, String>;
}

/// Operators by domain (empty: ONNX's own) and name. They come before the model's own functions and
/// before the operators that are covered.
pub type CustomOps = BTreeMap<(String, String), Arc<dyn CustomOp>>;

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
        let inputs = n.all_inputs()?;
        let domain = if n.domain.is_empty() {
            "ai.onnx"
        } else {
            n.domain
        };
        let lowered = op.lower(&CustomNode {
            operator: format!("{domain}:{}", n.op),
            inputs: inputs
                .iter()
                .map(|&v| (self.dtype(v), self.shape(v)))
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
            .map(|((_, d, s), name)| (name.as_str(), *d, s.iter().cloned().map(Some).collect()))
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
