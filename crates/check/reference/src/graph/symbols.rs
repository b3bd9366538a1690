//! Values of symbols, and what the evaluation of nodes takes beside them.

use crate::error::{R, RefError};
use graph::{Graph, Value};
use layout::{DType, Dim, Sym};
use std::collections::BTreeMap;
use std::rc::Rc;
use tensor::Tensor;

/// Values of symbols; a body's come on top of its outer graph's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Symbols(pub(super) BTreeMap<Sym, i64>);

impl Symbols {
    /// The value of `s`, if it is known yet.
    pub fn get(&self, s: &str) -> Option<i64> {
        self.0.get(s).copied()
    }

    /// The value of `d`.
    pub fn dim(&self, d: &Dim) -> R<i64> {
        d.eval(&|s| self.get(s))
            .ok_or_else(|| format!("dimension '{d}' has no value").into())
    }

    /// The value of `d` as an extent.
    pub fn extent(&self, d: &Dim) -> R<usize> {
        let n = self.dim(d)?;
        usize::try_from(n).map_err(|_| format!("dimension '{d}' is {n}").into())
    }

    /// Values of `dims`.
    pub fn dims(&self, dims: &[Dim]) -> R<Vec<i64>> {
        dims.iter().map(|d| self.dim(d)).collect()
    }

    /// Values of `dims` as extents.
    pub fn shape(&self, dims: &[Dim]) -> R<Vec<usize>> {
        dims.iter().map(|d| self.extent(d)).collect()
    }
}

/// Types and shapes that a node's outputs must have.
pub(crate) type Types = [(DType, Vec<usize>)];

/// What is told of every value as it appears.
pub(crate) type Watch<'a> = &'a mut dyn FnMut(&Value, &Tensor);

/// Evaluates a graph or body under the symbols around it.
pub(crate) type Evaluate =
    fn(&Graph, &[Rc<Tensor>], &Symbols, Watch) -> Result<Vec<Rc<Tensor>>, RefError>;
