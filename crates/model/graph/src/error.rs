//! Errors of building, reading and verifying graphs.
/// Why a graph could not be built or is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// Shapes, dtypes or attributes of an op do not fit its inputs.
    #[error("node '{node}' ({op}): {why}")]
    Op {
        /// Model node.
        node: String,
        /// Core op's name.
        op: String,
        /// What does not fit and what would.
        why: String,
    },
    /// The graph's structure is broken.
    #[error("graph '{graph}': {why}")]
    Structure {
        /// Graph.
        graph: String,
        /// What is wrong.
        why: String,
    },
    /// A text form that cannot be read.
    #[error("line {line} of the graph cannot be read: {why}")]
    Text {
        /// Line, from 1.
        line: usize,
        /// Reason.
        why: String,
    },
    /// A constant is malformed.
    #[error(transparent)]
    Tensor(#[from] tensor::TensorError),
}
