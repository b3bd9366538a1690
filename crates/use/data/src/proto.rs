//! Tensors in ONNX's own form (`TensorProto`), as the standard's test data come (`input_0.pb`).

use crate::{DataError, file};
use layout::DType;
use onnx::proto::DataType;
use std::path::Path;
use tensor::Tensor;

const TYPES: [(DType, DataType); 15] = [
    (DType::F32, DataType::Float),
    (DType::F64, DataType::Double),
    (DType::F16, DataType::Float16),
    (DType::BF16, DataType::Bfloat16),
    (DType::I8, DataType::Int8),
    (DType::U8, DataType::Uint8),
    (DType::I16, DataType::Int16),
    (DType::U16, DataType::Uint16),
    (DType::I32, DataType::Int32),
    (DType::U32, DataType::Uint32),
    (DType::I64, DataType::Int64),
    (DType::U64, DataType::Uint64),
    (DType::Bool, DataType::Bool),
    (DType::I4, DataType::Int4),
    (DType::U4, DataType::Uint4),
];

/// Reads the tensor of the file at `path` and its name, which may be empty.
///
/// # Errors
/// When the file cannot be read, is damaged, holds an element type without counterpart, or keeps
/// its elements in another file.
pub fn read_pb(path: impl AsRef<Path>) -> Result<(String, Tensor), DataError> {
    let path = path.as_ref();
    pb_from_bytes(&file::name(path), &file::read(path)?)
}

/// Reads a `TensorProto` and its name from `bytes`; `name` is used in errors only.
///
/// # Errors
/// As [`read_pb`].
pub fn pb_from_bytes(name: &str, bytes: &[u8]) -> Result<(String, Tensor), DataError> {
    let bad = |reason: String| DataError::Proto {
        name: name.to_string(),
        reason,
    };
    // The model reader is the one parser of these messages, so the tensor becomes the only
    // initializer of a model without nodes.
    let mut graph = Vec::new();
    field(&mut graph, 5, bytes);
    let mut model = vec![0x08, 8]; // ir_version
    field(&mut model, 8, &[0x10, 13]); // opset_import { version }
    field(&mut model, 7, &graph);
    let wrapping = (model.len() - bytes.len()) as u64;
    let file = onnx::ModelFile::from_bytes(model, None).map_err(|e| match e {
        onnx::Error::Malformed {
            message,
            field,
            offset,
            problem,
            ..
        } => bad(format!(
            "{message}.{field} at byte {} is damaged: {problem}; copy or save it again",
            offset.saturating_sub(wrapping)
        )),
        other => bad(other.to_string()),
    })?;
    let [tensor] = file.model.graph.initializers.as_slice() else {
        return Err(bad("it holds no tensor; save it again".into()));
    };
    let shape: Vec<usize> = tensor
        .dims
        .iter()
        .map(|&d| {
            usize::try_from(d)
                .map_err(|_| bad(format!("its dims hold the negative {d}; save it again")))
        })
        .collect::<Result<_, _>>()?;
    if let Some(texts) = crate::host_value::texts(name, tensor, &shape) {
        return Ok((tensor.name.clone(), texts?));
    }
    let held = tensor.data_type().map_err(bad)?;
    // Small floats and integers of 2 bits are held as codes in integers, as models hold them.
    let coded = match held {
        DataType::Float8E4M3Fn
        | DataType::Float8E4M3FnUz
        | DataType::Float8E5M2
        | DataType::Float8E5M2FnUz
        | DataType::Float8E8M0
        | DataType::Float6E2M3
        | DataType::Float6E3M2
        | DataType::Uint2 => Some(DType::U8),
        DataType::Int2 => Some(DType::I8),
        DataType::Float4E2M1 => Some(DType::U4),
        _ => None,
    };
    let dtype = TYPES.into_iter().find(|(_, t)| *t == held).map(|(d, _)| d);
    let dtype = dtype.or(coded).ok_or_else(|| DataError::ElementType {
        name: name.to_string(),
        descr: held.name().to_string(),
    })?;
    let mut data = file
        .tensor_bytes(tensor)
        .map_err(|e| bad(e.to_string()))?
        .to_vec();
    let count = Tensor::byte_len(DType::U8, &shape).map_err(|e| bad(e.to_string()))?;
    if let Some(codes) = onnx::unpack_codes(&data, count, held) {
        data = codes;
    }
    if dtype == DType::Bool {
        data.iter_mut().for_each(|b| *b = u8::from(*b != 0));
    }
    let value = Tensor::from_bytes(dtype, &shape, data).map_err(|e| bad(e.to_string()))?;
    Ok((tensor.name.clone(), value))
}

/// Writes `tensor` with its `name` to the file at `path`; the same tensor gives the same bytes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_pb(path: impl AsRef<Path>, name: &str, tensor: &Tensor) -> Result<(), DataError> {
    let path = path.as_ref();
    files::write(path, pb_to_bytes(name, tensor)).map_err(|source| DataError::Write {
        path: path.to_path_buf(),
        source,
    })
}

/// `tensor` with its `name` as a `TensorProto`.
pub fn pb_to_bytes(name: &str, tensor: &Tensor) -> Vec<u8> {
    let mut out = Vec::with_capacity(tensor.bytes().len() + name.len() + 64);
    for &dim in tensor.shape() {
        out.push(0x08);
        varint(&mut out, dim as u64);
    }
    let code = TYPES
        .iter()
        .find(|(d, _)| *d == tensor.dtype())
        .map_or(0, |(_, t)| t.code());
    out.push(0x10);
    varint(&mut out, code as u64);
    if !name.is_empty() {
        field(&mut out, 8, name.as_bytes());
    }
    field(&mut out, 9, tensor.bytes());
    out
}

/// Appends field `number` (below 16) with a length and `bytes`.
fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}
