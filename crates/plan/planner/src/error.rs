//! Why a graph could not be planned.
/// Why a graph could not be planned.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlannerError {
    /// A node cannot be lowered to a kernel.
    #[error("node '{node}' ({op}): {why}")]
    Node {
        /// Model node.
        node: String,
        /// Core op.
        op: String,
        /// What is in the way and what to do.
        why: String,
    },
    /// The graph is not valid.
    #[error(transparent)]
    Graph(#[from] graph::GraphError),
}
