//! Single scalar values and every operation on them, with the rounding and wrapping of each dtype. It defines
//! what instructions mean: evaluation, folding and the oracle call it.
use crate::{Binary, Compare, Unary};
use layout::{DType, to_odd_f32};

/// A scalar value. Integers of every width are held sign- or zero-extended; `U64` values above
/// `i64::MAX` are held as the same 64 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A float of any width, held wide.
    Float(f64),
    /// An integer or boolean.
    Int(i64),
}

/// The low bits of `v` as a value of `d`; `Bool` is `!= 0`.
#[inline]
pub(crate) fn wrap(v: i64, d: DType) -> i64 {
    match d {
        DType::I64 | DType::U64 => v,
        DType::I32 => v as i32 as i64,
        DType::U32 => v as u32 as i64,
        DType::I16 => v as i16 as i64,
        DType::U16 => v as u16 as i64,
        DType::I8 => v as i8 as i64,
        DType::U8 => v as u8 as i64,
        DType::I4 => (v << 60) >> 60,
        DType::U4 => v & 15,
        _ => (v != 0) as i64,
    }
}

/// `x` rounded once, to nearest even, to the float type `d`.
#[inline]
pub(crate) fn round_float(x: f64, d: DType) -> f64 {
    match d {
        DType::F32 => x as f32 as f64,
        DType::F16 => half::f16::from_f32(to_odd_f32(x)).to_f64(),
        DType::BF16 => half::bf16::from_f32(to_odd_f32(x)).to_f64(),
        _ => x,
    }
}

/// A result computed in f64 from operands of type `d`, rounded as arithmetic in `d` rounds:
/// narrow types go through f32.
#[inline]
fn round_result(x: f64, d: DType) -> f64 {
    match d {
        DType::F64 => x,
        DType::F32 => x as f32 as f64,
        _ => round_float(x as f32 as f64, d),
    }
}

fn int_to_float(v: i64, from: DType, to: DType) -> f64 {
    let wide = if from == DType::U64 {
        v as u64 as i128
    } else {
        v as i128
    };
    match to {
        DType::F32 => wide as f32 as f64,
        DType::F64 => wide as f64,
        _ => {
            // Two roundings (to f64, then to the narrow type) must act as one.
            let f = wide as f64;
            let odd = if f as i128 == wide {
                f
            } else if (f as i128).abs() > wide.abs() {
                f64::from_bits((f.to_bits() - 1) | 1)
            } else {
                f64::from_bits(f.to_bits() | 1)
            };
            round_float(odd, to)
        }
    }
}

fn float_to_int(x: f64, to: DType) -> i64 {
    match to {
        DType::I64 => x as i64,
        DType::U64 => x as u64 as i64,
        DType::I32 => x as i32 as i64,
        DType::U32 => x as u32 as i64,
        DType::I16 => x as i16 as i64,
        DType::U16 => x as u16 as i64,
        DType::I8 => x as i8 as i64,
        DType::U8 => x as u8 as i64,
        DType::I4 => (x as i64).clamp(-8, 7),
        DType::U4 => (x as i64).clamp(0, 15),
        _ => (x != 0.0) as i64,
    }
}

impl Scalar {
    /// `true` as a `Bool` value is 1.
    pub fn truth(v: bool) -> Scalar {
        Scalar::Int(v as i64)
    }

    /// The value as f64; `U64` values above `i64::MAX` read as negative.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(x) => x,
            Scalar::Int(v) => v as f64,
        }
    }

    /// The value as i64; floats truncate and saturate.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(x) => x as i64,
            Scalar::Int(v) => v,
        }
    }

    /// True for the same kind and the same bits (a NaN is the same as itself, -0 is not 0).
    pub fn same_bits(self, o: Scalar) -> bool {
        match (self, o) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            _ => false,
        }
    }

    /// This value, however it is held, as a value of `d`: floats round, integers keep low bits.
    #[inline]
    pub fn of(self, d: DType) -> Scalar {
        match self {
            Scalar::Float(x) if d.is_float() => Scalar::Float(round_float(x, d)),
            Scalar::Float(x) => Scalar::Int(float_to_int(x, d)),
            Scalar::Int(v) if d.is_float() => Scalar::Float(int_to_float(v, DType::I64, d)),
            Scalar::Int(v) => Scalar::Int(wrap(v, d)),
        }
    }

    /// Conversion of a value of type `from` to type `to`, as [`Inst::Cast`](crate::Inst::Cast).
    #[inline]
    pub fn cast(self, from: DType, to: DType) -> Scalar {
        match self {
            Scalar::Int(v) if to.is_float() => Scalar::Float(int_to_float(v, from, to)),
            other => other.of(to),
        }
    }

    /// `f` of a value of type `d`.
    #[inline]
    pub fn unary(self, f: Unary, d: DType) -> Scalar {
        match self {
            Scalar::Float(x) if d.is_float() => match f {
                Unary::IsNan => Scalar::truth(x.is_nan()),
                Unary::IsInf => Scalar::truth(x.is_infinite()),
                // Exact in every type.
                Unary::Neg => Scalar::Float(-x),
                Unary::Abs => Scalar::Float(x.abs()),
                _ => Scalar::Float(round_result(float_unary(f, x), d)),
            },
            Scalar::Int(v) if !d.is_float() => int_unary(f, v, d),
            other => other.of(d).unary(f, d),
        }
    }

    /// `f` of two values of type `d`.
    #[inline]
    pub fn binary(self, f: Binary, o: Scalar, d: DType) -> Scalar {
        match (self, o) {
            (Scalar::Float(a), Scalar::Float(b)) if d.is_float() => {
                Scalar::Float(float_binary(f, a, b, d))
            }
            (Scalar::Int(a), Scalar::Int(b)) if !d.is_float() => {
                Scalar::Int(wrap(int_binary(f, a, b, d), d))
            }
            (a, b) => a.of(d).binary(f, b.of(d), d),
        }
    }

    /// Comparison of two values of type `d`.
    #[inline]
    pub fn compare(self, f: Compare, o: Scalar, d: DType) -> bool {
        fn holds<T: PartialOrd>(f: Compare, a: T, b: T) -> bool {
            match f {
                Compare::Eq => a == b,
                Compare::Ne => a != b,
                Compare::Lt => a < b,
                Compare::Le => a <= b,
                Compare::Gt => a > b,
                Compare::Ge => a >= b,
            }
        }
        match (self, o) {
            (Scalar::Int(a), Scalar::Int(b)) if d == DType::U64 => holds(f, a as u64, b as u64),
            (Scalar::Int(a), Scalar::Int(b)) => holds(f, a, b),
            (a, b) => holds(f, a.as_f64(), b.as_f64()),
        }
    }
}

fn float_unary(f: Unary, x: f64) -> f64 {
    match f {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        // The standard library's forms lose digits near 0 and overflow early.
        Unary::Asinh => libm::asinh(x),
        // Of numbers far below 1 libm gives the logarithm of what is lost in a difference.
        Unary::Acosh if x < 1.0 => f64::NAN,
        Unary::Acosh => libm::acosh(x),
        Unary::Atanh => libm::atanh(x),
        Unary::Tanh => x.tanh(),
        Unary::Erf => libm::erf(x),
        Unary::Sigmoid => {
            // The exponential's argument stays negative, so that nothing overflows.
            let e = (-x.abs()).exp();
            if x >= 0.0 {
                1.0 / (1.0 + e)
            } else {
                e / (1.0 + e)
            }
        }
        Unary::Floor => x.floor(),
        Unary::Ceil => x.ceil(),
        Unary::Round => x.round_ties_even(),
        Unary::Sign if x > 0.0 => 1.0,
        Unary::Sign if x < 0.0 => -1.0,
        Unary::Sign => {
            if x.is_nan() {
                x
            } else {
                0.0
            }
        }
        Unary::Not | Unary::BitNot => (x == 0.0) as u8 as f64,
        Unary::IsNan => x.is_nan() as u8 as f64,
        Unary::IsInf => x.is_infinite() as u8 as f64,
    }
}

fn int_unary(f: Unary, v: i64, d: DType) -> Scalar {
    let signed = d.is_signed_int();
    let out = match f {
        Unary::Neg => v.wrapping_neg(),
        Unary::Abs if signed => v.wrapping_abs(),
        Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => v,
        Unary::Sign if signed => v.signum(),
        Unary::Sign => (v != 0) as i64,
        Unary::Not => (v == 0) as i64,
        Unary::BitNot if d == DType::Bool => (v == 0) as i64,
        Unary::BitNot => !v,
        Unary::IsNan | Unary::IsInf => 0,
        _ => {
            return Scalar::Int(float_to_int(
                float_unary(f, int_to_float(v, d, DType::F64)),
                d,
            ));
        }
    };
    Scalar::Int(wrap(out, d))
}

#[inline]
fn float_binary(f: Binary, a: f64, b: f64, d: DType) -> f64 {
    // With 53 bits in between, rounding sums, products and quotients of f32 operands once more to
    // f32 gives the f32 result exactly.
    let r = match f {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        Binary::Pow => a.powf(b),
        Binary::Min | Binary::Max => {
            if a.is_nan() || b.is_nan() {
                return f64::NAN;
            }
            // -0 counts as smaller than 0.
            let first = a < b || (a == b && a.is_sign_negative());
            return if first == (f == Binary::Min) { a } else { b };
        }
        Binary::Fmod => a % b,
        Binary::Mod => {
            let r = a % b;
            if r == 0.0 {
                0f64.copysign(b)
            } else if (r < 0.0) != (b < 0.0) {
                r + b
            } else {
                r
            }
        }
        Binary::And => (a != 0.0 && b != 0.0) as u8 as f64,
        Binary::Or => (a != 0.0 || b != 0.0) as u8 as f64,
        Binary::Xor => ((a != 0.0) != (b != 0.0)) as u8 as f64,
        Binary::Shl | Binary::Shr => int_binary(f, a as i64, b as i64, DType::I64) as f64,
        Binary::Atan2 => a.atan2(b),
    };
    round_result(r, d)
}

#[inline]
fn int_binary(f: Binary, a: i64, b: i64, d: DType) -> i64 {
    let unsigned = d == DType::U64;
    match f {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::Mul => a.wrapping_mul(b),
        Binary::Div | Binary::Mod | Binary::Fmod if b == 0 => 0,
        Binary::Div if unsigned => (a as u64 / b as u64) as i64,
        Binary::Div => a.wrapping_div(b),
        Binary::Mod | Binary::Fmod if unsigned => (a as u64 % b as u64) as i64,
        Binary::Fmod => a.wrapping_rem(b),
        Binary::Mod => {
            let r = a.wrapping_rem(b);
            if r != 0 && (r < 0) != (b < 0) {
                r + b
            } else {
                r
            }
        }
        Binary::Pow => {
            if b < 0 && !unsigned {
                return match a {
                    1 => 1,
                    -1 => 1 - 2 * (b & 1),
                    _ => 0,
                };
            }
            let (mut base, mut n, mut out) = (a, b as u64, 1i64);
            while n > 0 {
                if n & 1 == 1 {
                    out = out.wrapping_mul(base);
                }
                base = base.wrapping_mul(base);
                n >>= 1;
            }
            out
        }
        Binary::Min if unsigned => (a as u64).min(b as u64) as i64,
        Binary::Max if unsigned => (a as u64).max(b as u64) as i64,
        Binary::Min => a.min(b),
        Binary::Max => a.max(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Shl | Binary::Shr => {
            let width = d.bits();
            if b < 0 || b >= width as i64 {
                return 0;
            }
            let bits = if width == 64 {
                a as u64
            } else {
                a as u64 & ((1 << width) - 1)
            };
            (if f == Binary::Shl {
                bits << b
            } else {
                bits >> b
            }) as i64
        }
        Binary::Atan2 => {
            let x = int_to_float(a, d, DType::F64).atan2(int_to_float(b, d, DType::F64));
            float_to_int(x, d)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f64_to_f16_rounds_once() {
        // A hair above the midpoint of 1 and the next f16: f32 would make it a tie, going down.
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(round_float(x, DType::F16), 1.0 + 2f64.powi(-10));
        assert_eq!(round_float(1.0 + 2f64.powi(-11), DType::F16), 1.0);
        let y = 1.0 + 2f64.powi(-8) + 2f64.powi(-45);
        assert_eq!(round_float(y, DType::BF16), 1.0 + 2f64.powi(-7));
        assert_eq!(round_float(1e39, DType::BF16), f64::INFINITY);
        assert_eq!(round_float(-65520.0, DType::F16), f64::NEG_INFINITY);
        assert_eq!(round_float(65519.999, DType::F16), 65504.0);
        assert_eq!(round_float(2f64.powi(-25), DType::F16), 0.0);
        assert_eq!(
            round_float(2f64.powi(-25) * 1.0000000001, DType::F16),
            2f64.powi(-24)
        );
    }

    #[test]
    fn every_f16_midpoint_rounds_to_even() {
        for b in 0u16..0x7bff {
            let (lo, hi) = (
                half::f16::from_bits(b).to_f64(),
                half::f16::from_bits(b + 1).to_f64(),
            );
            let mid = (lo + hi) / 2.0;
            assert_eq!(
                round_float(mid, DType::F16),
                if b & 1 == 0 { lo } else { hi },
                "{b:#x}"
            );
            assert_eq!(round_float(mid * (1.0 + 1e-15), DType::F16), hi, "{b:#x}");
            assert_eq!(round_float(mid * (1.0 - 1e-15), DType::F16), lo, "{b:#x}");
        }
    }

    #[test]
    fn casts() {
        let f = |x: f64, to| Scalar::Float(x).cast(DType::F64, to);
        assert_eq!(f(-1.9, DType::I8), Scalar::Int(-1));
        assert_eq!(f(1e9, DType::I8), Scalar::Int(127));
        assert_eq!(f(-5.0, DType::U8), Scalar::Int(0));
        assert_eq!(f(f64::NAN, DType::I32), Scalar::Int(0));
        assert_eq!(f(f64::NAN, DType::Bool), Scalar::Int(1));
        assert_eq!(f(20.0, DType::U4), Scalar::Int(15));
        assert_eq!(f(-20.0, DType::I4), Scalar::Int(-8));
        assert_eq!(
            f(1.8e19, DType::U64),
            Scalar::Int(18_000_000_000_000_000_000u64 as i64)
        );
        assert_eq!(
            Scalar::Int(300).cast(DType::I32, DType::U8),
            Scalar::Int(44)
        );
        assert_eq!(Scalar::Int(9).cast(DType::I32, DType::I4), Scalar::Int(-7));
        assert_eq!(
            Scalar::Int(-1).cast(DType::I8, DType::U16),
            Scalar::Int(65535)
        );
        assert_eq!(
            Scalar::Int(-1).cast(DType::U64, DType::F32),
            Scalar::Float(2f64.powi(64))
        );
        assert_eq!(
            Scalar::Int(1 << 24 | 1).cast(DType::I32, DType::F32),
            Scalar::Float(2f64.powi(24))
        );
        // 2^62 + 2^54 is the midpoint of two bf16 values; one more decides upward.
        let v = (1i64 << 62) + (1 << 54) + 1;
        assert_eq!(
            Scalar::Int(v).cast(DType::I64, DType::BF16),
            Scalar::Float(2f64.powi(62) + 2f64.powi(55))
        );
    }

    #[test]
    fn integers_wrap_at_their_width() {
        let b = |f, x, y, d| Scalar::Int(x).binary(f, Scalar::Int(y), d);
        assert_eq!(b(Binary::Add, 127, 1, DType::I8), Scalar::Int(-128));
        assert_eq!(b(Binary::Sub, 0, 1, DType::U16), Scalar::Int(65535));
        assert_eq!(b(Binary::Mul, 7, 7, DType::I4), Scalar::Int(1));
        assert_eq!(b(Binary::Div, -8, -1, DType::I4), Scalar::Int(-8));
        assert_eq!(
            b(Binary::Div, i64::MIN, -1, DType::I64),
            Scalar::Int(i64::MIN)
        );
        assert_eq!(b(Binary::Div, -7, 2, DType::I32), Scalar::Int(-3));
        assert_eq!(b(Binary::Div, 5, 0, DType::I32), Scalar::Int(0));
        assert_eq!(b(Binary::Mod, -7, 3, DType::I32), Scalar::Int(2));
        assert_eq!(b(Binary::Mod, 7, -3, DType::I32), Scalar::Int(-2));
        assert_eq!(b(Binary::Fmod, -7, 3, DType::I32), Scalar::Int(-1));
        assert_eq!(b(Binary::Max, -1, 1, DType::U64), Scalar::Int(-1));
        assert_eq!(b(Binary::Shr, -1, 4, DType::I8), Scalar::Int(15));
        assert_eq!(b(Binary::Shl, 1, 8, DType::U8), Scalar::Int(0));
        assert_eq!(b(Binary::Pow, 3, 5, DType::U8), Scalar::Int(243));
        assert_eq!(b(Binary::Pow, -1, -3, DType::I32), Scalar::Int(-1));
        assert_eq!(b(Binary::Add, 1, 1, DType::Bool), Scalar::Int(1));
        assert_eq!(
            Scalar::Int(-128).unary(Unary::Abs, DType::I8),
            Scalar::Int(-128)
        );
        assert_eq!(
            Scalar::Int(5).unary(Unary::BitNot, DType::U8),
            Scalar::Int(250)
        );
    }

    #[test]
    fn floats() {
        let b = |f, x, y, d| Scalar::Float(x).binary(f, Scalar::Float(y), d).as_f64();
        assert_eq!(
            b(Binary::Add, 0.1f32 as f64, 0.2f32 as f64, DType::F32),
            (0.1f32 + 0.2f32) as f64
        );
        assert_eq!(b(Binary::Add, 2048.0, 1.0, DType::F16), 2048.0);
        assert!(b(Binary::Max, f64::NAN, 1.0, DType::F32).is_nan());
        assert!(b(Binary::Min, 1.0, f64::NAN, DType::F32).is_nan());
        assert_eq!(b(Binary::Mod, -7.5, 2.0, DType::F32), 0.5);
        assert_eq!(b(Binary::Fmod, -7.5, 2.0, DType::F32), -1.5);
        let u = |f, x: f64| Scalar::Float(x).unary(f, DType::F64).as_f64();
        assert_eq!(u(Unary::Round, 2.5), 2.0);
        assert_eq!(u(Unary::Sigmoid, -1000.0), 0.0);
        assert_eq!(u(Unary::Sigmoid, 1000.0), 1.0);
        assert!((u(Unary::Erf, 0.5) / 0.520_499_877_813_046_5 - 1.0).abs() < 1e-15);
        assert!((u(Unary::Erf, 1e-10) / 1.128_379_167_095_512_6e-10 - 1.0).abs() < 1e-15);
        assert!((u(Unary::Erf, 2.0) / 0.995_322_265_018_952_7 - 1.0).abs() < 1e-15);
    }
}
