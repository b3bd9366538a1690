//! Values of a program that is interpreted: borrowed inputs or tensors of its own; and what has a shape and a
//! dtype.
use device::UnifiedBuffer;
use layout::DType;
use std::ops::Deref;
use std::sync::Arc;
use tensor::Tensor;

/// What requests are checked by: a value's type and shape, wherever it lies.
pub(crate) trait Shaped {
    /// Element type.
    fn dtype(&self) -> DType;
    /// Extents.
    fn shape(&self) -> &[usize];
}

impl Shaped for Tensor {
    fn dtype(&self) -> DType {
        Tensor::dtype(self)
    }
    fn shape(&self) -> &[usize] {
        Tensor::shape(self)
    }
}

impl Shaped for UnifiedBuffer {
    fn dtype(&self) -> DType {
        UnifiedBuffer::dtype(self)
    }
    fn shape(&self) -> &[usize] {
        UnifiedBuffer::shape(self)
    }
}

/// A tensor on its way through a request: the caller's, or one made on the way.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    /// The caller's, read in place.
    Ref(&'a Tensor),
    /// Made by a block, a host operator or control flow.
    Own(Arc<Tensor>),
}

impl Value<'_> {
    /// The tensor itself: the caller's, and one that is held elsewhere too, are copied.
    pub fn into_tensor(self) -> Tensor {
        match self {
            Value::Ref(t) => t.clone(),
            Value::Own(t) => Arc::try_unwrap(t).unwrap_or_else(|t| (*t).clone()),
        }
    }
}

impl Deref for Value<'_> {
    type Target = Tensor;
    fn deref(&self) -> &Tensor {
        match self {
            Value::Ref(t) => t,
            Value::Own(t) => t,
        }
    }
}

impl From<Tensor> for Value<'_> {
    fn from(t: Tensor) -> Self {
        Value::Own(Arc::new(t))
    }
}
