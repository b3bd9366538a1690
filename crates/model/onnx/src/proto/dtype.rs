//! Element types: ONNX's codes, names and widths.

/// An element type of ONNX (`TensorProto.DataType`); the discriminant is ONNX's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum DataType {
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bfloat16 = 16,
    Float8E4M3Fn = 17,
    Float8E4M3FnUz = 18,
    Float8E5M2 = 19,
    Float8E5M2FnUz = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4E2M1 = 23,
    Float8E8M0 = 24,
    Uint2 = 25,
    Int2 = 26,
    Float6E2M3 = 27,
    Float6E3M2 = 28,
}

use DataType::*;

/// In the order of the codes, from 1: type, ONNX's name, bits an element (0 for strings).
const TABLE: [(DataType, &str, u32); 28] = [
    (Float, "FLOAT", 32),
    (Uint8, "UINT8", 8),
    (Int8, "INT8", 8),
    (Uint16, "UINT16", 16),
    (Int16, "INT16", 16),
    (Int32, "INT32", 32),
    (Int64, "INT64", 64),
    (String, "STRING", 0),
    (Bool, "BOOL", 8),
    (Float16, "FLOAT16", 16),
    (Double, "DOUBLE", 64),
    (Uint32, "UINT32", 32),
    (Uint64, "UINT64", 64),
    (Complex64, "COMPLEX64", 64),
    (Complex128, "COMPLEX128", 128),
    (Bfloat16, "BFLOAT16", 16),
    (Float8E4M3Fn, "FLOAT8E4M3FN", 8),
    (Float8E4M3FnUz, "FLOAT8E4M3FNUZ", 8),
    (Float8E5M2, "FLOAT8E5M2", 8),
    (Float8E5M2FnUz, "FLOAT8E5M2FNUZ", 8),
    (Uint4, "UINT4", 4),
    (Int4, "INT4", 4),
    (Float4E2M1, "FLOAT4E2M1", 4),
    (Float8E8M0, "FLOAT8E8M0", 8),
    (Uint2, "UINT2", 2),
    (Int2, "INT2", 2),
    (Float6E2M3, "FLOAT6E2M3", 6),
    (Float6E3M2, "FLOAT6E3M2", 6),
];

impl DataType {
    /// The type with ONNX's code; `None` for 0 (undefined) and codes this crate does not know.
    pub fn from_code(code: i32) -> Option<DataType> {
        let index = usize::try_from(code).ok()?.checked_sub(1)?;
        TABLE.get(index).map(|row| row.0)
    }

    /// ONNX's code.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// ONNX's name, such as `FLOAT16`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize - 1].1
    }

    /// Bits an element takes when packed; `None` for strings.
    pub fn bits(self) -> Option<u32> {
        Some(TABLE[self as usize - 1].2).filter(|&bits| bits > 0)
    }
}
