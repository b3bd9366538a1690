//! Outputs in memory that is used again.

use crate::RunError;
use device::Recycler;
use layout::DType;
use std::sync::Arc;
use tensor::Tensor;

/// Outputs from this size on are recycled; smaller ones the allocator has at hand.
const RECYCLED: usize = 4096;

/// A tensor with any contents for an output, recycled where that pays.
pub(crate) fn output(
    buffers: &Arc<Recycler>,
    dtype: DType,
    shape: &[usize],
    bytes: usize,
    name: &str,
) -> Result<Tensor, RunError> {
    if bytes < RECYCLED {
        return Ok(Tensor::zeros(dtype, shape)?);
    }
    let memory = buffers.take(bytes, name)?;
    Ok(Tensor::from_memory(dtype, shape, Box::new(memory))?)
}
