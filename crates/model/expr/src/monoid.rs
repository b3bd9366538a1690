//! A reduction as data: the programs of a [`Monoid`]. Kernels carry it in their folds; the reductions
//! themselves are in `monoids`.
use crate::{Binary, Expr, Inst, Ref};
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

    /// The one operation that `combine` is, on two states of one scalar; `None` where there is more to it.
    pub fn operation(&self) -> Option<Binary> {
        let e = &self.combine;
        let &[out] = e.outputs.as_slice() else {
            return None;
        };
        let Some(Inst::Binary(op, x, y)) = e.insts.get(out as usize) else {
            return None;
        };
        let slot = |r: &Ref| match e.insts.get(*r as usize) {
            Some(Inst::Input { slot, .. }) => Some(*slot),
            _ => None,
        };
        matches!((slot(x)?, slot(y)?), (0, 1) | (1, 0)).then_some(*op)
    }
}
