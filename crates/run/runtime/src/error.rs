//! Errors of requests: one sentence each, with the input or node and the remedy.
use supervisor::admission::Refusal;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
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
    #[error("input '{name}' has shape {got}, but the model takes {want}; give it in that shape")]
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
    /// It could not be done in time.
    #[error(
        "the request is refused: it would take {predicted_ms} ms and must be done in {deadline_ms} ms; send fewer at once or allow more time"
    )]
    Late {
        /// Predicted milliseconds from arrival to end.
        predicted_ms: String,
        /// Milliseconds that it may take.
        deadline_ms: String,
    },
    /// The session takes no more requests.
    #[error(
        "the session is draining and takes no more requests; set its policy anew to open it again"
    )]
    Draining,
    /// A file that holds constants was cut short while it was in use.
    #[error(
        "'{file}', which holds weights of the model, was cut short while it was in use; put the whole file back and load the model again"
    )]
    Lost {
        /// The file.
        file: String,
    },
    /// Whoever sent the request gave it up.
    #[error("the request was cancelled")]
    Cancelled,
    /// The thread that ran the request along with its own ended without an answer.
    #[error("the thread that ran the request panicked; send it again")]
    Abandoned,
    /// No thread can be started for requests that nobody waits for.
    #[error(
        "no thread can be started to run the request ({why}); allow this process more threads, or run it on a thread of your own"
    )]
    Thread {
        /// What the system says.
        why: String,
    },
    /// A stream has as many messages as it takes.
    #[error(
        "the stream has {pending} messages whose answers were not received; receive one before the next is sent, or allow it more"
    )]
    StreamFull {
        /// Messages sent and not received.
        pending: usize,
    },
    /// A stream cannot do what is asked.
    #[error("the stream cannot do that: {why}")]
    Stream {
        /// Reason, and the remedy.
        why: String,
    },
    /// A request of a model whose state lies in a stream.
    #[error(
        "input '{name}' is state that stays in a stream from message to message, which a request by itself has not; open a stream, or load the model without state (leave out --state)"
    )]
    StateAlone {
        /// The input.
        name: String,
    },
    /// It could not be scheduled.
    #[error("the request cannot be scheduled: {0}")]
    Refused(String),
    /// The model's program for all sizes relies on something that these inputs break.
    #[error(
        "node '{node}': the model needs {left} and {right} to be equal, but for these inputs they are {is} and {other}; change the inputs' sizes"
    )]
    Assumed {
        /// Model node that relies on it.
        node: String,
        /// An extent.
        left: layout::Dim,
        /// What it must be equal to.
        right: layout::Dim,
        /// The extent for these inputs.
        is: i64,
        /// The other for these inputs.
        other: i64,
        /// Symbols of the two that only the data gives, and what it gave.
        late: Vec<(layout::Sym, i64)>,
    },
    /// What a node takes gives values of other ranks than the rest of the program is made for.
    #[error("node '{node}': {why}")]
    Ranks {
        /// Model node.
        node: String,
        /// What it takes, as [`crate::Bound::taken`] says it.
        taken: i64,
        /// The loops in whose bodies the node is, from the innermost on, and how many rounds each has.
        loops: Vec<(String, i64)>,
        /// Reason.
        why: String,
    },
    /// The model has no program for all sizes at once.
    #[error("the model cannot be planned for all sizes at once; give its sizes: {0}")]
    Unsized(String),
    /// The model does not allow the inputs' sizes.
    #[error("the model does not take inputs of these sizes: {0}")]
    Sizes(String),
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
    Device(device::DeviceError),
    /// The planner failed.
    #[error(transparent)]
    Plan(#[from] plan::PlanError),
    /// A tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] tensor::TensorError),
}

impl From<plan::Refusal> for RunError {
    fn from(r: plan::Refusal) -> RunError {
        match r.taken {
            Some((node, taken)) => RunError::Ranks {
                node,
                taken,
                loops: Vec::new(),
                why: r.why,
            },
            None => RunError::Unsized(r.why),
        }
    }
}

impl RunError {
    /// What went wrong in a round of the loop `node`, which has `rounds` of them.
    pub(crate) fn in_loop(mut self, node: &str, rounds: i64) -> RunError {
        if let RunError::Ranks { loops, .. } = &mut self {
            loops.push((node.into(), rounds));
        }
        self
    }

    /// Whether the same request may be right for a program that is made for its sizes.
    pub(crate) fn is_of_sizes(&self) -> bool {
        matches!(
            self,
            RunError::Shape { .. }
                | RunError::Dim { .. }
                | RunError::Assumed { .. }
                | RunError::Ranks { .. }
                | RunError::Unsized(_)
                | RunError::Sizes(_)
                | RunError::Plan(_)
        )
    }
}

impl From<device::DeviceError> for RunError {
    fn from(e: device::DeviceError) -> RunError {
        match e {
            device::DeviceError::Cancelled => RunError::Cancelled,
            e => RunError::Device(e),
        }
    }
}

impl From<Refusal> for RunError {
    fn from(why: Refusal) -> RunError {
        let ms = |s: f64| format!("{:.3}", 1e3 * s);
        match why {
            Refusal::Overloaded { running, queued } => RunError::Overloaded { running, queued },
            Refusal::Late {
                predicted_s,
                deadline_s,
            } => RunError::Late {
                predicted_ms: ms(predicted_s),
                deadline_ms: ms(deadline_s),
            },
            Refusal::Draining => RunError::Draining,
            other => RunError::Refused(other.to_string()),
        }
    }
}
