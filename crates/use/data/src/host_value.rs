//! Sequences, optionals and maps in ONNX's own form (`SequenceProto`, `OptionalProto`): what
//! `input_0.pb` holds where the model states such a type.

use crate::{DataError, file, pb_from_bytes};
use onnx::proto::{DataType, Type};
use std::path::Path;
use tensor::{HostValue, Tensor};

/// Sequences of sequences deeper than this are refused.
const MAX_DEPTH: usize = 8;

/// Reads the value of the file at `path`, which the model states to be of type `ty`.
///
/// # Errors
/// As [`crate::read_pb`].
pub fn read_pb_as(path: impl AsRef<Path>, ty: &Type) -> Result<(String, Tensor), DataError> {
    let path = path.as_ref();
    pb_from_bytes_as(&file::name(path), &file::read(path)?, ty)
}

/// Reads a value of type `ty` from `bytes`; `name` is used in errors only.
///
/// # Errors
/// As [`read_pb_as`].
pub fn pb_from_bytes_as(
    name: &str,
    bytes: &[u8],
    ty: &Type,
) -> Result<(String, Tensor), DataError> {
    value(name, bytes, ty, 0)
}

fn bad(name: &str, reason: impl Into<String>) -> DataError {
    DataError::Proto {
        name: name.to_string(),
        reason: reason.into(),
    }
}

fn value(name: &str, bytes: &[u8], ty: &Type, depth: usize) -> Result<(String, Tensor), DataError> {
    if depth > MAX_DEPTH {
        return Err(bad(name, "its values are nested too deeply"));
    }
    match ty {
        Type::Sequence(item) => {
            let (own, parts) = fields(name, bytes)?;
            let wanted = match **item {
                Type::Tensor(_) => 3,
                Type::Sequence(_) => 5,
                Type::Map { .. } => 6,
                Type::Optional(_) => 7,
                _ => {
                    return Err(bad(
                        name,
                        "it is a sequence of sparse tensors; use dense ones",
                    ));
                }
            };
            let items = parts
                .iter()
                .filter(|(n, _)| *n == wanted)
                .map(|(_, b)| Ok(value(name, b, item, depth + 1)?.1))
                .collect::<Result<Vec<_>, DataError>>()?;
            Ok((own, Tensor::sequence(items)))
        }
        Type::Optional(inner) => {
            let (own, parts) = fields(name, bytes)?;
            let wanted = match **inner {
                Type::Tensor(_) => 3,
                Type::Sequence(_) => 5,
                Type::Map { .. } => 6,
                _ => {
                    return Err(bad(
                        name,
                        "it is an optional sparse tensor; use a dense one",
                    ));
                }
            };
            let inner = parts
                .iter()
                .find(|(n, _)| *n == wanted)
                .map(|(_, b)| value(name, b, inner, depth + 1))
                .transpose()?;
            let inner = inner.map(|(_, t)| Box::new(t));
            Ok((own, Tensor::from_host_value(HostValue::Optional(inner))))
        }
        Type::Map { .. } => map(name, bytes),
        _ => pb_from_bytes(name, bytes),
    }
}

/// MapProto: name 1, key type 2, keys 3 (packed), string keys 4, values 5 (a SequenceProto).
fn map(name: &str, bytes: &[u8]) -> Result<(String, Tensor), DataError> {
    let (own, parts) = fields(name, bytes)?;
    let texts: Vec<String> = parts
        .iter()
        .filter(|(n, _)| *n == 4)
        .map(|(_, b)| {
            String::from_utf8(b.to_vec()).map_err(|_| bad(name, "a key in it is not UTF-8"))
        })
        .collect::<Result<_, _>>()?;
    let mut numbers = Vec::new();
    for (_, b) in parts.iter().filter(|(n, _)| *n == 3) {
        let mut at = 0;
        while at < b.len() {
            numbers.push(varint(b, &mut at).ok_or_else(|| bad(name, "it is damaged"))? as i64);
        }
    }
    let keys = match texts.is_empty() {
        true => Tensor::from_i64(&[numbers.len()], &numbers),
        false => Tensor::from_text(&[texts.len()], texts),
    };
    let keys = Box::new(keys.map_err(|e| bad(name, e.to_string()))?);
    let sequence = parts.iter().find(|(n, _)| *n == 5).map_or(&[][..], |p| p.1);
    let (_, tensors) = fields(name, sequence)?;
    let tensor = tensors.iter().find(|(n, _)| *n == 3);
    let values = match tensor {
        Some((_, b)) => pb_from_bytes(name, b)?.1,
        None => Tensor::from_f32(&[0], &[]).map_err(|e| bad(name, e.to_string()))?,
    };
    let values = Box::new(values);
    Ok((
        own,
        Tensor::from_host_value(HostValue::Map { keys, values }),
    ))
}

fn varint(b: &[u8], at: &mut usize) -> Option<u64> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *b.get(*at)?;
        *at += 1;
        v |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(v);
        }
    }
    None
}

type Fields<'a> = (String, Vec<(u64, &'a [u8])>);

/// The name (field 1) and all length-delimited fields of a message.
fn fields<'a>(name: &str, b: &'a [u8]) -> Result<Fields<'a>, DataError> {
    let damaged = || bad(name, "it ends inside a field; copy or save it again");
    let (mut own, mut all) = (String::new(), Vec::new());
    let mut at = 0;
    while at < b.len() {
        let key = varint(b, &mut at).ok_or_else(damaged)?;
        match key & 7 {
            0 => {
                varint(b, &mut at).ok_or_else(damaged)?;
            }
            1 => at += 8,
            5 => at += 4,
            2 => {
                let n = varint(b, &mut at).ok_or_else(damaged)?;
                let end = usize::try_from(n)
                    .ok()
                    .and_then(|n| at.checked_add(n))
                    .filter(|e| *e <= b.len())
                    .ok_or_else(damaged)?;
                if key >> 3 == 1 {
                    own = String::from_utf8_lossy(&b[at..end]).into_owned();
                } else {
                    all.push((key >> 3, &b[at..end]));
                }
                at = end;
            }
            _ => {
                return Err(bad(
                    name,
                    "it holds an unknown kind of field; save it again",
                ));
            }
        }
    }
    Ok((own, all))
}

/// What an element type without numbers is read from.
pub(crate) fn texts(
    name: &str,
    tensor: &onnx::proto::TensorData,
    shape: &[usize],
) -> Option<Result<Tensor, DataError>> {
    if DataType::from_code(tensor.dtype) != Some(DataType::String) {
        return None;
    }
    let read = || {
        let texts = tensor.texts().map_err(|e| bad(name, e))?;
        Tensor::from_text(shape, texts).map_err(|e| bad(name, e.to_string()))
    };
    Some(read())
}
