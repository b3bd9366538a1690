//! The remainder of two f32, exact whatever their quotient.
use super::arith::{number, un};
use super::build::Build;
use super::ir::{Op, Reg, Ty};
use expr::{Binary, Compare, Unary};

/// Bits of a quotient that a round takes: with the 24 of a remainder, an i64 holds them.
const ROUND: i64 = 38;
/// Bits of the largest quotient: the smallest divisor's last is 2^-149, the largest dividend is below 2^128.
const MOST: i64 = 149 + 128 - 24;

/// The remainder of `x` by `y` with the sign of `x`, as C's `fmod` has it.
pub(super) fn fmod(b: &mut Build, x: Reg, y: Reg) -> Reg {
    let ((mx, ex), (my, ey)) = (parts(b, x), parts(b, y));
    // x is mx 2^(ex - 150), y is my 2^(ey - 150): mx 2^(ex - ey) is taken modulo my, some bits at a time.
    let [zero, one, round] = [0, 1, ROUND].map(|v| b.constant(v, Ty::I64));
    let none = b.compare(Compare::Eq, my, zero);
    let by = b.select(none, one, my);
    let mut left = b.sub(ex, ey);
    left = b.binary(Binary::Max, left, zero);
    let mut r = b.binary(Binary::Fmod, mx, by);
    for _ in 0..(MOST + ROUND - 1) / ROUND {
        let step = b.binary(Binary::Min, left, round);
        left = b.sub(left, step);
        let more = b.binary(Binary::Shl, r, step);
        r = b.binary(Binary::Fmod, more, by);
    }
    let rest = b.op(Ty::F32, Op::Convert(r));
    let rest = scaled(b, rest, ey);
    let m = un(b, Unary::Abs, x);
    let n = un(b, Unary::Abs, y);
    // A smaller exponent, too, is a smaller number, which is its own remainder.
    let smaller = b.compare(Compare::Lt, m, n);
    let rest = b.select(smaller, m, rest);
    let negative = un(b, Unary::Neg, rest);
    let zero = number(b, 0.0);
    let sign = b.compare(Compare::Lt, x, zero);
    let rest = b.select(sign, negative, rest);
    // Of a zero it is that zero, whose sign no comparison sees.
    let none = b.compare(Compare::Eq, m, zero);
    let rest = b.select(none, x, rest);
    // Of infinities, by 0, and of what is no number there is none.
    let infinite = number(b, f64::INFINITY);
    let dividend = b.compare(Compare::Lt, m, infinite);
    let divisor = b.compare(Compare::Gt, n, zero);
    let some = b.binary(Binary::And, dividend, divisor);
    let nan = number(b, f64::NAN);
    let rest = b.select(some, rest, nan);
    let wide = b.compare(Compare::Eq, n, infinite);
    let kept = b.binary(Binary::And, wide, dividend);
    b.select(kept, x, rest)
}

/// The same with the sign of `y`, as Python's `%` has it.
pub(super) fn modulo(b: &mut Build, x: Reg, y: Reg) -> Reg {
    let r = fmod(b, x, y);
    let zero = number(b, 0.0);
    let some = b.compare(Compare::Ne, r, zero);
    let (n, m) = (
        b.compare(Compare::Lt, r, zero),
        b.compare(Compare::Lt, y, zero),
    );
    let differ = b.binary(Binary::Xor, n, m);
    let turn = b.binary(Binary::And, some, differ);
    let turned = b.add(r, y);
    let r = b.select(turn, turned, r);
    // Zeros have the divisor's sign too.
    let minus = number(b, -0.0);
    let signed = b.select(m, minus, zero);
    b.select(some, r, signed)
}

/// The digits and the exponent of a number, as integers of 64 bits.
fn parts(b: &mut Build, x: Reg) -> (Reg, Reg) {
    let bits = b.op(Ty::U32, Op::Bits(x));
    let word = |b: &mut Build, v: i64| b.constant(v, Ty::U32);
    let by = word(b, 23);
    let e = b.binary(Binary::Shr, bits, by);
    let byte = word(b, 0xff);
    let e = b.binary(Binary::And, e, byte);
    let digits = word(b, 0x007f_ffff);
    let m = b.binary(Binary::And, bits, digits);
    // Denormal numbers lack the first bit, and have the exponent of the smallest normal one.
    let (zero, one, first) = (word(b, 0), word(b, 1), word(b, 0x0080_0000));
    let denormal = b.compare(Compare::Eq, e, zero);
    let normal = b.binary(Binary::Or, m, first);
    let m = b.select(denormal, m, normal);
    let e = b.select(denormal, one, e);
    let wide = |b: &mut Build, v: Reg| b.op(Ty::I64, Op::Convert(v));
    (wide(b, m), wide(b, e))
}

/// `x 2^(e - 150)`, in two steps, so that no factor leaves the range of normal numbers.
fn scaled(b: &mut Build, x: Reg, e: Reg) -> Reg {
    // The first factor is 2^(half of e - 75), the second has the rest.
    let e = b.op(Ty::U32, Op::Convert(e));
    let word = |b: &mut Build, v: i64| b.constant(v, Ty::U32);
    let (one, bias, by) = (word(b, 1), word(b, 127 - 75), word(b, 23));
    let half = b.binary(Binary::Shr, e, one);
    let rest = b.sub(e, half);
    let mut out = x;
    for part in [half, rest] {
        let exponent = b.add(part, bias);
        let bits = b.binary(Binary::Shl, exponent, by);
        let factor = b.op(Ty::F32, Op::Bits(bits));
        out = b.mul(out, factor);
    }
    out
}
