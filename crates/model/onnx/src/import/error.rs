//! Errors of import.
use crate::Error;
use graph::GraphError;

/// A node that this build cannot lower.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnsupportedNode {
    /// Name in the model, or the name of its first output.
    pub node: String,
    /// Operator type.
    pub operator: String,
    /// Operator's domain; empty for ONNX's own.
    pub domain: String,
    /// Version of the domain's operator set that the model imports.
    pub opset: i64,
    /// What is not handled and what to do.
    pub remedy: String,
}

impl std::fmt::Display for UnsupportedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let domain = match self.domain.as_str() {
            "" => "ai.onnx",
            d => d,
        };
        let (node, op, v) = (&self.node, &self.operator, self.opset);
        write!(
            f,
            "node '{node}': {domain}::{op} of opset {v}: {}",
            self.remedy
        )
    }
}

/// Why a model could not be imported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read, or a tensor's data cannot be had.
    #[error(transparent)]
    File(#[from] Error),
    /// Nodes that are not covered: all of them.
    #[error("{} nodes of the model are not supported:\n  {}", .0.len(),
        .0.iter().map(|n| n.to_string()).collect::<Vec<_>>().join("\n  "))]
    Unsupported(Vec<UnsupportedNode>),
    /// A node is not what its operator's definition asks for.
    #[error("{file}: node '{node}' ({op}): {why}")]
    Node {
        /// Path of the model as given.
        file: String,
        /// Node's name.
        node: String,
        /// Operator type.
        op: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// A core op cannot be built from the node.
    #[error("{file}: {source}")]
    Graph {
        /// Path of the model as given.
        file: String,
        /// What is wrong.
        source: GraphError,
    },
    /// An input's type is not usable as it is.
    #[error("{file}: input '{input}': {why}")]
    Input {
        /// Path of the model as given.
        file: String,
        /// Name of the input.
        input: String,
        /// What is wrong and what to do.
        why: String,
    },
    /// The caller names an input or a dimension that the model has not.
    #[error("{file}: {why}")]
    Unknown {
        /// Path of the model as given.
        file: String,
        /// What is not there, and what is.
        why: String,
    },
    /// Something about the model as a whole.
    #[error("{file}: {why}")]
    Model {
        /// Path of the model as given.
        file: String,
        /// What is wrong and what to do.
        why: String,
    },
}

/// What a lowering can run into; the caller adds the node.
#[derive(Debug)]
pub(crate) enum LowerError {
    /// The node is wrong.
    Node(String),
    /// The node is right but not covered: the remedy.
    Unsupported(String),
    /// Building failed.
    Graph(GraphError),
    /// Already complete.
    Import(ImportError),
}

impl From<GraphError> for LowerError {
    fn from(e: GraphError) -> Self {
        LowerError::Graph(e)
    }
}

impl From<Error> for LowerError {
    fn from(e: Error) -> Self {
        LowerError::Import(ImportError::File(e))
    }
}

impl From<ImportError> for LowerError {
    fn from(e: ImportError) -> Self {
        LowerError::Import(e)
    }
}

impl From<String> for LowerError {
    fn from(e: String) -> Self {
        LowerError::Node(e)
    }
}

impl From<&str> for LowerError {
    fn from(e: &str) -> Self {
        LowerError::Node(e.to_string())
    }
}

impl From<tensor::TensorError> for LowerError {
    fn from(e: tensor::TensorError) -> Self {
        LowerError::Graph(e.into())
    }
}
