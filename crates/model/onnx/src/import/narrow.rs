//! Element types that no kernel knows: floats of 8, 6 and 4 bits and integers of 2. Their values are
//! held as codes in integers of 8 or 4 bits, one element each, and a note tells which type they
//! code. Operators that only move elements take them as they are, conversions know them, and every
//! other operator refuses them, so that no arithmetic is done on codes.
use super::{Ctx, LowerError, Lowered, NodeView};
use ::graph::ValueId;

/// Operators that move elements without looking at them, and those that look at shapes only.
const MOVES: &[&str] = &[
    "Compress",
    "Concat",
    "DepthToSpace",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "GatherElements",
    "GatherND",
    "Identity",
    "Pad",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "TensorScatter",
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
    "IsInf",
    "IsNaN",
    "Loop",
    "QuantizeLinear",
    "Scan",
    "Shape",
    "Size",
];

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
