//! ReverseSequence: each batch's first elements in reverse order, as a gather.
use super::indexed::strides;
use super::{OpDef, op};
use crate::import::{Ctx, Lowered, NodeView, axis_of};
use expr::Compare;
use graph::{Op, ValueId};
use layout::DType;

pub(crate) const OPS: &[OpDef] = &[op("ReverseSequence", lower)];

fn lower<'m>(c: &mut Ctx<'m>, n: &NodeView<'m>) -> Lowered {
    n.at_most(2)?;
    let (x, lengths) = (n.input(0)?, n.input(1)?);
    let s = c.shape(x);
    let (batch, time) = (axis_of(n.int("batch_axis", 1)?, s.len())?, axis_of(n.int("time_axis", 0)?, s.len())?);
    if batch == time || batch > 1 || time > 1 {
        return Err("its batch and time axes must be 0 and 1".into());
    }
    let lengths = c.lengths(n, lengths, &s[time])?;
    let y = reversed(c, n, n.name(0), x, lengths, (batch, time))?;
    c.set(n, 0, y);
    Ok(())
}

/// `x` with the first `lengths` elements of each batch in reverse order along `time`; both are the leading dimensions.
pub(super) fn reversed<'m>(
    c: &mut Ctx<'m>,
    n: &NodeView<'m>,
    name: String,
    x: ValueId,
    lengths: ValueId,
    (batch, time): (usize, usize),
) -> Lowered<ValueId> {
    let s = c.shape(x);
    // Rank of the slice to take for each position of the two leading dimensions.
    let lengths = c.cast(n, format!("{name}.lengths"), lengths, DType::I64)?;
    let lengths = c.along(n, format!("{name}.lengths.b"), lengths, 2, batch)?;
    let lengths = c.expand(n, format!("{name}.lengths.wide"), lengths, s[..2].to_vec())?;
    let by = strides(&s[..2]);
    let ranks = c.map(n, format!("{name}.ranks"), &[lengths], |e, a| {
        let (b, t, one) = (e.index(batch as u32), e.index(time as u32), e.int(1, DType::I64));
        let last = e.sub(a[0], one);
        let back = e.sub(last, t);
        let inside = e.compare(Compare::Lt, t, a[0]);
        let t = e.select(inside, back, t);
        let (kb, kt) = (e.dim(&by[batch]), e.dim(&by[time]));
        let (b, t) = (e.mul(b, kb), e.mul(t, kt));
        e.add(b, t)
    })?;
    let mut flat = vec![s[0].clone() * s[1].clone()];
    flat.extend_from_slice(&s[2..]);
    let x = c.reshape(n, format!("{name}.flat"), x, flat)?;
    c.add1(n, Op::Gather { axis: 0, batch: 0 }, &[x, ranks], name)
}
