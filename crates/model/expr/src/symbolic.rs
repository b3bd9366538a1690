//! Scalar programs on symbolic sizes: what an integer program gives when its arguments are dimension
//! expressions. Shape inference uses it to follow shape arithmetic.
use crate::{Binary, Compare, Expr, Inst, Ref, Scalar, Unary};
use layout::{DType, Dim};

/// What is known of a value.
#[derive(Clone)]
enum Value {
    Unknown,
    /// An integer or boolean.
    Dim(Dim),
    /// A float of its instruction's type.
    Float(f64),
}

impl Value {
    fn dim(&self) -> Option<&Dim> {
        match self {
            Value::Dim(d) => Some(d),
            _ => None,
        }
    }

    fn scalar(&self) -> Option<Scalar> {
        match self {
            Value::Dim(d) => d.known().map(Scalar::Int),
            Value::Float(x) => Some(Scalar::Float(*x)),
            Value::Unknown => None,
        }
    }

    fn of(s: Scalar) -> Value {
        match s {
            Scalar::Int(n) => Value::Dim(Dim::Known(n)),
            Scalar::Float(x) => Value::Float(x),
        }
    }
}

impl From<Option<Dim>> for Value {
    fn from(d: Option<Dim>) -> Value {
        d.map_or(Value::Unknown, Value::Dim)
    }
}

impl Expr {
    /// Evaluates an integer program over symbolic dimensions, one result per output; `None` where
    /// the value cannot be told (or is a float, or the program is not valid).
    ///
    /// `inputs` are the arguments by slot (`None`: not known), `index` the coordinates by axis.
    /// Symbols stand for sizes of at least 0, divisors for sizes of at least 1, and no sum or
    /// product of sizes is taken to leave 32 bits in an `I32` program or 64 bits in others.
    /// Comparisons are decided when they hold or fail for all sizes; numbers are computed exactly.
    pub fn eval_dims(&self, inputs: &[Option<Dim>], index: &[i64]) -> Vec<Option<Dim>> {
        let Ok(types) = self.types() else {
            return vec![None; self.outputs.len()];
        };
        let mut v: Vec<Value> = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let x = self.step(inst, &types, &v, inputs, index);
            v.push(x);
        }
        self.outputs
            .iter()
            .map(|&o| v[o as usize].dim().cloned())
            .collect()
    }

    /// Evaluates an integer program of one result over symbolic dimensions, as [`Expr::eval_dims`]
    /// does, with comparisons that hold for some sizes only written out: a truth is 1 or 0 as an
    /// expression of sizes.
    pub fn eval_truth(&self, inputs: &[Option<Dim>]) -> Option<Dim> {
        let types = self.types().ok()?;
        let mut v: Vec<Value> = Vec::with_capacity(self.insts.len());
        for inst in &self.insts {
            let x = match self.truth(inst, &types, &v, inputs) {
                Some(t) => Value::Dim(t),
                None => self.step(inst, &types, &v, inputs, &[]),
            };
            v.push(x);
        }
        match self.outputs[..] {
            [o] => v[o as usize].dim().cloned(),
            _ => None,
        }
    }

    /// The result of an instruction on truths, or of a comparison, where its arguments are known.
    fn truth(
        &self,
        inst: &Inst,
        types: &[DType],
        v: &[Value],
        inputs: &[Option<Dim>],
    ) -> Option<Dim> {
        let at = |r: Ref| v[r as usize].dim().cloned();
        let both_truths = |a: Ref| types[a as usize] == DType::Bool;
        match *inst {
            Inst::Input {
                slot,
                dtype: DType::Bool,
            } => inputs.get(slot as usize).cloned().flatten(),
            Inst::Compare(f, a, b) => {
                let (a, b) = (at(a)?, at(b)?);
                followed(&a, &b, false).then(|| compared(f, &a, &b))
            }
            Inst::Unary(Unary::Not, a) if both_truths(a) => Some(Dim::ONE - at(a)?),
            Inst::Binary(Binary::And, a, b) if both_truths(a) => {
                let (a, b) = (at(a)?, at(b)?);
                followed(&a, &b, true).then(|| a * b)
            }
            Inst::Binary(Binary::Or, a, b) if both_truths(a) => {
                let (a, b) = (at(a)?, at(b)?);
                followed(&a, &b, true).then(|| a.clone() + b.clone() - a * b)
            }
            Inst::Cast(a, DType::Bool) => Some(compared(Compare::Ne, &at(a)?, &Dim::ZERO)),
            Inst::Cast(a, to) if both_truths(a) && to.is_int() => at(a),
            _ => None,
        }
    }

    fn step(
        &self,
        inst: &Inst,
        types: &[DType],
        v: &[Value],
        inputs: &[Option<Dim>],
        index: &[i64],
    ) -> Value {
        let at = |r: Ref| &v[r as usize];
        let ty = |r: Ref| types[r as usize];
        match *inst {
            Inst::Input { slot, dtype } => match inputs.get(slot as usize).cloned().flatten() {
                Some(Dim::Known(n)) => Value::of(Scalar::Int(n).of(dtype)),
                Some(d) if holds_sizes(dtype) => Value::Dim(d),
                _ => Value::Unknown,
            },
            Inst::Float { bits, dtype } => Value::of(Scalar::Float(f64::from_bits(bits)).of(dtype)),
            Inst::Int { value, dtype } => Value::of(Scalar::Int(value).of(dtype)),
            Inst::Index { axis } => index.get(axis as usize).map(|&i| Dim::Known(i)).into(),
            Inst::Dim(ref d) => Value::Dim(d.clone()),
            Inst::Unary(f, a) => match at(a).scalar() {
                Some(s) => Value::of(s.unary(f, ty(a))),
                None => at(a).dim().and_then(|d| unary(f, d)).into(),
            },
            Inst::Binary(f, a, b) => match (at(a).scalar(), at(b).scalar()) {
                (Some(x), Some(y)) => Value::of(x.binary(f, y, ty(a))),
                _ if ty(a).is_float() => Value::Unknown,
                _ => binary(f, at(a).dim(), at(b).dim(), ty(a)).into(),
            },
            Inst::Compare(f, a, b) => match (at(a).scalar(), at(b).scalar()) {
                (Some(x), Some(y)) => Value::of(Scalar::truth(x.compare(f, y, ty(a)))),
                _ => match (at(a).dim(), at(b).dim()) {
                    (Some(x), Some(y)) => decide(f, x, y).map(|t| Dim::Known(t as i64)).into(),
                    _ => Value::Unknown,
                },
            },
            Inst::Select(c, a, b) => match at(c).dim() {
                Some(Dim::Known(0)) => at(b).clone(),
                Some(Dim::Known(_)) => at(a).clone(),
                _ => match (at(a).dim(), at(b).dim()) {
                    (Some(x), Some(y)) if x == y => Value::Dim(x.clone()),
                    (Some(x), Some(y)) => self.as_extremum(c, x, y, v).into(),
                    _ => Value::Unknown,
                },
            },
            Inst::Cast(a, to) => match (at(a).scalar(), at(a).dim()) {
                (Some(s), _) => Value::of(s.cast(ty(a), to)),
                (None, Some(d)) if holds_sizes(to) => Value::Dim(d.clone()),
                (None, Some(d)) if to == DType::Bool => decide(Compare::Ne, d, &Dim::ZERO)
                    .map(|t| Dim::Known(t as i64))
                    .into(),
                _ => Value::Unknown,
            },
        }
    }

    /// `x < y ? x : y` and its relatives as a minimum or maximum.
    fn as_extremum(&self, c: Ref, x: &Dim, y: &Dim, v: &[Value]) -> Option<Dim> {
        let Inst::Compare(f, p, q) = self.insts[c as usize] else {
            return None;
        };
        let (p, q) = (v[p as usize].dim()?, v[q as usize].dim()?);
        let straight = p == x && q == y;
        let crossed = p == y && q == x;
        if !straight && !crossed {
            return None;
        }
        match (f, straight) {
            (Compare::Lt | Compare::Le, true) | (Compare::Gt | Compare::Ge, false) => {
                Some(x.min_with(y))
            }
            (Compare::Gt | Compare::Ge, true) | (Compare::Lt | Compare::Le, false) => {
                Some(x.max_with(y))
            }
            // Where they are equal either is both.
            (Compare::Eq, _) => Some(y.clone()),
            (Compare::Ne, _) => Some(x.clone()),
        }
    }
}

fn holds_sizes(d: DType) -> bool {
    matches!(d, DType::I32 | DType::U32 | DType::I64 | DType::U64)
}

fn unary(f: Unary, d: &Dim) -> Option<Dim> {
    match f {
        Unary::Neg => Some(-d.clone()),
        Unary::Abs if d.provably_nonneg() => Some(d.clone()),
        Unary::Abs if (-d.clone()).provably_nonneg() => Some(-d.clone()),
        Unary::Floor | Unary::Ceil | Unary::Round => Some(d.clone()),
        Unary::Sign if Dim::ZERO.provably_lt(d) => Some(Dim::ONE),
        Unary::Sign if d.provably_lt(&Dim::ZERO) => Some(Dim::Known(-1)),
        Unary::Not => decide(Compare::Eq, d, &Dim::ZERO).map(|t| Dim::Known(t as i64)),
        Unary::IsNan | Unary::IsInf => Some(Dim::ZERO),
        _ => None,
    }
}

/// Largest expression of sizes that is followed ([`Dim::size`]): a chain of sums and products would double it
/// with every link. What is larger is computed by the request.
const LARGEST: usize = 4096;

/// Whether a sum of the two, or where `times` says so a product, is followed.
fn followed(a: &Dim, b: &Dim, times: bool) -> bool {
    let (a, b) = (a.size(), b.size());
    match times {
        true => a.saturating_mul(b) <= LARGEST,
        false => a + b <= LARGEST,
    }
}

fn binary(f: Binary, a: Option<&Dim>, b: Option<&Dim>, d: DType) -> Option<Dim> {
    let is = |x: Option<&Dim>, n: i64| x == Some(&Dim::Known(n));
    let either = |n| is(a, n) || is(b, n);
    // One side can be enough.
    match f {
        Binary::Mul | Binary::And if either(0) => return Some(Dim::ZERO),
        Binary::Or if d == DType::Bool && either(1) => return Some(Dim::ONE),
        Binary::And if d == DType::Bool && is(a, 1) => return b.cloned(),
        Binary::And if d == DType::Bool && is(b, 1) => return a.cloned(),
        Binary::Or | Binary::Xor if is(a, 0) => return b.cloned(),
        Binary::Or | Binary::Xor if is(b, 0) => return a.cloned(),
        _ => {}
    }
    let (a, b) = (a?, b?);
    let times = matches!(f, Binary::Mul | Binary::Pow);
    if d == DType::Bool || !followed(a, b, times) {
        return None;
    }
    match f {
        Binary::Add => Some(a.clone() + b.clone()),
        Binary::Sub => Some(a.clone() - b.clone()),
        Binary::Mul => Some(a.clone() * b.clone()),
        Binary::Div if b.is_zero() => Some(Dim::ZERO),
        // A divisor that may be 0 or negative for some sizes divides nothing here.
        Binary::Div | Binary::Mod | Binary::Fmod if b.known().is_none() && !b.provably_nonneg() => {
            None
        }
        Binary::Div => a
            .exact_div(b)
            .or_else(|| (a.provably_nonneg() && b.provably_nonneg()).then(|| a.floor_div(b))),
        Binary::Mod | Binary::Fmod if b.is_zero() || b.is_one() => Some(Dim::ZERO),
        Binary::Mod | Binary::Fmod if a.exact_div(b).is_some() => Some(Dim::ZERO),
        Binary::Mod if b.provably_nonneg() => Some(a.modulo(b)),
        Binary::Fmod if b.provably_nonneg() && a.provably_nonneg() => Some(a.modulo(b)),
        Binary::Min => Some(a.min_with(b)),
        Binary::Max => Some(a.max_with(b)),
        Binary::Pow => match b.known()? {
            0 => Some(Dim::ONE),
            n @ 1..=8 => (1..n).try_fold(a.clone(), |p, _| {
                followed(&p, a, true).then(|| p * a.clone())
            }),
            _ => None,
        },
        Binary::Shl => match b.known()? {
            n @ 0..=31 => Some(a.clone() * Dim::Known(1 << n)),
            _ => None,
        },
        Binary::Shr if a.provably_nonneg() => match b.known()? {
            n @ 0..=31 => Some(a.floor_div(&Dim::Known(1 << n))),
            _ => None,
        },
        _ => None,
    }
}

/// A comparison as 1 or 0.
fn compared(f: Compare, a: &Dim, b: &Dim) -> Dim {
    if let Some(t) = decide(f, a, b) {
        return Dim::Known(i64::from(t));
    }
    // 1 where `x` is positive.
    let positive = |x: Dim| x.max_with(&Dim::ZERO).min_with(&Dim::ONE);
    let below = |a: &Dim, b: &Dim| positive(b.clone() - a.clone());
    let differ = || positive(a.max_with(b) - a.min_with(b));
    match f {
        Compare::Eq => Dim::ONE - differ(),
        Compare::Ne => differ(),
        Compare::Lt => below(a, b),
        Compare::Gt => below(b, a),
        Compare::Le => Dim::ONE - below(b, a),
        Compare::Ge => Dim::ONE - below(a, b),
    }
}

/// Whether the comparison holds for all sizes; `None` when it depends or cannot be told.
fn decide(f: Compare, a: &Dim, b: &Dim) -> Option<bool> {
    let below = |x: &Dim, y: &Dim, strict: bool| {
        if strict {
            x.provably_lt(y)
        } else {
            x.provably_le(y)
        }
    };
    let ordered = |x: &Dim, y: &Dim, strict: bool| {
        if below(x, y, strict) {
            Some(true)
        } else if below(y, x, !strict) {
            Some(false)
        } else {
            None
        }
    };
    match f {
        Compare::Eq | Compare::Ne => {
            let equal = if a == b {
                Some(true)
            } else if a.provably_lt(b) || b.provably_lt(a) {
                Some(false)
            } else {
                None
            };
            equal.map(|e| e == (f == Compare::Eq))
        }
        Compare::Lt => ordered(a, b, true),
        Compare::Le => ordered(a, b, false),
        Compare::Gt => ordered(b, a, true),
        Compare::Ge => ordered(b, a, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ExprBuilder;

    fn two(f: impl Fn(&mut ExprBuilder, Ref, Ref) -> Ref, a: &str, b: &str) -> Option<String> {
        let mut e = ExprBuilder::new();
        let (x, y) = (e.input(0, DType::I64), e.input(1, DType::I64));
        let r = f(&mut e, x, y);
        let parse = |s: &str| s.parse::<Dim>().ok();
        let e = e.finish(&[r]);
        e.eval_dims(&[parse(a), parse(b)], &[])[0]
            .as_ref()
            .map(|d| d.to_string())
    }

    #[test]
    fn arithmetic_and_proofs() {
        let s = |t: &str| Some(t.to_string());
        let bin = |f, a, b| two(move |e, x, y| e.binary(f, x, y), a, b);
        let cmp = |f, a, b| two(move |e, x, y| e.compare(f, x, y), a, b);
        assert_eq!(bin(Binary::Add, "n", "3"), s("n + 3"));
        assert_eq!(bin(Binary::Div, "6*n", "3"), s("2*n"));
        assert_eq!(bin(Binary::Div, "n + 1", "2"), s("floordiv(n + 1, 2)"));
        assert_eq!(bin(Binary::Div, "n - 5", "2"), None);
        assert_eq!(bin(Binary::Div, "-7", "2"), s("-3"));
        assert_eq!(bin(Binary::Mod, "4*n", "2"), s("0"));
        assert_eq!(bin(Binary::Mul, "0", ""), s("0"));
        assert_eq!(cmp(Compare::Eq, "n", "-1"), s("0"));
        assert_eq!(cmp(Compare::Eq, "n*m", "-1"), s("0"));
        assert_eq!(cmp(Compare::Eq, "n", "0"), None);
        assert_eq!(cmp(Compare::Eq, "n + m", "m + n"), s("1"));
        assert_eq!(cmp(Compare::Lt, "n", "n + 1"), s("1"));
        assert_eq!(cmp(Compare::Ge, "n", "n + 1"), s("0"));
        assert_eq!(cmp(Compare::Lt, "n", "m"), None);
        let smaller = |e: &mut ExprBuilder, x, y| {
            let c = e.compare(Compare::Lt, x, y);
            e.select(c, x, y)
        };
        assert_eq!(two(smaller, "n", "m"), s("min(m, n)"));
        assert_eq!(two(smaller, "n", "n + 4"), s("n"));
        let through_i32 = |e: &mut ExprBuilder, x, y| {
            let x = e.cast(x, DType::I32);
            let y = e.cast(y, DType::I32);
            let z = e.mul(x, y);
            e.cast(z, DType::I64)
        };
        assert_eq!(two(through_i32, "n", "2"), s("2*n"));
    }
}
