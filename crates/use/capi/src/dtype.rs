//! Element types by ONNX's numbers.
//!
//! # Safety
//! As in the crate's head.
use crate::error::{Failure, usage};
use shopfloor::DType;

/// What is no tensor: a sequence, an optional value or a map.
pub const SHOPFLOOR_OTHER: i32 = 0;
/// IEEE binary32.
pub const SHOPFLOOR_FLOAT: i32 = 1;
/// Unsigned 8-bit integers.
pub const SHOPFLOOR_UINT8: i32 = 2;
/// Signed 8-bit integers.
pub const SHOPFLOOR_INT8: i32 = 3;
/// Unsigned 16-bit integers.
pub const SHOPFLOOR_UINT16: i32 = 4;
/// Signed 16-bit integers.
pub const SHOPFLOOR_INT16: i32 = 5;
/// Signed 32-bit integers.
pub const SHOPFLOOR_INT32: i32 = 6;
/// Signed 64-bit integers.
pub const SHOPFLOOR_INT64: i32 = 7;
/// Texts. As an input: pointers to texts that end with a zero byte.
pub const SHOPFLOOR_STRING: i32 = 8;
/// Bytes that are 0 or 1.
pub const SHOPFLOOR_BOOL: i32 = 9;
/// IEEE binary16.
pub const SHOPFLOOR_FLOAT16: i32 = 10;
/// IEEE binary64.
pub const SHOPFLOOR_DOUBLE: i32 = 11;
/// Unsigned 32-bit integers.
pub const SHOPFLOOR_UINT32: i32 = 12;
/// Unsigned 64-bit integers.
pub const SHOPFLOOR_UINT64: i32 = 13;
/// bfloat16.
pub const SHOPFLOOR_BFLOAT16: i32 = 16;
/// Unsigned 4-bit integers, two in a byte, the lower half first.
pub const SHOPFLOOR_UINT4: i32 = 21;
/// Signed 4-bit integers, two in a byte, the lower half first.
pub const SHOPFLOOR_INT4: i32 = 22;

const ALL: [(i32, DType); 17] = [
    (SHOPFLOOR_OTHER, DType::Host),
    (SHOPFLOOR_FLOAT, DType::F32),
    (SHOPFLOOR_UINT8, DType::U8),
    (SHOPFLOOR_INT8, DType::I8),
    (SHOPFLOOR_UINT16, DType::U16),
    (SHOPFLOOR_INT16, DType::I16),
    (SHOPFLOOR_INT32, DType::I32),
    (SHOPFLOOR_INT64, DType::I64),
    (SHOPFLOOR_STRING, DType::Str),
    (SHOPFLOOR_BOOL, DType::Bool),
    (SHOPFLOOR_FLOAT16, DType::F16),
    (SHOPFLOOR_DOUBLE, DType::F64),
    (SHOPFLOOR_UINT32, DType::U32),
    (SHOPFLOOR_UINT64, DType::U64),
    (SHOPFLOOR_BFLOAT16, DType::BF16),
    (SHOPFLOOR_UINT4, DType::U4),
    (SHOPFLOOR_INT4, DType::I4),
];

/// The number of a type.
pub(crate) fn number(dtype: DType) -> i32 {
    let found = ALL.iter().find(|(_, d)| *d == dtype);
    found.map_or(SHOPFLOOR_OTHER, |(n, _)| *n)
}

/// The type of a number.
pub(crate) fn dtype(number: i32, of: &str) -> Result<DType, Failure> {
    let found = ALL.iter().find(|(n, d)| *n == number && *d != DType::Host);
    found.map(|(_, d)| *d).ok_or_else(|| {
        usage(format!(
            "'{of}': {number} is no element type; give one of SHOPFLOOR_FLOAT and those behind it"
        ))
    })
}

/// Bits of an element of this type; 0 for texts and for what is no type.
#[unsafe(no_mangle)]
pub extern "C" fn shopfloor_dtype_bits(number: i32) -> usize {
    let found = ALL.iter().find(|(n, _)| *n == number);
    found.map_or(0, |(_, d)| d.bits() as usize)
}
