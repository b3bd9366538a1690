//! Errors of rewriting.
/// Why a graph could not be rewritten.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The graph was invalid before any pass.
    #[error("the graph is not valid: {0}")]
    Input(graph::GraphError),
    /// A pass made an invalid graph: an error of the pass.
    #[error(
        "pass '{pass}' broke the graph after {rewrites} rewrites: {source}; run with less fuel to find which one"
    )]
    Pass {
        /// Pass.
        pass: &'static str,
        /// Rewrites so far, over all passes.
        rewrites: usize,
        /// What is broken.
        source: graph::GraphError,
    },
    /// A pass could not build a node.
    #[error("pass '{pass}' cannot build {op}: {why}")]
    Build {
        /// Pass.
        pass: &'static str,
        /// Core op.
        op: &'static str,
        /// Reason.
        why: String,
    },
    /// A constant could not be made.
    #[error(transparent)]
    Tensor(#[from] tensor::TensorError),
}
