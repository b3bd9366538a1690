//! Shape rules of every core op, and the symbolic contents of small integer tensors.
use crate::{Graph, Op, ValueId};
use layout::{DType, Dim};

/// Output dtypes and shapes of `op` on `inputs`; the error says what does not fit.
pub fn infer(_graph: &Graph, op: &Op, _inputs: &[ValueId]) -> Result<Vec<(DType, Vec<Dim>)>, String> {
    Err(format!("no shape rule for {}", op.name()))
}

/// Known contents of `op`'s outputs, whose dtypes and shapes are `types`.
pub fn contents(_graph: &Graph, _op: &Op, _inputs: &[ValueId], types: &[(DType, Vec<Dim>)]) -> Vec<Option<Vec<Dim>>> {
    vec![None; types.len()]
}
