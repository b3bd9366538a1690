//! Sine, cosine and tangent of every f32.
//!
//! The nearest multiple of pi/2 is taken off: for small arguments in three parts whose products are exact,
//! for others by as many bits of 2/pi as matter (Payne and Hanek), in 32-bit integers, which every target
//! has. Polynomials do the rest.
use super::arith::{horner, muladd, number, odd, un};
use super::build::Build;
use super::ir::{Inst, Op, Reg, Ty};
use expr::{Binary, Compare, Unary};

/// Arguments up to this are reduced in parts: their multiples of pi/2 have 13 bits.
const SMALL: f64 = 8192.0;
/// The bits of 2/pi behind 32 zeros, as far as the largest f32 needs them.
const TWO_OVER_PI: [u32; 8] = [
    0,
    0xA2F9_836E,
    0x4E44_1529,
    0xFC27_57D1,
    0xF534_DDC0,
    0xDB62_9599,
    0x3C43_9041,
    0xFE51_63AB,
];
/// Words that a product with an argument is made of.
const WINDOW: usize = 3;

/// `f` of `x`: a sine, cosine or tangent.
pub(super) fn circular(b: &mut Build, f: Unary, x: Reg) -> Reg {
    let (r, quarter) = reduced(b, x);
    let u = b.mul(r, r);
    let s = odd(
        b,
        r,
        &[-1.0 / 6.0, 8.333_161e-3, -1.984_126_5e-4, 2.752_552_2e-6],
    );
    let c = horner(
        b,
        u,
        &[
            1.0,
            -0.5,
            4.166_666_5e-2,
            -1.388_888_2e-3,
            2.480_1e-5,
            -2.73e-7,
        ],
    );
    match f {
        Unary::Tan => {
            let (s, c) = (turned(b, quarter, s, c), cosine(b, quarter, s, c));
            b.binary(Binary::Div, s, c)
        }
        Unary::Cos => cosine(b, quarter, s, c),
        _ => turned(b, quarter, s, c),
    }
}

fn cosine(b: &mut Build, quarter: Reg, s: Reg, c: Reg) -> Reg {
    let one = number(b, 1.0);
    let next = b.add(quarter, one);
    turned(b, next, s, c)
}

/// The sine in the given quarter of the circle (0 to 4) of an angle with the sine `s` and the cosine `c`.
fn turned(b: &mut Build, quarter: Reg, s: Reg, c: Reg) -> Reg {
    let [one, two, three, four] = [1.0, 2.0, 3.0, 4.0].map(|v| number(b, v));
    let first = b.compare(Compare::Eq, quarter, one);
    let third = b.compare(Compare::Eq, quarter, three);
    let odd = b.binary(Binary::Or, first, third);
    let r = b.select(odd, c, s);
    let n = un(b, Unary::Neg, r);
    let low = b.compare(Compare::Ge, quarter, two);
    let high = b.compare(Compare::Lt, quarter, four);
    let negative = b.binary(Binary::And, low, high);
    b.select(negative, n, r)
}

/// What is left of `x` when the nearest multiple of pi/2 is taken off, and that multiple modulo 4.
fn reduced(b: &mut Build, x: Reg) -> (Reg, Reg) {
    let per = number(b, std::f64::consts::FRAC_2_PI);
    let q = b.mul(x, per);
    let q = un(b, Unary::Round, q);
    let mut r = x;
    for part in [
        -1.570_312_5,
        -4.837_512_969_970_703e-4,
        -7.549_789_948_768_648e-8,
    ] {
        let part = number(b, part);
        r = muladd(b, q, part, r);
    }
    let four = number(b, 0.25);
    let turns = b.mul(q, four);
    let whole = un(b, Unary::Floor, turns);
    let minus = number(b, -4.0);
    let quarter = muladd(b, whole, minus, q);
    let (rest, turn) = (b.var(Ty::F32), b.var(Ty::F32));
    b.set(rest, r);
    b.set(turn, quarter);
    let m = un(b, Unary::Abs, x);
    let (small, infinite) = (number(b, SMALL), number(b, f64::INFINITY));
    let large = b.compare(Compare::Gt, m, small);
    // Infinities have no angle: what the parts make of them is no number.
    let finite = b.compare(Compare::Lt, m, infinite);
    let cond = b.binary(Binary::And, large, finite);
    b.open();
    let (r, quarter) = of_large(b, x);
    b.set(rest, r);
    b.set(turn, quarter);
    let body = b.close();
    b.push(Inst::If { cond, body });
    (b.get(rest), b.get(turn))
}

fn word(b: &mut Build, v: u32) -> Reg {
    b.constant(v.into(), Ty::U32)
}

/// [`reduced`] for a finite number from [`SMALL`] on.
fn of_large(b: &mut Build, x: Reg) -> (Reg, Reg) {
    let bits = b.op(Ty::U32, Op::Bits(x));
    let (digits, first) = (word(b, 0x007f_ffff), word(b, 0x0080_0000));
    let m = b.binary(Binary::And, bits, digits);
    let m = b.binary(Binary::Or, m, first);
    let by = word(b, 23);
    let e = b.binary(Binary::Shr, bits, by);
    let byte = word(b, 0xff);
    let e = b.binary(Binary::And, e, byte);
    // x is m 2^(e - 150): bits of 2/pi before bit e - 151 make multiples of 4.
    let before = word(b, 120);
    let start = b.sub(e, before);
    let window = window(b, start);
    let p = product(b, m, window);
    // Two bits of quarters, rounded to the nearest, and 62 behind the point.
    let (two, thirty) = (word(b, 2), word(b, 30));
    let whole = b.binary(Binary::Shr, p[0], thirty);
    let top = b.binary(Binary::Shl, p[0], two);
    let next = b.binary(Binary::Shr, p[1], thirty);
    let high = b.binary(Binary::Or, top, next);
    let low = b.binary(Binary::Shl, p[1], two);
    let half = word(b, 0x8000_0000);
    let above = b.compare(Compare::Ge, high, half);
    // Above a half the next quarter is nearer: the two's complement, with a sign.
    let (zero, one, ones) = (word(b, 0), word(b, 1), word(b, u32::MAX));
    let (not_high, not_low) = (
        b.binary(Binary::Xor, high, ones),
        b.binary(Binary::Xor, low, ones),
    );
    let low_up = b.add(not_low, one);
    let over = b.compare(Compare::Eq, low_up, zero);
    let carry = b.select(over, one, zero);
    let high_up = b.add(not_high, carry);
    let (high, low) = (b.select(above, high_up, high), b.select(above, low_up, low));
    let (high, low) = (
        b.op(Ty::F32, Op::Convert(high)),
        b.op(Ty::F32, Op::Convert(low)),
    );
    let step = number(b, 2f64.powi(-32));
    let low = b.mul(low, step);
    let sum = b.add(high, low);
    let turn = number(b, std::f64::consts::FRAC_PI_2 * 2f64.powi(-32));
    let r = b.mul(sum, turn);
    let up = b.select(above, one, zero);
    let whole = b.add(whole, up);
    let three = word(b, 3);
    let whole = b.binary(Binary::And, whole, three);
    // What is taken off a negative number is negative.
    let signed = |b: &mut Build, v: Reg, negative: Reg| {
        let n = un(b, Unary::Neg, v);
        b.select(negative, n, v)
    };
    let r = signed(b, r, above);
    let none = number(b, 0.0);
    let negative = b.compare(Compare::Lt, x, none);
    let r = signed(b, r, negative);
    let back = b.sub(zero, whole);
    let back = b.binary(Binary::And, back, three);
    let whole = b.select(negative, back, whole);
    (r, b.op(Ty::F32, Op::Convert(whole)))
}

/// The words of 2/pi from bit `start` on, which is 20 to 134.
fn window(b: &mut Build, start: Reg) -> [Reg; WINDOW] {
    let (five, below) = (word(b, 5), word(b, 31));
    let first = b.binary(Binary::Shr, start, five);
    let by = b.binary(Binary::And, start, below);
    let words: [Reg; WINDOW + 1] = std::array::from_fn(|i| {
        let mut w = word(b, TWO_OVER_PI[i]);
        for k in 1..TWO_OVER_PI.len() - WINDOW {
            let at = word(b, k as u32);
            let here = b.compare(Compare::Eq, first, at);
            let other = word(b, TWO_OVER_PI[i + k]);
            w = b.select(here, other, w);
        }
        w
    });
    // The next word's bits come in two shifts: one by 32 is none.
    let one = word(b, 1);
    let rest = b.sub(below, by);
    std::array::from_fn(|i| {
        let high = b.binary(Binary::Shl, words[i], by);
        let low = b.binary(Binary::Shr, words[i + 1], one);
        let low = b.binary(Binary::Shr, low, rest);
        b.binary(Binary::Or, high, low)
    })
}

/// The upper two of the words of `m` times `window`, modulo its length.
fn product(b: &mut Build, m: Reg, window: [Reg; WINDOW]) -> [Reg; 2] {
    let top = b.mul(m, window[0]);
    let low = b.mul(m, window[1]);
    let high = upper(b, m, window[1]);
    let carried = upper(b, m, window[2]);
    let second = b.add(low, carried);
    let over = b.compare(Compare::Lt, second, low);
    let (zero, one) = (word(b, 0), word(b, 1));
    let carry = b.select(over, one, zero);
    let first = b.add(top, high);
    [b.add(first, carry), second]
}

/// The upper word of a product of two words, by their halves.
fn upper(b: &mut Build, x: Reg, y: Reg) -> Reg {
    let (half, by) = (word(b, 0xffff), word(b, 16));
    let mut halves = |v: Reg| {
        let low = b.binary(Binary::And, v, half);
        (b.binary(Binary::Shr, v, by), low)
    };
    let ((xh, xl), (yh, yl)) = (halves(x), halves(y));
    let [ll, lh, hl, hh] = [(xl, yl), (xl, yh), (xh, yl), (xh, yh)].map(|(p, q)| b.mul(p, q));
    let mut middle = b.binary(Binary::Shr, ll, by);
    let mut out = hh;
    for cross in [lh, hl] {
        let low = b.binary(Binary::And, cross, half);
        middle = b.add(middle, low);
        let high = b.binary(Binary::Shr, cross, by);
        out = b.add(out, high);
    }
    let carried = b.binary(Binary::Shr, middle, by);
    b.add(out, carried)
}
