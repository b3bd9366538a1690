//! Scalars that are known.

use expr::{Binary, Scalar, Unary};
use layout::{DType, Dim};

/// Largest size, as an expression, that is worked with ([`Dim::size`]).
const LARGEST: usize = 512;

/// A scalar that is known.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Num {
    /// A number; integers and booleans too.
    Value(Scalar),
    /// A size, in a float or an integer.
    Size(Dim),
    /// A quotient of two sizes, in a float.
    Ratio(Dim, Dim),
}

impl Num {
    pub(super) fn of_dim(d: &Dim, dtype: DType) -> Num {
        match d.known() {
            Some(n) => Num::Value(Scalar::Int(n).of(dtype)),
            None => Num::Size(d.clone()),
        }
    }

    /// As a size or integer.
    pub fn dim(&self) -> Option<Dim> {
        match self {
            Num::Value(Scalar::Int(n)) => Some(Dim::Known(*n)),
            Num::Value(Scalar::Float(x)) if x.fract() == 0.0 && x.abs() < 9e15 => {
                Some(Dim::Known(*x as i64))
            }
            Num::Size(d) => Some(d.clone()),
            _ => None,
        }
    }

    /// As a number.
    pub fn float(&self) -> Option<f64> {
        match self {
            Num::Value(s) => Some(s.as_f64()),
            _ => None,
        }
    }

    /// As numerator and denominator.
    pub(super) fn ratio(&self) -> Option<(Dim, Dim)> {
        match self {
            Num::Ratio(a, b) => Some((a.clone(), b.clone())),
            other => Some((other.dim()?, Dim::ONE)),
        }
    }

    pub(super) fn of_ratio(a: Dim, b: Dim) -> Num {
        match a.exact_div(&b) {
            Some(q) => Num::Size(q),
            None => Num::Ratio(a, b),
        }
    }

    pub(super) fn unary(&self, f: Unary, d: DType) -> Option<Num> {
        match self {
            Num::Value(s) => Some(Num::Value(s.unary(f, d))),
            Num::Size(x) => match f {
                Unary::Floor | Unary::Ceil | Unary::Round => Some(self.clone()),
                Unary::Neg => Some(Num::Size(-x.clone())),
                Unary::Reciprocal => Some(Num::Ratio(Dim::ONE, x.clone())),
                Unary::Abs if x.provably_nonneg() => Some(self.clone()),
                _ => None,
            },
            Num::Ratio(a, b) => match f {
                Unary::Floor => Some(Num::Size(a.floor_div(b))),
                Unary::Ceil => Some(Num::Size(a.ceil_div(b))),
                Unary::Reciprocal => Some(Num::of_ratio(b.clone(), a.clone())),
                _ => None,
            },
        }
    }

    pub(super) fn binary(&self, f: Binary, o: &Num, d: DType) -> Option<Num> {
        if let (Num::Value(a), Num::Value(b)) = (self, o) {
            return Some(Num::Value(a.binary(f, *b, d)));
        }
        if !d.is_float() {
            return None;
        }
        let ((a, b), (p, q)) = (self.ratio()?, o.ratio()?);
        // A chain of products would double them with every link.
        if [&a, &b, &p, &q].iter().any(|d| d.size() > LARGEST) {
            return None;
        }
        match f {
            Binary::Mul => Some(Num::of_ratio(a * p, b * q)),
            Binary::Div if !p.is_zero() => Some(Num::of_ratio(a * q, b * p)),
            Binary::Add => Some(Num::of_ratio(a * q.clone() + p * b.clone(), b * q)),
            Binary::Sub => Some(Num::of_ratio(a * q.clone() - p * b.clone(), b * q)),
            Binary::Min if b.is_one() && q.is_one() => Some(Num::Size(a.min_with(&p))),
            Binary::Max if b.is_one() && q.is_one() => Some(Num::Size(a.max_with(&p))),
            _ => None,
        }
    }

    pub(super) fn cast(&self, from: DType, to: DType) -> Option<Num> {
        match self {
            Num::Value(s) => Some(Num::Value(s.cast(from, to))),
            Num::Size(_) if to.is_float() || to.bits() >= 32 => Some(self.clone()),
            // Conversion truncates; sizes are not negative.
            Num::Ratio(a, b) if to.is_int() && a.provably_nonneg() => {
                Some(Num::Size(a.floor_div(b)))
            }
            Num::Ratio(..) if to.is_float() => Some(self.clone()),
            _ => None,
        }
    }
}
