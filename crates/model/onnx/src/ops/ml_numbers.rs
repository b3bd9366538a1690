//! ai.onnx.ml operators on columns of numbers: Scaler, Normalizer, Binarizer, Imputer,
//! FeatureVectorizer.
use super::ml_linear::floats;
use super::{OpDef, op_of};
use crate::import::{Ctx, LowerError, Lowered, NodeView, monoids};
use expr::{Compare, Unary};
use graph::{Op, ValueId};
use layout::{DType, Dim};
use tensor::Tensor;

const ML: &str = "ai.onnx.ml";
const F: DType = DType::F32;

pub(crate) const OPS: &[OpDef] = &[
    op_of(ML, "Binarizer", binarizer), op_of(ML, "FeatureVectorizer", vectorizer), op_of(ML, "Imputer", imputer),
    op_of(ML, "Normalizer", normalizer), op_of(ML, "Scaler", scaler),
];

/// One number, or one per column of `x`, where that is known.
fn fits<'m>(c: &Ctx<'m>, x: ValueId, what: &str, count: usize) -> Lowered {
    let s = c.shape(x);
    match s.last().map(Dim::known) {
        _ if count == 1 => Ok(()),
        Some(None) => Ok(()),
        Some(Some(width)) if width == count as i64 => Ok(()),
        Some(Some(width)) => Err(format!("attribute '{what}' has {count} entries for {width} columns").into()),
        None => Err(format!("attribute '{what}' has {count} entries for a single number").into()),
    }
}

fn scaler<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = c.cast(n, n.tmp("x"), n.input(0)?, F)?;
    let mut inputs = vec![x];
    for what in ["offset", "scale"] {
        let v = n.floats(what)?.filter(|v| !v.is_empty()).unwrap_or_else(|| vec![if what == "scale" { 1.0 } else { 0.0 }]);
        fits(c, x, what, v.len())?;
        inputs.push(floats(c, n, what, &[v.len()], &v)?);
    }
    let y = c.map(n, n.name(0), &inputs, |e, a| {
        let x = e.sub(a[0], a[1]);
        e.mul(x, a[2])
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn normalizer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = c.cast(n, n.tmp("x"), n.input(0)?, F)?;
    let rank = c.rank(x);
    if rank == 0 {
        return Err("needs rows of numbers".into());
    }
    let axis = rank.min(2) - 1;
    let norm = n.text("norm", "MAX")?;
    let (lifted, monoid) = match norm.as_str() {
        "MAX" => (x, monoids::max(F)),
        "L1" => (c.map(n, n.tmp("sizes"), &[x], |e, a| e.unary(Unary::Abs, a[0]))?, monoids::sum(F)),
        "L2" => (c.map(n, n.tmp("squares"), &[x], |e, a| e.mul(a[0], a[0]))?, monoids::sum(F)),
        t => return Err(format!("norm '{t}' is not one that ONNX lists").into()),
    };
    let size = c.reduce(n, n.tmp("size"), lifted, monoid, &[axis], true)?;
    let y = c.map(n, n.name(0), &[x, size], |e, a| {
        let size = if norm == "L2" { e.unary(Unary::Sqrt, a[1]) } else { a[1] };
        let zero = e.constant(0.0, F);
        let none = e.compare(Compare::Eq, size, zero);
        let y = e.div(a[0], size);
        e.select(none, a[0], y)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn binarizer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let d = c.dtype(x);
    let limit = n.float("threshold", 0.0)?;
    let y = c.map(n, n.name(0), &[x], |e, a| {
        let f = if d.is_float() { a[0] } else { e.cast(a[0], DType::F64) };
        let k = e.constant(limit, if d.is_float() { d } else { DType::F64 });
        let more = e.compare(Compare::Gt, f, k);
        e.cast(more, d)
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn imputer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = n.input(0)?;
    let d = c.dtype(x);
    let (reals, wholes) = (n.floats("imputed_value_floats")?, n.ints("imputed_value_int64s")?);
    let (real, whole) = (n.float("replaced_value_float", 0.0)?, n.int("replaced_value_int64", 0)?);
    let missing = || LowerError::Node("its imputed values are not of the input's type".into());
    let values = match d {
        DType::F32 | DType::F64 => {
            let v = reals.filter(|v| !v.is_empty()).ok_or_else(missing)?;
            fits(c, x, "imputed_value_floats", v.len())?;
            let v = floats(c, n, "imputed", &[v.len()], &v)?;
            c.cast(n, n.tmp("imputed.like"), v, d)?
        }
        DType::I64 => {
            let v = wholes.filter(|v| !v.is_empty()).ok_or_else(missing)?;
            fits(c, x, "imputed_value_int64s", v.len())?;
            c.constant(&n.tmp("imputed"), Tensor::from_i64(&[v.len()], &v)?)?
        }
        d => return Err(LowerError::Unsupported(format!("imputes {d}; use floats or int64"))),
    };
    let y = c.map(n, n.name(0), &[x, values], |e, a| {
        let gone = if !d.is_float() {
            let k = e.int(whole, d);
            e.compare(Compare::Eq, a[0], k)
        } else if real.is_nan() {
            e.unary(Unary::IsNan, a[0])
        } else {
            let k = e.constant(real, d);
            e.compare(Compare::Eq, a[0], k)
        };
        e.select(gone, a[1], a[0])
    })?;
    c.set(n, 0, y);
    Ok(())
}

fn vectorizer<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let inputs = n.all_inputs()?;
    let widths = n.ints("inputdimensions")?.unwrap_or_default();
    if inputs.is_empty() || widths.len() != inputs.len() {
        return Err(format!("attribute 'inputdimensions' has {} entries for {} inputs", widths.len(), inputs.len()).into());
    }
    let mut parts = Vec::new();
    for (i, (&v, &w)) in inputs.iter().zip(&widths).enumerate() {
        let v = c.cast(n, n.tmp(&format!("part{i}")), v, F)?;
        let s = c.shape(v);
        if w < 0 {
            return Err(format!("attribute 'inputdimensions' has the entry {w}").into());
        }
        let two = match s.len() {
            0 => vec![Dim::ONE; 2],
            1 => vec![Dim::ONE, s[0].clone()],
            _ => vec![s[0].clone(), Dim::product(&s[1..])],
        };
        let have = two[1].known().ok_or("the widths of its inputs must be known")?;
        let v = c.reshaped(n, n.tmp(&format!("rows{i}")), v, two.clone())?;
        parts.push(match have {
            h if h == w => v,
            h if h > w => c.slice(n, n.tmp(&format!("cut{i}")), v, 1, Dim::ZERO, Dim::Known(w))?,
            h => {
                let (before, after) = (vec![Dim::ZERO; 2], vec![Dim::ZERO, Dim::Known(w.saturating_sub(h))]);
                c.add1(n, Op::Pad { before, after, mode: graph::PadMode::Constant }, &[v], n.tmp(&format!("padded{i}")))?
            }
        });
    }
    let y = match parts.as_slice() {
        [one] => c.reshape(n, n.name(0), *one, c.shape(*one))?,
        all => c.add1(n, Op::Concat { axis: 1 }, all, n.name(0))?,
    };
    c.set(n, 0, y);
    Ok(())
}
