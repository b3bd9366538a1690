//! Element types that no kernel knows: floats of 8, 6 and 4 bits and integers of 2. Their values are
//! held as codes in integers of 8 or 4 bits, one element each, and a note tells which type they
//! code. Operators that only move elements take them as they are, conversions know them, and every
//! other operator refuses them, so that no arithmetic is done on codes.
use super::{Ctx, LowerError, Lowered, NodeView};
use crate::proto::DataType;
use ::graph::ValueId;
use layout::DType;

/// Operators that move elements without looking at them, and those that look at shapes only.
const MOVES: &[&str] = &[
    "Compress",
    "Concat",
    "DepthToSpace",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];
/// Operators that read codes themselves, or shapes only.
const KNOW: &[&str] = &[
    "Cast",
    "CastLike",
    "BitCast",
    "DequantizeLinear",
    "QuantizeLinear",
    "Shape",
    "Size",
];

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

impl<'m> Ctx<'m> {
    /// The type that a value's elements code, if they are codes.
    pub fn narrow(&self, v: ValueId) -> Option<&'static str> {
        let frame = &self.frames[self.frames.len() - 1];
        frame.narrow.get(&v).copied()
    }

    /// Notes that the elements of `v` are codes.
    pub fn set_narrow(&mut self, v: ValueId, name: Option<&'static str>) {
        if let Some(name) = name {
            self.frame().narrow.insert(v, name);
        }
    }

    /// Refuses codes for operators that compute with them.
    pub fn check_narrow(&self, n: &NodeView<'m>) -> Lowered {
        let Some(name) = n.inputs.iter().flatten().find_map(|&v| self.narrow(v)) else {
            return Ok(());
        };
        match n.domain.is_empty() && (MOVES.contains(&n.op) || KNOW.contains(&n.op)) {
            true => Ok(()),
            false => Err(LowerError::Unsupported(format!(
                "computes with {name}; put a Cast before it"
            ))),
        }
    }

    /// The outputs of an operator that moves codes are codes.
    pub fn pass_narrow(&mut self, n: &NodeView<'m>) -> Lowered {
        if n.domain.is_empty() && MOVES.contains(&n.op) {
            let name = n.opt(0).and_then(|v| self.narrow(v));
            if name.is_some() {
                for o in n.outputs.iter().filter(|o| !o.is_empty()) {
                    if let super::Item::Value(v) = self.lookup(o)? {
                        self.set_narrow(v, name);
                    }
                }
            }
        }
        Ok(())
    }
}
