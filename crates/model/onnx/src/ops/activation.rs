//! Activations: scalar functions with attributes.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, monoids};
pub(crate) use expr::functions::{gelu_erf, gelu_tanh};
use expr::{ExprBuilder, Ref, functions};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[
    op("Relu", lower), op("LeakyRelu", lower), op("PRelu", prelu), op("Elu", lower), op("Selu", lower),
    op("Celu", lower), op("HardSigmoid", lower), op("HardSwish", lower), op("Gelu", lower),
    op("Softplus", lower), op("Softsign", lower), op("Mish", lower), op("Swish", lower),
    op("ThresholdedRelu", lower), op("Shrink", lower), op("SwiGLU", swiglu),
];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let own = c.dtype(x);
    // What takes several steps takes them in a type that loses nothing between them.
    let d = if n.op == "Relu" { own } else { monoids::accumulator(own) };
    let mut e = ExprBuilder::new();
    let a = e.input(0, own);
    let a = if d == own { a } else { e.cast(a, d) };
    let y = match n.op {
        "Relu" => functions::relu(&mut e, a, d),
        "LeakyRelu" => functions::leaky_relu(&mut e, a, n.float("alpha", 0.01)?, d),
        "Elu" => functions::elu(&mut e, a, n.float("alpha", 1.0)?, d),
        "Selu" => {
            // The first version's numbers have fewer digits.
            let usual = if n.opset < 6 { (1.6732, 1.0507) } else { (1.673_263_2, 1.050_701) };
            functions::selu(&mut e, a, n.float("alpha", usual.0)?, n.float("gamma", usual.1)?, d)
        }
        "Celu" => functions::celu(&mut e, a, n.float("alpha", 1.0)?, d),
        "HardSigmoid" => functions::hard_sigmoid(&mut e, a, n.float("alpha", 0.2)?, n.float("beta", 0.5)?, d),
        "HardSwish" => functions::hard_swish(&mut e, a, d),
        "Gelu" => match n.text("approximate", "none")?.as_str() {
            "none" => gelu_erf(&mut e, a, d),
            "tanh" => gelu_tanh(&mut e, a, d),
            other => return Err(format!("attribute 'approximate' is '{other}', it must be none or tanh").into()),
        },
        "Softplus" => functions::softplus(&mut e, a, d),
        "Softsign" => functions::softsign(&mut e, a, d),
        "Mish" => functions::mish(&mut e, a, d),
        "Swish" => functions::swish(&mut e, a, n.float("alpha", 1.0)?, d),
        "ThresholdedRelu" => functions::thresholded_relu(&mut e, a, n.float("alpha", 1.0)?, d),
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
    let y = functions::shrink(e, x, bias, lambda, wide);
    if wide == d { y } else { e.cast(y, d) }
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
        let gate = functions::swish(e, x[0], alpha, d);
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
    let y = c.map(n, n.name(0), &[x, s], |e, a| functions::prelu(e, a[0], a[1], d))?;
    c.set(n, 0, y);
    Ok(())
}
