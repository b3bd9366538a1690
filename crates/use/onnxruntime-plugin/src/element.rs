//! Types of elements: onnxruntime's numbers, ONNX's and ours.
use shopfloor::DType;

/// onnxruntime's number, ONNX's, and our type, of those whose tensors go in and out.
const TYPES: &[(i32, i32, DType)] = &[
    (1, 1, DType::F32),
    (2, 2, DType::U8),
    (3, 3, DType::I8),
    (4, 4, DType::U16),
    (5, 5, DType::I16),
    (6, 6, DType::I32),
    (7, 7, DType::I64),
    (8, 8, DType::Str),
    (9, 9, DType::Bool),
    (10, 10, DType::F16),
    (11, 11, DType::F64),
    (12, 12, DType::U32),
    (13, 13, DType::U64),
    (16, 16, DType::BF16),
    (21, 21, DType::U4),
    (22, 22, DType::I4),
];

/// ONNX's number for texts.
pub(crate) const TEXT: i32 = 8;

/// ONNX's number for onnxruntime's.
pub(crate) fn onnx_of(theirs: i32) -> Option<i32> {
    TYPES.iter().find(|t| t.0 == theirs).map(|t| t.1)
}

/// Our type for ONNX's number.
pub(crate) fn dtype(onnx: i32) -> Option<DType> {
    TYPES.iter().find(|t| t.1 == onnx).map(|t| t.2)
}
