//! Functions of one argument without attributes (and the tests for special floats).
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView};
use expr::{Binary, Compare, Unary};
use graph::ValueId;
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[
    op("Abs", lower), op("Acos", lower), op("Acosh", lower), op("Asin", lower), op("Asinh", lower),
    op("Atan", lower), op("Atanh", lower), op("BitwiseNot", lower), op("Ceil", lower), op("Cos", lower),
    op("Cosh", lower), op("Erf", lower), op("Exp", lower), op("Floor", lower), op("Log", lower),
    op("Neg", lower), op("Not", lower), op("Reciprocal", lower), op("Round", lower),
    op("Sigmoid", lower), op("Sign", lower), op("Sin", lower), op("Sinh", lower), op("Sqrt", lower),
    op("Tan", lower), op("Tanh", lower), op("IsNaN", lower), op("IsInf", is_inf),
];

fn function(op: &str) -> Option<Unary> {
    Some(match op {
        "Abs" => Unary::Abs,
        "Acos" => Unary::Acos,
        "Acosh" => Unary::Acosh,
        "Asin" => Unary::Asin,
        "Asinh" => Unary::Asinh,
        "Atan" => Unary::Atan,
        "Atanh" => Unary::Atanh,
        "BitwiseNot" => Unary::BitNot,
        "Ceil" => Unary::Ceil,
        "Cos" => Unary::Cos,
        "Cosh" => Unary::Cosh,
        "Erf" => Unary::Erf,
        "Exp" => Unary::Exp,
        "Floor" => Unary::Floor,
        "Log" => Unary::Log,
        "Neg" => Unary::Neg,
        "Not" => Unary::Not,
        "Reciprocal" => Unary::Reciprocal,
        "Round" => Unary::Round,
        "Sigmoid" => Unary::Sigmoid,
        "Sign" => Unary::Sign,
        "Sin" => Unary::Sin,
        "Sinh" => Unary::Sinh,
        "Sqrt" => Unary::Sqrt,
        "Tan" => Unary::Tan,
        "Tanh" => Unary::Tanh,
        "IsNaN" => Unary::IsNan,
        _ => return None,
    })
}

/// Codes of a narrow type as the floats that they stand for.
fn as_float<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, x: ValueId) -> Lowered<ValueId> {
    match c.narrow(x) {
        Some(_) => super::cast::recoded(c, n, n.tmp("floats"), x, (DType::F32, None), 1, "up"),
        None => Ok(x),
    }
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(1)?;
    let x = as_float(c, n, n.input(0)?)?;
    let f = function(n.op).ok_or("is no function of one argument")?;
    if f == Unary::Not && c.dtype(x) != DType::Bool {
        return Err("Not needs a bool tensor".into());
    }
    let y = c.map(n, n.name(0), &[x], |e, a| e.unary(f, a[0]))?;
    c.set(n, 0, y);
    Ok(())
}

fn is_inf<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let x = as_float(c, n, n.input(0)?)?;
    let (neg, pos) = (n.flag("detect_negative", true)?, n.flag("detect_positive", true)?);
    let d = c.dtype(x);
    let y = c.map(n, n.name(0), &[x], |e, a| {
        let inf = e.unary(Unary::IsInf, a[0]);
        let zero = e.constant(0.0, d);
        let none = e.int(0, DType::Bool);
        match (neg, pos) {
            (true, true) => inf,
            (false, false) => none,
            (neg, _) => {
                let side = e.compare(if neg { Compare::Lt } else { Compare::Gt }, a[0], zero);
                e.binary(Binary::And, inf, side)
            }
        }
    })?;
    c.set(n, 0, y);
    Ok(())
}
