//! Errors of host operators.
use tensor::TensorError;

/// Why a host operator gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The table has no such operator.
    #[error(
        "no host operator is named '{name}'; lower it to core ops or use one of those that `host_names` lists"
    )]
    Unknown {
        /// Name asked for.
        name: String,
    },
    /// The operator's inputs or attributes do not fit.
    #[error("host operator {op}: {why}")]
    Op {
        /// Operator.
        op: String,
        /// What does not fit and what would.
        why: String,
    },
}

/// A reason without the operator's name, which the entry point adds.
#[derive(Clone, Debug)]
pub struct Why(pub String);

/// Result inside an operator.
pub type R<T> = Result<T, Why>;

impl From<TensorError> for Why {
    fn from(e: TensorError) -> Why {
        Why(e.to_string())
    }
}

impl From<String> for Why {
    fn from(e: String) -> Why {
        Why(e)
    }
}

impl From<&str> for Why {
    fn from(e: &str) -> Why {
        Why(e.into())
    }
}

impl From<expr::EvalError> for Why {
    fn from(e: expr::EvalError) -> Why {
        Why(e.to_string())
    }
}

impl From<expr::ExprError> for Why {
    fn from(e: expr::ExprError) -> Why {
        Why(e.to_string())
    }
}

/// Adds the operator's name to the reason.
pub(crate) fn named<T>(op: &str, r: R<T>) -> Result<T, HostError> {
    r.map_err(|w| HostError::Op {
        op: op.into(),
        why: w.0,
    })
}
