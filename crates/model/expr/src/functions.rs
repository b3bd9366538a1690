//! Common functions as instructions: each takes the builder, its arguments and their type, and
//! gives the reference of the result, of the same type unless it says otherwise.

use crate::{Binary, Compare, ExprBuilder, Ref, Unary};
use layout::DType;

/// `max(x, 0)`; a NaN stays.
pub fn relu(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let zero = b.constant(0.0, d);
    b.binary(Binary::Max, x, zero)
}

/// `x < 0 ? slope*x : x` with the slope a value.
pub fn prelu(b: &mut ExprBuilder, x: Ref, slope: Ref, d: DType) -> Ref {
    let zero = b.constant(0.0, d);
    let negative = b.compare(Compare::Lt, x, zero);
    let scaled = b.mul(x, slope);
    b.select(negative, scaled, x)
}

/// `x < 0 ? alpha*x : x`.
pub fn leaky_relu(b: &mut ExprBuilder, x: Ref, alpha: f64, d: DType) -> Ref {
    let slope = b.constant(alpha, d);
    prelu(b, x, slope, d)
}

/// `x > alpha ? x : 0`.
pub fn thresholded_relu(b: &mut ExprBuilder, x: Ref, alpha: f64, d: DType) -> Ref {
    let (a, zero) = (b.constant(alpha, d), b.constant(0.0, d));
    let above = b.compare(Compare::Gt, x, a);
    b.select(above, x, zero)
}

/// `x < 0 ? alpha*(exp(x) - 1) : x`.
pub fn elu(b: &mut ExprBuilder, x: Ref, alpha: f64, d: DType) -> Ref {
    let (a, zero, one) = (b.constant(alpha, d), b.constant(0.0, d), b.constant(1.0, d));
    let negative = b.compare(Compare::Lt, x, zero);
    let e = b.unary(Unary::Exp, x);
    let e = b.sub(e, one);
    let e = b.mul(a, e);
    b.select(negative, e, x)
}

/// `gamma * (x > 0 ? x : alpha*(exp(x) - 1))`, which is 0 at -0.
pub fn selu(b: &mut ExprBuilder, x: Ref, alpha: f64, gamma: f64, d: DType) -> Ref {
    let (a, zero, one) = (b.constant(alpha, d), b.constant(0.0, d), b.constant(1.0, d));
    let positive = b.compare(Compare::Gt, x, zero);
    let e = b.unary(Unary::Exp, x);
    let e = b.sub(e, one);
    let e = b.mul(a, e);
    let y = b.select(positive, x, e);
    let g = b.constant(gamma, d);
    b.mul(g, y)
}

/// `max(x, 0) + min(0, alpha*(exp(x/alpha) - 1))`.
pub fn celu(b: &mut ExprBuilder, x: Ref, alpha: f64, d: DType) -> Ref {
    let (a, zero, one) = (b.constant(alpha, d), b.constant(0.0, d), b.constant(1.0, d));
    let q = b.div(x, a);
    let e = b.unary(Unary::Exp, q);
    let e = b.sub(e, one);
    let e = b.mul(a, e);
    let low = b.binary(Binary::Min, e, zero);
    let high = b.binary(Binary::Max, x, zero);
    b.add(high, low)
}

/// `1 / (1 + exp(-x))`.
pub fn sigmoid(b: &mut ExprBuilder, x: Ref) -> Ref {
    b.unary(Unary::Sigmoid, x)
}

/// `max(0, min(1, alpha*x + beta))`.
pub fn hard_sigmoid(b: &mut ExprBuilder, x: Ref, alpha: f64, beta: f64, d: DType) -> Ref {
    let (a, c) = (b.constant(alpha, d), b.constant(beta, d));
    let (zero, one) = (b.constant(0.0, d), b.constant(1.0, d));
    let y = b.mul(x, a);
    let y = b.add(y, c);
    clip(b, y, Some(zero), Some(one))
}

/// `x * hard_sigmoid(x, 1/6, 1/2)`.
pub fn hard_swish(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let h = hard_sigmoid(b, x, 1.0 / 6.0, 0.5, d);
    b.mul(x, h)
}

/// `x * sigmoid(x)`.
pub fn silu(b: &mut ExprBuilder, x: Ref) -> Ref {
    let s = sigmoid(b, x);
    b.mul(x, s)
}

/// `x * sigmoid(alpha*x)`; with 1.702 the quick GELU.
pub fn swish(b: &mut ExprBuilder, x: Ref, alpha: f64, d: DType) -> Ref {
    let a = b.constant(alpha, d);
    let s = b.mul(x, a);
    let s = sigmoid(b, s);
    b.mul(x, s)
}

/// `x/2 * (1 + erf(x/sqrt(2)))`.
pub fn gelu_erf(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let (half, one) = (b.constant(0.5, d), b.constant(1.0, d));
    let r = b.constant(std::f64::consts::FRAC_1_SQRT_2, d);
    let e = b.mul(x, r);
    let e = b.unary(Unary::Erf, e);
    let e = b.add(e, one);
    let h = b.mul(x, half);
    b.mul(h, e)
}

/// `x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715*x^3)))`.
pub fn gelu_tanh(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let (half, one) = (b.constant(0.5, d), b.constant(1.0, d));
    let (c, r) = (
        b.constant(0.044715, d),
        b.constant((2.0 / std::f64::consts::PI).sqrt(), d),
    );
    let x2 = b.mul(x, x);
    let x3 = b.mul(x2, x);
    let t = b.mul(x3, c);
    let t = b.add(x, t);
    let t = b.mul(t, r);
    let t = b.unary(Unary::Tanh, t);
    let t = b.add(t, one);
    let h = b.mul(x, half);
    b.mul(h, t)
}

/// `log(1 + exp(x))`, without overflow.
pub fn softplus(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let (zero, one) = (b.constant(0.0, d), b.constant(1.0, d));
    let m = b.unary(Unary::Abs, x);
    let m = b.unary(Unary::Neg, m);
    let e = b.unary(Unary::Exp, m);
    let e = b.add(e, one);
    let l = b.unary(Unary::Log, e);
    let top = b.binary(Binary::Max, x, zero);
    b.add(top, l)
}

/// `x / (1 + |x|)`.
pub fn softsign(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let one = b.constant(1.0, d);
    let m = b.unary(Unary::Abs, x);
    let m = b.add(m, one);
    b.div(x, m)
}

/// `x * tanh(softplus(x))`.
pub fn mish(b: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let s = softplus(b, x, d);
    let t = b.unary(Unary::Tanh, s);
    b.mul(x, t)
}

/// `x < -lambda ? x + bias : x > lambda ? x - bias : 0`.
pub fn shrink(b: &mut ExprBuilder, x: Ref, bias: f64, lambda: f64, d: DType) -> Ref {
    let (hi, lo) = (b.constant(lambda, d), b.constant(-lambda, d));
    let (bias, zero) = (b.constant(bias, d), b.constant(0.0, d));
    let (below, above) = (b.compare(Compare::Lt, x, lo), b.compare(Compare::Gt, x, hi));
    let (up, down) = (b.add(x, bias), b.sub(x, bias));
    let inner = b.select(above, down, zero);
    b.select(below, up, inner)
}

/// `min(max(x, lo), hi)`: where the bounds cross, the upper one holds. A NaN stays.
pub fn clip(b: &mut ExprBuilder, x: Ref, lo: Option<Ref>, hi: Option<Ref>) -> Ref {
    let x = match lo {
        Some(lo) => b.binary(Binary::Max, x, lo),
        None => x,
    };
    match hi {
        Some(hi) => b.binary(Binary::Min, x, hi),
        None => x,
    }
}

/// `x * x`.
pub fn square(b: &mut ExprBuilder, x: Ref) -> Ref {
    b.mul(x, x)
}

/// Bool: `x` is an infinity of a sign asked for.
pub fn is_inf(b: &mut ExprBuilder, x: Ref, positive: bool, negative: bool, d: DType) -> Ref {
    match (positive, negative) {
        (true, true) => b.unary(Unary::IsInf, x),
        (false, false) => b.int(0, DType::Bool),
        _ => {
            let inf = b.constant(
                if positive {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                },
                d,
            );
            b.compare(Compare::Eq, x, inf)
        }
    }
}

/// `to` value of `round(x / scale) + zero`, saturated: `x` and `scale` are of one float type,
/// `zero` (none: 0) of integer type `to`.
pub fn quantize(b: &mut ExprBuilder, x: Ref, scale: Ref, zero: Option<Ref>, to: DType) -> Ref {
    let q = b.div(x, scale);
    let q = b.unary(Unary::Round, q);
    // Wide enough that neither the quotient nor the sum with the zero point saturates early.
    let q = b.cast(q, DType::F64);
    let q = match zero {
        Some(z) => {
            let z = b.cast(z, DType::F64);
            b.add(q, z)
        }
        None => q,
    };
    b.cast(q, to)
}

/// `(q - zero) * scale` in float type `d`, from integers: `q` and `zero` of type `from` (narrower
/// than 32 bits: differences are taken in I32; else in I64), `scale` of type `d`.
pub fn dequantize(
    b: &mut ExprBuilder,
    q: Ref,
    scale: Ref,
    zero: Option<Ref>,
    from: DType,
    d: DType,
) -> Ref {
    let wide = if from.bits() < 32 {
        DType::I32
    } else {
        DType::I64
    };
    let v = match zero {
        Some(z) => {
            let (q, z) = (b.cast(q, wide), b.cast(z, wide));
            b.sub(q, z)
        }
        None => q,
    };
    let v = b.cast(v, d);
    b.mul(v, scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scalar;

    fn at(f: impl Fn(&mut ExprBuilder, Ref) -> Ref, x: f64) -> f64 {
        let mut b = ExprBuilder::new();
        let i = b.input(0, DType::F64);
        let r = f(&mut b, i);
        let e = b.finish(&[r]);
        e.eval_plain(&[Scalar::Float(x)])
            .map_or(f64::NAN, |v| v[0].as_f64())
    }

    #[test]
    fn values() {
        let d = DType::F64;
        for x in [-30.0, -2.5, -0.5, -0.0, 0.0, 0.3, 1.0, 4.0, 40.0f64] {
            let sig = 1.0 / (1.0 + (-x).exp());
            let sp = x.max(0.0) + (-x.abs()).exp().ln_1p();
            let cases: [(f64, f64); 15] = [
                (at(|b, x| relu(b, x, d), x), x.max(0.0)),
                (
                    at(|b, x| leaky_relu(b, x, 0.1, d), x),
                    if x < 0.0 { 0.1 * x } else { x },
                ),
                (
                    at(|b, x| thresholded_relu(b, x, 0.5, d), x),
                    if x > 0.5 { x } else { 0.0 },
                ),
                (
                    at(|b, x| elu(b, x, 2.0, d), x),
                    if x < 0.0 { 2.0 * x.exp_m1() } else { x },
                ),
                (
                    at(|b, x| selu(b, x, 2.0, 3.0, d), x),
                    3.0 * if x < 0.0 { 2.0 * x.exp_m1() } else { x },
                ),
                (
                    at(|b, x| celu(b, x, 2.0, d), x),
                    x.max(0.0) + (2.0 * (x / 2.0).exp_m1()).min(0.0),
                ),
                (
                    at(|b, x| hard_sigmoid(b, x, 0.2, 0.5, d), x),
                    (0.2 * x + 0.5).clamp(0.0, 1.0),
                ),
                (
                    at(|b, x| hard_swish(b, x, d), x),
                    x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
                ),
                (at(silu, x), x * sig),
                (at(|b, x| swish(b, x, 1.0, d), x), x * sig),
                (
                    at(|b, x| gelu_erf(b, x, d), x),
                    x * 0.5 * (1.0 + libm::erf(x / 2f64.sqrt())),
                ),
                (
                    at(|b, x| gelu_tanh(b, x, d), x),
                    0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044715 * x * x * x)).tanh()),
                ),
                (at(|b, x| softplus(b, x, d), x), sp),
                (at(|b, x| mish(b, x, d), x), x * sp.tanh()),
                (
                    at(|b, x| shrink(b, x, 1.0, 0.4, d), x),
                    if x < -0.4 {
                        x + 1.0
                    } else if x > 0.4 {
                        x - 1.0
                    } else {
                        0.0
                    },
                ),
            ];
            for (i, (got, want)) in cases.into_iter().enumerate() {
                assert!(
                    (got - want).abs() <= 1e-12 * (1.0 + want.abs()),
                    "case {i} at {x}: {got} for {want}"
                );
            }
        }
    }

    #[test]
    fn quantization_saturates_and_undoes() {
        let mut b = ExprBuilder::new();
        let (x, s, z) = (
            b.input(0, DType::F32),
            b.constant(0.5, DType::F32),
            b.int(-3, DType::I8),
        );
        let q = quantize(&mut b, x, s, Some(z), DType::I8);
        let back = dequantize(&mut b, q, s, Some(z), DType::I8, DType::F32);
        let e = b.finish(&[q, back]);
        let run = |x: f64| e.eval_plain(&[Scalar::Float(x)]);
        assert_eq!(run(1.25), Ok(vec![Scalar::Int(-1), Scalar::Float(1.0)]));
        assert_eq!(run(1e30), Ok(vec![Scalar::Int(127), Scalar::Float(65.0)]));
        assert_eq!(
            run(-1e30),
            Ok(vec![Scalar::Int(-128), Scalar::Float(-62.5)])
        );
    }
}
