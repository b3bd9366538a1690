//! Element types of ONNX and ours.

use crate::proto::DataType;
use layout::DType;

/// Name of a type that is held as codes.
pub(crate) fn narrow_name(code: i32) -> Option<&'static str> {
    Some(match DataType::from_code(code)? {
        DataType::Float8E4M3Fn => "float8e4m3fn",
        DataType::Float8E4M3FnUz => "float8e4m3fnuz",
        DataType::Float8E5M2 => "float8e5m2",
        DataType::Float8E5M2FnUz => "float8e5m2fnuz",
        DataType::Float8E8M0 => "float8e8m0",
        DataType::Float6E2M3 => "float6e2m3",
        DataType::Float6E3M2 => "float6e3m2",
        DataType::Float4E2M1 => "float4e2m1",
        DataType::Uint2 => "uint2",
        DataType::Int2 => "int2",
        _ => return None,
    })
}

/// What holds the codes of a type.
pub(crate) fn narrow_dtype(d: DataType) -> Option<DType> {
    narrow_name(d.code()).map(|_| match d {
        DataType::Float4E2M1 => DType::U4,
        DataType::Int2 => DType::I8,
        _ => DType::U8,
    })
}

/// Elements of 2 or 6 bits, which lie one behind the other from the low bits up, as one byte each:
/// `count`, or as many as there are. `None` for elements of other widths.
pub fn unpack_codes(packed: &[u8], count: usize, d: DataType) -> Option<Vec<u8>> {
    let width = d.bits().filter(|b| [2, 6].contains(b))? as usize;
    let code = |i: usize| {
        let (at, shift) = (i * width / 8, i * width % 8);
        let next = packed.get(at + 1).copied().unwrap_or(0);
        let v = u16::from_le_bytes([packed[at], next]) >> shift;
        let v = v as u8 & ((1 << width) - 1);
        if d == DataType::Int2 && v > 1 {
            v | 0xfc
        } else {
            v
        }
    };
    let there = packed.len().saturating_mul(8) / width;
    Some((0..count.min(there)).map(code).collect())
}

/// Our element type for ONNX's code.
pub(crate) fn dtype_of(code: i32) -> Result<DType, String> {
    let d = DataType::from_code(code)
        .ok_or_else(|| format!("element type {code} is unknown; export the model again"))?;
    Ok(match d {
        DataType::Float => DType::F32,
        DataType::Double => DType::F64,
        DataType::Float16 => DType::F16,
        DataType::Bfloat16 => DType::BF16,
        DataType::Int8 => DType::I8,
        DataType::Uint8 => DType::U8,
        DataType::Int16 => DType::I16,
        DataType::Uint16 => DType::U16,
        DataType::Int32 => DType::I32,
        DataType::Uint32 => DType::U32,
        DataType::Int64 => DType::I64,
        DataType::Uint64 => DType::U64,
        DataType::Bool => DType::Bool,
        DataType::Int4 => DType::I4,
        DataType::Uint4 => DType::U4,
        DataType::String => DType::Str,
        d if narrow_dtype(d).is_some() => narrow_dtype(d).unwrap_or(DType::U8),
        d => {
            return Err(format!(
                "element type {} is not supported; use a numeric type of 4 to 64 bits",
                d.name()
            ));
        }
    })
}
