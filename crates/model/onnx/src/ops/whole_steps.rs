//! Quantised integers less their zero points.

use crate::import::{Ctx, Lowered, NodeView};
use graph::ValueId;
use layout::{DType, Dim};

/// A scale or zero point: one number, or one per entry of `axis` of a tensor of `rank`.
pub(super) fn placed<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    what: &str,
    v: ValueId,
    rank: usize,
    axis: usize,
) -> Lowered<ValueId> {
    let s = c.shape(v);
    match s.len() {
        _ if Dim::product(&s).is_one() => c.reshaped(n, n.tmp(what), v, vec![]),
        1 if axis < rank => c.along(n, n.tmp(what), v, rank, axis),
        r if r == rank => Ok(v),
        _ => Err(format!("its {what} of shape {s:?} does not fit").into()),
    }
}

/// The whole steps of `x` from its zero point, as f32; a vector of zero points lies along `axis`.
pub(super) fn steps<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    what: &str,
    x: ValueId,
    zero: Option<ValueId>,
    axis: usize,
) -> Lowered<ValueId> {
    let rank = c.rank(x);
    let mut inputs = vec![x];
    if let Some(z) = zero {
        inputs.push(placed(c, n, &format!("{what}.zero"), z, rank, axis)?);
    }
    c.map(n, n.tmp(what), &inputs, |e, a| {
        let mut x = e.cast(a[0], DType::I32);
        if let Some(&z) = a.get(1) {
            let z = e.cast(z, DType::I32);
            x = e.sub(x, z);
        }
        e.cast(x, DType::F32)
    })
}

/// An operand of at most 8 bits less its zero point, in the narrowest type that holds every difference;
/// products of it are summed in i32.
pub(crate) fn widened<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    name: String,
    x: ValueId,
    zero: Option<ValueId>,
    axis_from_end: usize,
) -> Lowered<ValueId> {
    let to = if c.dtype(x).bits() <= 8 {
        DType::I16
    } else {
        DType::I32
    };
    let Some(z) = zero else {
        return c.cast(n, name, x, to);
    };
    let rank = c.rank(x);
    let z = match c.rank(z) {
        1 if !c.shape(z)[0].is_one() && rank >= axis_from_end => {
            c.along(n, format!("{name}.zero"), z, rank, rank - axis_from_end)?
        }
        _ => z,
    };
    c.map(n, name, &[x, z], |e, a| {
        let (x, z) = (e.cast(a[0], to), e.cast(a[1], to));
        e.sub(x, z)
    })
}

/// Largest magnitude of an 8-bit element less its zero point.
pub(crate) fn step<'m>(c: &Ctx<'m>, v: ValueId, zero: Option<ValueId>) -> i64 {
    if c.dtype(v) == DType::I8 && zero.is_none() {
        128
    } else {
        255
    }
}

/// Into how many equal parts a sum of `depth` integers of magnitude `largest` is cut so that f32
/// holds each part's sum exactly, in whatever order it is added.
pub(crate) fn parts(depth: i64, largest: i64) -> Option<i64> {
    let most = (1 << 24) / largest;
    (1..=64).find(|p| depth % p == 0 && depth / p <= most)
}
