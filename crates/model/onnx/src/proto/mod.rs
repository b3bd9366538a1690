//! ONNX's protobuf messages: plain structs, and the parser that fills them.
//!
//! Unknown fields are passed over, as protobuf asks. A wrong wire type, a length that reaches
//! past its message, text that is not UTF-8 and nesting beyond 100 messages are errors that name
//! message, field and byte offset. Memory grows in proportion to the bytes present, never with a
//! number that the file merely states.

pub(crate) mod annotate;
mod attribute;
mod dtype;
mod model;
mod tensor;
mod types;
mod wire;

pub use annotate::{Annotated, Property};
pub(crate) use annotate::{annotate, modules};
pub use attribute::{Attribute, AttributeKind, AttributeValue};
pub use dtype::DataType;
pub(crate) use model::parse_model;
pub use model::{Function, Graph, MAX_IR_VERSION, MIN_IR_VERSION, Model, Node, OpsetImport};
pub use tensor::{Data, ExternalData, SparseTensor, TensorData};
pub use types::{Dimension, TensorType, Type, ValueInfo};

use crate::error::Error;
use wire::{Cursor, Field};

/// Sets a message field that may be there once.
fn set_once<T>(
    slot: &mut Option<T>,
    cursor: &Cursor<'_>,
    name: &str,
    value: T,
) -> Result<(), Error> {
    if slot.replace(value).is_some() {
        return Err(cursor.error(name, "the field is there twice"));
    }
    Ok(())
}

/// A `StringStringEntryProto`.
fn parse_entry(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
) -> Result<(String, String), Error> {
    let mut c = parent.message(field, name, "StringStringEntryProto")?;
    let (mut key, mut value) = (String::new(), String::new());
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => key = c.string(f, "key")?,
            2 => value = c.string(f, "value")?,
            _ => c.skip(f)?,
        }
    }
    Ok((key, value))
}
