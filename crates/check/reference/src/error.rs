//! Errors of the reference interpreters.
/// Why an interpreter gave no values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// The given inputs do not fit the graph.
    #[error("graph '{graph}': {why}")]
    Inputs {
        /// Graph.
        graph: String,
        /// What does not fit and what would.
        why: String,
    },
    /// A node could not be evaluated.
    #[error("node '{node}' ({op}): {why}")]
    Node {
        /// Model node it came from, or its first output.
        node: String,
        /// Core op.
        op: String,
        /// Reason.
        why: String,
    },
    /// A statement of a kernel or tile program could not be evaluated.
    #[error("kernel '{kernel}', {place}: {why}")]
    Kernel {
        /// Kernel.
        kernel: String,
        /// Statement, operand or tile.
        place: String,
        /// Reason.
        why: String,
    },
    /// An access outside its buffer.
    #[error(
        "kernel '{kernel}': operand '{operand}' at {coordinates} is element {element}, outside its buffer of {elements}; correct the access or its bounds"
    )]
    OutOfBuffer {
        /// Kernel.
        kernel: String,
        /// Operand.
        operand: String,
        /// Axis names with coordinates.
        coordinates: String,
        /// Element addressed.
        element: i64,
        /// Elements in the buffer.
        elements: usize,
    },
    /// Two tasks that may run at the same time write one element.
    #[error(
        "kernel '{kernel}': tasks {first} and {second} both write element {element} of operand '{operand}'; make the axis that they share a loop"
    )]
    Race {
        /// Kernel.
        kernel: String,
        /// Operand.
        operand: String,
        /// Element.
        element: usize,
        /// Number of a task in row-major order.
        first: usize,
        /// Number of another.
        second: usize,
    },
}

/// A reason; the caller adds where.
#[derive(Clone, Debug)]
pub(crate) struct Why(pub String);

/// Result inside an interpreter.
pub(crate) type R<T> = Result<T, Why>;

macro_rules! from {
    ($($t:ty),*) => {$(
        impl From<$t> for Why {
            fn from(e: $t) -> Why {
                Why(e.to_string())
            }
        }
    )*};
}
from!(
    String,
    &str,
    tensor::TensorError,
    hostops::HostError,
    expr::EvalError,
    expr::ExprError,
    RefError
);
