//! Recognises dequantisation programs: `(x - zero) * scale`. Backends and the cost model have fast paths for
//! them.
use crate::{Binary, Expr, Inst, Ref};
use layout::DType;

/// What is taken from a whole number before it is scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zero {
    /// A number of the program.
    Known(f64),
    /// An argument of the program.
    Slot(u32),
}

/// A program that is `(x - zero) * scale` in f32 of an argument `x` of integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dequantise {
    /// Argument of the whole numbers.
    pub x: u32,
    /// Argument of the scale.
    pub scale: u32,
    /// Zero point.
    pub zero: Zero,
}

impl Expr {
    /// The program as steps that are scaled, when it is that: scale and zero point are arguments
    /// or, the zero point, a number.
    pub fn as_dequantise(&self) -> Option<Dequantise> {
        let [out] = self.outputs.as_slice() else {
            return None;
        };
        let inst = |r: Ref| self.insts.get(r as usize);
        let through = |mut r: Ref| {
            while let Some(Inst::Cast(a, DType::F32 | DType::I32 | DType::I16)) = inst(r) {
                r = *a;
            }
            r
        };
        let slot = |r: Ref| match inst(through(r)) {
            Some(Inst::Input { slot, dtype }) => Some((*slot, *dtype)),
            _ => None,
        };
        let Some(Inst::Binary(Binary::Mul, a, b)) = inst(*out) else {
            return None;
        };
        [(*a, *b), (*b, *a)].into_iter().find_map(|(whole, scale)| {
            let Some(Inst::Input {
                slot: scale,
                dtype: DType::F32,
            }) = inst(scale)
            else {
                return None;
            };
            let r = through(whole);
            let (x, zero) = match inst(r) {
                Some(Inst::Binary(Binary::Sub, x, z)) => {
                    let zero = match inst(through(*z)) {
                        Some(Inst::Float { bits, .. }) => Zero::Known(f64::from_bits(*bits)),
                        Some(Inst::Int { value, .. }) => Zero::Known(*value as f64),
                        _ => Zero::Slot(slot(*z)?.0),
                    };
                    (*x, zero)
                }
                _ => (r, Zero::Known(0.0)),
            };
            let (x, d) = slot(x)?;
            (d.is_int() && x != *scale).then_some(Dequantise {
                x,
                scale: *scale,
                zero,
            })
        })
    }
}
