//! `ValueInfoProto`, `TypeProto` and `TensorShapeProto`.

use super::set_once;
use super::wire::{Cursor, Field};
use crate::error::Error;

/// A named value with its type, where stated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueInfo {
    /// The value's name.
    pub name: String,
    /// Its type; `None` where the file leaves it to inference.
    pub ty: Option<Type>,
}

/// A value's type (`TypeProto`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    /// The message is there but says nothing.
    Unspecified,
    /// A dense tensor.
    Tensor(TensorType),
    /// A sparse tensor.
    SparseTensor(TensorType),
    /// A sequence of one type.
    Sequence(Box<Type>),
    /// A value that may be missing.
    Optional(Box<Type>),
    /// A map from scalars to one type.
    Map {
        /// ONNX's code of the keys' type (an integer type or string).
        key: i32,
        /// The values' type.
        value: Box<Type>,
    },
    /// A type known to some other runtime only.
    Opaque {
        /// Domain of the type.
        domain: String,
        /// Name of the type.
        name: String,
    },
}

/// Element type and shape of a tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorType {
    /// ONNX's code of the element type, 0 where undefined (see [`super::DataType::from_code`]).
    pub dtype: i32,
    /// The dims; `None` where even the rank is unknown.
    pub shape: Option<Vec<Dimension>>,
}

/// One dim of a shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dimension {
    /// A number, as stated in the file: it may be negative in a damaged one.
    Value(i64),
    /// A symbol that has the same value wherever it stands in a graph.
    Param(String),
    /// Not stated.
    Unknown,
}

pub(super) fn parse_value_info(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
) -> Result<ValueInfo, Error> {
    let mut c = parent.message(field, name, "ValueInfoProto")?;
    let (mut name, mut ty) = (String::new(), None);
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => name = c.name(f, "name")?,
            2 => {
                let value = parse_type(&mut c, f, "type")?;
                set_once(&mut ty, &c, "type", value)?;
            }
            _ => c.skip(f)?,
        }
    }
    Ok(ValueInfo { name, ty })
}

pub(super) fn parse_type(parent: &mut Cursor<'_>, field: Field, name: &str) -> Result<Type, Error> {
    let mut c = parent.message(field, name, "TypeProto")?;
    let mut ty = None;
    while let Some(f) = c.next_field()? {
        let value = match f.number {
            1 => Type::Tensor(parse_tensor_type(
                &mut c,
                f,
                "tensor_type",
                "TypeProto.Tensor",
            )?),
            8 => Type::SparseTensor(parse_tensor_type(
                &mut c,
                f,
                "sparse_tensor_type",
                "TypeProto.SparseTensor",
            )?),
            4 => Type::Sequence(parse_element(
                &mut c,
                f,
                "sequence_type",
                "TypeProto.Sequence",
            )?),
            9 => Type::Optional(parse_element(
                &mut c,
                f,
                "optional_type",
                "TypeProto.Optional",
            )?),
            5 => parse_map(&mut c, f)?,
            7 => parse_opaque(&mut c, f)?,
            _ => {
                c.skip(f)?;
                continue;
            }
        };
        set_once(&mut ty, &c, "value", value)?;
    }
    Ok(ty.unwrap_or(Type::Unspecified))
}

fn parse_tensor_type(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
    message: &'static str,
) -> Result<TensorType, Error> {
    let mut c = parent.message(field, name, message)?;
    let (mut dtype, mut shape) = (0, None);
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => dtype = c.i32(f, "elem_type")?,
            2 => {
                let value = parse_shape(&mut c, f)?;
                set_once(&mut shape, &c, "shape", value)?;
            }
            _ => c.skip(f)?,
        }
    }
    Ok(TensorType { dtype, shape })
}

fn parse_shape(parent: &mut Cursor<'_>, field: Field) -> Result<Vec<Dimension>, Error> {
    let mut c = parent.message(field, "shape", "TensorShapeProto")?;
    let mut dims = Vec::new();
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => dims.push(parse_dimension(&mut c, f)?),
            _ => c.skip(f)?,
        }
    }
    Ok(dims)
}

fn parse_dimension(parent: &mut Cursor<'_>, field: Field) -> Result<Dimension, Error> {
    let mut c = parent.message(field, "dim", "TensorShapeProto.Dimension")?;
    let mut dim = Dimension::Unknown;
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => dim = Dimension::Value(c.i64(f, "dim_value")?),
            2 => {
                let param = c.name(f, "dim_param")?;
                // Some writers spell "not stated" as an empty symbol.
                dim = match param.is_empty() {
                    true => Dimension::Unknown,
                    false => Dimension::Param(param),
                };
            }
            _ => c.skip(f)?,
        }
    }
    Ok(dim)
}

fn parse_element(
    parent: &mut Cursor<'_>,
    field: Field,
    name: &str,
    message: &'static str,
) -> Result<Box<Type>, Error> {
    let mut c = parent.message(field, name, message)?;
    let mut ty = None;
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => {
                let value = parse_type(&mut c, f, "elem_type")?;
                set_once(&mut ty, &c, "elem_type", value)?;
            }
            _ => c.skip(f)?,
        }
    }
    Ok(Box::new(ty.unwrap_or(Type::Unspecified)))
}

fn parse_map(parent: &mut Cursor<'_>, field: Field) -> Result<Type, Error> {
    let mut c = parent.message(field, "map_type", "TypeProto.Map")?;
    let (mut key, mut ty) = (0, None);
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => key = c.i32(f, "key_type")?,
            2 => {
                let value = parse_type(&mut c, f, "value_type")?;
                set_once(&mut ty, &c, "value_type", value)?;
            }
            _ => c.skip(f)?,
        }
    }
    Ok(Type::Map {
        key,
        value: Box::new(ty.unwrap_or(Type::Unspecified)),
    })
}

fn parse_opaque(parent: &mut Cursor<'_>, field: Field) -> Result<Type, Error> {
    let mut c = parent.message(field, "opaque_type", "TypeProto.Opaque")?;
    let (mut domain, mut name) = (String::new(), String::new());
    while let Some(f) = c.next_field()? {
        match f.number {
            1 => domain = c.name(f, "domain")?,
            2 => name = c.name(f, "name")?,
            _ => c.skip(f)?,
        }
    }
    Ok(Type::Opaque { domain, name })
}
