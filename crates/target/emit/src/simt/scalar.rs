//! Scalar programs as values of a thread.
//!
//! f16 and bf16 are held in f32 and rounded after each operation, narrow integers in 32 bits and
//! wrapped, as [`expr::Unary`] says. Functions that targets lack or compute too roughly are written
//! out here, once for all of them; absolute errors are some units of the last place of the result's
//! largest value.
use super::arith::{horner, muladd, number, odd, un};
use super::build::Build;
use super::circular::circular;
use super::ir::{Op, Reg, Ty};
use super::remainder;
use expr::{Binary, Compare, Expr, Inst, Ref, Scalar, Unary};
use layout::DType;

/// What a program could not be turned into.
pub(crate) type Out<T> = Result<T, String>;

/// Values of the outputs of `e`; `index` gives a coordinate as an I64.
pub(crate) fn eval(
    b: &mut Build,
    e: &Expr,
    args: &[Reg],
    index: &mut dyn FnMut(&mut Build, u32) -> Out<Reg>,
) -> Out<Vec<Reg>> {
    let types = e.types().map_err(|x| x.to_string())?;
    let weights = |r: usize| match types[r] {
        DType::F32 => Weight::of(e, r as u32),
        _ => None,
    };
    let needed = needed(e, &weights);
    let mut v: Vec<Reg> = Vec::with_capacity(e.insts.len());
    for (n, (inst, &d)) in e.insts.iter().zip(&types).enumerate() {
        if !needed[n] {
            v.push(Reg::MAX);
            continue;
        }
        let at = |r: &u32| v[*r as usize];
        let of = |r: &u32| types[*r as usize];
        let ty = Ty::of(d).ok_or_else(|| format!("values of {d} have no form on this target"))?;
        let r = match inst {
            Inst::Input { slot, .. } => *args
                .get(*slot as usize)
                .ok_or("a program reads an argument that it is not given")?,
            Inst::Float { bits, .. } => constant(b, f64::from_bits(*bits), d),
            Inst::Int { value, .. } if d.is_float() => constant(b, *value as f64, d),
            Inst::Int { value, .. } => b.constant(*value, ty),
            Inst::Index { axis } => index(b, *axis)?,
            Inst::Dim(x) => b.dim(x, Ty::I64),
            Inst::Unary(f, a) => unary(b, *f, at(a), of(a))?,
            Inst::Binary(Binary::Sub, x, z)
                if let Some((n, less)) = nibble_less(e, &types, (*x, *z)) =>
            {
                nibble(b, at(&n), of(&n), less)
            }
            Inst::Binary(f, x, y) => binary(b, *f, at(x), at(y), d)?,
            Inst::Compare(c, x, y) => compare(b, *c, at(x), at(y), of(x))?,
            Inst::Select(c, x, y) => match weights(n) {
                Some(w) => {
                    let (x, m) = w.args();
                    w.made(b, at(&x), at(&m))
                }
                None => b.select(at(c), at(x), at(y)),
            },
            Inst::Cast(a, to) => cast(b, at(a), of(a), *to)?,
        };
        v.push(r);
    }
    Ok(e.outputs.iter().map(|&o| v[o as usize]).collect())
}

/// Which instructions the outputs are made of, where `weights` says what is made of two values at once.
fn needed(e: &Expr, weights: &impl Fn(usize) -> Option<Weight>) -> Vec<bool> {
    let mut needed = vec![false; e.insts.len()];
    for &o in &e.outputs {
        needed[o as usize] = true;
    }
    for (n, inst) in e.insts.iter().enumerate().rev() {
        if !needed[n] {
            continue;
        }
        let read: Vec<Ref> = match weights(n) {
            Some(w) => <[Ref; 2]>::from(w.args()).to_vec(),
            None => inst.args().collect(),
        };
        read.iter().for_each(|&r| needed[r as usize] = true);
    }
    needed
}

/// A power of what two values differ by that is a factor of what is summed: it may be less exact than others.
#[derive(Clone, Copy)]
enum Weight {
    /// [`expr::shifted_exp`].
    Shifted(Ref, Ref),
    /// [`expr::changed_exp`].
    Changed(Ref, Ref),
}

impl Weight {
    fn of(e: &Expr, r: Ref) -> Option<Weight> {
        let shifted = expr::shifted_exp(&e.insts, r).map(|(x, m)| Weight::Shifted(x, m));
        shifted.or_else(|| expr::changed_exp(&e.insts, r).map(|(x, y)| Weight::Changed(x, y)))
    }

    fn args(self) -> (Ref, Ref) {
        match self {
            Weight::Shifted(x, y) | Weight::Changed(x, y) => (x, y),
        }
    }

    fn made(self, b: &mut Build, x: Reg, y: Reg) -> Reg {
        match self {
            Weight::Shifted(..) => weight(b, x, y),
            Weight::Changed(..) => {
                // Both may be minus infinity.
                let (same, one) = (b.compare(Compare::Eq, x, y), number(b, 1.0));
                let factor = power_of_difference(b, x, y);
                b.select(same, one, factor)
            }
        }
    }
}

/// exp(x - y), with an error of the exponent that grows with it.
fn power_of_difference(b: &mut Build, x: Reg, y: Reg) -> Reg {
    let d = b.sub_of_product(x, y);
    let log2e = number(b, std::f64::consts::LOG2_E);
    let d = b.mul(d, log2e);
    b.op(Ty::F32, Op::Power(d))
}

/// `x == -inf ? 0 : exp(x - m)` of f32 for weights that are summed, whose absolute error counts: with 0 for an `m` of
/// -inf no choice is left for the element, and the exponent's rounding, which grows with `m - x`, is weighed by the
/// result.
fn weight(b: &mut Build, x: Reg, m: Reg) -> Reg {
    let (zero, none) = (number(b, 0.0), number(b, f64::NEG_INFINITY));
    let unseen = b.compare(Compare::Eq, m, none);
    let m = b.select(unseen, zero, m);
    power_of_difference(b, x, m)
}

fn constant(b: &mut Build, v: f64, d: DType) -> Reg {
    let ty = Ty::of(d).unwrap_or(Ty::F32);
    match Scalar::Float(v).cast(DType::F64, d) {
        Scalar::Float(x) => b.float(x, ty),
        Scalar::Int(x) => b.constant(x, ty),
    }
}

/// `r` as a value of `d` after an operation that may have left its range or precision.
fn narrow(b: &mut Build, r: Reg, d: DType) -> Reg {
    match d {
        DType::F16 | DType::BF16 => b.op(Ty::F32, Op::Narrow(d, r)),
        DType::I4 | DType::U4 | DType::I8 | DType::U8 | DType::I16 | DType::U16 => {
            b.op(b.ty(r), Op::Narrow(d, r))
        }
        _ => r,
    }
}

pub(crate) fn unary(b: &mut Build, f: Unary, x: Reg, d: DType) -> Out<Reg> {
    let ty = b.ty(x);
    let none = || Err(format!("{f:?} of {d} has no form on this target"));
    if d == DType::Bool {
        return match f {
            Unary::Not | Unary::BitNot => Ok(b.op(Ty::Bool, Op::Unary(Unary::Not, x))),
            Unary::IsNan | Unary::IsInf => Ok(b.constant(0, Ty::Bool)),
            Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Round => {
                Ok(x)
            }
            _ => none(),
        };
    }
    if d.is_float() {
        return Ok(match f {
            Unary::IsNan | Unary::IsInf => b.op(Ty::Bool, Op::Unary(f, x)),
            // Exact in every type.
            Unary::Neg | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => un(b, f, x),
            Unary::Sign => sign(b, x),
            Unary::Not | Unary::BitNot => {
                let (zero, one) = (b.float(0.0, ty), b.float(1.0, ty));
                let is = b.compare(Compare::Eq, x, zero);
                b.select(is, one, zero)
            }
            _ => {
                let r = match f {
                    Unary::Sqrt => un(b, f, x),
                    Unary::Rsqrt => {
                        let s = un(b, Unary::Sqrt, x);
                        reciprocal(b, s)
                    }
                    Unary::Reciprocal => reciprocal(b, x),
                    _ if ty == Ty::F64 => return none(),
                    _ => function(b, f, x),
                };
                narrow(b, r, d)
            }
        });
    }
    let zero = b.constant(0, ty);
    let signed = d.is_signed_int();
    let r = match f {
        Unary::Neg => b.sub(zero, x),
        Unary::Abs if signed => {
            let n = b.sub(zero, x);
            let negative = b.compare(Compare::Lt, x, zero);
            b.select(negative, n, x)
        }
        Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round => return Ok(x),
        Unary::Sign => {
            let one = b.constant(1, ty);
            let more = b.compare(Compare::Gt, x, zero);
            let mut r = b.select(more, one, zero);
            if signed {
                let minus = b.constant(-1, ty);
                let less = b.compare(Compare::Lt, x, zero);
                r = b.select(less, minus, r);
            }
            r
        }
        Unary::Not => {
            let one = b.constant(1, ty);
            let is = b.compare(Compare::Eq, x, zero);
            b.select(is, one, zero)
        }
        Unary::BitNot => {
            let all = b.constant(-1, ty);
            b.binary(Binary::Xor, x, all)
        }
        Unary::IsNan | Unary::IsInf => return Ok(b.constant(0, Ty::Bool)),
        _ => return none(),
    };
    Ok(narrow(b, r, d))
}

fn reciprocal(b: &mut Build, x: Reg) -> Reg {
    let one = b.float(1.0, b.ty(x));
    b.binary(Binary::Div, one, x)
}

fn sign(b: &mut Build, x: Reg) -> Reg {
    let ty = b.ty(x);
    let [zero, one, minus] = [0.0, 1.0, -1.0].map(|v| b.float(v, ty));
    let more = b.compare(Compare::Gt, x, zero);
    let less = b.compare(Compare::Lt, x, zero);
    let nan = b.op(Ty::Bool, Op::Unary(Unary::IsNan, x));
    let r = b.select(more, one, zero);
    let r = b.select(less, minus, r);
    b.select(nan, x, r)
}

/// `below` where `|x|` is under `limit`, else `above`.
fn piecewise(b: &mut Build, x: Reg, limit: f64, below: Reg, above: Reg) -> Reg {
    let m = un(b, Unary::Abs, x);
    let limit = number(b, limit);
    let small = b.compare(Compare::Lt, m, limit);
    b.select(small, below, above)
}

/// `m`, which is not negative, with the sign of `x`.
fn with_sign(b: &mut Build, m: Reg, x: Reg) -> Reg {
    let n = un(b, Unary::Neg, m);
    let negative = negative(b, x);
    b.select(negative, n, m)
}

/// Whether `x` has a sign: -0 has one.
fn negative(b: &mut Build, x: Reg) -> Reg {
    let (bits, zero) = (b.op(Ty::I32, Op::Bits(x)), b.int(0));
    b.compare(Compare::Lt, bits, zero)
}

/// A function of an f32.
fn function(b: &mut Build, f: Unary, x: Reg) -> Reg {
    let one = number(b, 1.0);
    match f {
        Unary::Sigmoid => {
            let n = un(b, Unary::Neg, x);
            let e = un(b, Unary::Exp, n);
            let s = b.add(e, one);
            reciprocal(b, s)
        }
        Unary::Tanh => tanh(b, x),
        Unary::Erf => erf(b, x),
        Unary::Sin | Unary::Cos | Unary::Tan => circular(b, f, x),
        Unary::Atan => atan2(b, x, one),
        Unary::Asin | Unary::Acos => {
            let (less, more) = (b.sub(one, x), b.add(one, x));
            if f == Unary::Acos {
                let (y, x) = (un(b, Unary::Sqrt, less), un(b, Unary::Sqrt, more));
                let half = atan2(b, y, x);
                return b.add(half, half);
            }
            let p = b.mul(less, more);
            let c = un(b, Unary::Sqrt, p);
            atan2(b, x, c)
        }
        Unary::Sinh | Unary::Cosh => {
            let m = un(b, Unary::Abs, x);
            // Half of exp(m), without overflow before the result does.
            let ln2 = number(b, std::f64::consts::LN_2);
            let shifted = b.sub(m, ln2);
            let h = un(b, Unary::Exp, shifted);
            let quarter = number(b, 0.25);
            let back = b.binary(Binary::Div, quarter, h);
            if f == Unary::Cosh {
                return b.add(h, back);
            }
            let large = b.sub(h, back);
            let large = with_sign(b, large, x);
            let small = odd(
                b,
                x,
                &[1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362_880.0],
            );
            piecewise(b, x, 0.7, small, large)
        }
        Unary::Asinh => {
            let m = un(b, Unary::Abs, x);
            let s = muladd(b, m, m, one);
            let s = un(b, Unary::Sqrt, s);
            let s = b.add(m, s);
            let large = un(b, Unary::Log, s);
            let large = log_of_double(b, m, large);
            let large = with_sign(b, large, x);
            let small = odd(
                b,
                x,
                &[-1.0 / 6.0, 3.0 / 40.0, -15.0 / 336.0, 105.0 / 3456.0],
            );
            piecewise(b, x, 0.25, small, large)
        }
        Unary::Acosh => {
            let (less, more) = (b.sub(x, one), b.add(x, one));
            let p = b.mul(less, more);
            let s = un(b, Unary::Sqrt, p);
            let s = b.add(x, s);
            let l = un(b, Unary::Log, s);
            let l = log_of_double(b, x, l);
            let (nan, outside) = (number(b, f64::NAN), b.compare(Compare::Lt, x, one));
            b.select(outside, nan, l)
        }
        Unary::Atanh => {
            let (less, more) = (b.sub(one, x), b.add(one, x));
            let q = b.binary(Binary::Div, more, less);
            let l = un(b, Unary::Log, q);
            let half = number(b, 0.5);
            let large = b.mul(l, half);
            let small = odd(b, x, &[1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0]);
            piecewise(b, x, 0.2, small, large)
        }
        f => un(b, f, x),
    }
}

/// `below`, or log(2 m) where the square of `m` would leave its range and 1 beside it is nothing.
fn log_of_double(b: &mut Build, m: Reg, below: Reg) -> Reg {
    let l = un(b, Unary::Log, m);
    let ln2 = number(b, std::f64::consts::LN_2);
    let l = b.add(l, ln2);
    let limit = number(b, 2f64.powi(32));
    let large = b.compare(Compare::Gt, m, limit);
    b.select(large, l, below)
}

/// tanh: an odd polynomial below 0.65, `1 - 2 / (exp(2x) + 1)` above.
fn tanh(b: &mut Build, x: Reg) -> Reg {
    const P: [f64; 5] = [
        -0.33333327491207454,
        0.13332619018964814,
        -0.053827915767137795,
        0.02088914771380357,
        -0.005942244973791396,
    ];
    let small = odd(b, x, &P);
    let one = number(b, 1.0);
    let m = un(b, Unary::Abs, x);
    let d = b.add(m, m);
    let e = un(b, Unary::Exp, d);
    let e = b.add(e, one);
    let two = number(b, 2.0);
    let q = b.binary(Binary::Div, two, e);
    let q = b.sub(one, q);
    let large = with_sign(b, q, x);
    piecewise(b, x, 0.65, small, large)
}

/// erf: an odd polynomial up to 1, `1 - 2^q(x)` above, where q is fitted to the logarithm of erfc.
fn erf(b: &mut Build, x: Reg) -> Reg {
    const SMALL: [f64; 7] = [
        1.1283791659137503,
        -0.3761262713596606,
        0.11283600176258368,
        -0.026854444591915674,
        0.005189535339318152,
        -0.0008020841279322705,
        7.889119529670696e-05,
    ];
    const LARGE: [f64; 9] = [
        0.00029484578443568244,
        -1.629756639206652,
        -0.9132829014828643,
        -0.15673321415954494,
        0.036606519527899284,
        -0.006178281036625655,
        0.0006691382925868572,
        -3.652737495141167e-05,
        3.6302140893340606e-07,
    ];
    let m = un(b, Unary::Abs, x);
    let u = b.mul(x, x);
    let p = horner(b, u, &SMALL);
    let small = b.mul(x, p);
    // erf(4) rounds to 1.
    let four = number(b, 4.0);
    let c = b.binary(Binary::Min, m, four);
    let q = horner(b, c, &LARGE);
    let ln2 = number(b, std::f64::consts::LN_2);
    let q = b.mul(q, ln2);
    let e = un(b, Unary::Exp, q);
    let one = number(b, 1.0);
    let e = b.sub(one, e);
    let large = with_sign(b, e, x);
    piecewise(b, x, 1.0, small, large)
}

/// Angle of the point (x, y).
fn atan2(b: &mut Build, y: Reg, x: Reg) -> Reg {
    const P: [f64; 8] = [
        -0.333_331_45,
        0.199_935_5,
        -0.142_088_7,
        0.106_562_64,
        -0.075_289_64,
        0.042_909_614,
        -0.016_165_737,
        0.002_866_225_7,
    ];
    let zero = number(b, 0.0);
    let (ax, ay) = (un(b, Unary::Abs, x), un(b, Unary::Abs, y));
    let (low, high) = (b.binary(Binary::Min, ax, ay), b.binary(Binary::Max, ax, ay));
    let q = b.binary(Binary::Div, low, high);
    // Both 0, or both infinite.
    let same = b.compare(Compare::Eq, ax, ay);
    let none = b.compare(Compare::Eq, high, zero);
    let one = number(b, 1.0);
    let q = b.select(same, one, q);
    let q = b.select(none, zero, q);
    let r = odd(b, q, &P);
    let quarter = number(b, std::f64::consts::FRAC_PI_2);
    let swapped = b.sub(quarter, r);
    let steep = b.compare(Compare::Gt, ay, ax);
    let r = b.select(steep, swapped, r);
    let half = number(b, std::f64::consts::PI);
    let back = b.sub(half, r);
    let left = negative(b, x);
    let r = b.select(left, back, r);
    with_sign(b, r, y)
}

/// `a` to the power of `p`.
fn pow(b: &mut Build, a: Reg, p: Reg) -> Reg {
    let [zero, one, half] = [0.0, 1.0, 0.5].map(|v| number(b, v));
    let m = un(b, Unary::Abs, a);
    let l = un(b, Unary::Log, m);
    let e = b.mul(l, p);
    // 1 to the power of an infinity is 1.
    let unit = b.compare(Compare::Eq, m, one);
    let e = b.select(unit, zero, e);
    let r = un(b, Unary::Exp, e);
    // A negative base: with the sign of an odd whole power, not a number for a broken one of what is finite.
    let whole = un(b, Unary::Floor, p);
    let is_whole = b.compare(Compare::Eq, whole, p);
    let halved = b.mul(p, half);
    let even = un(b, Unary::Floor, halved);
    let is_even = b.compare(Compare::Eq, even, halved);
    let not_even = b.op(Ty::Bool, Op::Unary(Unary::Not, is_even));
    let is_odd = b.binary(Binary::And, is_whole, not_even);
    let n = un(b, Unary::Neg, r);
    let signed = b.select(is_odd, n, r);
    let (nan, infinite) = (number(b, f64::NAN), number(b, f64::INFINITY));
    let is_infinite = b.compare(Compare::Eq, m, infinite);
    let some = b.binary(Binary::Or, is_whole, is_infinite);
    let of_negative = b.select(some, signed, nan);
    let negative = b.compare(Compare::Lt, a, zero);
    let r = b.select(negative, of_negative, r);
    // Common powers are exact products.
    let two = number(b, 2.0);
    let square = b.mul(a, a);
    let is_two = b.compare(Compare::Eq, p, two);
    let r = b.select(is_two, square, r);
    let (nothing, unit) = (
        b.compare(Compare::Eq, p, zero),
        b.compare(Compare::Eq, a, one),
    );
    let trivial = b.binary(Binary::Or, nothing, unit);
    b.select(trivial, one, r)
}

pub(crate) fn binary(b: &mut Build, f: Binary, x: Reg, y: Reg, d: DType) -> Out<Reg> {
    let ty = b.ty(x);
    let none = || Err(format!("{f:?} of {d} has no form on this target"));
    if d == DType::Bool {
        return Ok(match f {
            Binary::And | Binary::Mul | Binary::Min | Binary::Div => b.binary(Binary::And, x, y),
            Binary::Or | Binary::Add | Binary::Max => b.binary(Binary::Or, x, y),
            Binary::Xor | Binary::Sub => b.binary(Binary::Xor, x, y),
            _ => return none(),
        });
    }
    if d.is_float() {
        let r = match f {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => b.binary(f, x, y),
            // Exact: no rounding after it.
            Binary::Min | Binary::Max => return Ok(b.binary(f, x, y)),
            Binary::Pow if ty == Ty::F32 => pow(b, x, y),
            Binary::Atan2 if ty == Ty::F32 => atan2(b, x, y),
            Binary::Fmod if ty == Ty::F32 => remainder::fmod(b, x, y),
            Binary::Mod if ty == Ty::F32 => remainder::modulo(b, x, y),
            Binary::And | Binary::Or | Binary::Xor => {
                let (zero, one) = (b.float(0.0, ty), b.float(1.0, ty));
                let (x, y) = (
                    b.compare(Compare::Ne, x, zero),
                    b.compare(Compare::Ne, y, zero),
                );
                let r = b.binary(f, x, y);
                return Ok(b.select(r, one, zero));
            }
            _ => return none(),
        };
        return Ok(narrow(b, r, d));
    }
    let zero = b.constant(0, ty);
    let r = match f {
        Binary::Add | Binary::Sub | Binary::Mul => b.binary(f, x, y),
        Binary::Min | Binary::Max | Binary::And | Binary::Or | Binary::Xor => {
            return Ok(b.binary(f, x, y));
        }
        Binary::Div | Binary::Mod | Binary::Fmod => {
            let one = b.constant(1, ty);
            let nothing = b.compare(Compare::Eq, y, zero);
            let by = b.select(nothing, one, y);
            let r = if f == Binary::Div {
                b.binary(Binary::Div, x, by)
            } else {
                let r = b.binary(Binary::Fmod, x, by);
                if f == Binary::Mod && d.is_signed_int() {
                    let turned = b.add(r, by);
                    let some = b.compare(Compare::Ne, r, zero);
                    let (n, m) = (
                        b.compare(Compare::Lt, r, zero),
                        b.compare(Compare::Lt, by, zero),
                    );
                    let differ = b.binary(Binary::Xor, n, m);
                    let turn = b.binary(Binary::And, some, differ);
                    b.select(turn, turned, r)
                } else {
                    r
                }
            };
            b.select(nothing, zero, r)
        }
        Binary::Shl | Binary::Shr => {
            let width = b.constant(d.bits().into(), ty);
            let (low, high) = (
                b.compare(Compare::Ge, y, zero),
                b.compare(Compare::Lt, y, width),
            );
            let fits = b.binary(Binary::And, low, high);
            let by = b.select(fits, y, zero);
            let mut bits = x;
            if d.bits() < 32 {
                let mask = b.constant((1 << d.bits()) - 1, ty);
                bits = b.binary(Binary::And, x, mask);
            }
            let r = b.binary(f, bits, by);
            b.select(fits, r, zero)
        }
        _ => return none(),
    };
    Ok(narrow(b, r, d))
}

pub(crate) fn compare(b: &mut Build, c: Compare, x: Reg, y: Reg, d: DType) -> Out<Reg> {
    if d != DType::Bool {
        return Ok(b.compare(c, x, y));
    }
    let differ = b.binary(Binary::Xor, x, y);
    let not = |b: &mut Build, r| b.op(Ty::Bool, Op::Unary(Unary::Not, r));
    Ok(match c {
        Compare::Ne => differ,
        Compare::Eq => not(b, differ),
        Compare::Gt => b.binary(Binary::And, x, differ),
        Compare::Lt => b.binary(Binary::And, y, differ),
        Compare::Le => {
            let more = b.binary(Binary::And, x, differ);
            not(b, more)
        }
        Compare::Ge => {
            let less = b.binary(Binary::And, y, differ);
            not(b, less)
        }
    })
}

/// What makes an f32 of 2^23 and more of the number in its last bits.
const WHOLE: i64 = 0x4b00_0000;
/// That f32 with 0 in its last bits.
const WHOLE_ZERO: f64 = 8_388_608.0;

/// The argument of 4 bits and the whole number that `x - z` takes from it in f32, where it is that.
fn nibble_less(e: &Expr, types: &[DType], (x, z): (Ref, Ref)) -> Option<(Ref, f64)> {
    let Inst::Cast(n, DType::F32) = e.insts[x as usize] else {
        return None;
    };
    let less = match e.insts[z as usize] {
        Inst::Float {
            bits,
            dtype: DType::F32,
        } => f64::from_bits(bits),
        Inst::Int {
            value,
            dtype: DType::F32,
        } => value as f64,
        _ => return None,
    };
    let small = less.fract() == 0.0 && less.abs() < 1024.0 && less != 0.0;
    (small && types[n as usize].bits() == 4).then_some((n, less))
}

/// A number of 4 bits less a small whole number as an f32, without a conversion, which most GPUs do for few threads at
/// a time: the bits of the number in those of a large f32, from which that and what is taken go at once, exactly.
fn nibble(b: &mut Build, x: Reg, from: DType, less: f64) -> Reg {
    let signed = from == DType::I4;
    let bits = match b.ty(x) {
        Ty::U32 => x,
        _ => b.op(Ty::U32, Op::Bits(x)),
    };
    // The sign counts as 8 more.
    let (mask, whole) = match signed {
        true => (Some(b.constant(15, Ty::U32)), WHOLE ^ 8),
        false => (None, WHOLE),
    };
    let bits = mask.map_or(bits, |m| b.binary(Binary::And, bits, m));
    let whole = b.constant(whole, Ty::U32);
    let bits = b.binary(Binary::Xor, bits, whole);
    let large = b.op(Ty::F32, Op::Bits(bits));
    let beyond = number(b, WHOLE_ZERO + less + if signed { 8.0 } else { 0.0 });
    b.sub(large, beyond)
}

/// A value of type `from` as one of type `to`.
pub(crate) fn cast(b: &mut Build, x: Reg, from: DType, to: DType) -> Out<Reg> {
    let none = || {
        Err(format!(
            "a conversion of {from} to {to} has no form on this target"
        ))
    };
    let (have, Some(want)) = (b.ty(x), Ty::of(to)) else {
        return none();
    };
    if from == to {
        return Ok(x);
    }
    let convert = |b: &mut Build, x: Reg, ty: Ty| match b.ty(x) == ty {
        true => x,
        false => b.op(ty, Op::Convert(x)),
    };
    if to == DType::Bool {
        let zero = match have.is_float() {
            true => b.float(0.0, have),
            false => b.constant(0, have),
        };
        return Ok(b.compare(Compare::Ne, x, zero));
    }
    if from == DType::Bool {
        let pair = |b: &mut Build, v: f64| match want.is_float() {
            true => b.float(v, want),
            false => b.constant(v as i64, want),
        };
        let (one, zero) = (pair(b, 1.0), pair(b, 0.0));
        return Ok(b.select(x, one, zero));
    }
    if from.bits() == 4 && want == Ty::F32 {
        return Ok(nibble(b, x, from, 0.0));
    }
    if to.is_float() {
        let mut r = convert(b, x, want);
        // What an f32 does not hold is rounded twice on its way to a narrower type.
        if to.bits() < 32 && (from == DType::F64 || (!from.is_float() && from.bits() >= 32)) {
            r = to_odd(b, x, r);
        }
        // Every f16 and bf16 is an f32 already.
        return Ok(if to.bits() < 32 { narrow(b, r, to) } else { r });
    }
    if !from.is_float() {
        let r = convert(b, x, want);
        return Ok(match to.bits() < 32 {
            true => narrow(b, r, to),
            false => r,
        });
    }
    let zero = b.float(0.0, have);
    let nan = b.op(Ty::Bool, Op::Unary(Unary::IsNan, x));
    let x = b.select(nan, zero, x);
    if to.bits() >= 32 {
        return Ok(convert(b, x, want));
    }
    let (low, high) = match to.is_signed_int() {
        true => (-(1i64 << (to.bits() - 1)), (1i64 << (to.bits() - 1)) - 1),
        false => (0, (1i64 << to.bits()) - 1),
    };
    let (low, high) = (b.int(low), b.int(high));
    let r = convert(b, x, Ty::I32);
    let r = b.binary(Binary::Max, r, low);
    let r = b.binary(Binary::Min, r, high);
    Ok(convert(b, r, want))
}

/// `r`, which is `x` rounded to f32, with an odd last bit where it is not `x` itself: rounded once more, to
/// a narrower type, it is then what `x` rounded once is.
fn to_odd(b: &mut Build, x: Reg, r: Reg) -> Reg {
    let back = b.op(b.ty(x), Op::Convert(r));
    let same = b.compare(Compare::Eq, back, x);
    let zero = match b.ty(x).is_float() {
        true => b.float(0.0, b.ty(x)),
        false => b.constant(0, b.ty(x)),
    };
    // Where it was rounded away from zero, the number before it is the nearer one.
    let negative = b.compare(Compare::Lt, x, zero);
    let positive = b.op(Ty::Bool, Op::Unary(Unary::Not, negative));
    let (more, less) = (
        b.compare(Compare::Gt, back, x),
        b.compare(Compare::Lt, back, x),
    );
    let up = b.binary(Binary::And, more, positive);
    let down = b.binary(Binary::And, less, negative);
    let away = b.binary(Binary::Or, up, down);
    let bits = b.op(Ty::U32, Op::Bits(r));
    let (one, none) = (b.constant(1, Ty::U32), b.constant(0, Ty::U32));
    let by = b.select(away, one, none);
    let odd = b.sub(bits, by);
    let odd = b.binary(Binary::Or, odd, one);
    let odd = b.op(Ty::F32, Op::Bits(odd));
    b.select(same, r, odd)
}
