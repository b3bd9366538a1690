//! The reader of ONNX files, on messages encoded here byte by byte and on the zoo's models.

mod annotate;
mod codes;
mod damage;
pub(crate) mod encode;
mod external;
mod messages;
mod tensors;
mod zoo;
