//! Recognises dequantisation programs: `(x - zero) * scale`. Backends and the cost model have fast paths for
//! them.
use crate::{Binary, Expr, ExprBuilder, Inst, Ref};
use layout::DType;

/// Zero points of narrow types at most: differences from numbers of 4 bits are exact in bf16, which has 8 bits.
const MOST_ZERO: f64 = 128.0;

/// What is taken from a whole number before it is scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Zero {
    /// A number of the program.
    Known(f64),
    /// An argument of the program.
    Slot(u32),
}

/// A program that is `(x - zero) * scale` of an argument `x` of integers, in f32, perhaps rounded to f16 or bf16; or in
/// one of these of numbers of 4 bits whose zero points are small integers: then the difference is exact, and the product
/// is that in f32 rounded once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dequantise {
    /// Argument of the whole numbers.
    pub x: u32,
    /// Argument of the scale.
    pub scale: u32,
    /// Zero point.
    pub zero: Zero,
    /// Type of the result: f32, f16 or bf16.
    pub dtype: DType,
}

impl Expr {
    /// The program as steps that are scaled, when it is that: scale and zero point are arguments
    /// or, the zero point, a number.
    pub fn as_dequantise(&self) -> Option<Dequantise> {
        let [out] = self.outputs.as_slice() else {
            return None;
        };
        let inst = |r: Ref| self.insts.get(r as usize);
        let types = self.types().ok()?;
        let (product, dtype) = match inst(*out) {
            Some(Inst::Cast(product, to @ (DType::F16 | DType::BF16))) => (*product, *to),
            _ => (*out, types[*out as usize]),
        };
        let arithmetic = types[product as usize];
        if !matches!(arithmetic, DType::F32 | DType::F16 | DType::BF16) {
            return None;
        }
        let Some(Inst::Binary(Binary::Mul, a, b)) = inst(product) else {
            return None;
        };
        let pairs = [(*a, *b), (*b, *a)];
        pairs.into_iter().find_map(|(whole, scale)| {
            let scale = self.scale(scale, arithmetic)?;
            let found = self.steps(whole, scale, arithmetic)?;
            Some(Dequantise { dtype, ..found })
        })
    }

    /// The argument that is the scale, in arithmetic of type `dtype`.
    fn scale(&self, r: Ref, dtype: DType) -> Option<u32> {
        let at = match self.insts.get(r as usize)? {
            Inst::Cast(a, DType::F32) if dtype == DType::F32 => *a,
            _ => r,
        };
        match self.insts.get(at as usize)? {
            Inst::Input { slot, dtype: d } if *d == dtype || at != r && d.is_float() => Some(*slot),
            _ => None,
        }
    }

    /// `whole` as the difference of an argument of integers and a zero point, in arithmetic of type `dtype`.
    fn steps(&self, whole: Ref, scale: u32, dtype: DType) -> Option<Dequantise> {
        let inst = |r: Ref| self.insts.get(r as usize);
        let through = |mut r: Ref| {
            while let Some(Inst::Cast(a, to)) = inst(r)
                && (matches!(to, DType::F32 | DType::I32 | DType::I16) || *to == dtype)
            {
                r = *a;
            }
            r
        };
        let slot = |r: Ref| match inst(through(r)) {
            Some(Inst::Input { slot, dtype }) => Some((*slot, *dtype)),
            _ => None,
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
        let exact = match zero {
            _ if dtype == DType::F32 => true,
            Zero::Known(z) => z.fract() == 0.0 && z.abs() <= MOST_ZERO,
            Zero::Slot(z) => self.insts.iter().any(
                |i| matches!(i, Inst::Input { slot, dtype } if *slot == z && dtype.is_int() && dtype.bits() <= 8),
            ),
        };
        let narrow = dtype == DType::F32 || d.bits() <= 4;
        (d.is_int() && x != scale && exact && narrow).then_some(Dequantise {
            x,
            scale,
            zero,
            dtype,
        })
    }
}

impl Dequantise {
    /// The program in f32 whose result is rounded once; arguments have these types.
    pub fn program(&self, types: &dyn Fn(u32) -> DType) -> Expr {
        let mut b = ExprBuilder::new();
        let wide = |b: &mut ExprBuilder, slot: u32| {
            let v = b.input(slot, types(slot));
            match types(slot) {
                DType::F32 => v,
                _ => b.cast(v, DType::F32),
            }
        };
        let x = wide(&mut b, self.x);
        let scale = wide(&mut b, self.scale);
        let zero = match self.zero {
            Zero::Known(0.0) => None,
            Zero::Known(z) => Some(b.constant(z, DType::F32)),
            Zero::Slot(z) => Some(wide(&mut b, z)),
        };
        let whole = zero.map_or(x, |z| b.sub(x, z));
        let product = b.mul(whole, scale);
        let out = match self.dtype {
            DType::F32 => product,
            d => b.cast(product, d),
        };
        b.finish(&[out])
    }
}
