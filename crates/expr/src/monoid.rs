use crate::Expr;
use serde::{Deserialize, Serialize};

/// A reduction with a state of one or more scalars, given by programs, so that every reader
/// (interpreter, SIMD compiler, emitter, cost model) handles sums, maxima, arg-reductions, Welford
/// moments and log-sum-exp alike.
///
/// `combine` is associative up to rounding; with `identity` it forms a monoid.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Monoid {
    /// Name for people (`sum`, `max`, `argmax`, `welford`, `logsumexp`).
    pub name: String,
    /// Program without arguments: the state of an empty reduction, one output per state scalar.
    pub identity: Expr,
    /// Element (slots 0.., and `Index` for arg-reductions) to state.
    pub lift: Expr,
    /// Two states (left in slots 0..n, right in n..2n, left comes first in index order) to one.
    pub combine: Expr,
    /// State (slots 0..n) to results.
    pub finish: Expr,
}

impl Monoid {
    /// Number of scalars in the state.
    pub fn state_len(&self) -> usize {
        self.identity.outputs.len()
    }

    /// Number of results.
    pub fn result_len(&self) -> usize {
        self.finish.outputs.len()
    }
}
