//! Operators that the caller brings: nodes of their domain and name are lowered by it.
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
    /// Types and shapes of its inputs; `None` for one that is left out.
    pub inputs: Vec<Option<(DType, Vec<Dim>)>>,
    /// Its attributes.
    pub attrs: Attrs,
}

impl CustomNode {
    /// Types and shapes of its inputs, none of which may be left out.
    ///
    /// # Errors
    /// Which one is.
    pub fn all_inputs(&self) -> Result<Vec<(DType, Vec<Dim>)>, String> {
        let all = self.inputs.iter().enumerate();
        let given = all.map(|(i, input)| {
            let missing = || format!("input {i} is missing; {} needs it", self.operator);
            input.clone().ok_or_else(missing)
        });
        given.collect()
    }
}

/// What a node of such an operator becomes.
#[derive(Clone, Debug)]
pub struct CustomLowered {
    /// The core op, on those of the node's inputs that are given.
    pub op: Op,
    /// Name, type and shape of each output; a dimension that only the data gives is `None`.
    pub outputs: Vec<(String, DType, Vec<Option<Dim>>)>,
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
