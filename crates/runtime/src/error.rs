/// Why a request failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RunError {
    /// An input is missing.
    #[error("input '{name}' is missing; the model needs {needs}")]
    Missing {
        /// Input.
        name: String,
        /// Names of all inputs.
        needs: String,
    },
    /// An input that the model does not have.
    #[error("the model has no input '{name}'; it has {has}")]
    Unknown {
        /// Name given.
        name: String,
        /// Names of all inputs.
        has: String,
    },
    /// An input of the wrong dtype.
    #[error("input '{name}' is {got}, but the model takes {want}; convert it first")]
    Type {
        /// Input.
        name: String,
        /// Model's.
        want: String,
        /// Given.
        got: String,
    },
    /// An input of the wrong shape.
    #[error("input '{name}' has shape {got}, but the model takes {want}")]
    Shape {
        /// Input.
        name: String,
        /// Model's.
        want: String,
        /// Given.
        got: String,
    },
    /// Two inputs disagree on a dimension.
    #[error(
        "dimension '{dim}' is {first} by one input and {second} by input '{name}'; make the inputs agree"
    )]
    Dim {
        /// Symbol.
        dim: String,
        /// Value found first.
        first: i64,
        /// Other value.
        second: i64,
        /// Input that disagrees.
        name: String,
    },
    /// More requests than the queue holds.
    #[error(
        "the session is overloaded: {running} requests run and {queued} wait; send fewer at once or allow a longer queue"
    )]
    Overloaded {
        /// Running.
        running: usize,
        /// Waiting.
        queued: usize,
    },
    /// Control flow went wrong.
    #[error("node '{node}': {why}")]
    Control {
        /// Model node.
        node: String,
        /// Reason.
        why: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// The planner failed.
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    /// A tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] tensor::TensorError),
}
