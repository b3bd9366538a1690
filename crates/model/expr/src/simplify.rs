//! Algebraic simplification of scalar programs: constants, identities, casts, dead code. Fusion runs it on
//! joined programs. Nothing here changes a result's bits.
use crate::{Binary, Compare, Expr, ExprBuilder, Inst, Ref, Scalar, Unary};
use layout::{DType, Dim};

impl Expr {
    /// An equal program with fewer instructions: constants folded, identities that are exact for
    /// the type applied (`x*1`, but `x + 0` only for integers because of -0), conversions that
    /// lose nothing dropped, equal instructions shared, unused ones (arguments too) removed. Every
    /// result has the same bits as before, but for the payload of a NaN. A program that is not
    /// valid comes back as it is.
    pub fn simplified(&self) -> Expr {
        let mut e = self.clone();
        // One pass is enough nearly always; a second one only shares what the first made equal.
        for _ in 0..8 {
            let Some(next) = pass(&e) else { return e };
            if next == e {
                break;
            }
            e = next;
        }
        e
    }
}

fn pass(e: &Expr) -> Option<Expr> {
    e.types().ok()?;
    let mut s = Simplifier {
        b: ExprBuilder::new(),
        types: Vec::new(),
    };
    let mut to: Vec<Ref> = Vec::with_capacity(e.insts.len());
    for inst in &e.insts {
        let m = |r: Ref| to[r as usize];
        let moved = match *inst {
            Inst::Unary(f, a) => Inst::Unary(f, m(a)),
            Inst::Binary(f, a, b) => Inst::Binary(f, m(a), m(b)),
            Inst::Compare(f, a, b) => Inst::Compare(f, m(a), m(b)),
            Inst::Select(c, a, b) => Inst::Select(m(c), m(a), m(b)),
            Inst::Cast(a, d) => Inst::Cast(m(a), d),
            ref other => other.clone(),
        };
        let r = s.emit(moved);
        to.push(r);
    }
    let outs: Vec<Ref> = e.outputs.iter().map(|&o| to[o as usize]).collect();
    Some(s.b.finish(&outs))
}

struct Simplifier {
    b: ExprBuilder,
    /// Type of every instruction of `b`.
    types: Vec<DType>,
}

/// True when every value of integer or boolean type `a` is a value of integer type `b`.
fn holds_integers(a: DType, b: DType) -> bool {
    if a == b || a == DType::Bool {
        return true;
    }
    if b == DType::Bool {
        return false;
    }
    match (a.is_signed_int(), b.is_signed_int()) {
        (true, true) | (false, false) => a.bits() <= b.bits(),
        (false, true) => a.bits() < b.bits(),
        (true, false) => false,
    }
}

/// Bits of the significand, with the hidden one.
fn precision(d: DType) -> u32 {
    match d {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::F16 => 11,
        _ => 8,
    }
}

/// True when converting from `a` through `b` to `c` is the same as from `a` to `c`.
fn middle_cast_is_idle(a: DType, b: DType, c: DType) -> bool {
    let widens = |a: DType, b: DType| {
        a == b || b == DType::F64 || (b == DType::F32 && matches!(a, DType::F16 | DType::BF16))
    };
    match (a.is_float(), b.is_float()) {
        (true, true) => widens(a, b),
        (true, false) => false,
        (false, true) => {
            // Out of float, integers saturate; from an integer they would wrap.
            let exact = a == DType::Bool || a.bits() - a.is_signed_int() as u32 <= precision(b);
            let fits = !(b == DType::F16 && a.bits() > 16);
            exact && fits && (c.is_float() || c == DType::Bool || holds_integers(a, c))
        }
        (false, false) => {
            let narrowing = b.is_int() && c.is_int() && c.bits() <= b.bits();
            holds_integers(a, b) || narrowing
        }
    }
}

impl Simplifier {
    fn ty(&self, r: Ref) -> DType {
        self.types[r as usize]
    }

    fn push(&mut self, inst: Inst, d: DType) -> Ref {
        let r = self.b.push(inst);
        if r as usize == self.types.len() {
            self.types.push(d);
        }
        r
    }

    fn inst(&self, r: Ref) -> Option<&Inst> {
        self.b.get(r)
    }

    fn constant(&self, r: Ref) -> Option<Scalar> {
        match *self.inst(r)? {
            Inst::Float { bits, .. } => Some(Scalar::Float(f64::from_bits(bits))),
            Inst::Int { value, .. } => Some(Scalar::Int(value)),
            _ => None,
        }
    }

    /// True when `r` is the constant `x` to the bit.
    fn is(&self, r: Ref, x: f64) -> bool {
        match self.constant(r) {
            Some(Scalar::Float(v)) => v.to_bits() == x.to_bits(),
            Some(Scalar::Int(v)) => v as f64 == x,
            None => false,
        }
    }

    fn put(&mut self, v: Scalar, d: DType) -> Ref {
        let inst = match v.of(d) {
            Scalar::Float(x) => Inst::Float {
                bits: x.to_bits(),
                dtype: d,
            },
            Scalar::Int(value) => Inst::Int { value, dtype: d },
        };
        self.push(inst, d)
    }

    fn emit(&mut self, inst: Inst) -> Ref {
        match inst {
            Inst::Input { dtype, .. } => self.push(inst, dtype),
            Inst::Float { bits, dtype } => self.put(Scalar::Float(f64::from_bits(bits)), dtype),
            Inst::Int { value, dtype } => self.put(Scalar::Int(value), dtype),
            Inst::Dim(Dim::Known(n)) => self.put(Scalar::Int(n), DType::I64),
            Inst::Index { .. } | Inst::Dim(_) => self.push(inst, DType::I64),
            Inst::Unary(f, a) => self.unary(f, a),
            Inst::Binary(f, a, b) => self.binary(f, a, b),
            Inst::Compare(f, a, b) => self.compare(f, a, b),
            Inst::Select(c, a, b) => self.select(c, a, b),
            Inst::Cast(a, to) => self.cast(a, to),
        }
    }

    fn unary(&mut self, f: Unary, a: Ref) -> Ref {
        let d = self.ty(a);
        let out = if matches!(f, Unary::IsNan | Unary::IsInf) {
            DType::Bool
        } else {
            d
        };
        if let Some(v) = self.constant(a) {
            return self.put(v.unary(f, d), out);
        }
        let inner = match self.inst(a) {
            Some(&Inst::Unary(g, x)) => Some((g, x)),
            _ => None,
        };
        match (f, inner) {
            (Unary::Neg, Some((Unary::Neg, x))) => return x,
            (Unary::Abs, Some((Unary::Neg, x))) if d.is_float() || d.is_signed_int() => {
                return self.unary(f, x);
            }
            (Unary::Abs, Some((Unary::Abs, _))) => return a,
            (Unary::Not, Some((Unary::Not, x))) if d == DType::Bool => return x,
            (Unary::BitNot, Some((Unary::BitNot, x))) if !d.is_float() => return x,
            (
                Unary::Floor | Unary::Ceil | Unary::Round,
                Some((Unary::Floor | Unary::Ceil | Unary::Round, _)),
            ) => {
                return a;
            }
            _ => {}
        }
        if !d.is_float() {
            match f {
                Unary::Floor | Unary::Ceil | Unary::Round => return a,
                Unary::Abs if !d.is_signed_int() => return a,
                Unary::Neg if d == DType::Bool => return a,
                Unary::IsNan | Unary::IsInf => return self.put(Scalar::Int(0), DType::Bool),
                _ => {}
            }
        }
        self.push(Inst::Unary(f, a), out)
    }

    fn binary(&mut self, f: Binary, mut a: Ref, mut b: Ref) -> Ref {
        let d = self.ty(a);
        if let (Some(x), Some(y)) = (self.constant(a), self.constant(b)) {
            return self.put(x.binary(f, y, d), d);
        }
        let commutes = matches!(
            f,
            Binary::Add
                | Binary::Mul
                | Binary::Min
                | Binary::Max
                | Binary::And
                | Binary::Or
                | Binary::Xor
        );
        // Constants to the right, else in order of definition.
        if commutes && (self.constant(a).is_some() || (self.constant(b).is_none() && b < a)) {
            (a, b) = (b, a);
        }
        let (float, boolean) = (d.is_float(), d == DType::Bool);
        let negated = |s: &Self, r: Ref| match s.inst(r) {
            Some(&Inst::Unary(Unary::Neg, x)) => Some(x),
            _ => None,
        };
        match f {
            Binary::Add if self.is(b, if float { -0.0 } else { 0.0 }) => return a,
            Binary::Sub if self.is(b, 0.0) => return a,
            Binary::Mul | Binary::Div | Binary::Pow if self.is(b, 1.0) => return a,
            Binary::Add if !boolean => {
                if let Some(y) = negated(self, b) {
                    return self.binary(Binary::Sub, a, y);
                }
                if let Some(x) = negated(self, a) {
                    return self.binary(Binary::Sub, b, x);
                }
            }
            Binary::Sub if !boolean => {
                if let Some(y) = negated(self, b) {
                    return self.binary(Binary::Add, a, y);
                }
                if self.is(a, if float { -0.0 } else { 0.0 }) {
                    return self.unary(Unary::Neg, b);
                }
                if !float && a == b {
                    return self.put(Scalar::Int(0), d);
                }
            }
            // Unsigned types hold -1 as all bits set.
            Binary::Mul if self.is(b, -1.0) && (float || d.is_signed_int()) => {
                return self.unary(Unary::Neg, a);
            }
            Binary::Mul if !float && self.is(b, 0.0) => return b,
            Binary::Pow if self.is(b, 2.0) && precision(d) < 53 && float => {
                return self.binary(Binary::Mul, a, a);
            }
            Binary::Div if float => {
                if let Some(r) = self.exact_reciprocal(b, d) {
                    let r = self.put(Scalar::Float(r), d);
                    return self.binary(Binary::Mul, a, r);
                }
            }
            Binary::Min | Binary::Max if a == b => return a,
            Binary::Min if self.is(b, f64::INFINITY) => return a,
            Binary::Max if self.is(b, f64::NEG_INFINITY) => return a,
            Binary::And | Binary::Or if !float && a == b => return a,
            Binary::And if !float && self.is(b, 0.0) => return b,
            Binary::Or | Binary::Xor if !float && self.is(b, 0.0) => return a,
            Binary::And if boolean && self.is(b, 1.0) => return a,
            Binary::Or if boolean && self.is(b, 1.0) => return b,
            Binary::Shl | Binary::Shr if !float && self.is(b, 0.0) => return a,
            _ => {}
        }
        self.push(Inst::Binary(f, a, b), d)
    }

    /// The reciprocal of a power of two, when it is a normal number of `d`: multiplying by it is
    /// then dividing.
    fn exact_reciprocal(&self, r: Ref, d: DType) -> Option<f64> {
        let Some(Scalar::Float(x)) = self.constant(r) else {
            return None;
        };
        let exponent = (x.to_bits() >> 52 & 0x7ff) as i32 - 1023;
        let limit = match d {
            DType::F64 => 1022,
            DType::F16 => 14,
            _ => 126,
        };
        (x.to_bits() << 12 == 0 && exponent.abs() <= limit).then(|| 1.0 / x)
    }

    fn compare(&mut self, f: Compare, a: Ref, b: Ref) -> Ref {
        let d = self.ty(a);
        if let (Some(x), Some(y)) = (self.constant(a), self.constant(b)) {
            return self.put(Scalar::truth(x.compare(f, y, d)), DType::Bool);
        }
        if a == b && !d.is_float() {
            let holds = matches!(f, Compare::Eq | Compare::Le | Compare::Ge);
            return self.put(Scalar::truth(holds), DType::Bool);
        }
        self.push(Inst::Compare(f, a, b), DType::Bool)
    }

    fn select(&mut self, c: Ref, a: Ref, b: Ref) -> Ref {
        let d = self.ty(a);
        if let Some(v) = self.constant(c) {
            return if v.as_i64() != 0 { a } else { b };
        }
        if a == b {
            return a;
        }
        if let Some(&Inst::Unary(Unary::Not | Unary::BitNot, x)) = self.inst(c) {
            return self.select(x, b, a);
        }
        if d == DType::Bool && self.is(a, 1.0) && self.is(b, 0.0) {
            return c;
        }
        self.push(Inst::Select(c, a, b), d)
    }

    fn cast(&mut self, a: Ref, to: DType) -> Ref {
        let from = self.ty(a);
        if from == to {
            return a;
        }
        if let Some(v) = self.constant(a) {
            return self.put(v.cast(from, to), to);
        }
        if let Some(&Inst::Cast(x, _)) = self.inst(a)
            && middle_cast_is_idle(self.ty(x), from, to)
        {
            return self.cast(x, to);
        }
        self.push(Inst::Cast(a, to), to)
    }
}

#[cfg(test)]
mod tests {
    use crate::Expr;

    fn check(from: &str, to: &str) {
        let e: Expr = from.parse().unwrap();
        assert_eq!(e.simplified().to_string(), to, "{from}");
    }

    #[test]
    fn identities() {
        check(
            "%0 = input 0 f32; %1 = const 1 f32; %2 = mul %1 %0; out %2",
            "%0 = input 0 f32; out %0",
        );
        check(
            "%0 = input 0 f32; %1 = const 0 f32; %2 = add %1 %0; out %2",
            "%0 = input 0 f32; %1 = const 0.0 f32; %2 = add %0 %1; out %2",
        );
        check(
            "%0 = input 0 f32; %1 = const -0.0 f32; %2 = add %1 %0; out %2",
            "%0 = input 0 f32; out %0",
        );
        check(
            "%0 = input 0 i32; %1 = int 0 i32; %2 = add %1 %0; out %2",
            "%0 = input 0 i32; out %0",
        );
        check(
            "%0 = input 0 f32; %1 = const 4 f32; %2 = div %0 %1; %3 = const 2 f32; %4 = pow %2 %3; out %4",
            "%0 = input 0 f32; %1 = const 0.25 f32; %2 = mul %0 %1; %3 = mul %2 %2; out %3",
        );
        check(
            "%0 = input 0 f16; %1 = cast %0 f32; %2 = cast %1 f16; out %2",
            "%0 = input 0 f16; out %0",
        );
        check(
            "%0 = input 0 f32; %1 = cast %0 f16; %2 = cast %1 f32; out %2",
            "%0 = input 0 f32; %1 = cast %0 f16; %2 = cast %1 f32; out %2",
        );
        check(
            "%0 = input 0 i64; %1 = cast %0 i32; %2 = cast %1 i8; out %2",
            "%0 = input 0 i64; %1 = cast %0 i8; out %1",
        );
        check(
            "%0 = const 0.1 f32; %1 = add %0 %0; out %1",
            "%0 = const 0.20000000298023224 f32; out %0",
        );
        check(
            "%0 = input 0 f32; %1 = neg %0; %2 = neg %0; %3 = add %1 %2; out %3",
            "%0 = input 0 f32; %1 = neg %0; %2 = sub %1 %0; out %2",
        );
    }
}
