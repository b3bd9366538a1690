//! Activations: scalar functions with attributes.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, monoids};
pub(crate) use expr::functions::{gelu_erf, gelu_tanh};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[
    op("Relu", lower), op("LeakyRelu", lower), op("PRelu", prelu), op("Elu", lower), op("Selu", lower),
    op("Celu", lower), op("HardSigmoid", lower), op("HardSwish", lower), op("Gelu", lower),
    op("Softplus", lower), op("Softsign", lower), op("Mish", lower), op("Swish", lower),
    op("ThresholdedRelu", lower), op("Shrink", lower), op("SwiGLU", swiglu),
];

/// ln(1 + e^x) without overflow: max(x, 0) + ln(1 + e^-|x|).
fn softplus(e: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let (zero, one) = (e.constant(0.0, d), e.constant(1.0, d));
    let top = e.binary(Binary::Max, x, zero);
    let a = e.unary(Unary::Abs, x);
    let a = e.unary(Unary::Neg, a);
    let a = e.unary(Unary::Exp, a);
    let a = e.add(one, a);
    let a = e.unary(Unary::Log, a);
    e.add(top, a)
}

/// `e^x - 1` where it counts.
fn exp_m1(e: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let one = e.constant(1.0, d);
    let y = e.unary(Unary::Exp, x);
    e.sub(y, one)
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let own = c.dtype(x);
    // What takes several steps takes them in a type that loses nothing between them.
    let d = if n.op == "Relu" { own } else { monoids::accumulator(own) };
    let mut e = ExprBuilder::new();
    let a = e.input(0, own);
    let a = if d == own { a } else { e.cast(a, d) };
    let (zero, one) = (e.constant(0.0, d), e.constant(1.0, d));
    let y = match n.op {
        "Relu" => e.binary(Binary::Max, a, zero),
        "LeakyRelu" => {
            let k = e.constant(n.float("alpha", 0.01)?, d);
            let low = e.mul(a, k);
            let neg = e.compare(Compare::Lt, a, zero);
            e.select(neg, low, a)
        }
        "Elu" => {
            let k = e.constant(n.float("alpha", 1.0)?, d);
            let low = exp_m1(&mut e, a, d);
            let low = e.mul(k, low);
            let neg = e.compare(Compare::Lt, a, zero);
            e.select(neg, low, a)
        }
        "Selu" => {
            let k = e.constant(n.float("alpha", 1.673_263_2)?, d);
            let g = e.constant(n.float("gamma", 1.050_701)?, d);
            let low = exp_m1(&mut e, a, d);
            let low = e.mul(k, low);
            let pos = e.compare(Compare::Gt, a, zero);
            let v = e.select(pos, a, low);
            e.mul(g, v)
        }
        "Celu" => {
            let k = e.constant(n.float("alpha", 1.0)?, d);
            let top = e.binary(Binary::Max, a, zero);
            let q = e.div(a, k);
            let low = exp_m1(&mut e, q, d);
            let low = e.mul(k, low);
            let low = e.binary(Binary::Min, low, zero);
            e.add(top, low)
        }
        "HardSigmoid" | "HardSwish" => {
            let (alpha, beta) = match n.op {
                "HardSigmoid" => (n.float("alpha", 0.2)?, n.float("beta", 0.5)?),
                _ => (1.0 / 6.0, 0.5),
            };
            let (k, b) = (e.constant(alpha, d), e.constant(beta, d));
            let t = e.mul(k, a);
            let t = e.add(t, b);
            let t = e.binary(Binary::Min, t, one);
            let t = e.binary(Binary::Max, t, zero);
            if n.op == "HardSigmoid" { t } else { e.mul(a, t) }
        }
        "Gelu" => match n.text("approximate", "none")?.as_str() {
            "none" => gelu_erf(&mut e, a, d),
            "tanh" => gelu_tanh(&mut e, a, d),
            other => return Err(format!("attribute 'approximate' is '{other}', it must be none or tanh").into()),
        },
        "Softplus" => softplus(&mut e, a, d),
        "Softsign" => {
            let t = e.unary(Unary::Abs, a);
            let t = e.add(one, t);
            e.div(a, t)
        }
        "Mish" => {
            let t = softplus(&mut e, a, d);
            let t = e.unary(Unary::Tanh, t);
            e.mul(a, t)
        }
        "Swish" => swish(&mut e, a, n.float("alpha", 1.0)?, d),
        "ThresholdedRelu" => {
            let k = e.constant(n.float("alpha", 1.0)?, d);
            let above = e.compare(Compare::Gt, a, k);
            e.select(above, a, zero)
        }
        "Shrink" => shrink(&mut e, a, (n.float("bias", 0.0)?, n.float("lambd", 0.5)?), d),
        _ => return Err("is no activation".into()),
    };
    let y = if d == own { y } else { e.cast(y, own) };
    let y = c.add1(n, graph::Op::Map(e.finish(&[y])), &[x], n.name(0))?;
    c.set(n, 0, y);
    Ok(())
}

/// `a` moved towards 0 by `bias` where it is further away than `lambda`, and 0 elsewhere.
fn shrink(e: &mut ExprBuilder, a: Ref, (bias, lambda): (f64, f64), d: DType) -> Ref {
    // Integers are shrunk as floats that hold them, and truncated.
    let wide = match d {
        d if d.is_float() => d,
        d if d.bits() <= 16 => DType::F32,
        _ => DType::F64,
    };
    let x = if wide == d { a } else { e.cast(a, wide) };
    let (b, l, m) = (e.constant(bias, wide), e.constant(lambda, wide), e.constant(-lambda, wide));
    let (up, down) = (e.add(x, b), e.sub(x, b));
    let (low, high) = (e.compare(Compare::Lt, x, m), e.compare(Compare::Gt, x, l));
    let none = e.constant(0.0, wide);
    let t = e.select(high, down, none);
    let y = e.select(low, up, t);
    if wide == d { y } else { e.cast(y, d) }
}

/// `x` times the sigmoid of `alpha` times `x`.
fn swish(e: &mut ExprBuilder, x: Ref, alpha: f64, d: DType) -> Ref {
    let k = e.constant(alpha, d);
    let t = e.mul(k, x);
    let t = e.unary(Unary::Sigmoid, t);
    e.mul(x, t)
}

fn swiglu<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b, alpha) = (n.input(0)?, n.input(1)?, n.float("alpha", 1.0)?);
    let d = c.dtype(a);
    if c.dtype(b) != d || c.rank(a) != c.rank(b) {
        return Err("its inputs must have one type and one shape".into());
    }
    let shape = c.shape(a);
    let b = c.has_shape(n, n.tmp("gate"), b, &shape)?;
    let y = c.map_wide(n, n.name(0), &[a, b], |e, x, d| {
        let gate = swish(e, x[0], alpha, d);
        e.mul(gate, x[1])
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn prelu<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, mut s) = (n.input(0)?, n.input(1)?);
    let (d, rank) = (c.dtype(x), c.rank(x));
    if n.opset < 7 && rank > 1 && c.rank(s) == 1 && !c.shape(s)[0].is_one() {
        // One slope per channel.
        s = c.along(n, n.tmp("slope"), s, rank, 1)?;
    }
    let y = c.map(n, n.name(0), &[x, s], |e, a| {
        let zero = e.constant(0.0, d);
        let low = e.mul(a[0], a[1]);
        let neg = e.compare(Compare::Lt, a[0], zero);
        e.select(neg, low, a[0])
    })?;
    c.set(n, 0, y);
    Ok(())
}
