//! Host tensors and operator attributes: the values that files, host steps and callers exchange.
//!
//! Below `graph` so that devices and the runtime can move tensors without knowing any operator.
#![deny(unsafe_code)]

mod attrs;
mod elements;
mod native;
mod storage;
mod tensor;
mod weights;

pub use attrs::{Attr, Attrs, attrs};
pub use elements::{IntoTensor, TensorElement, ToShape};
pub use native::{NATIVE, NATIVE_INPUTS, Native, NativeCode, in_native_code, panic_text};
pub use storage::Memory;
pub use tensor::{HostValue, Tensor, TensorError};
pub use weights::{
    Bytes, Owner, Weight, WeightId, WeightStore, any_loss, file_identity, note_loss,
};
