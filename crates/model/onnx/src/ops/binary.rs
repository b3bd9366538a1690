//! Arithmetic of two arguments.
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use expr::{Binary, Compare, ExprBuilder, Ref, Unary};
use graph::ValueId;
use layout::{DType, Dim};

pub(crate) const OPS: &[OpDef] =
    &[op("Add", lower), op("Sub", lower), op("Mul", lower), op("Div", lower), op("Pow", pow), op("Mod", modulo)];

/// The second operand as versions before 7 broadcast it: only when asked to, and by `axis`, which is
/// the dimension of the first operand that the second's first one stands for.
pub(crate) fn aligned<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, a: ValueId, b: ValueId) -> Lowered<ValueId> {
    if n.opset >= 7 {
        return Ok(b);
    }
    let (ra, mut shape) = (c.rank(a), c.shape(b));
    let broadcast = n.flag("broadcast", false)?;
    let Some(axis) = n.int_opt("axis")? else { return Ok(b) };
    if !broadcast {
        return Ok(b);
    }
    let at = axis_of(axis, ra)?;
    if at + shape.len() > ra {
        return Err(format!("attribute 'axis' {axis} puts rank {} outside rank {ra}", shape.len()).into());
    }
    shape.resize(ra - at, Dim::ONE);
    c.reshaped(n, n.tmp("aligned"), b, shape)
}

fn two<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>, f: Binary) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let b = aligned(c, n, a, b)?;
    if c.dtype(a) != c.dtype(b) {
        return Err(format!("inputs have types {} and {}, they must be one", c.dtype(a), c.dtype(b)).into());
    }
    let y = c.map(n, n.name(0), &[a, b], |e, x| e.binary(f, x[0], x[1]))?;
    c.set(n, 0, y);
    Ok(())
}

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    two(c, n, match n.op {
        "Add" => Binary::Add,
        "Sub" => Binary::Sub,
        "Mul" => Binary::Mul,
        _ => Binary::Div,
    })
}

fn modulo<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    let f = if n.flag("fmod", false)? { Binary::Fmod } else { Binary::Mod };
    two(c, n, f)
}

/// `x` to the power of 1/2, which is the root but for minus infinity and minus 0.
fn root(e: &mut ExprBuilder, x: Ref, d: DType) -> Ref {
    let (least, most) = (e.constant(f64::NEG_INFINITY, d), e.constant(f64::INFINITY, d));
    let lowest = e.compare(Compare::Eq, x, least);
    let y = e.unary(Unary::Sqrt, x);
    let y = e.unary(Unary::Abs, y);
    e.select(lowest, most, y)
}

/// The exponent may have a type of its own; the result has the base's.
fn pow<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (a, b) = (n.input(0)?, n.input(1)?);
    let b = aligned(c, n, a, b)?;
    let (da, db) = (c.dtype(a), c.dtype(b));
    let y = match c.scalar(b) {
        // Squares, cubes and roots are written as powers by exporters; they are dear as such.
        Some(p) if da.is_float() && c.rank(b) <= c.rank(a) && [0.5, 1.0, 2.0, 3.0].contains(&p) => {
            c.map(n, n.name(0), &[a], |e, x| match p {
                0.5 => root(e, x[0], da),
                1.0 => x[0],
                2.0 => e.mul(x[0], x[0]),
                _ => {
                    let s = e.mul(x[0], x[0]);
                    e.mul(s, x[0])
                }
            })?
        }
        _ => c.map(n, n.name(0), &[a, b], |e, x| match () {
        _ if db == da => e.binary(Binary::Pow, x[0], x[1]),
        _ if da.is_float() || !db.is_float() => {
            let p = e.cast(x[1], da);
            e.binary(Binary::Pow, x[0], p)
        }
        _ => {
            let base = e.cast(x[0], db);
            let r = e.binary(Binary::Pow, base, x[1]);
            e.cast(r, da)
        }
    })?,
    };
    c.set(n, 0, y);
    Ok(())
}
